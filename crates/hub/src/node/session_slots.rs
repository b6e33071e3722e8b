//! How many sessions each user has on this node. Without a user, sessions count for their API key or address.
//! Must hold: at most the configured number per owner; a session with a connection is never ended to make room for
//! another.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::{AddressGroup, Identity, Time};

const PARTS: usize = 16;

pub struct SessionSlots {
    /// 0: no limit, and nothing is counted.
    max: usize,
    hasher: RandomState,
    parts: [Mutex<SlotsByOwner>; PARTS],
}

type SlotsByOwner = HashMap<u64, Vec<Arc<SessionSlot>>, RandomState>;

/// The slot of one session among those of its owner.
#[derive(Debug)]
pub struct SessionSlot {
    owner: u64,
    /// Since when it has no connection, in milliseconds; `u64::MAX` while it has one.
    idle_since: AtomicU64,
    /// Its slot was given to a newer session: its shard ends it at the next sweep.
    replaced: AtomicBool,
}

/// Every session of the owner has a connection.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionsFull {
    pub max: usize,
}

impl SessionSlot {
    /// Since when it has no connection; None: it has one.
    pub fn set_idle(&self, since: Option<Time>) {
        self.idle_since.store(since.map_or(u64::MAX, Time::ms), Ordering::Relaxed);
    }

    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }
}

impl SessionSlots {
    pub fn new(max: usize) -> SessionSlots {
        let parts = std::array::from_fn(|_| Mutex::default());
        SessionSlots { max, hasher: RandomState::default(), parts }
    }

    /// Takes a slot for a new session. If all are in use, the session that has been detached for longest is replaced.
    pub fn open(
        &self,
        now: Time,
        identity: &Identity,
        address: Option<AddressGroup>,
    ) -> Result<Option<Arc<SessionSlot>>, SessionsFull> {
        let Some(owner) = self.owner(identity, address) else { return Ok(None) };
        self.take(owner, |slots| {
            if slots.len() < self.max {
                return Ok(());
            }
            let idle = |slot: &SessionSlot| slot.idle_since.load(Ordering::Relaxed);
            let longest = slots.iter().enumerate().min_by_key(|(_, slot)| idle(slot));
            match longest.filter(|(_, slot)| idle(slot) <= now.ms()) {
                Some((at, slot)) => {
                    slot.replaced.store(true, Ordering::Release);
                    slots.swap_remove(at);
                    Ok(())
                }
                None => Err(SessionsFull { max: self.max }),
            }
        })
        .map(Some)
    }

    /// A session that already exists migrated here: it is counted and never refused.
    pub fn adopt(&self, identity: &Identity) -> Option<Arc<SessionSlot>> {
        let owner = self.owner(identity, None)?;
        self.take(owner, |_| Ok(())).ok()
    }

    /// A session has ended.
    pub fn close(&self, slot: &Arc<SessionSlot>) {
        let mut part = self.part(slot.owner);
        if let Some(slots) = part.get_mut(&slot.owner) {
            if let Some(at) = slots.iter().position(|other| Arc::ptr_eq(other, slot)) {
                slots.swap_remove(at);
            }
            if slots.is_empty() {
                part.remove(&slot.owner);
            }
        }
    }

    fn take(
        &self,
        owner: u64,
        make_room: impl FnOnce(&mut Vec<Arc<SessionSlot>>) -> Result<(), SessionsFull>,
    ) -> Result<Arc<SessionSlot>, SessionsFull> {
        let mut part = self.part(owner);
        let slots = part.entry(owner).or_default();
        make_room(slots)?;
        let (idle_since, replaced) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        let slot = Arc::new(SessionSlot { owner, idle_since, replaced });
        slots.push(slot.clone());
        Ok(slot)
    }

    /// The owner under whom a session is counted; None: it is not counted.
    fn owner(&self, identity: &Identity, address: Option<AddressGroup>) -> Option<u64> {
        if self.max == 0 {
            return None;
        }
        match (&identity.user, &identity.key, address) {
            (Some(user), ..) => Some(self.hasher.hash_one(("user", user))),
            (None, Some(key), _) => Some(self.hasher.hash_one(("key", key))),
            (None, None, Some(address)) => Some(self.hasher.hash_one(("address", address))),
            (None, None, None) => None,
        }
    }

    fn part(&self, owner: u64) -> std::sync::MutexGuard<'_, SlotsByOwner> {
        self.parts[owner as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::{Rights, Scopes};

    fn identity(user: Option<&str>, key: Option<&str>) -> Identity {
        Identity {
            user: user.map(Arc::from),
            name: None,
            rights: Arc::new(Rights::default()),
            expires: Time::NEVER,
            issued_s: 0,
            unlimited: false,
            scopes: Scopes::NONE,
            key: key.map(Arc::from),
        }
    }

    #[test]
    fn the_session_longest_without_a_connection_gives_way() {
        let slots = SessionSlots::new(3);
        let ann = identity(Some("ann"), None);
        let open = |now| slots.open(Time(now), &ann, None).map(Option::unwrap);
        let (first, second, third) = (open(1).unwrap(), open(1).unwrap(), open(1).unwrap());
        assert_eq!(open(2).unwrap_err(), SessionsFull { max: 3 });
        second.set_idle(Some(Time(10)));
        third.set_idle(Some(Time(5)));
        assert!(open(4).is_err(), "a polling session is idle only later");
        let fourth = open(11).unwrap();
        assert!(third.is_replaced() && !second.is_replaced() && !first.is_replaced());
        slots.close(&third);
        assert!(open(11).is_ok());
        assert!(second.is_replaced());
        assert!(open(11).is_err());
        slots.close(&fourth);
        assert!(open(11).is_ok());
    }

    #[test]
    fn sessions_without_a_user_count_by_key_or_address() {
        let slots = SessionSlots::new(1);
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|text| AddressGroup::of(text.parse().unwrap()));
        let key = identity(None, Some("k"));
        assert!(slots.open(Time(1), &key, Some(here)).is_ok());
        assert!(slots.open(Time(1), &key, Some(there)).is_err());
        let nobody = identity(None, None);
        assert!(slots.open(Time(1), &nobody, Some(here)).is_ok());
        assert!(slots.open(Time(1), &nobody, Some(here)).is_err());
        assert!(slots.open(Time(1), &nobody, Some(there)).is_ok());
    }

    #[test]
    fn no_limit_counts_nothing() {
        let slots = SessionSlots::new(0);
        for _ in 0..100 {
            assert!(slots.open(Time(1), &identity(Some("ann"), None), None).unwrap().is_none());
        }
    }
}
