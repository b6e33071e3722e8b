//! Planted faults between the hub and the cluster: answers, commits, bus messages, liveness tasks, shard messages.

use super::node::InFlightInput;
use super::port::Asker;
use crate::planted::{Planted, PlantedFault};
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::presence::{Attendance, ClientLoss, LostClient, NodeEpoch, OfflineReason, PresenceUpdate};
use tavern_domain::{Channel, HistoryPosition, Time};
use tavern_hub::{LivenessTask, Node as HubNode, TakenOver};
use tavern_store::memory::MemoryEngine;
use tavern_store::{
    BusPacket, ChangedChannel, ChangedRow, Commit, Expect, Found, HistoryAppended, PresenceRow, Read,
    Receipt, Row, RowKey, RowKind, SessionBody, StoreAnswer, StoreError, Work, Writer,
};
use tavern_wire::bus::header::{self as channel_header, ChannelHeader, ReceivedHeader};
use tavern_wire::bus::{BusMessage, presence};
use tavern_wire::record;

/// The kind of documents that store the idempotency keys of services.
const ONCE: &str = "once";
/// How much later than its grace period a client is kept.
const LATE_MS: u64 = 4_000;

/// An answer of the store to a shard is lost.
pub fn loses_answer(planted: &mut Planted, asker: Asker) -> bool {
    matches!(asker, Asker::Shard(_)) && planted.strikes(PlantedFault::LostAnswer, 2)
}

/// An answer of the store on its way to a node.
pub fn answer(planted: &mut Planted, mut answer: StoreAnswer) -> StoreAnswer {
    if let StoreAnswer::Read(Found::History(page)) = &mut answer
        && page.page.rows.len() > 2
        && planted.strikes(PlantedFault::LostHistoryRow, 20)
    {
        page.page.rows.remove(1);
    }
    answer
}

/// A commit of a shard on its way to the store, or an answer that the store did not give.
pub fn commit(
    planted: &mut Planted,
    engine: &MemoryEngine,
    now: Time,
    mut commit: Commit,
    conflict: bool,
) -> Result<Work, Box<StoreAnswer>> {
    if conflict && let Some(expect) = commit.expects.first() {
        let (key, expected) = (expect.key.clone(), expect.version);
        let found = expected + 1;
        return Err(Box::new(StoreAnswer::Failed(StoreError::Conflict { key, expected, found })));
    }
    if let Some(answer) = super::tamper_topics::commit(planted, now, &mut commit) {
        return Err(Box::new(answer));
    }
    match planted.fault() {
        Some(PlantedFault::NoFencing) => {
            if let Some(writer) = commit.writer.take()
                && !is_open(engine, &writer)
            {
                planted.strike();
            }
        }
        Some(PlantedFault::NoVersionCheck) => {
            planted.strike();
            commit.expects.clear();
        }
        Some(PlantedFault::MissingDeadline)
            if !commit.deadlines.is_empty() && planted.strikes(PlantedFault::MissingDeadline, 20) =>
        {
            commit.deadlines.clear();
        }
        Some(PlantedFault::LateDeadline) => prolong(planted, &mut commit),
        Some(PlantedFault::LowVersion) => {
            if let Some(raise) = commit.raises.iter_mut().find(|raise| raise.by > 1)
                && planted.strikes(PlantedFault::LowVersion, 20)
            {
                raise.by -= 1;
            }
        }
        Some(PlantedFault::SharedSession) => {
            let taken = |key: &RowKey| matches!(key, RowKey::Session(_));
            if commit.deletes.iter().any(taken) && planted.strikes(PlantedFault::SharedSession, 50) {
                commit.deletes.retain(|key| !taken(key));
            }
        }
        Some(PlantedFault::LostMailbox) => change_sessions(planted, &mut commit, |body| {
            let unread = !body.events.is_empty();
            body.events.clear();
            unread
        }),
        Some(PlantedFault::LostMarks) => change_sessions(planted, &mut commit, |body| {
            let marked = !body.bus_positions.is_empty();
            body.bus_positions.clear();
            marked
        }),
        Some(PlantedFault::LostHistoryMessage)
            if !commit.history.is_empty() && planted.strikes(PlantedFault::LostHistoryMessage, 5) =>
        {
            let position = HistoryPosition { epoch: 1, offset: 1 };
            let history = vec![HistoryAppended { position, duplicate: false }; commit.history.len()];
            return Err(Box::new(StoreAnswer::Committed(Receipt {
                time: now,
                history,
                ..Receipt::default()
            })));
        }
        Some(PlantedFault::ForgottenMessageId) => {
            for message in commit.history.iter_mut().filter(|message| message.id.is_some()) {
                planted.strike();
                message.id = message.id.as_ref().map(|id| format!("{id}-{}", planted.rng.number()).into());
            }
        }
        Some(PlantedFault::LostClear) if !commit.history_clears.is_empty() => {
            planted.strike();
            return Err(Box::new(claimed(now, &commit)));
        }
        Some(PlantedFault::WrongPosition) => change_sessions(planted, &mut commit, |body| {
            body.history.iter_mut().for_each(|(_, position)| position.offset += 1);
            !body.history.is_empty()
        }),
        Some(PlantedFault::ForgottenDrops) => change_sessions(planted, &mut commit, |body| {
            let dropped = !body.dropped.is_empty();
            body.dropped.clear();
            dropped
        }),
        Some(PlantedFault::LostInboxMessage)
            if !commit.inbox_messages.is_empty() && planted.strikes(PlantedFault::LostInboxMessage, 10) =>
        {
            commit.inbox_messages.pop();
        }
        Some(PlantedFault::RepeatedInboxMessage) => {
            if let Some(last) = commit.inbox_messages.last().cloned()
                && planted.strikes(PlantedFault::RepeatedInboxMessage, 10)
            {
                commit.inbox_messages.push(last);
            }
        }
        Some(PlantedFault::LostMembership)
            if puts_document(&commit, record::PARTY) && planted.strikes(PlantedFault::LostMembership, 10) =>
        {
            commit.puts.retain(|row| !is_document(row, record::MEMBERSHIP));
        }
        Some(PlantedFault::ForgottenRequest) => forget_requests(planted, &mut commit),
        Some(PlantedFault::FalseParty)
            if puts_document(&commit, record::PARTY) && planted.strikes(PlantedFault::FalseParty, 10) =>
        {
            return Err(Box::new(claimed(now, &commit)));
        }
        Some(PlantedFault::LostFollow)
            if puts(&commit, |row| matches!(row, Row::Follow(_)))
                && planted.strikes(PlantedFault::LostFollow, 20) =>
        {
            return Err(Box::new(claimed(now, &commit)));
        }
        Some(PlantedFault::LostVisibility)
            if puts(&commit, |row| matches!(row, Row::User(_)))
                && planted.strikes(PlantedFault::LostVisibility, 20) =>
        {
            return Err(Box::new(claimed(now, &commit)));
        }
        Some(PlantedFault::LostLastSeen) if !commit.seen.is_empty() => {
            planted.strike();
            commit.seen.clear();
        }
        Some(PlantedFault::EarlyReply)
            if is_arrival(&commit) && planted.strikes(PlantedFault::EarlyReply, 10) =>
        {
            return Err(Box::new(claimed(now, &commit)));
        }
        _ => {}
    }
    Ok(Work::Commit(commit))
}

/// Changes sessions on their way into the store. The closure returns whether it made a difference.
fn change_sessions(planted: &mut Planted, commit: &mut Commit, change: impl Fn(&mut SessionBody) -> bool) {
    for row in &mut commit.puts {
        let Row::Session(stored) = row else { continue };
        let Ok(mut body) = SessionBody::decode(&stored.body) else { continue };
        if change(&mut body) {
            planted.strike();
            stored.body = body.encode().into();
        }
    }
}

pub(super) fn is_document(row: &Row, kind: &str) -> bool {
    matches!(row, Row::Document(document) if document.key.kind() == kind)
}

fn puts(commit: &Commit, wanted: impl Fn(&Row) -> bool) -> bool {
    commit.puts.iter().any(wanted)
}

pub(super) fn puts_document(commit: &Commit, kind: &str) -> bool {
    puts(commit, |row| is_document(row, kind))
}

/// A commit is answered as if it were written.
pub(super) fn claimed(now: Time, commit: &Commit) -> StoreAnswer {
    let put = commit.puts.iter().map(|row| ChangedRow { key: row.key(), version: 1 }).collect();
    let raised = commit.raises.iter().map(|raise| ChangedChannel {
        channel: raise.channel.clone(),
        version: 1,
        was_empty: false,
    });
    let raised = raised.collect();
    StoreAnswer::Committed(Receipt { time: now, put, raised, ..Receipt::default() })
}

fn forget_requests(planted: &mut Planted, commit: &mut Commit) {
    if puts_document(commit, ONCE) {
        planted.strike();
        commit.puts.retain(|row| !is_document(row, ONCE));
        commit.expects.clear();
    }
    for row in commit.puts.iter_mut().filter(|row| is_document(row, record::MEMBERSHIP)) {
        let Row::Document(document) = row else { continue };
        let Ok(mut membership) = record::read_membership(&document.body) else { continue };
        if !membership.done.is_empty() {
            planted.strike();
            membership.done.clear();
            document.body = record::write_membership(&membership).into();
        }
    }
}

/// A loss is reported as if it had happened later.
fn prolong(planted: &mut Planted, commit: &mut Commit) {
    for row in &mut commit.puts {
        let Row::Presence(presence) = row else { continue };
        if presence.attendance.next_wake().is_none() || !planted.strikes(PlantedFault::LateDeadline, 30) {
            continue;
        }
        let mut clients = presence.attendance.clients().to_vec();
        for client in &mut clients {
            client.lost = client.lost.map(|lost| LostClient { until: lost.until + LATE_MS, ..lost });
        }
        let (since, departed) = (presence.attendance.since(), presence.attendance.departed());
        presence.attendance = Attendance::restore(clients, since, departed);
        commit.deadlines.iter_mut().for_each(|deadline| deadline.due = deadline.due + LATE_MS);
    }
}

fn is_arrival(commit: &Commit) -> bool {
    let absent = |expect: &Expect| matches!(expect.key, RowKey::Presence(_)) && expect.version == 0;
    commit.expects.iter().any(absent)
}

/// A bus message on its way into a node.
pub fn bus_message(planted: &mut Planted, at: usize, message: BusPacket) -> Vec<BusPacket> {
    let key = (at, format!("{:?}", message.subject));
    match planted.fault() {
        Some(PlantedFault::DeafNode) if at == 0 && matches!(message.subject.kind(), "_node" | "_session") => {
            planted.strike();
            Vec::new()
        }
        Some(PlantedFault::WrongOffset)
            if message.subject.channel().is_some() && planted.strikes(PlantedFault::WrongOffset, 15) =>
        {
            vec![with_next_offset(message)]
        }
        Some(PlantedFault::WrongVersion) if planted.strikes(PlantedFault::WrongVersion, 15) => {
            vec![renumbered(&message, |update| update.to + 1)]
        }
        Some(PlantedFault::SwappedVersions) => match planted.kept.remove(&key) {
            Some(held) => match (read(&held), read(&message)) {
                (Some(one), Some(two)) if one.changes.len() == two.changes.len() => {
                    planted.strike();
                    vec![renumbered(&held, |_| two.to), renumbered(&message, |_| one.to)]
                }
                _ => vec![held, message],
            },
            None if planted.rng.chance(30) => {
                planted.kept.insert(key, message);
                Vec::new()
            }
            None => vec![message],
        },
        Some(PlantedFault::RepeatedChange) => {
            let to = read(&message).map_or(0, |update| update.to);
            let old = planted.kept.get(&key).cloned();
            let again = old.filter(|_| planted.strikes(PlantedFault::RepeatedChange, 20));
            if again.is_none() {
                planted.kept.entry(key).or_insert_with(|| message.clone());
            }
            let again = again.map(|old| renumbered(&old, |update| to + update.changes.len() as u64));
            [message].into_iter().chain(again).collect()
        }
        _ => vec![message],
    }
}

/// The message, at the offset that follows its own.
fn with_next_offset(message: BusPacket) -> BusPacket {
    let mut header = channel_header::decode(&message.header);
    if let Some(stamp) = &mut header.history {
        stamp.position.offset += 1;
    }
    let ReceivedHeader { json, client, history, .. } = header;
    let user = header.user.as_deref();
    let header = channel_header::encode(ChannelHeader { json, client, user, history });
    BusPacket { header: header.into(), ..message }
}

fn read(message: &BusPacket) -> Option<PresenceUpdate> {
    match BusMessage::decode(&message.payload)? {
        BusMessage::Presence(update) => Some(update),
        _ => None,
    }
}

fn renumbered(message: &BusPacket, to: impl FnOnce(&PresenceUpdate) -> u64) -> BusPacket {
    let Some(mut update) = read(message) else { return message.clone() };
    update.to = to(&update);
    BusPacket { payload: Arc::from(presence::encode(&update)), ..message.clone() }
}

/// A task of the node's liveness on its way to the shards. None: it is dropped.
pub fn liveness_task(
    planted: &mut Planted,
    engine: &MemoryEngine,
    now: Time,
    hub: &HubNode,
    task: LivenessTask,
) -> Option<LivenessTask> {
    let dropped = matches!(
        (planted.fault(), &task),
        (Some(PlantedFault::NoResync), LivenessTask::Compare)
            | (Some(PlantedFault::NoTakeover), LivenessTask::TakeOver(_))
            | (Some(PlantedFault::NoAnnounce), LivenessTask::Announce)
    );
    if dropped {
        planted.strike();
        return None;
    }
    if matches!(task, LivenessTask::Compare)
        && planted.is(PlantedFault::FalseTakeover)
        && planted.rng.chance(10)
    {
        return false_takeover(planted, engine, now, hub).or(Some(task));
    }
    Some(task)
}

/// A client of a live node, reported as lost.
fn false_takeover(
    planted: &mut Planted,
    engine: &MemoryEngine,
    now: Time,
    hub: &HubNode,
) -> Option<LivenessTask> {
    let own = hub.settings.node.as_str();
    let Found::Rows(page) = engine.peek(Read::Rows { kind: RowKind::Presence, after: None, limit: 1000 })
    else {
        return None;
    };
    let presences = page.rows.into_iter().filter_map(|row| match row.row {
        Row::Presence(presence) => Some(presence),
        _ => None,
    });
    let living = |presence: &PresenceRow| {
        let mut clients = presence.attendance.connected();
        let client = clients.find(|client| {
            *client.node.node != *own
                && is_open(engine, &Writer { node: client.node.node.clone(), epoch: client.node.epoch })
        })?;
        Some(client.node.clone())
    };
    let (presence, home): (PresenceRow, NodeEpoch) =
        presences.filter(|presence| !presence.key.channel.starts_with("user#")).find_map(|presence| {
            let home = living(&presence)?;
            Some((presence, home))
        })?;
    planted.strike();
    let kind = Channel::parse(&presence.key.channel).map_or("", |channel| channel.kind);
    let grace_ms = hub.settings.kind(kind).grace_ms;
    let loss = ClientLoss { at: now, grace_ms, reason: OfflineReason::NodeDown };
    Some(LivenessTask::TakeOver(Box::new(TakenOver { presence, node: home, loss, seen: now })))
}

fn is_open(engine: &MemoryEngine, writer: &Writer) -> bool {
    let Found::Nodes(page) = engine.peek(Read::Nodes { after: None, limit: 1000 }) else { return false };
    page.rows.iter().any(|node| node.writer == *writer && node.closed_at.is_none())
}

/// Messages between shards, when one was added.
pub fn shard_queue(planted: &mut Planted, queue: &mut VecDeque<(Time, InFlightInput)>) {
    let last = queue.len().wrapping_sub(1);
    let is_message = |at: usize| matches!(queue.get(at), Some((_, InFlightInput::Message(_))));
    if is_message(last) && planted.strikes(PlantedFault::LostShardMessage, 20) {
        queue.pop_back();
    } else if last >= 1
        && is_message(last)
        && is_message(last - 1)
        && planted.strikes(PlantedFault::SwappedShardMessages, 20)
    {
        let dues = (queue[last - 1].0, queue[last].0);
        queue.swap(last - 1, last);
        (queue[last - 1].0, queue[last].0) = dues;
    }
}
