//! Shared by both sides of a migration: the id of a move, its messages, and which client may have a session. The order of the messages and why it is safe: `docs/adr/0008`.

use crate::core::Core;
use tavern_domain::{Identity, SessionKey};
use tavern_wire::bus::migration::{MigrationAction, MigrationRequest, SessionClaim};

/// A message without an answer is sent again after this time, then after twice as long, and so on: a node that does
/// not answer may be overloaded.
pub(super) const RETRY_MS: u64 = 250;

/// One attempt to move a session. Messages and store answers of an earlier attempt have another number.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoveId {
    pub key: SessionKey,
    pub number: u64,
}

impl MoveId {
    pub fn new(core: &mut Core, key: SessionKey) -> MoveId {
        MoveId { key, number: core.rng.next() as u64 }
    }

    /// Moves are found by half of the session's key, as sessions are.
    pub fn half(self) -> u64 {
        self.key.half()
    }
}

/// Sends a message to a node.
pub(super) fn send(core: &mut Core, to: &str, id: MoveId, step: MigrationAction) {
    let message = MigrationRequest { key: id.key, number: id.number, step };
    core.effects.bus_messages.extend(core.node.migration_packet(to, &message));
}

/// Whether a claim matches the user of a session.
pub(super) fn matches_claim(claim: &SessionClaim, identity: &Identity) -> bool {
    match claim {
        SessionClaim::Secret => !identity.is_proved(),
        SessionClaim::Anonymous => identity.user.is_none() && identity.key.is_none(),
        SessionClaim::User(user) => identity.user.as_deref() == Some(user),
        SessionClaim::Key(key) => identity.key.as_deref() == Some(key),
    }
}
