//! The timers of parties: the earliest deadline of each party that was changed on this shard.
//! Must hold: a party has at most one timer; a party that has ended has none.

use crate::core::{Core, Timer};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tavern_domain::Time;

#[derive(Default)]
pub(super) struct PartyWakes(HashMap<u64, Time, RandomState>);

impl PartyWakes {
    /// None: the party has no deadline, or has ended.
    pub fn set(&mut self, core: &mut Core, party: u64, due: Option<Time>) {
        let before = match due {
            Some(due) => self.0.insert(party, due),
            None => self.0.remove(&party),
        };
        if before != due {
            before.into_iter().for_each(|before| core.agenda.cancel(before, Timer::PartyDue(party)));
            due.into_iter().for_each(|due| core.agenda.set(due, Timer::PartyDue(party)));
        }
    }

    pub fn fired(&mut self, party: u64) {
        self.0.remove(&party);
    }
}
