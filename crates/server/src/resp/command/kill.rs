//! CLIENT KILL: closes connections of this node, by address or by what `CLIENT LIST` shows of them.
//! Must hold: a client that kills itself gets its reply first.

use super::client::ClientKind;
use super::{RedisCall, text};
use crate::resp::RedisNext;
use crate::resp::clients::{ClientInfo, DEFAULT_USER};
use tavern_domain::Time;
use tavern_wire::resp as reply;

/// Which connections to close: those that match every condition.
#[derive(Debug, PartialEq, Eq)]
struct Filter {
    id: Option<u64>,
    kind: Option<ClientKind>,
    addr: Option<Vec<u8>>,
    laddr: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    max_age_seconds: Option<u64>,
    skip_me: bool,
}

impl Filter {
    const ALL: Filter = Filter {
        id: None,
        kind: None,
        addr: None,
        laddr: None,
        user: None,
        max_age_seconds: None,
        skip_me: true,
    };

    fn parse(args: &[&[u8]]) -> Result<Filter, Vec<u8>> {
        let mut filter = Filter::ALL;
        let fail = |text: &str| Err(text.as_bytes().to_vec());
        for pair in args.chunks(2) {
            let &[option, value] = pair else { return fail(text::SYNTAX) };
            match option.to_ascii_lowercase().as_slice() {
                b"id" => match text::integer(value).and_then(|id| u64::try_from(id).ok()) {
                    Some(id) if id > 0 => filter.id = Some(id),
                    _ => return fail("ERR client-id should be greater than 0"),
                },
                b"type" => filter.kind = Some(ClientKind::parse(value)?),
                b"addr" => filter.addr = Some(value.to_vec()),
                b"laddr" => filter.laddr = Some(value.to_vec()),
                b"user" => filter.user = Some(value.to_vec()),
                b"maxage" => match text::integer(value) {
                    Some(age) if age > 0 => filter.max_age_seconds = Some(age.unsigned_abs()),
                    Some(_) => return fail("ERR maxage should be greater than 0"),
                    None => return fail("ERR maxage is not an integer or out of range"),
                },
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.skip_me = true,
                    b"no" => filter.skip_me = false,
                    _ => return fail(text::SYNTAX),
                },
                _ => return fail(text::SYNTAX),
            }
        }
        Ok(filter)
    }

    fn fits(&self, client: &ClientInfo, now: Time) -> bool {
        let same = |wanted: &Option<Vec<u8>>, found: String| {
            wanted.as_ref().is_none_or(|wanted| wanted.as_slice() == found.as_bytes())
        };
        self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind.is(client))
            && self.max_age_seconds.is_none_or(|age| client.age_seconds(now) >= age)
            && same(&self.addr, client.addr.to_string())
            && same(&self.laddr, client.laddr.to_string())
            && self.user.as_ref().is_none_or(|user| is_user(client, user))
    }
}

fn is_user(client: &ClientInfo, name: &[u8]) -> bool {
    client.texts().user.as_deref().unwrap_or(DEFAULT_USER).as_bytes() == name
}

pub fn kill(call: &mut RedisCall<'_, '_>) -> RedisNext {
    // The old form: an address alone, which may be one's own.
    if call.args.len() == 3 {
        let filter = Filter { addr: Some(call.args.at(2).to_vec()), skip_me: false, ..Filter::ALL };
        let (killed, next) = close(call, &filter);
        if killed == 0 {
            return call.error("ERR No such client");
        }
        call.ok();
        return next;
    }
    let args: Vec<&[u8]> = call.rest(2).collect();
    let filter = match Filter::parse(&args) {
        Ok(filter) => filter,
        Err(error) => {
            text::error(call.out, &error);
            return RedisNext::Go;
        }
    };
    if let Some(user) = filter.user.as_deref().filter(|user| *user != DEFAULT_USER.as_bytes()) {
        // Users are known by their connections only.
        if !call.context.server.clients.list().iter().any(|client| is_user(client, user)) {
            text::error(call.out, &[b"ERR No such user '", text::quoted(user, 128), b"'"].concat());
            return RedisNext::Go;
        }
    }
    let (killed, next) = close(call, &filter);
    reply::int(call.out, killed);
    next
}

/// Closes all that match; returns how many, and whether the caller is one of them.
fn close(call: &mut RedisCall<'_, '_>, filter: &Filter) -> (i64, RedisNext) {
    let server = call.context.server;
    let (mut killed, mut next) = (0, RedisNext::Go);
    for client in server.clients.list() {
        let own = client.id == call.peer.info.id;
        if own && filter.skip_me || !filter.fits(&client, call.context.now) {
            continue;
        }
        killed += 1;
        if own {
            next = RedisNext::Close;
            continue;
        }
        // Removed from the list at once; its shard closes the socket in its next turn.
        server.clients.leave(client.id);
        let (shard, link) = client.place();
        server.shards.kill(shard, link, client.id);
    }
    (killed, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<Filter, &str>) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        assert_eq!(Filter::parse(&args), expected.map_err(|error| error.as_bytes().to_vec()), "{line}");
    }

    #[test]
    fn filters_are_read_as_redis_reads_them() {
        check("ID 7", Ok(Filter { id: Some(7), ..Filter::ALL }));
        check("id x", Err("ERR client-id should be greater than 0"));
        check("ID 0", Err("ERR client-id should be greater than 0"));
        check(
            "TYPE pubsub SKIPME no",
            Ok(Filter { kind: Some(ClientKind::Pubsub), skip_me: false, ..Filter::ALL }),
        );
        check("TYPE foo", Err("ERR Unknown client type 'foo'"));
        check("SKIPME x", Err("ERR syntax error"));
        check("ID 1 FOO", Err("ERR syntax error"));
        check("FOO x", Err("ERR syntax error"));
        check("MAXAGE 5", Ok(Filter { max_age_seconds: Some(5), ..Filter::ALL }));
        check("MAXAGE 0", Err("ERR maxage should be greater than 0"));
        check("ADDR 1.2.3.4:5", Ok(Filter { addr: Some(b"1.2.3.4:5".to_vec()), ..Filter::ALL }));
    }
}
