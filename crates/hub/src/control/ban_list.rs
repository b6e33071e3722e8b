//! The bans of the store in the memory of this node, where every hello is checked. One shard keeps them; the bus announces
//! a change at once, and reading their version finds what it lost. Must hold: a change is known `EVERY_MS` and one read
//! later, as long as the store answers.

use crate::core::Core;
use crate::replica::{DocumentList, PageLoad, Replica};
use std::sync::Arc;
use tavern_domain::presence::Applied;
use tavern_store::{DocumentKey, Found, Read};
use tavern_wire::bus::control::Ban;
use tavern_wire::record::{BAN, BANS, BANS_ALL, read_ban};

pub(super) struct BanReplica(DocumentList);

/// A user was banned, or with None unbanned.
#[derive(Clone)]
pub(super) struct BanChange {
    pub user: Arc<str>,
    pub ban: Option<Ban>,
}

impl Default for BanReplica {
    fn default() -> BanReplica {
        BanReplica(DocumentList::new(BAN, DocumentKey::new(BANS, BANS_ALL)))
    }
}

impl Replica for BanReplica {
    type Host = Core;
    type Update = BanChange;
    type Waiter = ();

    const EVERY_MS: u64 = 2_000;

    fn begin(&mut self, _: &mut Core, _: &Arc<str>) -> Option<Read> {
        Some(self.0.begin())
    }

    fn load(&mut self, _: &mut Core, _: &Arc<str>, found: Found) -> PageLoad {
        self.0.load(found)
    }

    fn install(&mut self, core: &mut Core, _: &Arc<str>) {
        let Some(documents) = self.0.take() else { return };
        let rows = documents.len();
        let ban = |document: &tavern_store::Document| {
            Some((document.key.name().into(), read_ban(&document.body).ok()?))
        };
        let bans: std::collections::HashMap<Arc<str>, Ban> =
            documents.iter().filter_map(|found| ban(&found.row)).collect();
        let unreadable = rows - bans.len();
        core.node.blocks.set_bans(bans, unreadable);
    }

    /// An order has no version, and may be repeated after a later one: the list is read again.
    fn apply(&mut self, core: &mut Core, _: &Arc<str>, change: &BanChange) -> Applied {
        self.0.forget();
        match &change.ban {
            Some(ban) => core.node.blocks.ban(change.user.clone(), ban.clone()),
            None => core.node.blocks.unban(&change.user),
        }
        Applied::Gap
    }

    fn is_used(&self, _: &Core, _: &Arc<str>) -> bool {
        true
    }
}
