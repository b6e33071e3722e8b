//! One row of the command table: the fields that Redis reports and our own flags.

use super::CommandFn;
use crate::resp::rights::NamedArguments;

/// One command or subcommand.
pub struct CommandSpec {
    /// In full: `client|kill`.
    pub name: &'static str,
    /// The number of arguments with the name itself; negative: at least that many.
    pub arity: i32,
    pub flags: Flags,
    pub own: TavernFlags,
    /// The names among its arguments.
    pub names: NamedArguments,
    pub(super) run: CommandFn,
    pub subcommands: &'static [CommandSpec],
    pub group: &'static str,
    pub since: &'static str,
    pub summary: &'static str,
}

/// What COMMAND reports, in the order of Redis: flags first, then ACL categories that no flag implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    pub const NONE: Flags = Flags(0);
    pub const WRITE: Flags = Flags(1);
    pub const READONLY: Flags = Flags(1 << 1);
    pub const ADMIN: Flags = Flags(1 << 2);
    pub const PUBSUB: Flags = Flags(1 << 3);
    pub const NOSCRIPT: Flags = Flags(1 << 4);
    pub const BLOCKING: Flags = Flags(1 << 5);
    pub const LOADING: Flags = Flags(1 << 6);
    pub const STALE: Flags = Flags(1 << 7);
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 8);
    pub const FAST: Flags = Flags(1 << 9);
    pub const NO_AUTH: Flags = Flags(1 << 10);
    pub const ALLOW_BUSY: Flags = Flags(1 << 11);
    pub const KEYSPACE: Flags = Flags(1 << 16);
    pub const DANGEROUS: Flags = Flags(1 << 17);
    pub const CONNECTION: Flags = Flags(1 << 18);
    pub const TRANSACTION: Flags = Flags(1 << 19);
    pub const SCRIPTING: Flags = Flags(1 << 20);

    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Our own flags of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TavernFlags(u8);

impl TavernFlags {
    pub const NONE: TavernFlags = TavernFlags(0);
    /// Allowed on a subscribed RESP2 connection.
    pub const WHILE_SUBSCRIBED: TavernFlags = TavernFlags(1);
    /// Needs an API key with scope `admin`, outside dev mode.
    pub const NEEDS_ADMIN: TavernFlags = TavernFlags(2);
    /// Its answer is pushed, so `CLIENT REPLY` does not silence it.
    pub const PUSHES: TavernFlags = TavernFlags(4);
    /// Runs at once inside `MULTI`.
    pub const NOT_QUEUED: TavernFlags = TavernFlags(8);
    /// Counts in the rate limit of a session.
    pub const LIMITED: TavernFlags = TavernFlags(16);

    pub const fn and(self, other: TavernFlags) -> TavernFlags {
        TavernFlags(self.0 | other.0)
    }

    pub const fn has(self, other: TavernFlags) -> bool {
        self.0 & other.0 != 0
    }
}

impl CommandSpec {
    pub(super) const fn new(
        name: &'static str,
        arity: i32,
        group: &'static str,
        run: CommandFn,
        summary: &'static str,
    ) -> CommandSpec {
        let (flags, own) = (Flags::NONE, TavernFlags::NONE);
        CommandSpec {
            name,
            arity,
            flags,
            own,
            names: NamedArguments::None,
            run,
            subcommands: &[],
            group,
            since: "1.0.0",
            summary,
        }
    }

    pub const fn flags(self, flags: Flags) -> CommandSpec {
        CommandSpec { flags: Flags(self.flags.0 | flags.0), ..self }
    }

    pub const fn own(self, own: TavernFlags) -> CommandSpec {
        CommandSpec { own: TavernFlags(self.own.0 | own.0), ..self }
    }

    pub const fn names(self, names: NamedArguments) -> CommandSpec {
        CommandSpec { names, ..self }
    }

    pub const fn since(self, since: &'static str) -> CommandSpec {
        CommandSpec { since, ..self }
    }

    pub const fn with(self, subcommands: &'static [CommandSpec]) -> CommandSpec {
        CommandSpec { subcommands, ..self }
    }

    pub fn accepts(&self, count: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exact) => count == exact,
            Err(_) => count >= self.arity.unsigned_abs() as usize,
        }
    }

    /// The last part of the name.
    pub fn word(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }
}
