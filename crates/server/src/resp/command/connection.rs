//! The connection itself: PING, ECHO, QUIT, RESET, HELLO, AUTH, SELECT.
//! Must hold: a credential is never part of a reply or a log line; a failed login changes nothing.

use super::{PeerState, RedisCall, pubsub, text, transaction};
use crate::auth::{AuthError, Credential};
use crate::config::ServerMode;
use crate::random::random_bits;
use crate::resp::RedisNext;
use crate::resp::clients::{DEFAULT_USER, NO_EVICT, NO_TOUCH};
use crate::resp::rights;
use crate::supervisor::panics;
use tavern_domain::{ClientId, Identity};
use tavern_hub::Author;
use tavern_wire::resp::{self as reply, Proto};

/// The version of Redis whose behaviour this follows.
pub const REDIS_VERSION: &str = "7.2.4";
/// Databases that `SELECT` accepts. They are all the same: there are no keys.
pub const DATABASES: u8 = 16;

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
                           sure your configuration is correct?";
const HELLO_NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                             <proto> AUTH <user> <pass> option can be used to authenticate the client and select \
                             the RESP protocol version at the same time";
pub const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

pub fn ping(call: &mut RedisCall<'_, '_>) -> RedisNext {
    if call.args.len() > 2 {
        return call.error("ERR wrong number of arguments for 'ping' command");
    }
    let text = (call.args.len() == 2).then(|| call.args.at(1));
    let subscribed = !call.peer.state.polls && pubsub::is_subscribed(call.peer, call.context.hub);
    if call.proto() == Proto::Resp2 && subscribed {
        reply::array(call.out, 2);
        reply::bulk(call.out, b"pong");
        reply::bulk(call.out, text.unwrap_or_default());
    } else if let Some(text) = text {
        reply::bulk(call.out, text);
    } else {
        reply::simple(call.out, "PONG");
    }
    RedisNext::Go
}

pub fn echo(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::bulk(call.out, call.args.at(1));
    RedisNext::Go
}

pub fn quit(call: &mut RedisCall<'_, '_>) -> RedisNext {
    call.ok();
    RedisNext::Close
}

pub fn select(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let Some(index) = text::integer(call.args.at(1)) else { return call.error(text::NOT_AN_INTEGER) };
    match u8::try_from(index) {
        Ok(db) if db < DATABASES => {
            call.peer.info.set_db(db);
            call.ok()
        }
        _ => call.error("ERR DB index is out of range"),
    }
}

pub fn reset(call: &mut RedisCall<'_, '_>) -> RedisNext {
    transaction::discard(call.peer);
    if let Some(id) = call.peer.listener.take() {
        call.context.hub.end(id);
    }
    let peer = &mut *call.peer;
    let bucket = peer.state.bucket;
    peer.state = PeerState { bucket, ..PeerState::default() };
    peer.proto = Proto::Resp2;
    peer.identity = call.context.server.authenticator.admit_unnamed().ok();
    peer.author = None;
    peer.info.set_counts([0; 3]);
    peer.info.set_proto(Proto::Resp2);
    peer.info.set_db(0);
    peer.info.mark(NO_EVICT | NO_TOUCH, false);
    let mut texts = peer.info.texts();
    texts.name = None;
    texts.user = None;
    drop(texts);
    reply::simple(call.out, "RESET");
    RedisNext::Go
}

pub fn auth(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let (user, password) = match call.args.len() {
        2 => (None, call.args.at(1)),
        3 => (Some(call.args.at(1)), call.args.at(2)),
        _ => return call.error(text::SYNTAX),
    };
    match login(call, user, password) {
        Login::In => call.ok(),
        Login::Refused(error) => call.error(&error),
        Login::Asked => RedisNext::Stall,
    }
}

enum Login {
    In,
    Refused(String),
    /// The API key is being looked up.
    Asked,
}

/// The password is a token or an API key; the user name is not used.
fn login(call: &mut RedisCall<'_, '_>, user: Option<&[u8]>, password: &[u8]) -> Login {
    let address = rights::address(call.peer, call.context);
    let node = call.context.hub.core.node().clone();
    let outcome = match call.peer.login.take() {
        Some(outcome) => {
            // Only a wrong key counts as a failed login.
            if let Some(address) = address.filter(|_| *outcome != Err(AuthError::UnknownKey)) {
                node.rates.end_lookup(address);
            }
            *outcome
        }
        // Woken for another reason.
        None if call.peer.state.asked_login => return Login::Asked,
        None => match std::str::from_utf8(password) {
            Err(_) => Err(AuthError::Malformed),
            Ok(password) => {
                let credential = Credential::of(password);
                match call.context.server.authenticator.admit_now(&credential, call.context.now) {
                    Some(outcome) => outcome,
                    // Nothing can wait inside EXEC; the caller refuses.
                    None if call.in_exec => return Login::Asked,
                    None => {
                        if let Some(address) = address
                            && let Err(refusal) = node.rates.begin_lookup(call.context.now, address)
                        {
                            return Login::Refused(rights::rate_error(&refusal));
                        }
                        look_up(call, credential);
                        return Login::Asked;
                    }
                }
            }
        },
    };
    call.peer.state.asked_login = false;
    let unlimited = outcome.as_ref().is_ok_and(|identity| identity.unlimited);
    if let Some(address) = address.filter(|_| !unlimited)
        && let Err(refusal) = node.rates.take_hello(call.context.now, address)
    {
        return Login::Refused(rights::rate_error(&refusal));
    }
    if let Err(error) = &outcome
        && call.context.server.config.mode != ServerMode::Dev
    {
        call.context.server.authenticator.log_refusal(error, "redis", address);
    }
    match outcome {
        Ok(identity) => {
            enter(call, identity);
            Login::In
        }
        Err(AuthError::Blocked(refusal)) => Login::Refused(format!("BLOCKED {}", refusal.message)),
        Err(AuthError::Unavailable) => Login::Refused("ERR cannot check credentials now; retry".to_string()),
        // Dev mode is a Redis without a password: any password of the default user is accepted.
        Err(_) if call.context.server.config.mode == ServerMode::Dev => match user {
            None => Login::Refused(NO_PASSWORD.to_string()),
            Some(user) if user == DEFAULT_USER.as_bytes() => Login::In,
            Some(_) => Login::Refused(WRONG_PASS.to_string()),
        },
        Err(_) => Login::Refused(WRONG_PASS.to_string()),
    }
}

fn enter(call: &mut RedisCall<'_, '_>, identity: Identity) {
    call.peer.info.texts().user = identity.user.clone();
    call.peer.author = author(call.peer.author.take(), &identity);
    let former = call.peer.identity.replace(identity);
    if let Some(former) = former {
        pubsub::end_revoked(call, &former.rights);
    }
    call.peer.entered_at = call.context.now;
}

/// The sender that other clients see in messages of this connection. Services, which have an API key, have none. A fresh
/// token of the same user keeps the client id.
fn author(earlier: Option<Box<Author>>, identity: &Identity) -> Option<Box<Author>> {
    if identity.key.is_some() || !identity.scopes.is_empty() {
        return None;
    }
    let earlier = earlier.filter(|author| author.user == identity.user).map(|author| author.client);
    let client = earlier.unwrap_or_else(|| ClientId::from_random(random_bits()));
    Some(Box::new(Author { user: identity.user.clone(), client }))
}

/// Looks up the key in the store, on the runtime; then the command runs again.
fn look_up(call: &mut RedisCall<'_, '_>, credential: Credential) {
    call.peer.state.asked_login = true;
    let server = call.context.server.clone();
    let info = call.peer.info.clone();
    let now = call.context.now;
    call.context.server.runtime.spawn(async move {
        // Bounded by the timeout of the lookup.
        let admitted = panics::contain(server.authenticator.admit(&credential, now)).await;
        let outcome = admitted.unwrap_or(Err(AuthError::Unavailable));
        let (shard, link) = info.place();
        server.shards.log_in(shard, link, info.id, outcome);
    });
}

/// The options of `HELLO`.
#[derive(Debug, Default, PartialEq, Eq)]
struct HelloOptions<'a> {
    proto: Option<Proto>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn parse_hello<'a>(args: &[&'a [u8]]) -> Result<HelloOptions<'a>, Vec<u8>> {
    let mut hello = HelloOptions::default();
    let Some((version, mut options)) = args.split_first() else { return Ok(hello) };
    hello.proto = Some(match text::integer(version) {
        Some(2) => Proto::Resp2,
        Some(3) => Proto::Resp3,
        Some(_) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
        None => return Err(b"ERR Protocol version is not an integer or out of range".to_vec()),
    });
    while let Some((option, rest)) = options.split_first() {
        options = match rest {
            [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                hello.auth = Some((user, password));
                rest
            }
            [name, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                if !text::is_label(name) {
                    return Err(BAD_NAME.as_bytes().to_vec());
                }
                hello.name = Some(name);
                rest
            }
            _ => {
                let option = text::quoted(option, option.len());
                return Err([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
            }
        };
    }
    Ok(hello)
}

pub fn hello(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let args: Vec<&[u8]> = call.rest(1).collect();
    let hello = match parse_hello(&args) {
        Ok(hello) => hello,
        Err(error) => {
            text::error(call.out, &error);
            return RedisNext::Go;
        }
    };
    if let Some((user, password)) = hello.auth {
        match login(call, Some(user), password) {
            Login::In => {}
            Login::Refused(error) => return call.error(&error),
            Login::Asked => return RedisNext::Stall,
        }
    }
    if !super::is_current(call.peer, call.context) {
        return call.error(HELLO_NO_AUTH);
    }
    if let Some(name) = hello.name {
        super::client::set_name(call, name);
    }
    if let Some(proto) = hello.proto {
        call.peer.proto = proto;
        call.peer.info.set_proto(proto);
        if let Some(id) = call.peer.listener {
            tavern_hub::core::redis::set_format(&mut call.context.hub.core, id, call.peer.format());
        }
    }
    write_hello(call);
    RedisNext::Go
}

fn write_hello(call: &mut RedisCall<'_, '_>) {
    let proto = call.proto();
    let out = &mut *call.out;
    reply::map(out, 7, proto);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply::bulk(out, key.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"proto");
    reply::int(out, if proto == Proto::Resp3 { 3 } else { 2 });
    reply::bulk(out, b"id");
    reply::int(out, call.peer.info.id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply::bulk(out, key.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<HelloOptions<'_>, &str>) {
        let args: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        let expected = expected.map_err(|error| error.as_bytes().to_vec());
        assert_eq!(parse_hello(&args), expected, "HELLO {line}");
    }

    #[test]
    fn hello_is_read_as_redis_reads_it() {
        let three = || HelloOptions { proto: Some(Proto::Resp3), ..HelloOptions::default() };
        check("", Ok(HelloOptions::default()));
        check("3", Ok(three()));
        check("4", Err("NOPROTO unsupported protocol version"));
        check("x", Err("ERR Protocol version is not an integer or out of range"));
        check("3 FOO", Err("ERR Syntax error in HELLO option 'FOO'"));
        check("3 AUTH a", Err("ERR Syntax error in HELLO option 'AUTH'"));
        check("3 auth a b", Ok(HelloOptions { auth: Some((b"a", b"b")), ..three() }));
        check(
            "3 SETNAME q AUTH a b",
            Ok(HelloOptions { auth: Some((b"a", b"b")), name: Some(b"q"), ..three() }),
        );
        check("3 SETNAME q\u{e9}", Err(BAD_NAME));
    }
}
