//! Rate limits for a whole node, across shards and transports: commands per user, commands and logins per address.
//! Must hold: the memory is bounded; without a limit no lock is taken.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, PoisonError};
use tavern_domain::rate::{Allowance, Bucket};
use tavern_domain::{AddressGroup, Time};
use tavern_wire::error::{Code, Refusal};

/// Locks, so that shards rarely wait for each other.
const PARTS: usize = 64;
/// Buckets per part. Above this, new users and addresses are not limited.
const PART_MAX: usize = 16_384;
/// A part evicts unused buckets when it has grown to this many, then to twice as many as are in use.
const PART_LEAST: usize = 256;
/// After this time a bucket is full again and can be dropped.
const UNUSED_MS: u64 = 2_000;

/// The limits, in times per second; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateLimits {
    pub user_commands: u32,
    pub address_commands: u32,
    pub address_hellos: u32,
    pub address_failed_logins: u32,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateKind {
    UserCommands,
    AddressCommands,
    AddressHellos,
    AddressFailedLogins,
}

pub struct Rates {
    limits: RateLimits,
    hasher: RandomState,
    parts: [Mutex<RatePart>; PARTS],
}

#[derive(Default)]
struct RatePart {
    buckets: HashMap<u64, Bucket, RandomState>,
    /// The size at which unused buckets are dropped.
    drop_at: usize,
}

impl Rates {
    pub fn new(limits: RateLimits) -> Rates {
        let parts = std::array::from_fn(|_| Mutex::default());
        Rates { limits, hasher: RandomState::default(), parts }
    }

    /// Counts a command of a user.
    pub fn take_user_command(&self, now: Time, user: &str) -> Result<(), Refusal> {
        let taken = self.take(now, RateKind::UserCommands, user);
        taken.map_err(|ms| refusal("this user sends too many commands per second", ms))
    }

    /// Counts a command from an address.
    pub fn take_address_command(&self, now: Time, address: AddressGroup) -> Result<(), Refusal> {
        let taken = self.take(now, RateKind::AddressCommands, &address);
        taken.map_err(|ms| refusal("this address sends too many commands per second", ms))
    }

    /// Counts a login from an address.
    pub fn take_hello(&self, now: Time, address: AddressGroup) -> Result<(), Refusal> {
        let taken = self.take(now, RateKind::AddressHellos, &address);
        taken.map_err(|ms| refusal("too many logins per second from this address", ms))
    }

    /// Counts a login that has to read the store, in case it fails.
    pub fn begin_lookup(&self, now: Time, address: AddressGroup) -> Result<(), Refusal> {
        let taken = self.take(now, RateKind::AddressFailedLogins, &address);
        taken.map_err(|ms| refusal("too many failed logins per second from this address", ms))
    }

    /// The login did not fail.
    pub fn end_lookup(&self, address: AddressGroup) {
        let key = self.key(RateKind::AddressFailedLogins, &address);
        let mut part = self.part(key);
        if let Some(bucket) = part.buckets.get_mut(&key) {
            bucket.give_back();
        }
    }

    fn limit(&self, kind: RateKind) -> u32 {
        match kind {
            RateKind::UserCommands => self.limits.user_commands,
            RateKind::AddressCommands => self.limits.address_commands,
            RateKind::AddressHellos => self.limits.address_hellos,
            RateKind::AddressFailedLogins => self.limits.address_failed_logins,
        }
    }

    /// The error is the number of milliseconds to wait.
    fn take(&self, now: Time, kind: RateKind, who: &(impl Hash + ?Sized)) -> Result<(), u64> {
        let per_second = self.limit(kind);
        if per_second == 0 {
            return Ok(());
        }
        let key = self.key(kind, who);
        let mut part = self.part(key);
        if part.buckets.len() >= part.drop_at.max(PART_LEAST) {
            part.buckets.retain(|_, bucket| now.since(bucket.used_at()) < UNUSED_MS);
            part.drop_at = part.buckets.len() * 2;
        }
        if part.buckets.len() >= PART_MAX && !part.buckets.contains_key(&key) {
            return Ok(());
        }
        part.buckets.entry(key).or_default().take(now, Allowance::with_burst(per_second))
    }

    /// A seeded hash: the chance that two users share a bucket is 1 in 2^64.
    fn key(&self, kind: RateKind, who: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one((kind, self.hasher.hash_one(who)))
    }

    fn part(&self, key: u64) -> std::sync::MutexGuard<'_, RatePart> {
        self.parts[key as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(message: &'static str, retry_after_ms: u64) -> Refusal {
    Refusal::new(Code::RateLimited, message).retry_after(retry_after_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(user_commands: u32) -> Rates {
        Rates::new(RateLimits { user_commands, address_failed_logins: 2, ..RateLimits::default() })
    }

    fn group(text: &str) -> AddressGroup {
        AddressGroup::of(text.parse().unwrap())
    }

    #[test]
    fn each_user_has_a_burst_and_then_the_rate() {
        let rates = rates(100);
        let taken = (0..1000).filter(|_| rates.take_user_command(Time(1), "ann").is_ok()).count();
        assert_eq!(taken, 200, "a burst of twice the rate");
        assert!(rates.take_user_command(Time(1), "bob").is_ok());
        assert!(rates.take_user_command(Time(11), "ann").is_ok());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let rates = rates(0);
        for _ in 0..10_000 {
            assert!(rates.take_user_command(Time(1), "ann").is_ok());
            assert!(rates.take_hello(Time(1), group("10.0.0.1")).is_ok());
        }
        assert!(rates.parts.iter().all(|part| part.lock().unwrap().buckets.is_empty()));
    }

    #[test]
    fn only_lookups_that_fail_count() {
        let (rates, address) = (rates(0), group("10.0.0.1"));
        for _ in 0..100 {
            rates.begin_lookup(Time(1), address).unwrap();
            rates.end_lookup(address);
        }
        for _ in 0..4 {
            rates.begin_lookup(Time(1), address).unwrap();
        }
        assert!(rates.begin_lookup(Time(1), address).is_err());
        assert!(rates.begin_lookup(Time(1), group("10.0.0.2")).is_ok());
    }

    #[test]
    fn unused_buckets_are_dropped() {
        let rates = rates(1);
        for second in 0..50 {
            for user in 0..10_000 {
                let _ = rates.take_user_command(Time(second * UNUSED_MS), &format!("{second}-{user}"));
            }
        }
        let kept: usize = rates.parts.iter().map(|part| part.lock().unwrap().buckets.len()).sum();
        assert!(kept <= PARTS * PART_LEAST * 2, "{kept}");
    }
}
