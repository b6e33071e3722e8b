//! What a replica is, and what it lives in.

use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Applied;
use tavern_store::{Found, Read, Ticket};

/// What replicas live in: a shard, or the delivery worker.
pub(crate) trait ReplicaHost {
    /// Tells the tables of replicas of one host apart.
    type Owner: Copy;

    fn now(&self) -> Time;

    /// Submits a read; its answer goes to `Replicas::answered`.
    fn read(&mut self, owner: Self::Owner, read: Read) -> Ticket;

    /// Calls `Replicas::due` with this name then.
    fn wake(&mut self, owner: Self::Owner, due: Time, name: &Arc<str>);
}

/// A copy of stored rows. `name` is whose copy it is: a user, a channel; a list without a name has an empty one.
pub(crate) trait Replica: Default {
    type Host: ReplicaHost;
    /// What the bus says about it.
    type Update: Clone;
    /// Somebody who waits for a read.
    type Waiter;

    /// False: it keeps nothing itself, so it is dropped after each read.
    const KEEPS: bool = true;
    /// Updates have positions: it orders those itself that arrive before or during a read.
    const ORDERED: bool = false;
    /// How long a missing update may be in flight before the rows are read again.
    const MISSING_MS: u64 = 1_000;
    /// How many replicas of this kind are compared with the store at each heartbeat.
    const COMPARED: usize = usize::MAX;
    /// How long it is kept after a read although nobody uses it yet.
    const UNUSED_MS: u64 = 0;
    /// How often it is read, whatever the bus says. 0: only when asked.
    const EVERY_MS: u64 = 0;

    /// Begins to read: the first page. None: nobody needs it.
    fn begin(&mut self, host: &mut Self::Host, name: &Arc<str>) -> Option<Read>;

    /// Takes a page.
    fn load(&mut self, host: &mut Self::Host, name: &Arc<str>, found: Found) -> PageLoad;

    /// All pages were taken, and nothing is known that is newer: they are the copy now.
    fn install(&mut self, _host: &mut Self::Host, _name: &Arc<str>) {}

    /// Applies an update.
    fn apply(&mut self, _host: &mut Self::Host, _name: &Arc<str>, _update: &Self::Update) -> Applied {
        Applied::Old
    }

    /// Applies an update that arrived during the read that has just ended.
    fn apply_kept(&mut self, host: &mut Self::Host, name: &Arc<str>, update: &Self::Update) -> Applied {
        self.apply(host, name, update)
    }

    /// Whether updates wait for a missing one.
    fn has_gap(&self) -> bool {
        false
    }

    /// Reads just enough to tell whether the store is newer. None: it is not compared.
    fn compare(&self, _name: &Arc<str>) -> Option<Read> {
        None
    }

    /// Whether the store was newer than this copy is now, by the answer to `compare`.
    fn is_behind(&self, _found: &Found) -> bool {
        false
    }

    /// Whether somebody uses it, apart from those who wait.
    fn is_used(&self, host: &Self::Host, name: &Arc<str>) -> bool;

    /// It was kept for `UNUSED_MS`, or its read failed.
    fn expire(&mut self, _host: &mut Self::Host, _name: &Arc<str>) {}

    /// It is dropped.
    fn end(self, _host: &mut Self::Host, _name: &Arc<str>) {}
}

/// What a page means for the read.
pub(crate) enum PageLoad {
    /// More pages follow.
    More(Read),
    /// It was the last.
    Complete,
    /// The pages are of different versions: the read begins again.
    Again,
    /// It cannot be used: counts as a failure.
    Unusable,
}
