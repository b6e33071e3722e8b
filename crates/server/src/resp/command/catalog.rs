//! COMMAND: describes the commands of the table, and the HELP of every container of subcommands.

use super::spec::{CommandSpec, Flags};
use super::table::{self, TABLE};
use super::{RedisCall, text};
use crate::resp::RedisNext;
use crate::resp::rights::NamedArguments;
use tavern_domain::pattern;
use tavern_wire::resp::{self as reply, Proto};

pub fn command(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::array(call.out, TABLE.len());
    for spec in TABLE {
        write_info(call.out, call.peer.proto, spec);
    }
    RedisNext::Go
}

pub fn count(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::int(call.out, TABLE.len() as i64);
    RedisNext::Go
}

pub fn info(call: &mut RedisCall<'_, '_>) -> RedisNext {
    if call.args.len() == 2 {
        return command(call);
    }
    let proto = call.proto();
    reply::array(call.out, call.args.len() - 2);
    for name in call.rest(2) {
        match table::find(name) {
            Some(spec) => write_info(call.out, proto, spec),
            None => reply::null_bulk(call.out, proto),
        }
    }
    RedisNext::Go
}

pub fn docs(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let named: Vec<&CommandSpec> = call.rest(2).filter_map(table::find).collect();
    let specs: Vec<&CommandSpec> = if call.args.len() == 2 { TABLE.iter().collect() } else { named };
    write_docs(call.out, call.peer.proto, &specs);
    RedisNext::Go
}

pub fn list(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let keep: Box<dyn Fn(&CommandSpec) -> bool> = match call.args.len() {
        2 => Box::new(|_| true),
        5 if call.is(2, "filterby") && call.is(3, "pattern") => {
            let glob = call.args.at(4).to_ascii_lowercase();
            Box::new(move |spec| pattern::matches(&glob, spec.name.as_bytes()))
        }
        5 if call.is(2, "filterby") && call.is(3, "aclcat") => {
            let category = format!("@{}", String::from_utf8_lossy(call.args.at(4)).to_lowercase());
            Box::new(move |spec| categories(spec.flags).any(|known| known == category))
        }
        5 if call.is(2, "filterby") && call.is(3, "module") => Box::new(|_| false),
        _ => return call.error(text::SYNTAX),
    };
    let all = TABLE.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    // As in Redis, subcommands are listed when a filter finds them, not otherwise.
    let filtered = call.args.len() > 2;
    let names: Vec<&str> = all
        .filter(|spec| (filtered || !spec.name.contains('|')) && keep(spec))
        .map(|spec| spec.name)
        .collect();
    reply::array(call.out, names.len());
    for name in names {
        reply::bulk(call.out, name.as_bytes());
    }
    RedisNext::Go
}

/// `HELP` of a container.
pub fn help(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let Some(parent) = table::find(call.args.at(0)) else { return RedisNext::Go };
    reply::array(call.out, 1 + parent.subcommands.len() * 2);
    let name = parent.name.to_uppercase();
    reply::simple(call.out, &format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in parent.subcommands {
        reply::simple(call.out, &sub.word().to_uppercase());
        reply::simple(call.out, &format!("    {}", sub.summary));
    }
    RedisNext::Go
}

const FLAGS: [(Flags, &str); 12] = [
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// ACL categories in the order of Redis; some follow from flags.
const CATEGORIES: [(Flags, &str); 10] = [
    (Flags::KEYSPACE, "@keyspace"),
    (Flags::READONLY, "@read"),
    (Flags::WRITE, "@write"),
    (Flags::PUBSUB, "@pubsub"),
    (Flags::ADMIN, "@admin"),
    (Flags::FAST, "@fast"),
    (Flags::BLOCKING, "@blocking"),
    (Flags::DANGEROUS, "@dangerous"),
    (Flags::CONNECTION, "@connection"),
    (Flags::TRANSACTION, "@transaction"),
];

fn categories(flags: Flags) -> impl Iterator<Item = &'static str> {
    let named = CATEGORIES.into_iter().flat_map(move |(flag, name)| {
        let found = flags.has(flag).then_some(name);
        // Commands that are not fast are slow; `@slow` takes the place of `@fast`.
        let slow = (flag == Flags::FAST && !flags.has(flag)).then_some("@slow");
        found.into_iter().chain(slow)
    });
    named.chain(flags.has(Flags::SCRIPTING).then_some("@scripting"))
}

fn write_info(out: &mut Vec<u8>, proto: Proto, spec: &CommandSpec) {
    reply::array(out, 10);
    reply::bulk(out, spec.name.as_bytes());
    reply::int(out, i64::from(spec.arity));
    write_message(out, proto, FLAGS.iter().filter(|(flag, _)| spec.flags.has(*flag)).map(|(_, name)| *name));
    for place in keys(spec) {
        reply::int(out, place);
    }
    write_message(out, proto, categories(spec.flags));
    // Tips and key specifications: none.
    reply::set(out, 0, proto);
    reply::set(out, 0, proto);
    reply::set(out, spec.subcommands.len(), proto);
    for sub in spec.subcommands {
        write_info(out, proto, sub);
    }
}

/// Shard channels count as keys: first, last, step.
fn keys(spec: &CommandSpec) -> [i64; 3] {
    match (spec.name, spec.names) {
        ("spublish", NamedArguments::Published) => [1, 1, 1],
        ("ssubscribe" | "sunsubscribe", _) => [1, -1, 1],
        _ => [0, 0, 0],
    }
}

fn write_message(out: &mut Vec<u8>, proto: Proto, words: impl Iterator<Item = &'static str>) {
    let words: Vec<&str> = words.collect();
    reply::set(out, words.len(), proto);
    for word in words {
        reply::simple(out, word);
    }
}

fn write_docs(out: &mut Vec<u8>, proto: Proto, specs: &[&CommandSpec]) {
    reply::map(out, specs.len(), proto);
    for spec in specs {
        reply::bulk(out, spec.name.as_bytes());
        let subs: Vec<&CommandSpec> = spec.subcommands.iter().collect();
        reply::map(out, 3 + usize::from(!subs.is_empty()), proto);
        for (key, value) in [("summary", spec.summary), ("since", spec.since), ("group", spec.group)] {
            reply::bulk(out, key.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
        if !subs.is_empty() {
            reply::bulk(out, b"subcommands");
            write_docs(out, proto, &subs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_wire::resp::{RespValue, read_value};

    fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn a_command_is_described_as_redis_describes_it() {
        let check = |name: &str, expected: &str| {
            let spec = table::find(name.as_bytes()).unwrap();
            let out = written(|out| write_info(out, Proto::Resp2, spec));
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{name}");
        };
        check(
            "publish",
            "*10\r\n$7\r\npublish\r\n:3\r\n*4\r\n+pubsub\r\n+loading\r\n+stale\r\n+fast\r\n:0\r\n:0\r\n:0\r\n*2\r\n\
             +@pubsub\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n",
        );
        check(
            "client|kill",
            "*10\r\n$11\r\nclient|kill\r\n:-3\r\n*4\r\n+admin\r\n+noscript\r\n+loading\r\n+stale\r\n:0\r\n:0\r\n:0\r\n\
             *4\r\n+@admin\r\n+@slow\r\n+@dangerous\r\n+@connection\r\n*0\r\n*0\r\n*0\r\n",
        );
        check(
            "subscribe",
            "*10\r\n$9\r\nsubscribe\r\n:-2\r\n*4\r\n+pubsub\r\n+noscript\r\n+loading\r\n+stale\r\n:0\r\n:0\r\n:0\r\n\
             *2\r\n+@pubsub\r\n+@slow\r\n*0\r\n*0\r\n*0\r\n",
        );
    }

    #[test]
    fn every_reply_can_be_parsed() {
        for proto in [Proto::Resp2, Proto::Resp3] {
            let all: Vec<&CommandSpec> = TABLE.iter().collect();
            let out = written(|out| write_docs(out, proto, &all));
            let (value, taken) = read_value(&out).unwrap().unwrap();
            assert_eq!(taken, out.len());
            match value {
                RespValue::List(values) => assert_eq!(values.len(), TABLE.len() * 2),
                other => panic!("{other:?}"),
            }
            for spec in TABLE {
                let out = written(|out| write_info(out, proto, spec));
                assert_eq!(read_value(&out).unwrap().unwrap().1, out.len(), "{}", spec.name);
            }
        }
    }
}
