//! The scripts that run inside the server, each identified by the SHA-1 of its text. Must hold: a server that has
//! lost a script answers `NOSCRIPT` before it does anything, and gets it again.

use super::encoder::Encoder;
use super::schema::{self, RedisKeys, RedisTable};
use bytes::Bytes;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::fmt::Write;
use std::sync::LazyLock;
use tavern_wire::resp;

pub(super) struct LuaScript {
    text: String,
    name: String,
}

/// One script in parts: a prelude, the steps of each kind, and the loop that runs them.
pub(super) static COMMIT: LazyLock<LuaScript> = LazyLock::new(|| {
    let steps = concat!(
        include_str!("scripts/commit/1_prelude.lua"),
        include_str!("scripts/commit/2_nodes.lua"),
        include_str!("scripts/commit/3_rows.lua"),
        include_str!("scripts/commit/4_leases.lua"),
        include_str!("scripts/commit/5_log.lua"),
        include_str!("scripts/commit/6_inbox.lua"),
        include_str!("scripts/commit/7_history.lua"),
        include_str!("scripts/commit/8_run.lua"),
    );
    LuaScript::new(schema::lua() + steps)
});
pub(super) static PAGE: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/page.lua")));
pub(super) static UNDER: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/under.lua")));
pub(super) static LOG: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/log.lua")));
pub(super) static TOPICS: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/topics.lua")));
pub(super) static HISTORY: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/history.lua")));
pub(super) static HISTORIES: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/histories.lua")));
pub(super) static PERSON: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/person.lua")));
pub(super) static EDGES: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scripts/edges.lua")));

/// One command, and the script that it runs.
#[derive(Clone)]
pub(super) struct ScriptCall {
    pub command: Bytes,
    pub script: Option<&'static LuaScript>,
}

impl LuaScript {
    fn new(text: impl Into<String>) -> LuaScript {
        let text = text.into();
        let name = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let name = name.as_ref().iter().fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        LuaScript { text, name }
    }

    pub fn load(&self) -> Bytes {
        let mut out = Vec::new();
        resp::command(&mut out, &[b"SCRIPT", b"LOAD", self.text.as_bytes()]);
        out.into()
    }

    /// With all keys of the store.
    pub fn on_all(&'static self, keys: &RedisKeys, arguments: &Encoder) -> ScriptCall {
        self.run(keys.all(), arguments)
    }

    pub fn on(&'static self, keys: &RedisKeys, tables: &[RedisTable], arguments: &Encoder) -> ScriptCall {
        self.run(tables.iter().map(|&table| keys.get(table)), arguments)
    }

    fn run<'a>(
        &'static self,
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
        arguments: &Encoder,
    ) -> ScriptCall {
        let mut out = Vec::with_capacity(arguments.out.len() + 2048);
        let count = keys.len();
        resp::array(&mut out, 3 + count + arguments.count);
        for part in [&b"EVALSHA"[..], self.name.as_bytes(), count.to_string().as_bytes()] {
            resp::bulk(&mut out, part);
        }
        keys.for_each(|key| resp::bulk(&mut out, key));
        out.extend_from_slice(&arguments.out);
        ScriptCall { command: out.into(), script: Some(self) }
    }
}

impl ScriptCall {
    pub fn plain(parts: &[&[u8]]) -> ScriptCall {
        let mut out = Vec::new();
        resp::command(&mut out, parts);
        ScriptCall { command: out.into(), script: None }
    }
}
