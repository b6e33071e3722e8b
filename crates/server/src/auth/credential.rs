//! Credentials and their check. A credential is a token, an API key, or in dev mode a name.
//! Must hold: outside dev mode a name grants nothing.

use super::{AuthError, Keyring, LoginTime, Verifier, token};
use crate::config::ServerMode;
use crate::refusal_log::RefusalLogs;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::{Arc, LazyLock, OnceLock};
use tavern_domain::{AddressGroup, Identity, Rights, Scopes, Time, is_user_id};
use tavern_hub::Node;
use tavern_hub::node::blocks::Blocks;
use tavern_store::Clock;
use tavern_wire::error::{Code, Refusal};

// No Debug: it holds secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    Token(String),
    Key(String),
    /// `?user=NAME`, dev mode only.
    User(String),
}

/// When a client whose token needs a key that must be fetched may try again.
const KEY_RETRY_MS: u64 = 1_000;
/// The longest credential that is read; a token is the longest kind.
const PRESENTED_BYTES: usize = token::TOKEN_BYTES;

impl Credential {
    /// A bare text: a token has two dots, a key has none. A configured admin key may look like anything and is
    /// recognised by the authenticator first.
    pub fn of(text: &str) -> Credential {
        let looks_like_a_token =
            text.bytes().filter(|&b| b == b'.').count() == 2 && !text.starts_with("tvk_");
        if looks_like_a_token { Credential::Token(text.to_owned()) } else { Credential::Key(text.to_owned()) }
    }

    /// The value of an `Authorization` header: `Bearer TOKEN`, `Bearer KEY`, or Basic with the key as user name.
    pub fn from_authorization(header: &str) -> Result<Credential, AuthError> {
        if header.len() > PRESENTED_BYTES * 2 {
            return Err(AuthError::TooLong);
        }
        let (scheme, rest) = header.trim().split_once(' ').ok_or(AuthError::Header)?;
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
            return Ok(Credential::of(rest));
        }
        if scheme.eq_ignore_ascii_case("basic") {
            let bytes = STANDARD.decode(rest).map_err(|_| AuthError::Header)?;
            let text = String::from_utf8(bytes).map_err(|_| AuthError::Header)?;
            let user = text.split_once(':').map_or(text.as_str(), |(user, _)| user);
            if !user.is_empty() {
                return Ok(Credential::Key(user.to_owned()));
            }
        }
        Err(AuthError::Header)
    }
}

/// Turns credentials into identities. Shared by every transport.
pub struct Authenticator {
    mode: ServerMode,
    verifier: Verifier,
    keyring: Keyring,
    /// The wall clock of this machine.
    wall: Arc<dyn Clock>,
    leeway_ms: u64,
    max_life_ms: u64,
    /// Users who are banned. Empty until the node is made.
    blocks: OnceLock<Arc<Blocks>>,
    refusals: RefusalLogs,
}

impl Authenticator {
    pub fn new(
        mode: ServerMode,
        verifier: Verifier,
        keyring: Keyring,
        wall: Arc<dyn Clock>,
    ) -> Authenticator {
        let (blocks, refusals) = (OnceLock::new(), RefusalLogs::default());
        let max_life_ms = u64::MAX;
        Authenticator { mode, verifier, keyring, wall, leeway_ms: 0, max_life_ms, blocks, refusals }
    }

    /// Accepts tokens whose times differ by this much from the wall clock.
    pub fn with_leeway(self, leeway_ms: u64) -> Authenticator {
        Authenticator { leeway_ms, ..self }
    }

    /// Refuses tokens that expire later than this.
    pub fn with_longest_life(self, max_life_ms: u64) -> Authenticator {
        Authenticator { max_life_ms, ..self }
    }

    /// From now on users who are banned on this node are refused, however they come.
    pub fn refuse_blocked(&self, node: &Node) {
        let _ = self.blocks.set(node.blocks.clone());
    }

    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Decides without waiting where that is possible: tokens, names, the configured admin key and cached keys.
    /// `None`: the store must be read, with `admit`. `now` is node time: the identity expires by it.
    pub fn admit_now(&self, credential: &Credential, now: Time) -> Option<Result<Identity, AuthError>> {
        self.decide_now(credential, now).map(|decided| self.unblocked(decided, now))
    }

    pub async fn admit(&self, credential: &Credential, now: Time) -> Result<Identity, AuthError> {
        let decided = match (self.decide_now(credential, now), credential) {
            (Some(decided), _) => decided,
            (None, Credential::Key(text)) => self.unexpired(self.keyring.verify(text).await),
            (None, Credential::Token(text)) => {
                self.verifier.refresh().await;
                self.verifier.verify(text, self.login_at(now))
            }
            (None, Credential::User(_)) => Err(AuthError::Malformed),
        };
        self.unblocked(decided, now)
    }

    /// The one place that every way in passes: a banned user is nobody here.
    fn unblocked(&self, decided: Result<Identity, AuthError>, now: Time) -> Result<Identity, AuthError> {
        let identity = decided?;
        let refusal = self.blocks.get().and_then(|blocks| blocks.refusal(identity.user.as_deref(), now));
        refusal.map_or(Ok(identity), |refusal| Err(AuthError::Blocked(Box::new(refusal))))
    }

    fn decide_now(&self, credential: &Credential, now: Time) -> Option<Result<Identity, AuthError>> {
        match credential {
            Credential::User(name) if self.mode == ServerMode::Dev => Some(dev_identity(Some(name))),
            Credential::User(_) => Some(Err(AuthError::Missing)),
            Credential::Token(text) => Some(match self.keyring.admin(text) {
                Some(identity) => Ok(identity),
                None => {
                    let checked = self.verifier.verify(text, self.login_at(now));
                    // Its issuer may have a new key.
                    if checked == Err(AuthError::UnknownKeyId) && self.verifier.may_refresh() {
                        return None;
                    }
                    checked
                }
            }),
            Credential::Key(text) => self.keyring.verify_now(text).map(|decided| self.unexpired(decided)),
        }
    }

    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    fn login_at(&self, node: Time) -> LoginTime {
        let (leeway_ms, max_life_ms) = (self.leeway_ms, self.max_life_ms);
        LoginTime { wall: self.wall.now(), node, leeway_ms, max_life_ms }
    }

    /// Logs that a login was refused, at most once in a while for each reason.
    pub fn log_refusal(&self, error: &AuthError, transport: &'static str, address: Option<AddressGroup>) {
        let reason = error.reason();
        if let Some(refused) = self.refusals.count(reason) {
            let address = address.map(tracing::field::display);
            tracing::warn!(reason, transport, address, refused, "login refused");
        }
    }

    fn unexpired(&self, decided: Result<Identity, AuthError>) -> Result<Identity, AuthError> {
        decided.and_then(|identity| match self.wall.now() < identity.expires {
            true => Ok(identity),
            false => Err(AuthError::UnknownKey),
        })
    }

    /// A client without a credential: anonymous with every right in dev mode, refused otherwise.
    pub fn admit_unnamed(&self) -> Result<Identity, AuthError> {
        if self.mode == ServerMode::Dev { dev_identity(None) } else { Err(AuthError::Missing) }
    }
}

/// Verifies the tokens of `hello` for the hub. An API key that is not cached is refused there; a token whose key must be
/// fetched is to be tried again.
pub struct HelloTokens(pub Arc<Authenticator>);

impl HelloTokens {
    fn refuse(&self, error: &AuthError) -> Refusal {
        self.0.log_refusal(error, "hello", None);
        error.refusal()
    }
}

impl tavern_hub::TokenVerifier for HelloTokens {
    fn verify(&self, token: &str, now: Time) -> Result<Identity, Refusal> {
        let credential = Credential::of(token);
        match (self.0.admit_now(&credential, now), credential) {
            (Some(decided), _) => decided.map_err(|error| self.refuse(&error)),
            (None, Credential::Token(_)) => {
                self.0.verifier.request_refresh();
                let message = AuthError::Unavailable.to_string();
                Err(Refusal::new(Code::Unavailable, message).retry_after(KEY_RETRY_MS))
            }
            (None, _) => Err(self.refuse(&AuthError::Malformed)),
        }
    }
}

/// All rights; one shared copy.
pub fn all_rights() -> Arc<Rights> {
    static ALL: LazyLock<Arc<Rights>> = LazyLock::new(|| Arc::new(Rights::all()));
    ALL.clone()
}

fn dev_identity(name: Option<&str>) -> Result<Identity, AuthError> {
    if name.is_some_and(|name| !is_user_id(name)) {
        return Err(AuthError::UserName);
    }
    Ok(Identity {
        user: name.map(Arc::from),
        name: None,
        rights: all_rights(),
        expires: Time::NEVER,
        issued_s: 0,
        unlimited: true,
        scopes: Scopes::NONE,
        key: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        let kind = |header: &str| match Credential::from_authorization(header) {
            Ok(Credential::Token(text)) => format!("token {text}"),
            Ok(Credential::Key(text)) => format!("key {text}"),
            Ok(Credential::User(text)) => format!("user {text}"),
            Err(error) => format!("{error:?}"),
        };
        for (header, expected) in [
            ("Bearer a.b.c", "token a.b.c"),
            ("bearer  tvk_x_y", "key tvk_x_y"),
            ("Bearer plain", "key plain"),
            ("Basic dHZrX3hfeTo=", "key tvk_x_y"),
            ("Basic dHZrX3hfeQ==", "key tvk_x_y"),
            ("Basic !!", "Header"),
            ("Basic Og==", "Header"),
            ("Bearer ", "Header"),
            ("Digest x", "Header"),
            ("", "Header"),
        ] {
            assert_eq!(kind(header), expected, "{header}");
        }
        assert!(Credential::from_authorization(&format!("Bearer {}", "x".repeat(20_000))).is_err());
    }

    #[test]
    fn names_are_accepted_in_dev_mode_only() {
        let gate = |mode| {
            let verifier =
                Verifier::from_secret(&crate::config::SecretText::new("0123456789abcdef0123456789abcdef"));
            Authenticator::new(
                mode,
                verifier,
                Keyring::without_store(None),
                Arc::new(tavern_store::SystemClock),
            )
        };
        let ann = Credential::User("ann".into());
        let dev = gate(ServerMode::Dev).admit_now(&ann, Time(1)).unwrap().unwrap();
        assert_eq!((dev.user.as_deref(), dev.unlimited), (Some("ann"), true));
        assert_eq!(gate(ServerMode::Serve).admit_now(&ann, Time(1)), Some(Err(AuthError::Missing)));
        assert_eq!(gate(ServerMode::Serve).admit_unnamed(), Err(AuthError::Missing));
        assert!(gate(ServerMode::Dev).admit_unnamed().unwrap().user.is_none());
        let nameless = Credential::User(String::new());
        assert_eq!(gate(ServerMode::Dev).admit_now(&nameless, Time(1)), Some(Err(AuthError::UserName)));
    }
}
