//! Whose presence ends may have a party, or be invited: that is written down in the commit that ends it, so that his party
//! looks at him whoever dies in between. Must hold: an invite and a goodbye never miss each other, because each of them
//! expects what the other changes.

use super::{Case, GUEST};
use crate::people::is_own_channel;
use crate::presence::{self, Step};
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{Command, Guest};
use tavern_domain::presence::{Attendance, Change};
use tavern_engine::{
    Answer, Commit, Deadline, Document, DocumentKey, Expect, Found, Presence, Read, Row, RowKey, Versioned,
    Work,
};
use tavern_wire::record::{self, RecordError, read_guest, write_guest};

/// What is kept of a user for the sake of parties, as it was read for a change of his presence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Minded {
    pub(super) version: u64,
    pub(super) guest: Guest,
}

impl Minded {
    pub(super) fn read(found: Versioned<Document>) -> Result<Minded, RecordError> {
        Ok(Minded { version: found.version, guest: read_guest(&found.row.body)? })
    }

    /// A party or an invite is concerned.
    pub fn is_concerned(&self) -> bool {
        self.guest.party.is_some() || !self.guest.invites.is_empty()
    }
}

/// Whether parties care: nobody of his is connected any more, or he is gone for good.
pub(crate) fn concerns_parties(
    step: &Step,
    before: &Attendance,
    after: &Attendance,
    changes: &[Change],
) -> bool {
    let gone = changes.iter().any(|change| matches!(change, Change::UserOffline { .. }));
    let lost = before.living().next().is_some() && after.living().next().is_none();
    !step.anonymous && is_own_channel(&step.key.channel) && (gone || lost)
}

impl Shard {
    /// Finds what is kept of him; gives the step back if it is known here, else it is decided again when it was read.
    pub(crate) fn find_minded(&mut self, mut step: Step, found: Option<Versioned<Presence>>) -> Option<Step> {
        // What is known may be old: then the commit is refused, and it is read.
        if step.tries == 0 {
            step.minded = step.hint.take();
        }
        if step.minded.is_some() {
            return Some(step);
        }
        let read = Read::Document(DocumentKey::new(record::GUEST, &step.key.user));
        self.submit(presence::Task::Minded(step, found), Work::Read(read));
        None
    }

    /// None: it was not read.
    pub(crate) fn minded(answer: &Answer) -> Option<Minded> {
        let Answer::Read(Found::Document(found)) = answer else { return None };
        Some(found.clone().and_then(|found| Minded::read(found).ok()).unwrap_or_default())
    }

    /// Adds to the commit of a step what his party must know.
    pub(crate) fn mind(&self, now: Time, step: &Step, changes: &[Change], commit: &mut Commit) {
        let Some(minded) = &step.minded else { return };
        let key = DocumentKey::new(record::GUEST, &step.key.user);
        commit.expects.push(Expect { key: RowKey::Document(key.clone()), version: minded.version });
        if !minded.is_concerned() {
            return;
        }
        commit.deadlines.push(Deadline::new(now, GUEST, &step.key.user));
        let bye = changes
            .iter()
            .any(|change| matches!(change, Change::UserOffline { reason, .. } if reason.is_explicit()));
        if bye {
            let guest = Guest { bye: Some(now), ..minded.guest.clone() };
            commit.puts.push(Row::Document(Document { key, body: write_guest(&guest).into() }));
        }
    }

    /// The step is committed: his party looks at him.
    pub(crate) fn look_at_guest(&mut self, now: Time, user: &Arc<str>, written: bool) {
        let check = Case::of_server(Command::Check { user: user.clone() });
        // It goes with his presence, which the case expects: whatever else sets it changes that.
        let key = Deadline::new(now, GUEST, user).key();
        self.open_case(now, if written { check.settling(key, None) } else { check });
    }
}
