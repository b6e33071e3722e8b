//! API keys: `tvk_<id>_<secret>`. The store keeps only a hash; a running server caches recently used keys.
//! Must hold: a revoked key is refused after at most `FRESH_MS`; the key itself is never stored.

use super::AuthError;
use crate::config::SecretText;
use crate::random::random_text;
use ring::digest;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use tavern_domain::rights::Grant;
use tavern_domain::{Identity, Rights, Scope, Scopes, Time, Verb};
use tavern_store::{ApiKey, StoreError};
use tokio::sync::oneshot;

const KEY: &str = "tvk_";
const CODE: &str = "tvl_";
const ID_CHARS: usize = 10;
const SECRET_CHARS: usize = 40;
const NAME_BYTES: usize = 128;
/// The longest generated key; an admin key from the configuration may be longer.
const KEY_BYTES: usize = 512;

/// How long a cached answer of the store is used. Counted from the request, so a key stops working this long after
/// the commit that revoked it, whatever the store's delay.
pub const FRESH_MS: u64 = 1_000;
/// Cached answers, known and unknown keys: a flood of wrong keys must not become a flood of reads.
const KEPT: usize = 4_096;
/// The id of the configured admin key. Generated keys have ten letters or digits.
pub const ADMIN: &str = "admin";
/// How long the store may take to answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a key needs a name of 1 to 128 bytes without control characters")]
    Name,
    #[error(
        "a key needs at least one scope: publish, events, subscriptions, presence, parties, users, admin"
    )]
    NoScope,
    #[error(
        "{0:?} is not a scope; the scopes are publish, events, subscriptions, presence, parties, users, admin"
    )]
    UnknownScope(String),
}

/// A new key: the row for the store, and the text that is shown once.
pub struct NewKey {
    pub row: ApiKey,
    pub text: SecretText,
}

/// Generates a key. Nothing is stored yet.
pub fn mint(name: &str, scopes: Scopes, now: Time) -> Result<NewKey, KeyError> {
    minted(KEY, name, scopes, now)
}

/// Generates a code that can be exchanged for a key. It is no key.
pub fn mint_code(name: &str, scopes: Scopes, now: Time) -> Result<NewKey, KeyError> {
    minted(CODE, name, scopes, now)
}

/// The hash under which a code is stored. None: this is no code.
pub fn code_hash(text: &str) -> Option<[u8; 32]> {
    (text.len() <= KEY_BYTES && text.starts_with(CODE)).then(|| hash(text))
}

fn minted(prefix: &str, name: &str, scopes: Scopes, now: Time) -> Result<NewKey, KeyError> {
    if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
        return Err(KeyError::Name);
    }
    if scopes.is_empty() {
        return Err(KeyError::NoScope);
    }
    let id = random_text(ID_CHARS);
    let text = format!("{prefix}{id}_{}", random_text(SECRET_CHARS));
    let hash = hash(&text);
    let row = ApiKey {
        id: id.into(),
        name: name.into(),
        hash,
        scopes,
        created_at: now,
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    };
    Ok(NewKey { row, text: SecretText::new(text) })
}

/// Reads `publish,events`.
pub fn parse_scopes(text: &str) -> Result<Scopes, KeyError> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| Scope::parse(word).ok_or_else(|| KeyError::UnknownScope(word.to_owned()))).collect()
}

/// A key has 200 random bits, so it cannot be guessed and a fast hash is enough.
fn hash(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

/// Where the keyring looks up keys it has not cached.
pub trait KeySource: Send + Sync {
    /// Must not block. A dropped `reply` counts as an unavailable store.
    fn find(&self, hash: [u8; 32], reply: oneshot::Sender<Result<Option<ApiKey>, StoreError>>);
}

/// The keys of a running server.
pub struct Keyring {
    admin: Option<SecretText>,
    source: Option<Arc<dyn KeySource>>,
    seen: Mutex<HashMap<[u8; 32], CachedKey>>,
    /// The hashes of keys that were used since they were last taken.
    used: Mutex<HashSet<[u8; 32]>>,
}

#[derive(Clone)]
struct CachedKey {
    asked_at: Instant,
    outcome: Result<Identity, AuthError>,
}

impl Keyring {
    pub fn new(admin: Option<SecretText>, source: Arc<dyn KeySource>) -> Keyring {
        Keyring { admin, source: Some(source), seen: Mutex::default(), used: Mutex::default() }
    }

    /// A keyring that knows only the configured admin key.
    pub fn without_store(admin: Option<SecretText>) -> Keyring {
        Keyring { admin, source: None, seen: Mutex::default(), used: Mutex::default() }
    }

    /// Whether an admin key is configured.
    pub fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// The identity of the configured admin key, if this is it.
    pub fn admin(&self, presented: &str) -> Option<Identity> {
        let admin = self.admin.as_ref()?;
        admin.matches(presented).then(|| identity(ADMIN, Scopes::ALL))
    }

    /// Decides from the cache. `None`: the store must be read.
    pub fn verify_now(&self, presented: &str) -> Option<Result<Identity, AuthError>> {
        if let Some(identity) = self.admin(presented) {
            return Some(Ok(identity));
        }
        if !is_key(presented) {
            return Some(Err(AuthError::Malformed));
        }
        if self.source.is_none() {
            return Some(Err(AuthError::UnknownKey));
        }
        self.remembered(&hash(presented), Instant::now())
    }

    pub async fn verify(&self, presented: &str) -> Result<Identity, AuthError> {
        if let Some(decided) = self.verify_now(presented) {
            return decided;
        }
        let Some(source) = &self.source else { return Err(AuthError::UnknownKey) };
        let (hash, asked_at) = (hash(presented), Instant::now());
        let (reply, answer) = oneshot::channel();
        source.find(hash, reply);
        let found = match tokio::time::timeout(LOOKUP_TIMEOUT, answer).await {
            Ok(Ok(Ok(found))) => found,
            _ => return Err(AuthError::Unavailable),
        };
        let outcome = judge(presented, &hash, found);
        if outcome.is_ok() {
            self.note_use(hash);
        }
        self.remember(hash, CachedKey { asked_at, outcome: outcome.clone() });
        outcome
    }

    /// The hashes of the keys that were used since this was last called.
    pub fn take_used(&self) -> HashSet<[u8; 32]> {
        std::mem::take(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_use(&self, hash: [u8; 32]) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() < KEPT {
            used.insert(hash);
        }
    }

    fn remembered(&self, hash: &[u8; 32], now: Instant) -> Option<Result<Identity, AuthError>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(hash).filter(|seen| seen.is_fresh(now)).map(|seen| seen.outcome.clone())
    }

    fn remember(&self, hash: [u8; 32], fresh: CachedKey) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= KEPT {
            let now = fresh.asked_at;
            seen.retain(|_, seen| seen.is_fresh(now));
            if seen.len() >= KEPT {
                seen.clear();
            }
        }
        seen.insert(hash, fresh);
    }
}

impl CachedKey {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked_at) < Duration::from_millis(FRESH_MS)
    }
}

fn is_key(presented: &str) -> bool {
    presented.len() <= KEY_BYTES && presented.starts_with(KEY)
}

fn judge(presented: &str, hash: &[u8; 32], found: Option<ApiKey>) -> Result<Identity, AuthError> {
    let key = found.ok_or(AuthError::UnknownKey)?;
    let same_hash = bool::from(key.hash.ct_eq(hash));
    let same_id = presented.split('_').nth(1) == Some(&*key.id);
    if same_hash && same_id && key.revoked_at.is_none() {
        Ok(Identity { expires: key.expires_at.unwrap_or(Time::NEVER), ..identity(&key.id, key.scopes) })
    } else {
        Err(AuthError::UnknownKey)
    }
}

/// The rights of a key on channels follow from its scopes: `publish` publishes anywhere, `presence` sees and joins
/// anywhere, `admin` subscribes anywhere.
fn identity(id: &str, scopes: Scopes) -> Identity {
    let verbs = scopes.iter().flat_map(|scope| match scope {
        Scope::Publish => &[Verb::Publish][..],
        Scope::Presence => &[Verb::Presence, Verb::Join],
        Scope::Admin => &[Verb::Subscribe],
        Scope::Events | Scope::Subscriptions | Scope::Parties | Scope::Users => &[],
    });
    let grant = Grant { pattern: Box::from(*b"*"), verbs: verbs.copied().collect() };
    Identity {
        user: None,
        name: None,
        rights: Arc::new(Rights { grants: vec![grant] }),
        expires: Time::NEVER,
        issued_s: 0,
        unlimited: true,
        scopes,
        key: Some(id.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct KeyTable {
        keys: Mutex<Vec<ApiKey>>,
        asked: AtomicUsize,
    }

    impl KeySource for KeyTable {
        fn find(&self, hash: [u8; 32], reply: oneshot::Sender<Result<Option<ApiKey>, StoreError>>) {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let found = self.keys.lock().unwrap().iter().find(|key| key.hash == hash).cloned();
            reply.send(Ok(found)).unwrap();
        }
    }

    fn ring(keys: &[&NewKey]) -> (Arc<KeyTable>, Keyring) {
        let keys = Mutex::new(keys.iter().map(|key| key.row.clone()).collect());
        let lookup = Arc::new(KeyTable { keys, asked: AtomicUsize::new(0) });
        (lookup.clone(), Keyring::new(Some(SecretText::new("open sesame")), lookup))
    }

    #[tokio::test]
    async fn a_code_is_no_key() {
        let code = mint_code("link", Scopes::ALL, Time(5)).unwrap();
        let (lookup, ring) = ring(&[&code]);
        assert_eq!(ring.verify(code.text.expose()).await, Err(AuthError::Malformed));
        assert_eq!(lookup.asked.load(Ordering::SeqCst), 0);
        assert_eq!(code_hash(code.text.expose()), Some(code.row.hash));
        let key = mint("ci", Scopes::ALL, Time(5)).unwrap();
        assert_eq!(code_hash(key.text.expose()), None, "a key is no code");
    }

    #[tokio::test]
    async fn keys_are_verified_and_cached() {
        let key = mint("ci", parse_scopes("publish, presence").unwrap(), Time(5)).unwrap();
        let (lookup, ring) = ring(&[&key]);
        assert!(ring.verify_now(key.text.expose()).is_none(), "the store must be asked first");
        let identity = ring.verify(key.text.expose()).await.unwrap();
        assert!(identity.unlimited && identity.user.is_none());
        assert!(identity.scopes.has(Scope::Publish) && !identity.scopes.has(Scope::Admin));
        assert!(identity.rights.allows(Verb::Publish, b"game#1"));
        assert!(!identity.rights.allows(Verb::Subscribe, b"game#1"));
        assert!(ring.verify(key.text.expose()).await.is_ok());
        assert_eq!(lookup.asked.load(Ordering::SeqCst), 1, "the second answer comes from the cache");
        assert_eq!(ring.verify("tvk_0000000000_nothing").await, Err(AuthError::UnknownKey));
        assert_eq!(ring.verify("tvk_0000000000_nothing").await, Err(AuthError::UnknownKey));
        assert_eq!(lookup.asked.load(Ordering::SeqCst), 2, "an unknown key is cached too");
        assert_eq!(ring.verify("something else").await, Err(AuthError::Malformed));
        assert_eq!(ring.verify("open sesame").await.unwrap().scopes, Scopes::ALL);
    }

    #[tokio::test]
    async fn a_revoked_key_is_refused_when_its_cache_entry_expires() {
        let key = mint("ci", Scopes::ALL, Time(5)).unwrap();
        let (lookup, ring) = ring(&[&key]);
        ring.verify(key.text.expose()).await.unwrap();
        lookup.keys.lock().unwrap()[0].revoked_at = Some(Time(6));
        let hash = hash(key.text.expose());
        let old = Instant::now() + Duration::from_millis(FRESH_MS);
        assert!(ring.remembered(&hash, old).is_none());
        assert_eq!(
            judge(key.text.expose(), &hash, lookup.keys.lock().unwrap().pop()),
            Err(AuthError::UnknownKey)
        );
    }

    #[test]
    fn the_cache_of_keys_is_bounded() {
        let (_, ring) = ring(&[]);
        for n in 0..=KEPT as u64 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&n.to_le_bytes());
            ring.remember(hash, CachedKey { asked_at: Instant::now(), outcome: Err(AuthError::UnknownKey) });
        }
        assert!(ring.seen.lock().unwrap().len() <= KEPT);
    }

    #[test]
    fn a_key_needs_a_name_and_a_scope() {
        assert!(matches!(mint("", Scopes::ALL, Time(0)), Err(KeyError::Name)));
        assert!(matches!(mint("a\tb", Scopes::ALL, Time(0)), Err(KeyError::Name)));
        assert!(matches!(mint("ci", Scopes::NONE, Time(0)), Err(KeyError::NoScope)));
        assert!(matches!(parse_scopes("publish,fly"), Err(KeyError::UnknownScope(word)) if word == "fly"));
        let key = mint("ci", Scopes::ALL, Time(0)).unwrap();
        assert_eq!(key.text.expose().len(), 4 + ID_CHARS + 1 + SECRET_CHARS);
    }
}
