//! A shard as the place where replicas live.

use super::{Core, Feature, Timer};
use crate::replica::ReplicaHost;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Read, Ticket, Work};

impl ReplicaHost for Core {
    type Owner = Feature;

    fn now(&self) -> Time {
        self.now
    }

    fn read(&mut self, owner: Feature, read: Read) -> Ticket {
        self.submit(owner, Work::Read(read))
    }

    fn wake(&mut self, owner: Feature, due: Time, name: &Arc<str>) {
        self.agenda.set(due, Timer::Replica(owner, name.clone()));
    }
}
