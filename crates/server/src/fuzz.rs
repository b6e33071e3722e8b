//! Invariants of HTTP request parsing and of tokens for any input. Run by the fuzzer with random bytes and by the tests with the corpus.
//! Panics when an invariant is violated. Not used by servers.

use crate::auth::{AuthError, Credential, LoginTime, Verifier};
use crate::config::{Config, Flag, SecretText, ServerMode, Sources};
use crate::http::request::{self, Query};
use crate::http::{connect, origin};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use std::net::IpAddr;
use std::sync::OnceLock;
use tavern_domain::{Time, is_user_id, limits};
use tavern_hub::read_session;

/// The first line is a method and an address, each other line a header. Input that no HTTP parser accepts is skipped.
pub fn http(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    decoding(&text);
    sessions(&text);
    authorization(&text);
    let Some(parts) = read(&text) else { return };
    if let Ok(query) = Query::of(&parts) {
        queries(&query, parts.uri.query().unwrap_or_default());
        credentials(&parts, &query);
    }
    origins(&parts);
    addresses(&parts);
    handshakes(&parts);
}

/// Tokens: nothing is accepted without a signature; signed claims are within their bounds; any key set is read without harm.
pub fn token(data: &[u8]) {
    let secret = SecretText::new("a secret that only this check knows, with enough bytes");
    let verifier = Verifier::from_secret(&secret);
    let login = LoginTime { wall: Time(1_000), node: Time(9_000), leeway_ms: 5, max_life_ms: 1 << 40 };
    let text = String::from_utf8_lossy(data);
    assert!(verifier.verify(&text, login).is_err(), "no one signed this");
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let unsigned = format!("{}.{}", part(br#"{"alg":"HS256"}"#), part(data));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mark = part(ring::hmac::sign(&key, unsigned.as_bytes()).as_ref());
    match verifier.verify(&format!("{unsigned}.{mark}"), login) {
        Ok(identity) => {
            assert!(identity.user.as_deref().is_none_or(is_user_id));
            assert!(identity.expires > login.node && identity.rights.grants.len() <= limits::GRANTS);
            assert!(!identity.unlimited && identity.scopes.is_empty() && identity.key.is_none());
        }
        Err(error) => assert_ne!(error, AuthError::Signature),
    }
    let _ = crate::auth::key_set_size(data);
}

fn read(text: &str) -> Option<Parts> {
    let mut lines = text.lines();
    let (method, address) = lines.next()?.split_once(' ')?;
    let mut request = http::Request::builder().method(method).uri(address).body(()).ok()?;
    for line in lines.take(64) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.trim()), HeaderValue::try_from(value.trim_matches(' ')))
        else {
            continue;
        };
        request.headers_mut().append(name, value);
    }
    Some(request.into_parts().0)
}

/// Two hexadecimal digits after a percent sign are a byte; everything else is literal.
fn decoded(text: &str, plus: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|&byte| (byte as char).to_digit(16));
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if plus => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    out
}

fn decoding(text: &str) {
    for plus in [false, true] {
        let got = request::decode(text, plus);
        assert_eq!(got.ok(), String::from_utf8(decoded(text, plus)).ok(), "decoding {text:?}");
    }
    let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(request::decode(&escaped, true).as_deref(), Ok(text), "decoding reverses escaping");
}

fn queries(query: &Query, text: &str) {
    let max = text.split('&').count();
    for name in ["token", "user", "session", "seq", "channel", "", "a"] {
        let all: Vec<&str> = query.all(name).collect();
        assert!(all.len() <= max);
        let Ok(one) = query.one(name) else {
            assert!(all.len() > 1, "a name that is given once is read");
            continue;
        };
        assert_eq!(one, all.first().copied());
        match (query.number(name, 0..=u64::MAX), one) {
            (Ok(None), None) | (Err(_), Some(_)) => {}
            (Ok(Some(number)), Some(text)) => assert_eq!(text.parse(), Ok(number)),
            (answer, text) => panic!("{name} is {text:?} and was read as {answer:?}"),
        }
    }
    query.one("session").ok().flatten().into_iter().for_each(sessions);
}

/// A session secret has one text form: parsing and writing gives the same text.
fn sessions(text: &str) {
    let Some((key, node)) = read_session(text) else { return };
    let mut again = String::new();
    key.write(&mut again);
    assert_eq!(format!("{again}~{node}"), text);
    for shards in [1, 2, 7] {
        assert!(key.shard(shards) < shards);
    }
}

fn authorization(text: &str) {
    match Credential::from_authorization(text) {
        Ok(Credential::User(_)) => panic!("a header cannot name a user"),
        Ok(Credential::Token(token)) => {
            assert!(text.contains(&token) && token.matches('.').count() == 2);
            let again = Credential::from_authorization(&format!("Bearer {token}"));
            assert!(matches!(again, Ok(Credential::Token(same)) if same == token));
        }
        Ok(Credential::Key(key)) => {
            assert!(!key.is_empty() && key.len() <= text.len());
            if !key.contains(':') {
                let basic = format!("Basic {}", STANDARD.encode(format!("{key}:")));
                let again = Credential::from_authorization(&basic);
                // A credential within the limit may exceed it in base64.
                assert!(
                    key.len() > 4096 || matches!(again, Ok(Credential::Key(same)) if same == key),
                    "{key:?}"
                );
            }
        }
        Err(_) => {}
    }
}

/// The header has precedence over the token in the URL, and that over the name; an invalid header is never ignored.
fn credentials(parts: &Parts, query: &Query) {
    let shown = request::credential(parts, query);
    let header = parts.headers.get(AUTHORIZATION).is_some();
    let (Ok(token), Ok(user)) = (query.one("token"), query.one("user")) else { return };
    match (&shown, header, token, user) {
        (Ok(Some(Credential::User(name))), false, None, Some(user)) => assert_eq!(name, user),
        (Ok(Some(Credential::User(_))), ..) => panic!("a name is used only without another credential"),
        (Ok(Some(Credential::Token(text) | Credential::Key(text))), false, Some(token), _) => {
            assert_eq!(text, token);
        }
        (Ok(Some(_)) | Err(_), true, ..) | (Ok(None), false, None, None) => {}
        _ => panic!("shown: {}, header: {header}", shown.is_ok()),
    }
}

fn configs() -> &'static [Config; 2] {
    static CONFIGS: OnceLock<[Config; 2]> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        [ServerMode::Dev, ServerMode::Serve].map(|mode| {
            let flag = |key: &str, text: &str| Flag { flag: key.into(), key: key.into(), text: text.into() };
            let flags = vec![
                flag("secret", "a secret for this alone, long enough for a server"),
                flag("origins", "https://play.example"),
                flag("trusted_proxies", "127.0.0.1,10.0.0.0/8,fd00::/8"),
            ];
            let sources = Sources { mode, file: None, environment: Vec::new(), flags, for_server: true };
            Config::load(sources).config
        })
    })
}

/// In dev mode only origins and hosts of this machine, and pages from disk, are accepted; otherwise only listed origins and
/// our own.
fn origins(parts: &Parts) {
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (page, host) = (text(&ORIGIN), text(&HOST));
    let place = page.split_once("://").map(|(_, place)| place);
    for config in configs() {
        let allowed = origin::allowed(config, &parts.headers);
        assert_eq!(allowed.is_none(), !parts.headers.contains_key(ORIGIN));
        if let Some(Ok(echoed)) = allowed {
            assert_eq!(echoed.to_str().ok(), Some(page), "only the origin that was sent is allowed");
            let own = config.mode == ServerMode::Serve && !host.is_empty() && place == Some(host);
            let near = config.mode == ServerMode::Dev && (page == "null" || place.is_some_and(is_near));
            assert!(own || near || page == "https://play.example", "{page:?} at {host:?}");
        }
        let meant = origin::host_allowed(config, &parts.headers);
        assert!(meant || config.mode == ServerMode::Dev);
        assert!(
            !meant || config.mode == ServerMode::Serve || !parts.headers.contains_key(HOST) || is_near(host)
        );
    }
}

/// Whether an authority names this machine, by an independent parser. No browser sends a user name in one.
fn is_near(place: &str) -> bool {
    let Ok(authority) = place.parse::<http::uri::Authority>() else {
        // No name that needs a DNS lookup.
        return true;
    };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    place.contains('@')
        || host == "localhost"
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The address is the peer's own unless a trusted proxy named another, and never a trusted proxy's address from the header.
fn addresses(parts: &Parts) {
    let proxies = &configs()[0].trusted_proxies;
    let trusted = |address: IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
    let written: String =
        parts.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
    for peer in ["127.0.0.1", "::ffff:10.0.0.1", "fd00::1", "192.0.2.1", "2001:db8::1"] {
        let peer: IpAddr = peer.parse().expect("an address");
        let found = request::forwarded_address(proxies, peer, &parts.headers);
        assert!(found == peer || (trusted(peer) && !trusted(found)), "{peer} became {found}");
        assert!(found == peer || !written.is_empty());
    }
}

fn handshakes(parts: &Parts) {
    if let Ok(accept) = connect::accept_key(parts) {
        assert_eq!(parts.method, http::Method::GET);
        assert_eq!(STANDARD.decode(accept.as_bytes()).map(|digest| digest.len()), Ok(20));
    }
    let Some(offered) = parts.headers.get(SEC_WEBSOCKET_PROTOCOL) else { return };
    if let Some(chosen) = connect::first_protocol(offered) {
        let offered = offered.to_str().unwrap_or_default();
        let chosen = chosen.to_str().unwrap_or_default();
        assert!(offered.split(',').any(|name| name.trim() == chosen), "{chosen:?} of {offered:?}");
    }
}
