//! The in-process bus: who sits in the hall and what each node listens to.

use super::Hall;
use crate::bus::{Bus, BusInbox, Parcel};
use crate::interest::Interest;
use crate::store::Ticket;
use crate::subject::Subject;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct MemoryBus {
    hall: Arc<Hall>,
    seat: u64,
}

#[derive(Default)]
pub(super) struct Seats {
    seats: BTreeMap<u64, Seat>,
    taken: u64,
}

struct Seat {
    node: Arc<str>,
    inbox: Arc<dyn BusInbox>,
    exact: BTreeSet<Subject>,
    wide: BTreeSet<Interest>,
}

impl Hall {
    /// A place at the bus for the node of that name, which will not hear itself.
    pub fn bus(self: &Arc<Hall>, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<MemoryBus> {
        let seats = &mut self.lock().seats;
        let seat = seats.taken;
        seats.taken += 1;
        let (exact, wide) = (BTreeSet::new(), BTreeSet::new());
        seats.seats.insert(seat, Seat { node: node.into(), inbox, exact, wide });
        Arc::new(MemoryBus { hall: self.clone(), seat })
    }
}

impl Bus for MemoryBus {
    fn publish(&self, batch: Vec<Parcel>) {
        self.hall.publish(batch);
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        self.hall.subscribe(self.seat, interests, ticket)
    }

    fn unsubscribe(&self, interests: Vec<Interest>) {
        if let Some(seat) = self.hall.lock().seats.seats.get_mut(&self.seat) {
            for interest in interests {
                match interest.exact() {
                    Some(subject) => seat.exact.remove(subject),
                    None => seat.wide.remove(&interest),
                };
            }
        }
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    /// Leaves the hall. A crash looks the same to the others.
    fn stop(&self) {
        self.hall.lock().seats.seats.remove(&self.seat);
    }
}

impl Drop for MemoryBus {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Seats {
    pub fn subscribe(&mut self, seat: u64, interests: Vec<Interest>) {
        if let Some(seat) = self.seats.get_mut(&seat) {
            for interest in interests {
                match interest.exact() {
                    Some(subject) => seat.exact.insert(subject.clone()),
                    None => seat.wide.insert(interest),
                };
            }
        }
    }

    /// Whether all of it is subscribed to already.
    pub fn holds(&self, seat: u64, interests: &[Interest]) -> bool {
        let Some(seat) = self.seats.get(&seat) else { return false };
        interests.iter().all(|interest| match interest.exact() {
            Some(subject) => seat.exact.contains(subject),
            None => seat.wide.contains(interest),
        })
    }

    pub fn inbox(&self, seat: u64) -> Option<Arc<dyn BusInbox>> {
        self.seats.get(&seat).map(|seat| seat.inbox.clone())
    }

    pub fn node(&self, seat: u64) -> Option<Arc<str>> {
        self.seats.get(&seat).map(|seat| seat.node.clone())
    }

    /// Who hears it. Here the echo ends: the sender's own seat is left out.
    pub fn hearing(&self, parcel: &Parcel) -> Vec<(u64, Arc<str>)> {
        let others = self.seats.iter().filter(|(_, seat)| seat.node != parcel.from.node);
        others
            .filter(|(_, seat)| seat.hears(&parcel.subject))
            .map(|(id, seat)| (*id, seat.node.clone()))
            .collect()
    }
}

impl Seat {
    fn hears(&self, subject: &Subject) -> bool {
        self.exact.contains(subject) || self.wide.iter().any(|wide| wide.hears(subject))
    }
}
