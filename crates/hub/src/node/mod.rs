//! The state that all shards of one node share: settings, the registry of names, counters, the token verifier.

pub mod admission;
mod adoption;
pub mod blocks;
pub mod bus_interests;
mod bus_messages;
mod discovery;
pub mod histogram;
mod name_entry;
pub mod population;
mod publish_order;
pub mod rates;
pub mod registry;
pub mod session_slots;
pub mod stats;
pub mod traffic;

use admission::{Admission, AdmissionLimits};
use adoption::AdoptionCheck;
use blocks::Blocks;
use bus_interests::BusInterests;
pub use bus_interests::{InterestState, RELEASE_AFTER_MS};
pub use bus_messages::{ChannelUpdate, ControlMessage, ReceivedMessage, UserNotice};
pub use discovery::NodeQuery;
use population::Population;
pub(crate) use publish_order::PendingPublishes;
use rates::{RateLimits, Rates};
use registry::Registry;
use session_slots::SessionSlots;
use stats::Stats;
use traffic::TrafficTap;

use crate::connection::CloseReason;
use crate::settings::Settings;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tavern_domain::presence::NodeEpoch;
use tavern_domain::{Channel, Epoch, HistoryLimits, Identity, Reach, Time};
use tavern_store::{Append, PresenceKey};
use tavern_wire::error::Refusal;

/// Verifies tokens. Pure computation over the token and the time, without IO.
pub trait TokenVerifier: Send + Sync {
    fn verify(&self, token: &str, now: Time) -> Result<Identity, Refusal>;
}

/// Sees users come and go in channels. Pure computation: what it returns is appended in the commit of the change.
pub trait PresenceObserver: Send + Sync {
    fn appends(&self, key: &PresenceKey, online: bool, now: Time) -> Vec<Append>;

    /// The topics to which changes of a channel are appended.
    fn topics(&self, channel: &str) -> Vec<Arc<str>>;
}

/// The source of ids and jitter: the operating system in production, a seed in the simulator.
pub trait RandomSource {
    fn next(&mut self) -> u128;
}

/// Nothing is deleted by age: the clock may be wrong.
const NO_DELETION: u64 = u64::MAX;

pub struct Node {
    pub settings: Settings,
    pub registry: Arc<Registry>,
    pub stats: Vec<Arc<Stats>>,
    pub token_verifier: Box<dyn TokenVerifier>,
    /// The bus subscriptions of this node.
    pub bus_interests: BusInterests,
    /// Rate limits that all shards share.
    pub rates: Rates,
    /// How many hellos all shards take.
    pub admission: Admission,
    /// How many sessions each user has.
    pub(crate) session_slots: SessionSlots,
    /// Users who may not connect.
    pub blocks: Arc<Blocks>,
    /// How many users and sessions there are.
    pub population: Population,
    pub adoption: AdoptionCheck,
    /// Operators who watch messages and commands live.
    pub traffic: TrafficTap,
    pub(crate) name: Arc<str>,
    epoch: AtomicU64,
    observer: OnceLock<Box<dyn PresenceObserver>>,
    /// The presence topic has a subscription.
    publishes_presence: AtomicBool,
    /// The party topic has a subscription.
    publishes_parties: AtomicBool,
    /// The ids of API keys that were revoked.
    revoked_keys: RwLock<BTreeSet<Arc<str>>>,
    /// How far behind node time the time is by which rows are deleted by age; `NO_DELETION`: nothing is deleted.
    deletion_lag_ms: AtomicU64,
    /// The names of the other live nodes, as of the last heartbeat.
    other_nodes: Mutex<Arc<[Arc<str>]>>,
    /// By shard: how many clients pull events there.
    pulls: Vec<AtomicUsize>,
    /// Some kind of channel has history.
    pub(crate) has_history: bool,
    /// The kinds that have history; None: also those without rules of their own.
    history_kinds: Option<Vec<String>>,
    /// Messages were retained in channels without history.
    has_retained: AtomicBool,
}

impl Node {
    pub fn new(settings: Settings, token_verifier: Box<dyn TokenVerifier>) -> Arc<Node> {
        let pulls = (0..settings.shards).map(|_| AtomicUsize::new(0)).collect();
        let stats = (0..settings.shards).map(|_| Arc::default()).collect();
        let bus_interests = BusInterests::new(&settings.prefix, settings.shards);
        let name = settings.node.as_str().into();
        let epoch = AtomicU64::new(settings.epoch.0);
        let (registry, other_nodes) = (Registry::new(), Mutex::new(Arc::from([])));
        let (publishes_presence, publishes_parties) = (AtomicBool::new(false), AtomicBool::new(false));
        let rates = Rates::new(RateLimits {
            user_commands: settings.commands_per_second,
            address_commands: settings.address_commands_per_second,
            address_hellos: settings.address_hellos_per_second,
            address_failed_logins: settings.address_failed_logins_per_second,
        });
        let admission = Admission::new(AdmissionLimits {
            in_progress: settings.hellos_in_progress,
            per_second: settings.hellos_per_second,
        });
        let session_slots = SessionSlots::new(settings.sessions_per_user);
        Arc::new(Node {
            rates,
            admission,
            session_slots,
            blocks: Arc::default(),
            population: Population::default(),
            adoption: AdoptionCheck::default(),
            traffic: TrafficTap::default(),
            has_history: settings.has_history(),
            history_kinds: settings.history_kinds(),
            has_retained: AtomicBool::new(false),
            settings,
            registry,
            stats,
            token_verifier,
            bus_interests,
            name,
            epoch,
            observer: OnceLock::new(),
            publishes_presence,
            publishes_parties,
            revoked_keys: RwLock::default(),
            deletion_lag_ms: AtomicU64::new(0),
            other_nodes,
            pulls,
        })
    }

    /// How much history a channel keeps; None: none.
    pub fn history_limits(&self, name: &[u8]) -> Option<HistoryLimits> {
        // Most names are rejected by their first bytes, without parsing them.
        let may_be_of = |kind: &String| name.starts_with(kind.as_bytes());
        if self.history_kinds.as_ref().is_some_and(|kinds| !kinds.iter().any(may_be_of)) {
            return None;
        }
        let channel = Channel::parse_redis(name).ok().filter(|channel| channel.reach == Reach::Everyone)?;
        let rules = self.settings.kind(channel.kind).history.filter(|_| !channel.is_reserved())?;
        Some(rules.limits)
    }

    /// How a retained message of a channel without history is kept; None: the channel belongs to the server.
    pub fn retained_limits(&self, name: &[u8]) -> Option<HistoryLimits> {
        let channel = Channel::parse_redis(name).ok().filter(|channel| channel.reach == Reach::Everyone)?;
        (!channel.is_reserved()).then(|| self.settings.kind(channel.kind).retained)
    }

    /// Whether some channel of this node has stored messages.
    pub(crate) fn stores_messages(&self) -> bool {
        self.has_history || self.has_retained.load(Ordering::Relaxed)
    }

    /// A retained message of a channel without history is published or asked for.
    pub(crate) fn note_retained(&self) {
        if !self.stores_messages() {
            self.has_retained.store(true, Ordering::Relaxed);
        }
    }

    /// Whether clients of this shard pull events: it must be notified of new events.
    pub fn has_pulls(&self, shard: usize) -> bool {
        self.pulls.get(shard).is_some_and(|pulls| pulls.load(Ordering::SeqCst) > 0)
    }

    pub(crate) fn count_pull(&self, shard: usize) {
        self.pulls[shard].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn uncount_pull(&self, shard: usize) {
        self.pulls[shard].fetch_sub(1, Ordering::SeqCst);
    }

    /// The epoch under which this node writes.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The node and epoch under which its clients are present.
    pub(crate) fn node_epoch(&self) -> NodeEpoch {
        NodeEpoch { node: self.name.clone(), epoch: self.epoch() }
    }

    /// Other nodes declared this one dead: it continues under a new epoch.
    pub fn begin_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }

    /// Set once, before the first session.
    pub fn observe_presence(&self, observer: Box<dyn PresenceObserver>) {
        assert!(self.observer.set(observer).is_ok(), "a node has one observer");
    }

    pub(crate) fn presence_observer(&self) -> Option<&dyn PresenceObserver> {
        self.observer.get().map(|observer| &**observer)
    }

    pub(crate) fn publishes_presence(&self) -> bool {
        self.publishes_presence.load(Ordering::Relaxed)
    }

    /// Sets whether users who connect and disconnect are published to the topic `tavern.presence`.
    pub fn publish_presence(&self, on: bool) {
        self.publishes_presence.store(on, Ordering::Relaxed);
    }

    pub(crate) fn publishes_parties(&self) -> bool {
        self.publishes_parties.load(Ordering::Relaxed)
    }

    /// Sets whether party changes are published to the topic `tavern.parties`.
    pub fn publish_parties(&self, on: bool) {
        self.publishes_parties.store(on, Ordering::Relaxed);
    }

    /// Why connections and sessions of an identity must end now, if they must.
    pub fn credential_end(&self, identity: &Identity, now: Time) -> Option<CloseReason> {
        let is_revoked =
            |key: &Arc<str>| self.revoked_keys.read().unwrap_or_else(PoisonError::into_inner).contains(key);
        if now >= identity.expires {
            Some(CloseReason::TokenExpired)
        } else {
            identity.key.as_ref().is_some_and(is_revoked).then_some(CloseReason::KeyRevoked)
        }
    }

    /// Ends everything that was opened with these API keys.
    pub fn revoke_keys(&self, ids: BTreeSet<Arc<str>>) {
        *self.revoked_keys.write().unwrap_or_else(PoisonError::into_inner) = ids;
    }

    /// The time by which rows are deleted by age. None while the clock may be wrong: nothing may be deleted.
    pub(crate) fn deletion_time(&self, now: Time) -> Option<Time> {
        match self.deletion_lag_ms.load(Ordering::Relaxed) {
            NO_DELETION => None,
            lag_ms => Some(now - lag_ms),
        }
    }

    /// Sets how far behind node time the time is by which rows are deleted by age. None while the clock may be wrong.
    pub fn set_deletion_lag(&self, lag_ms: Option<u64>) {
        self.deletion_lag_ms.store(lag_ms.unwrap_or(NO_DELETION), Ordering::Relaxed);
    }

    pub fn other_nodes(&self) -> Arc<[Arc<str>]> {
        self.other_nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Set at each heartbeat.
    pub fn set_other_nodes(&self, names: Vec<Arc<str>>) {
        *self.other_nodes.lock().unwrap_or_else(PoisonError::into_inner) = names.into();
    }

    /// One shard's part of the memory limit for mailboxes.
    pub fn budget_bytes(&self) -> usize {
        self.settings.mailbox_total_bytes / self.settings.shards
    }
}
