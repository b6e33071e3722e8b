//! Reading requests: the identity of the sender, the query, the bounded body.

use super::api::HttpApi;
use super::server::ClientAddress;
use crate::auth::{AuthError, Credential};
use crate::config::{Cidr, ServerMode};
use crate::unread_replies::ConnectionReplies;
use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tavern_domain::{AddressGroup, Identity};
use tavern_wire::error::{Code, Refusal};

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// How much is read of a body that is too large, and for how long.
const DRAIN_BYTES: usize = 4 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The members of a query string, decoded.
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn of(parts: &Parts) -> Result<Query, Refusal> {
        decode_form(parts.uri.query().unwrap_or_default()).map(Query)
    }

    /// A parameter that is given once or not at all.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut found = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(bad(format!("the parameter `{name}` is given twice"))),
            (found, None) => Ok(found),
        }
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// An integer without a sign.
    pub fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse().ok().filter(|number| digits && range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (least, max) = (range.start(), range.end());
                Err(bad(format!(
                    "the parameter `{name}` must be an integer from {least} to {max}, not {text:?}"
                )))
            }
        }
    }

    /// `true` or `false`; false without it.
    pub fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => Err(bad(format!("the parameter `{name}` must be true or false, not {text:?}"))),
        }
    }
}

fn bad(message: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

/// A channel as written in a URL: `game:1` is `game#1`, because a `#` would start the fragment.
pub fn channel_name(name: &str) -> Cow<'_, str> {
    match name.contains('#') {
        true => Cow::Borrowed(name),
        false => Cow::Owned(name.replacen(':', "#", 1)),
    }
}

/// The pairs of a query string or a form.
pub fn decode_form(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name, true)?, decode(value, true)?))
    });
    pairs.collect()
}

/// Percent-decoding; anything that is not an escape is literal. The result must be UTF-8.
pub fn decode(text: &str, plus: bool) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%')
            .then(|| after.get(..2).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit)))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(value) => {
                bytes.push(value);
                rest = &after[2..];
            }
            None => {
                bytes.push(if plus && byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| bad(format!("{text:?} is not UTF-8 after percent-decoding")))
}

/// The credential in the request: header first, then `?token=`, then `?user=` in dev mode.
pub fn credential(parts: &Parts, query: &Query) -> Result<Option<Credential>, Refusal> {
    if let Some(header) = parts.headers.get(AUTHORIZATION) {
        let text = header.to_str().map_err(|_| AuthError::Header.refusal())?;
        return Credential::from_authorization(text).map(Some).map_err(|error| error.refusal());
    }
    if let Some(token) = query.one("token")? {
        return Ok(Some(Credential::of(token)));
    }
    Ok(query.one("user")?.map(|user| Credential::User(user.to_owned())))
}

/// The session secret of a request without a body: in the header `Tavern-Session`, or in the URL, which proxies may log.
pub fn session_secret(parts: &Parts, query: &Query) -> Result<Option<String>, Refusal> {
    match parts.headers.get("tavern-session") {
        Some(secret) => Ok(secret.to_str().ok().map(str::to_owned)),
        None => Ok(query.one("session")?.map(str::to_owned)),
    }
}

/// The identity behind the request; None without a credential.
pub async fn identity(api: &HttpApi, parts: &Parts, query: &Query) -> Result<Option<Identity>, Refusal> {
    match usable_credential(api, parts, query)? {
        Some(credential) => admit(api, &credential, parts).await.map(Some),
        None => count_anonymous(api, parts),
    }
}

/// The identity behind a request whose token may be in its body, without waiting. None: the store must be asked about the
/// credential.
pub fn identity_now(
    api: &HttpApi,
    parts: &Parts,
    token: Option<&str>,
) -> Option<Result<Option<Identity>, Refusal>> {
    let credential = match token {
        Some(token) => Ok(Some(Credential::of(token))),
        None => Query::of(parts).and_then(|query| usable_credential(api, parts, &query)),
    };
    Some(match credential {
        Ok(Some(credential)) => {
            let decided = api.authenticator.admit_now(&credential, api.now())?;
            count_login(api, address_of(parts), decided).map(Some)
        }
        Ok(None) => count_anonymous(api, parts),
        Err(refusal) => Err(refusal),
    })
}

fn usable_credential(api: &HttpApi, parts: &Parts, query: &Query) -> Result<Option<Credential>, Refusal> {
    match credential(parts, query)? {
        Some(Credential::User(_)) if api.config.mode != ServerMode::Dev => {
            Err(Refusal::new(Code::Unauthenticated, "?user= works in dev mode only; send a token"))
        }
        credential => Ok(credential),
    }
}

/// Counts a request without a credential for its address.
fn count_anonymous(api: &HttpApi, parts: &Parts) -> Result<Option<Identity>, Refusal> {
    if let Some(address) = address_of(parts) {
        api.node.rates.take_address_command(api.now(), address)?;
    }
    Ok(None)
}

/// The client's address as it counts in limits.
pub fn address_of(parts: &Parts) -> Option<AddressGroup> {
    parts.extensions.get::<ClientAddress>().map(|address| AddressGroup::of(address.0))
}

/// Counts a request that opens a session, unless it comes with an API key.
pub fn count_hello(api: &HttpApi, parts: &Parts, identity: Option<&Identity>) -> Result<(), Refusal> {
    match address_of(parts) {
        Some(address) if !identity.is_some_and(|identity| identity.unlimited) => {
            api.node.rates.take_hello(api.now(), address)
        }
        _ => Ok(()),
    }
}

/// The identity behind a credential.
pub async fn admit(api: &HttpApi, credential: &Credential, parts: &Parts) -> Result<Identity, Refusal> {
    let (now, rates, address) = (api.now(), &api.node.rates, address_of(parts));
    let admitted = match api.authenticator.admit_now(credential, now) {
        Some(decided) => decided,
        None => {
            if let Some(address) = address {
                rates.begin_lookup(now, address)?;
            }
            let looked_up = api.authenticator.admit(credential, now).await;
            if let Some(address) = address.filter(|_| looked_up != Err(AuthError::UnknownKey)) {
                rates.end_lookup(address);
            }
            looked_up
        }
    };
    let admitted = count_login(api, address, admitted)?;
    if let Some(replies) = parts.extensions.get::<Arc<ConnectionReplies>>() {
        replies.note_login();
    }
    Ok(admitted)
}

/// Requests count for their address, except those with an API key; so do failed logins.
fn count_login(
    api: &HttpApi,
    address: Option<AddressGroup>,
    admitted: Result<Identity, AuthError>,
) -> Result<Identity, Refusal> {
    let (now, rates) = (api.now(), &api.node.rates);
    if let Some(address) = address {
        match &admitted {
            Ok(identity) if identity.unlimited => {}
            Ok(_) => rates.take_address_command(now, address)?,
            Err(_) => rates.take_hello(now, address)?,
        }
    }
    admitted.map_err(|error| {
        api.authenticator.log_refusal(&error, "http", address);
        error.refusal()
    })
}

/// The whole body, bounded in bytes and time.
pub async fn body(mut incoming: Incoming, max: usize) -> Result<Bytes, Refusal> {
    let collected = {
        let mut collecting = pin!(Limited::new(&mut incoming, max).collect());
        // A small body has usually arrived with the head: then no timer is needed.
        let at_once = poll_fn(|context| Poll::Ready(collecting.as_mut().poll(context))).await;
        match at_once {
            Poll::Ready(collected) => Ok(collected),
            Poll::Pending => tokio::time::timeout(BODY_TIMEOUT, collecting).await,
        }
    };
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            drain(incoming).await;
            Err(Refusal::new(Code::TooLarge, format!("the body is larger than {max} bytes")))
        }
        Ok(Err(_)) => Err(Refusal::new(Code::BadRequest, "cannot read the body")),
        Err(_) => Err(Refusal::new(Code::BadRequest, "the body did not arrive within 15 s")),
    }
}

/// Reads on for a while: a client that is still writing would not see the answer.
async fn drain(mut incoming: Incoming) {
    let reading = async {
        let mut left = DRAIN_BYTES;
        while left > 0
            && let Some(Ok(frame)) = incoming.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
}

/// The address a request came from: the peer's, or the last untrusted hop that trusted proxies report.
pub fn client_address(api: &HttpApi, peer: SocketAddr, parts: &Parts) -> IpAddr {
    forwarded_address(&api.config.trusted_proxies, peer.ip(), &parts.headers)
}

pub(crate) fn forwarded_address(proxies: &[Cidr], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let trusted = |address: IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
    if !trusted(peer) {
        return peer;
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<Option<IpAddr>> = forwarded.flat_map(|value| value.split(',')).map(hop_address).collect();
    // An invalid hop ends the search: hops before it are claimed by the client.
    let untrusted = hops.into_iter().rev().map_while(|hop| hop).find(|&hop| !trusted(hop));
    untrusted.unwrap_or(peer)
}

/// An address with or without a port, as proxies write it.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    if let Some(v6) = hop.strip_prefix('[') {
        return v6.split(']').next()?.parse().ok();
    }
    hop.parse().ok().or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_percent_escapes_are_kept() {
        let check = |text, plus, expected: &str| assert_eq!(decode(text, plus).unwrap(), expected);
        check("game%23A+b", true, "game#A b");
        check("game%23A+b", false, "game#A+b");
        check("100%", true, "100%");
        check("%zz%4%+5", false, "%zz%4%+5");
        check("%C3%BC", true, "ü");
        assert!(decode("%C3", true).is_err());
    }

    #[test]
    fn a_colon_stands_for_the_first_hash() {
        for (given, channel) in
            [("game:1", "game#1"), ("game:a:b", "game#a:b"), ("game#a:b", "game#a:b"), ("lobby", "lobby")]
        {
            assert_eq!(channel_name(given), channel);
        }
    }

    #[test]
    fn a_parameter_of_the_wrong_type_is_refused_by_name() {
        let query =
            |text: &str| Query::of(&http::Request::get(text).body(()).unwrap().into_parts().0).unwrap();
        assert_eq!(query("/?limit=7&present=true&user=%2B").number("limit", 1..=10).unwrap(), Some(7));
        assert_eq!(query("/?a=1").number("limit", 1..=10).unwrap(), None);
        assert_eq!(query("/?present=true").flag("present"), Ok(true));
        assert_eq!(query("/").flag("present"), Ok(false));
        for wrong in ["0", "11", "null", "", "-1", "1.0", "%2B7", "99999999999999999999", "7&limit=7"] {
            let refusal = query(&format!("/?limit={wrong}")).number("limit", 1..=10).unwrap_err();
            assert!(refusal.message.contains("`limit`"), "{wrong}: {refusal}");
        }
        for wrong in ["1", "null", "", "True", "true&present=true"] {
            assert!(query(&format!("/?present={wrong}")).flag("present").is_err(), "{wrong}");
        }
    }
}
