//! A timer wheel for the frequent timers (parked polls, expiring sessions). Setting and firing cost the same however
//! many timers there are. Entries are not removed: the owner ignores a stale entry that fires.
//! Must hold: nothing fires early; everything due by `now` is returned by `expire(now)`.

use tavern_domain::Time;

const SLOTS: usize = 1024;
/// Width of a slot: timers fire at most this late.
const SLOT_MS: u64 = 8;

#[derive(Debug)]
pub struct Wheel<T> {
    slots: Vec<Vec<(Time, T)>>,
    occupied: [u64; SLOTS / 64],
    /// The slot number (time / SLOT_MS) up to which everything has fired.
    expired_slot: u64,
    len: usize,
}

impl<T> Wheel<T> {
    pub fn new(now: Time) -> Wheel<T> {
        let slots = (0..SLOTS).map(|_| Vec::new()).collect();
        Wheel { slots, occupied: [0; SLOTS / 64], expired_slot: now.ms() / SLOT_MS, len: 0 }
    }

    pub fn set(&mut self, due: Time, what: T) {
        // Rounding up: an entry lies in the first slot that begins at or after its due time.
        let number = due.ms().div_ceil(SLOT_MS).max(self.expired_slot + 1);
        let slot = (number % SLOTS as u64) as usize;
        self.slots[slot].push((Time(number * SLOT_MS), what));
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.len += 1;
    }

    /// The earliest moment at which `expire` may return something. Never later than the real one.
    pub fn next_wake(&self) -> Option<Time> {
        if self.len == 0 {
            return None;
        }
        let start = ((self.expired_slot + 1) % SLOTS as u64) as usize;
        let ahead = (0..SLOTS).find(|ahead| {
            let slot = (start + ahead) % SLOTS;
            self.occupied[slot / 64] >> (slot % 64) & 1 == 1
        })?;
        Some(Time((self.expired_slot + 1 + ahead as u64) * SLOT_MS))
    }

    /// Takes the entries that are due.
    pub fn expire(&mut self, now: Time, due: &mut Vec<T>) {
        let target = now.ms() / SLOT_MS;
        if target <= self.expired_slot {
            return;
        }
        let steps = (target - self.expired_slot).min(SLOTS as u64);
        let first = target - steps + 1;
        self.expired_slot = target;
        if self.len == 0 {
            return;
        }
        for number in first..=target {
            let slot = (number % SLOTS as u64) as usize;
            if self.occupied[slot / 64] >> (slot % 64) & 1 == 1 {
                self.expire_slot(slot, now, due);
            }
        }
    }

    fn expire_slot(&mut self, slot: usize, now: Time, due: &mut Vec<T>) {
        let entries = &mut self.slots[slot];
        let before = due.len();
        // Entries of later rounds are in the same slot and stay.
        due.extend(entries.extract_if(.., |(at, _)| *at <= now).map(|(_, what)| what));
        self.len -= due.len() - before;
        if entries.is_empty() {
            *entries = Vec::new();
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_fires_early_and_a_far_entry_waits_for_its_round() {
        let mut wheel = Wheel::new(Time(1000));
        wheel.set(Time(1010), "near");
        wheel.set(Time(1010 + 3 * 8192), "far");
        let mut due = Vec::new();
        wheel.expire(Time(1009), &mut due);
        assert!(due.is_empty());
        wheel.expire(Time(1018), &mut due);
        assert_eq!(due, ["near"]);
        wheel.expire(Time(20_000), &mut due);
        assert_eq!(due, ["near"]);
        wheel.expire(Time(26_000), &mut due);
        assert_eq!(due, ["near", "far"]);
        assert_eq!(wheel.next_wake(), None);
    }

    proptest! {
        #[test]
        fn everything_fires_once_and_soon_when_woken_as_asked(
            dues in prop::collection::vec(0..30_000u64, 1..50)
        ) {
            let start = Time(777_777);
            let mut wheel = Wheel::new(start);
            for (index, due) in dues.iter().enumerate() {
                wheel.set(start + *due, index);
            }
            let mut fired = vec![None; dues.len()];
            let mut due = Vec::new();
            while let Some(at) = wheel.next_wake() {
                wheel.expire(at, &mut due);
                for index in due.drain(..) {
                    prop_assert!(fired[index].is_none());
                    fired[index] = Some(at);
                }
            }
            for (index, due) in dues.iter().enumerate() {
                let late = fired[index].expect("fired").since(start + *due);
                prop_assert!(fired[index].unwrap() >= start + *due);
                prop_assert!(late <= SLOT_MS, "{late}");
            }
        }
    }
}
