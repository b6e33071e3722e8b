//! The table of commands: names, arities, flags and ACL categories as in Redis, and our own flags: who may run them
//! when. Must hold: every command that runs is listed here, and `COMMAND` shows nothing else.

use super::spec::{CommandSpec, Flags, TavernFlags};
use super::{catalog, client, config, connection, kill, pubsub, server, tavern, text, transaction};
use crate::resp::Args;
use crate::resp::rights::NamedArguments;

/// The error of a command that cannot run, and its code if it is known.
type CannotRun = (Option<&'static CommandSpec>, Vec<u8>);

/// Finds a command and checks its number of arguments. The number is its code, for `name_of`.
pub fn resolve(args: &Args<'_>) -> Result<(&'static CommandSpec, u16), CannotRun> {
    let name = args.at(0);
    let Some(index) = TABLE.iter().position(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes())) else {
        return Err((None, text::unknown_command(args)));
    };
    let mut spec = &TABLE[index];
    let mut code = index as u16 + 1;
    if !spec.subcommands.is_empty() && args.len() > 1 {
        let word = args.at(1);
        let of_word = |sub: &CommandSpec| word.eq_ignore_ascii_case(sub.word().as_bytes());
        let Some(index) = spec.subcommands.iter().position(of_word) else {
            return Err((None, text::unknown_subcommand(spec.name, word)));
        };
        code |= (index as u16 + 1) << 8;
        spec = &spec.subcommands[index];
    }
    if !spec.accepts(args.len()) {
        let error = format!("ERR wrong number of arguments for '{}' command", spec.name);
        return Err((Some(spec), error.into_bytes()));
    }
    Ok((spec, code))
}

/// Finds by full name, as `COMMAND INFO` does.
pub fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    let all = TABLE.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    all.into_iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

/// The name behind a code that `resolve` gave.
pub fn name_of(code: u16) -> &'static str {
    let (outer, inner) = (usize::from(code & 0xff), usize::from(code >> 8));
    let Some(spec) = outer.checked_sub(1).and_then(|index| TABLE.get(index)) else { return "NULL" };
    inner.checked_sub(1).and_then(|index| spec.subcommands.get(index)).unwrap_or(spec).name
}

#[cfg(test)]
pub fn code_of(name: &str) -> Option<u16> {
    let words: Vec<Vec<u8>> = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    resolve(&Args::Owned(&words)).ok().map(|(_, code)| code)
}

const QUIET: Flags = Flags::LOADING.and(Flags::STALE);
const PUBSUB: Flags = QUIET.and(Flags::PUBSUB);
const LISTEN: Flags = PUBSUB.and(Flags::NOSCRIPT);
const SESSION: Flags = QUIET.and(Flags::NOSCRIPT).and(Flags::CONNECTION);
const LOGIN: Flags = SESSION.and(Flags::FAST).and(Flags::NO_AUTH).and(Flags::ALLOW_BUSY);
const OPERATOR: Flags = QUIET.and(Flags::NOSCRIPT).and(Flags::ADMIN).and(Flags::DANGEROUS);
const MULTI: Flags = QUIET.and(Flags::NOSCRIPT).and(Flags::TRANSACTION);
const CONFIRMED: TavernFlags = TavernFlags::WHILE_SUBSCRIBED.and(TavernFlags::PUSHES);
const ASKED: TavernFlags = CONFIRMED.and(TavernFlags::LIMITED);

/// The command of the hot path and its code: the first of the table.
pub static PUBLISH: CommandSpec = PUBLISH_SPEC;
pub const PUBLISH_CODE: u16 = 1;
const PUBLISH_SPEC: CommandSpec =
    CommandSpec::new("publish", 3, "pubsub", pubsub::publish, "Sends a message to a channel")
        .flags(PUBSUB.and(Flags::FAST))
        .own(TavernFlags::LIMITED)
        .names(NamedArguments::Published)
        .since("2.0.0");

const fn help(name: &'static str) -> CommandSpec {
    CommandSpec::new(name, 2, "server", catalog::help, "Prints this help.").flags(QUIET).since("5.0.0")
}

pub static TABLE: &[CommandSpec] = &[
    PUBLISH_SPEC,
    CommandSpec::new(
        "ping",
        -1,
        "connection",
        connection::ping,
        "Replies PONG, or the argument if there is one",
    )
    .flags(Flags::FAST.and(Flags::CONNECTION))
    .own(TavernFlags::WHILE_SUBSCRIBED),
    CommandSpec::new("subscribe", -2, "pubsub", pubsub::subscribe, "Subscribes to channels")
        .flags(LISTEN)
        .own(ASKED)
        .names(NamedArguments::Listened)
        .since("2.0.0"),
    CommandSpec::new("unsubscribe", -1, "pubsub", pubsub::unsubscribe, "Unsubscribes from channels")
        .flags(LISTEN)
        .own(CONFIRMED)
        .since("2.0.0"),
    CommandSpec::new(
        "psubscribe",
        -2,
        "pubsub",
        pubsub::psubscribe,
        "Subscribes to all channels that match patterns",
    )
    .flags(LISTEN)
    .own(ASKED)
    .names(NamedArguments::Patterns)
    .since("2.0.0"),
    CommandSpec::new("punsubscribe", -1, "pubsub", pubsub::punsubscribe, "Unsubscribes from patterns")
        .flags(LISTEN)
        .own(CONFIRMED)
        .since("2.0.0"),
    CommandSpec::new("ssubscribe", -2, "pubsub", pubsub::ssubscribe, "Subscribes to shard channels")
        .flags(LISTEN)
        .own(ASKED)
        .names(NamedArguments::Listened)
        .since("7.0.0"),
    CommandSpec::new("sunsubscribe", -1, "pubsub", pubsub::sunsubscribe, "Unsubscribes from shard channels")
        .flags(LISTEN)
        .own(CONFIRMED)
        .since("7.0.0"),
    CommandSpec::new("spublish", 3, "pubsub", pubsub::spublish, "Sends a message to a shard channel")
        .flags(PUBSUB.and(Flags::FAST))
        .own(TavernFlags::LIMITED)
        .names(NamedArguments::Published)
        .since("7.0.0"),
    CommandSpec::new("pubsub", -2, "pubsub", catalog::help, "Reports channels, patterns and subscribers")
        .since("2.8.0")
        .with(&[
            CommandSpec::new(
                "pubsub|channels",
                -2,
                "pubsub",
                pubsub::channels,
                "The channels with subscriptions",
            )
            .flags(PUBSUB)
            .since("2.8.0"),
            CommandSpec::new(
                "pubsub|numsub",
                -2,
                "pubsub",
                pubsub::numsub,
                "Number of subscribers of each channel",
            )
            .flags(PUBSUB)
            .since("2.8.0"),
            CommandSpec::new(
                "pubsub|numpat",
                2,
                "pubsub",
                pubsub::numpat,
                "Number of patterns with subscribers",
            )
            .flags(PUBSUB)
            .since("2.8.0"),
            CommandSpec::new(
                "pubsub|shardchannels",
                -2,
                "pubsub",
                pubsub::shardchannels,
                "The shard channels with subscriptions",
            )
            .flags(PUBSUB)
            .since("7.0.0"),
            CommandSpec::new(
                "pubsub|shardnumsub",
                -2,
                "pubsub",
                pubsub::shardnumsub,
                "Number of subscribers of each shard channel",
            )
            .flags(PUBSUB)
            .since("7.0.0"),
            CommandSpec::new("pubsub|help", 2, "pubsub", pubsub::help, "Prints this help.")
                .flags(QUIET)
                .since("6.2.0"),
        ]),
    CommandSpec::new("echo", 2, "connection", connection::echo, "Returns the argument")
        .flags(QUIET.and(Flags::FAST).and(Flags::CONNECTION)),
    CommandSpec::new("quit", -1, "connection", connection::quit, "Closes the connection")
        .flags(LOGIN)
        .own(TavernFlags::WHILE_SUBSCRIBED.and(TavernFlags::NOT_QUEUED)),
    CommandSpec::new(
        "reset",
        1,
        "connection",
        connection::reset,
        "Resets the connection to its initial state",
    )
    .flags(LOGIN)
    .own(TavernFlags::WHILE_SUBSCRIBED.and(TavernFlags::NOT_QUEUED))
    .since("6.2.0"),
    CommandSpec::new(
        "hello",
        -1,
        "connection",
        connection::hello,
        "Chooses the protocol, logs in, names the client",
    )
    .flags(LOGIN)
    .since("6.0.0"),
    CommandSpec::new("auth", -2, "connection", connection::auth, "Logs in with a token or an API key")
        .flags(LOGIN),
    CommandSpec::new(
        "select",
        2,
        "connection",
        connection::select,
        "Selects a database; all of them are the same",
    )
    .flags(QUIET.and(Flags::FAST).and(Flags::CONNECTION)),
    CommandSpec::new("client", -2, "connection", catalog::help, "About connections").since("2.4.0").with(&[
        CommandSpec::new("client|id", 2, "connection", client::id, "The id of this connection")
            .flags(SESSION)
            .since("5.0.0"),
        CommandSpec::new("client|setname", 3, "connection", client::setname, "Names this connection")
            .flags(SESSION)
            .since("2.6.9"),
        CommandSpec::new("client|getname", 2, "connection", client::getname, "This connection's name")
            .flags(SESSION)
            .since("2.6.9"),
        CommandSpec::new(
            "client|setinfo",
            4,
            "connection",
            client::setinfo,
            "Sets the name or version of the client library",
        )
        .flags(SESSION)
        .since("7.2.0"),
        CommandSpec::new("client|list", -2, "connection", client::list, "Shows connections")
            .flags(OPERATOR.and(Flags::CONNECTION))
            .own(TavernFlags::NEEDS_ADMIN)
            .since("2.4.0"),
        CommandSpec::new("client|kill", -3, "connection", kill::kill, "Closes connections")
            .flags(OPERATOR.and(Flags::CONNECTION))
            .own(TavernFlags::NEEDS_ADMIN)
            .since("2.4.0"),
        CommandSpec::new("client|reply", 3, "connection", client::reply_mode, "Turns replies on or off")
            .flags(SESSION)
            .since("3.2.0"),
        CommandSpec::new("client|info", 2, "connection", client::info, "Shows this connection")
            .flags(SESSION)
            .since("6.2.0"),
        CommandSpec::new("client|no-evict", 3, "connection", client::no_evict, "Accepted, changes nothing")
            .flags(OPERATOR.and(Flags::CONNECTION))
            .since("7.0.0"),
        CommandSpec::new("client|no-touch", 3, "connection", client::no_touch, "Accepted, changes nothing")
            .flags(SESSION)
            .since("7.2.0"),
        help("client|help"),
    ]),
    CommandSpec::new("command", -1, "server", catalog::command, "Describes commands")
        .flags(QUIET.and(Flags::CONNECTION))
        .since("2.8.13")
        .with(&[
            CommandSpec::new("command|count", 2, "server", catalog::count, "Number of commands")
                .flags(QUIET.and(Flags::CONNECTION))
                .since("2.8.13"),
            CommandSpec::new("command|docs", -2, "server", catalog::docs, "Descriptions of commands")
                .flags(QUIET.and(Flags::CONNECTION))
                .since("7.0.0"),
            CommandSpec::new("command|info", -2, "server", catalog::info, "Arity and flags of commands")
                .flags(QUIET.and(Flags::CONNECTION))
                .since("2.8.13"),
            CommandSpec::new("command|list", -2, "server", catalog::list, "The names of commands")
                .flags(QUIET.and(Flags::CONNECTION))
                .since("7.0.0"),
            help("command|help"),
        ]),
    CommandSpec::new("info", -1, "server", server::info, "Information and counters of this node")
        .flags(QUIET.and(Flags::DANGEROUS)),
    CommandSpec::new("config", -2, "server", catalog::help, "Settings under their Redis names")
        .since("2.0.0")
        .with(&[
            CommandSpec::new("config|get", -3, "server", config::get, "Shows settings")
                .flags(OPERATOR)
                .since("2.0.0"),
            CommandSpec::new(
                "config|set",
                -4,
                "server",
                config::set,
                "Accepted for known names, changes nothing",
            )
            .flags(OPERATOR)
            .own(TavernFlags::NEEDS_ADMIN)
            .since("2.0.0"),
            CommandSpec::new("config|resetstat", 2, "server", config::resetstat, "Accepted, changes nothing")
                .flags(OPERATOR)
                .since("2.0.0"),
            help("config|help"),
        ]),
    CommandSpec::new("multi", 1, "transactions", transaction::multi, "Starts a transaction")
        .flags(MULTI.and(Flags::FAST).and(Flags::ALLOW_BUSY))
        .own(TavernFlags::NOT_QUEUED)
        .since("1.2.0"),
    CommandSpec::new("exec", 1, "transactions", transaction::exec, "Runs the commands queued since MULTI")
        .flags(MULTI.and(Flags::SKIP_SLOWLOG))
        .own(TavernFlags::NOT_QUEUED.and(TavernFlags::PUSHES))
        .since("1.2.0"),
    CommandSpec::new(
        "discard",
        1,
        "transactions",
        transaction::discard_command,
        "Discards the commands queued since MULTI",
    )
    .flags(MULTI.and(Flags::FAST).and(Flags::ALLOW_BUSY))
    .own(TavernFlags::NOT_QUEUED)
    .since("2.0.0"),
    CommandSpec::new("flushall", -1, "server", server::flush, "Accepted, changes nothing")
        .flags(Flags::WRITE.and(Flags::KEYSPACE).and(Flags::DANGEROUS))
        .own(TavernFlags::NEEDS_ADMIN),
    CommandSpec::new("flushdb", -1, "server", server::flush, "Accepted, changes nothing")
        .flags(Flags::WRITE.and(Flags::KEYSPACE).and(Flags::DANGEROUS))
        .own(TavernFlags::NEEDS_ADMIN),
    CommandSpec::new("function", -2, "scripting", catalog::help, "There are no functions here")
        .since("7.0.0")
        .with(&[
            CommandSpec::new(
                "function|flush",
                -2,
                "scripting",
                server::function_flush,
                "Accepted, changes nothing",
            )
            .flags(Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::SCRIPTING))
            .own(TavernFlags::NEEDS_ADMIN)
            .since("7.0.0"),
            help("function|help"),
        ]),
    CommandSpec::new("dbsize", 1, "server", server::dbsize, "Always 0: there are no keys")
        .flags(Flags::READONLY.and(Flags::FAST).and(Flags::KEYSPACE)),
    CommandSpec::new("debug", -2, "server", server::debug, "For test suites")
        .flags(OPERATOR)
        .own(TavernFlags::NEEDS_ADMIN),
    CommandSpec::new(
        "tavern.mode",
        2,
        "pubsub",
        tavern::mode,
        "push: messages are pushed; poll: the client polls them",
    )
    .flags(LISTEN.and(Flags::FAST))
    .own(TavernFlags::WHILE_SUBSCRIBED)
    .since("7.2.0"),
    CommandSpec::new("tavern.poll", -1, "pubsub", tavern::poll, "Returns queued messages without waiting")
        .flags(LISTEN.and(Flags::FAST))
        .own(TavernFlags::WHILE_SUBSCRIBED)
        .since("7.2.0"),
    CommandSpec::new(
        "tavern.wait",
        -2,
        "pubsub",
        tavern::wait,
        "Returns queued messages, or waits for the next one",
    )
    .flags(LISTEN.and(Flags::BLOCKING))
    .own(TavernFlags::WHILE_SUBSCRIBED)
    .since("7.2.0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let found = match resolve(&Args::Owned(&words)) {
            Ok((spec, code)) => {
                assert_eq!(name_of(code), spec.name);
                spec.name.to_string()
            }
            Err((_, error)) => String::from_utf8(error).unwrap(),
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn commands_are_found_with_their_arity() {
        check("PuBlish a b", "publish");
        check("publish a", "ERR wrong number of arguments for 'publish' command");
        check("CLIENT", "ERR wrong number of arguments for 'client' command");
        check("client KILL", "ERR wrong number of arguments for 'client|kill' command");
        check("client FOO", "ERR unknown subcommand 'FOO'. Try CLIENT HELP.");
        check("command", "command");
        check("command count", "command|count");
        check("client|id", "ERR unknown command 'client|id', with args beginning with: ");
        check("EVAL x 0", "ERR unknown command 'EVAL', with args beginning with: 'x' '0' ");
    }

    #[test]
    fn publish_is_the_first_command() {
        assert_eq!(name_of(PUBLISH_CODE), PUBLISH.name);
        assert_eq!(name_of(0), "NULL");
        assert!(TABLE.len() < 255);
    }

    #[test]
    fn subcommands_carry_the_name_of_their_parent() {
        for spec in TABLE {
            assert!(!spec.name.contains('|'));
            for sub in spec.subcommands {
                assert_eq!(sub.name, format!("{}|{}", spec.name, sub.word()));
                assert!(sub.subcommands.is_empty());
            }
        }
    }
}
