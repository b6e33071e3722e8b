//! One session that is migrating to another node.

use super::drain::DrainOffer;
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::migration::protocol::MoveId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::{ClientId, Time};

pub(super) struct OutgoingMove {
    pub id: MoveId,
    pub listener: ListenerId,
    /// The node the session migrates to.
    pub to: Arc<str>,
    pub stage: OutgoingStage,
    /// This node stops: the session is offered to others.
    pub drain: Option<DrainOffer>,
    /// Connections on this node that want to resume the session here.
    pub links: Vec<LinkId>,
    pub began: Time,
    pub due: Time,
    /// When the current stage times out.
    pub until: Time,
}

#[derive(Debug)]
pub(super) enum OutgoingStage {
    /// The other node knows the subscriptions and prepares to collect events.
    Announced,
    /// The other node collects events. The session is stored when it has received the changes of each watched channel
    /// up to the version from which the other node sends them.
    CatchingUp(BTreeMap<String, u64>),
    /// The session is being put into the store. Uncertain: it may be there already.
    Storing {
        uncertain: bool,
    },
    Stored {
        client: ClientId,
        version: u64,
    },
    Reclaiming,
}

impl OutgoingMove {
    /// The session may be in the store: this node no longer decides alone which node has it.
    pub fn may_be_stored(&self) -> bool {
        matches!(
            self.stage,
            OutgoingStage::Storing { .. } | OutgoingStage::Stored { .. } | OutgoingStage::Reclaiming
        )
    }

    /// This node stops and has offered the session to another node than this one, which has not begun to take it.
    pub fn is_only_offered_to_others(&self, node: &Arc<str>) -> bool {
        self.drain.is_some() && matches!(self.stage, OutgoingStage::Announced) && self.to != *node
    }

    /// It is offered, and its connection is still open.
    pub fn has_transport(&self) -> bool {
        self.drain.as_ref().is_some_and(|offer| offer.link.is_some())
    }

    pub fn is_to(&self, node: &Arc<str>, id: MoveId) -> bool {
        self.to == *node && self.id.number == id.number
    }

    pub fn add_link(&mut self, link: LinkId) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }
}
