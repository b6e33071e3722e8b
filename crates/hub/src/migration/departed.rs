//! Sessions that have just migrated to another node.
//! Must hold: if the new node did not announce the client, because it died or the client was lost there, this node
//! reports the client as lost.

use crate::core::session::Session;
use crate::core::{Core, Notice, Timer};
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::presence::{ClientLoss, OfflineReason};
use tavern_domain::{ClientId, Identity, Time};

/// How long the new node has to announce the client.
const DEPARTED_MS: u64 = 5_000;

/// In the order in which they are checked.
#[derive(Default)]
pub(super) struct DepartedSessions(VecDeque<Departed>);

struct Departed {
    check_at: Time,
    half: u64,
    client: ClientId,
    identity: Identity,
    channels: Vec<Arc<str>>,
    at: Time,
}

impl DepartedSessions {
    /// Takes over the presences of a session that departs: the end of the session does not end them.
    pub fn add(&mut self, now: Time, half: u64, session: &mut Session) {
        let present = std::mem::take(&mut session.present);
        self.0.push_back(Departed {
            check_at: now + DEPARTED_MS,
            half,
            client: session.client,
            identity: session.identity.clone(),
            channels: if session.lost { Vec::new() } else { present.channels().cloned().collect() },
            at: now,
        });
    }

    pub fn has(&self, half: u64) -> bool {
        self.0.iter().any(|departed| departed.half == half)
    }

    pub fn has_client(&self, client: ClientId) -> bool {
        self.0.iter().any(|departed| departed.client == client)
    }

    pub fn schedule_check(core: &mut Core) {
        core.agenda.set(core.now + DEPARTED_MS, Timer::Departed);
    }

    /// Reports the clients as lost. Presence ignores this for a client that the new node has announced.
    pub fn check(&mut self, core: &mut Core) {
        while let Some(departed) = self.0.pop_front_if(|departed| departed.check_at <= core.now) {
            // It came back, and is announced here or departed again. If its client was lost on the other node, that
            // node may not have announced it, and this one did not either.
            let here = core.sessions.get(&departed.half).and_then(|id| core.session(*id));
            if self.has(departed.half) || here.is_some_and(|session| !session.lost) {
                continue;
            }
            for channel in departed.channels {
                let loss = ClientLoss {
                    at: departed.at,
                    grace_ms: core.node.settings.grace_ms(&channel),
                    reason: OfflineReason::Lost,
                };
                let (identity, client) = (Box::new(departed.identity.clone()), departed.client);
                core.notify(Notice::ClientLost { identity, client, channel, loss });
            }
        }
    }
}
