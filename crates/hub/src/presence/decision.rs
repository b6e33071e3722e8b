//! Presence changes as decisions: from the stored presence and the current state of the session, the commit.
//! Must hold: a client is present under the epoch that writes it; an obsolete change writes nothing.

use super::change::{PresenceAction, PresenceChange};
use super::hold::{self, HoldDecision};
use super::sweep::{SweepDecision, SweptPresence};
use super::topic::transitions;
use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::rows::{MembershipRow, add_presence, expected_user, remove_hold, stored_visibility};
use crate::transaction::{Decision, DecisionStep, Facts, Need};
use tavern_domain::Time;
use tavern_domain::presence::{
    Attendance, AttendanceChange, AttendanceInput, ChannelClient, NodeEpoch, OfflineReason, PresenceSummary,
    Visibility,
};
use tavern_store::{
    Commit, Expect, LastSeenUpdate, PresenceRow, RowKey, UserSnapshot, Versioned, Writer, planted,
};
use tavern_wire::error::{Code, Refusal};

pub(super) enum PresenceDecision {
    Change(Box<PresenceChange>),
    /// An app puts a user into a channel.
    Hold(HoldDecision),
    /// Presences without a live node are removed, user by user.
    Sweep(SweepDecision),
}

pub(super) enum PresenceOutcome {
    Refused(Refusal),
    /// The session's state has changed since: the change is obsolete.
    Dropped,
    /// The stored state is already as requested. The version that was read, for cleaning up.
    Unchanged {
        version: u64,
        wakes: bool,
    },
    /// The stored client of a change with an unknown outcome.
    Resolved(Option<ChannelClient>),
    Changed(CommittedPresence),
    Held,
    Swept(Vec<SweptPresence>),
}

/// The result of a committed change.
pub(super) struct CommittedPresence {
    pub at: Time,
    pub changes: Vec<AttendanceChange>,
    /// When the next grace period ends.
    pub due: Option<Time>,
    pub stay: Option<PresenceSummary>,
    /// Since when the client is the only presence of its user.
    pub alone: Option<Time>,
    /// A party or an invite depends on the user.
    pub concerns_party: bool,
}

impl Decision for PresenceDecision {
    type Outcome = PresenceOutcome;

    fn decide(&mut self, core: &Core, facts: &Facts) -> DecisionStep<PresenceOutcome> {
        match self {
            PresenceDecision::Hold(hold) => hold.decide(core, facts),
            PresenceDecision::Sweep(sweep) => sweep.decide(core, facts),
            PresenceDecision::Change(change) => match &change.action {
                PresenceAction::SyncHeld { .. } => hold::decide_held(change, core, facts),
                _ => decide_change(change, core, facts),
            },
        }
    }
}

fn decide_change(change: &mut PresenceChange, core: &Core, facts: &Facts) -> DecisionStep<PresenceOutcome> {
    let syncs = matches!(change.action, PresenceAction::SyncVisibility { .. });
    let Some(found) = facts.presence(&change.key) else {
        let person = syncs.then(|| Need::Person(change.key.user.clone()));
        return DecisionStep::Need([Need::Presence(change.key.clone())].into_iter().chain(person).collect());
    };
    if change.unknown {
        return DecisionStep::Done(PresenceOutcome::Resolved(find_client(change, found)));
    }
    if change.is_join() && change.listener.is_some_and(|id| !is_settled(core, id)) {
        // The session has ended or migrates: joining now would take the client away from its new node.
        let refusal = Refusal::new(Code::Gone, "the session has ended; send hello again");
        return DecisionStep::Done(PresenceOutcome::Refused(refusal));
    }
    if !is_still_valid(core, change) {
        return DecisionStep::Done(PresenceOutcome::Dropped);
    }
    join_if_lost(core, change, found);
    if let Some(found) = found.filter(|_| change.listener.is_none()) {
        // No local session: keep the stored name.
        (change.name, change.anonymous) = (found.row.name.clone(), found.row.anonymous);
    }
    let shown = found.map(|found| found.row.visibility);
    let person = facts.person(&change.key.user).filter(|_| syncs);
    change.visibility = match person {
        Some(person) => Some(take_visibility(change, person)),
        // At each attempt what is stored now: it may have changed since the last one.
        None => shown.or_else(|| known_visibility(core, change)).or(change.visibility),
    };
    let before = found.map(|found| found.row.attendance.clone()).unwrap_or_default();
    let mut attendance = before.clone();
    // Read once: the node may start a new epoch at any moment, and client and writer must have the same.
    let node_epoch = core.node.node_epoch();
    let mut changes = apply(core.now, change, &node_epoch, &mut attendance);
    if let Some((from, to)) = shown.zip(change.visibility)
        && from != to
        && attendance.is_present()
    {
        changes.push(AttendanceChange::VisibilityChanged { from, to });
    }
    if changes.contains(&AttendanceChange::NotFound) {
        // A grace period that is over ends by its own deadline.
        let refusal =
            Refusal::new(Code::NotFound, "this client is not present in the channel; join it first");
        return DecisionStep::Done(PresenceOutcome::Refused(refusal));
    }
    if attendance == before && changes.is_empty() {
        let version = found.map_or(0, |found| found.version);
        return DecisionStep::Done(PresenceOutcome::Unchanged {
            version,
            wakes: before.next_wake().is_some(),
        });
    }
    let mut commit = commit_of(core, change, node_epoch, &before, attendance.clone(), &changes);
    commit.expects.extend(person.map(|person| expected_user(&change.key.user, person)));
    let mut concerns_party = false;
    if concerns_parties(change, &before, &attendance, &changes) {
        let Some(membership) = membership_of(change, facts, &mut commit) else {
            return DecisionStep::Need(vec![Need::Document(MembershipRow::key(&change.key.user))]);
        };
        concerns_party = membership.is_concerned();
        membership.note_departure(core.now, &change.key.user, said_bye(&changes), &mut commit);
    }
    if matches!(change.action, PresenceAction::Release) {
        remove_hold(&mut commit, &change.key);
    }
    let outcome = PresenceOutcome::Changed(changed(core, change, &attendance, changes, concerns_party));
    DecisionStep::Commit { commit, outcome }
}

fn apply(
    now: Time,
    change: &PresenceChange,
    node_epoch: &NodeEpoch,
    attendance: &mut Attendance,
) -> Vec<AttendanceChange> {
    let mut changes = Vec::new();
    match change.action.clone() {
        // A client joins under the current epoch, even if the join started under an earlier one.
        PresenceAction::Input(AttendanceInput::Join { client, state, .. }) => {
            attendance.handle(
                now,
                AttendanceInput::Join { client, node: node_epoch.clone(), state },
                &mut changes,
            );
        }
        PresenceAction::Input(input) => attendance.handle(now, input, &mut changes),
        PresenceAction::Wake => attendance.wake(now, &mut changes),
        PresenceAction::SyncVisibility { .. } => {}
        PresenceAction::Release => {
            attendance.handle(now, AttendanceInput::Remove { reason: OfflineReason::Removed }, &mut changes);
        }
        PresenceAction::SyncHeld { .. } => unreachable!("held users are decided by themselves"),
    }
    changes
}

/// The visibility that is stored for a user. Notes where else they are present and shown differently.
fn take_visibility(change: &mut PresenceChange, person: &UserSnapshot) -> Visibility {
    let visibility = stored_visibility(person);
    if change.is_own_channel() {
        let stale = person.presences.iter().filter(|row| {
            !row.row.anonymous && row.row.visibility != visibility && row.row.key != change.key
        });
        let others = stale.map(|row| row.row.key.clone()).collect();
        change.action = PresenceAction::SyncVisibility { others };
    }
    visibility
}

/// The visibility of the user of a local session.
fn known_visibility(core: &Core, change: &PresenceChange) -> Option<Visibility> {
    core.users.visibility(&change.key.user).filter(|_| change.listener.is_some() && !change.anonymous)
}

/// The user's membership: loaded, or cached and then expected by the commit. None: it must be loaded.
fn membership_of(change: &mut PresenceChange, facts: &Facts, commit: &mut Commit) -> Option<MembershipRow> {
    let key = MembershipRow::key(&change.key.user);
    if let Some(found) = facts.document(&key) {
        let found = found.map(|found| Versioned { version: found.version, row: found.row.body.clone() });
        return Some(MembershipRow::read(found.as_ref()).unwrap_or_default());
    }
    // If the cached one is stale the commit conflicts, and then it is loaded.
    let cached = change.cached_membership.take()?;
    commit.expects.push(Expect { key: RowKey::Document(key), version: cached.version });
    Some(cached)
}

pub(super) fn changed(
    core: &Core,
    change: &PresenceChange,
    attendance: &Attendance,
    changes: Vec<AttendanceChange>,
    concerns_party: bool,
) -> CommittedPresence {
    CommittedPresence {
        at: core.now,
        changes,
        due: attendance.next_wake().filter(|_| !forgets_grace(change)),
        stay: PresenceSummary::of(attendance),
        alone: change.listener.and(attendance.alone()),
        concerns_party,
    }
}

/// The planted fault.
fn forgets_grace(change: &PresenceChange) -> bool {
    planted("hub-grace") && matches!(change.action, PresenceAction::Input(AttendanceInput::LoseNode { .. }))
}

/// The client of a change whose outcome was unknown, if it is present.
fn find_client(change: &PresenceChange, found: Option<&Versioned<PresenceRow>>) -> Option<ChannelClient> {
    let PresenceAction::Input(AttendanceInput::Join { client, .. } | AttendanceInput::Update { client, .. }) =
        &change.action
    else {
        return None;
    };
    found.and_then(|found| found.row.attendance.connected().find(|a| a.client == *client).cloned())
}

/// Compares an automatic change of a session with the session's current state. False: it is obsolete.
fn is_still_valid(core: &Core, change: &mut PresenceChange) -> bool {
    if !change.is_automatic() {
        return true;
    }
    let session = change.listener.and_then(|id| core.session(id));
    let present = session.and_then(|session| session.present.state(&change.key.channel));
    match &mut change.action {
        // Use the current state, not the one from when the store did not answer.
        PresenceAction::Input(AttendanceInput::Join { state, .. }) => match present {
            Some(now) if session.is_some_and(|session| !session.lost) => *state = now.clone(),
            _ => return false,
        },
        PresenceAction::Input(AttendanceInput::Lose { .. } | AttendanceInput::LoseAt { .. }) => {
            return session.is_none_or(|session| session.lost);
        }
        _ => {}
    }
    true
}

/// A client that was marked lost while its session is alive still counts itself as present: its update is a join.
fn join_if_lost(core: &Core, change: &mut PresenceChange, found: Option<&Versioned<PresenceRow>>) {
    let PresenceAction::Input(AttendanceInput::Update { client, state }) = &change.action else { return };
    let living = found.is_some_and(|found| found.row.attendance.connected().any(|a| a.client == *client));
    let session = change.listener.and_then(|id| core.session(id));
    if !living && session.is_some_and(|session| session.present.has(&change.key.channel)) {
        let (client, state) = (*client, Some(state.clone()));
        change.action =
            PresenceAction::Input(AttendanceInput::Join { client, node: core.node.node_epoch(), state });
    }
}

/// Whether a session is here and not migrating.
fn is_settled(core: &Core, id: ListenerId) -> bool {
    core.session(id).is_some_and(|session| !session.frozen)
}

/// Whether the party must be notified: none of the user's clients is connected any more, or they left for good.
fn concerns_parties(
    change: &PresenceChange,
    before: &Attendance,
    after: &Attendance,
    changes: &[AttendanceChange],
) -> bool {
    let departed = changes.iter().any(|change| matches!(change, AttendanceChange::UserOffline { .. }));
    let lost = before.connected().next().is_some() && after.connected().next().is_none();
    change.is_own_channel() && (departed || lost)
}

/// The user left on purpose.
fn said_bye(changes: &[AttendanceChange]) -> bool {
    changes
        .iter()
        .any(|change| matches!(change, AttendanceChange::UserOffline { reason, .. } if reason.is_explicit()))
}

/// The commit of a change. The driver adds the expected versions.
pub(super) fn commit_of(
    core: &Core,
    change: &PresenceChange,
    node_epoch: NodeEpoch,
    before: &Attendance,
    attendance: Attendance,
    changes: &[AttendanceChange],
) -> Commit {
    let mut commit = Commit {
        writer: Some(Writer { node: node_epoch.node, epoch: node_epoch.epoch }),
        ..Commit::default()
    };
    let (key, name, anonymous) = (change.key.clone(), change.name.clone(), change.anonymous);
    let visibility = change.visibility.unwrap_or_default();
    let row = PresenceRow { key, anonymous, name, visibility, attendance };
    add_presence(&mut commit, before, row, changes.len());
    if forgets_grace(change) {
        commit.deadlines.clear();
    }
    if let Some(AttendanceChange::UserOffline { last_seen, .. }) = changes.last()
        && change.is_own_channel()
    {
        commit.seen.push(LastSeenUpdate { user: change.key.user.clone(), at: *last_seen });
    }
    commit.appends = transitions(core, change, changes);
    commit
}
