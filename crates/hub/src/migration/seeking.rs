//! Looking for a session: here, then on the node that its secret names, then on all of them.
//! Must hold: nothing changes anywhere unless the asker may have it; whoever waits is told within a bounded time.

use super::coming::{MOVE_MS, Stage};
use super::leaving::claims;
use super::moves::{ASK_MS, Migration, RETRY_MS, Sought};
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{Core, Timer};
use std::sync::Arc;
use tavern_domain::{Identity, SessionKey};
use tavern_wire::bus::letter::{Claim, Says};

/// Sessions that may be under way to one shard. Beyond it nobody is asked: a crowd of strangers must not occupy the bus.
const COMINGS_MAX: usize = 20_000;

/// Who asks for a session, and how much it wants it.
#[derive(Clone, Debug)]
pub struct Seeker<'a> {
    pub key: SessionKey,
    /// The node that the secret names.
    pub node: &'a str,
    /// The token's identity; without one the secret alone is believed.
    pub identity: Option<&'a Identity>,
    /// A single command: it does not take a session away from its transport.
    pub gentle: bool,
}

impl Migration {
    /// Looks for a session: here, then with the other nodes. To be asked again when the link is ready.
    pub(crate) fn seek(&mut self, core: &mut Core, seeker: &Seeker<'_>, link: LinkId) -> Sought {
        let half = seeker.key.half();
        if core.find_session(seeker.key).is_some() {
            return Sought::Here;
        }
        if let Some(sought) = self.outcome(link, half) {
            return sought;
        }
        if let Some(id) = core.find_held(seeker.key) {
            return self.call_back(core, seeker, id, link);
        }
        if let Some(coming) = self.comings.get_mut(&half) {
            if !coming.links.contains(&link) {
                coming.links.push(link);
            }
            return Sought::Wait;
        }
        if !core.node.carrier.reaches_others() || self.comings.len() >= COMINGS_MAX {
            return Sought::Nowhere;
        }
        self.ask_around(core, seeker, link);
        Sought::Wait
    }

    /// It is about to leave, and its client is here again.
    fn call_back(&mut self, core: &mut Core, seeker: &Seeker<'_>, id: ListenerId, link: LinkId) -> Sought {
        let half = seeker.key.half();
        let identity = core.listeners.get(id).and_then(|l| l.session()).map(|session| &session.identity);
        if !identity.is_some_and(|identity| claims(&claim(seeker), identity)) {
            return Sought::Nowhere;
        }
        match self.leavings.get_mut(&half) {
            Some(leaving) if leaving.is_laid_down() => {
                leaving.wait(link);
                Sought::Wait
            }
            _ => {
                self.thaw(core, half);
                Sought::Here
            }
        }
    }

    fn ask_around(&mut self, core: &mut Core, seeker: &Seeker<'_>, link: LinkId) {
        let half = seeker.key.half();
        let named = core.node.neighbours().iter().find(|name| &***name == seeker.node).cloned();
        let number = core.dice.roll() as u64;
        let mut coming = self.new_coming(core, seeker.key, number, Stage::Asking);
        coming.links.push(link);
        (coming.claim, coming.gentle) = (claim(seeker), seeker.gentle);
        coming.asked_all = named.is_none();
        self.comings.insert(half, coming);
        let says = Says::Ask { claim: claim(seeker), gentle: seeker.gentle };
        self.write_letter(core, named.as_deref(), seeker.key, number, says);
    }

    pub(super) fn ask_all(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(coming) = self.comings.get_mut(&half) else { return };
        coming.asked_all = true;
        coming.be_patient(now);
        coming.due = coming.due.min(coming.until);
        let (due, says) = (coming.due, Says::Ask { claim: coming.claim.clone(), gentle: coming.gentle });
        let (key, number) = (coming.key, coming.number);
        core.agenda.set(due, Timer::Migration(half));
        self.write_letter(core, None, key, number, says);
    }

    /// A node does not have it, or does not give it.
    pub(super) fn not_found(
        &mut self,
        core: &mut Core,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        says: &Says,
    ) {
        let now = core.now;
        let half = key.half();
        let neighbours = core.node.neighbours();
        let Some(coming) = self.comings.get_mut(&half).filter(|c| c.number == number) else { return };
        let asking = matches!(coming.stage, Stage::Asking);
        match says {
            Says::No if !asking && coming.giver == *from => self.fail(core, half, Sought::Nowhere),
            _ if !asking => {}
            Says::Refused => self.fail(core, half, Sought::Nowhere),
            Says::Attached => self.fail(core, half, Sought::Elsewhere(from.clone())),
            Says::No => {
                coming.without.insert(from.clone());
                if !coming.asked_all {
                    self.ask_all(core, half);
                } else if !neighbours.is_empty() && neighbours.iter().all(|n| coming.without.contains(n)) {
                    self.fail(core, half, Sought::Nowhere);
                }
            }
            // On its way: who had said no may have it when it is asked again.
            _ => {
                coming.without.clear();
                coming.patience_ms = RETRY_MS;
                coming.until = (now + ASK_MS).min(coming.began + MOVE_MS);
            }
        }
    }
}

fn claim(seeker: &Seeker<'_>) -> Claim {
    match seeker.identity {
        None => Claim::Secret,
        Some(identity) => match &identity.user {
            Some(user) => Claim::User(user.to_string()),
            None => Claim::Anonymous,
        },
    }
}
