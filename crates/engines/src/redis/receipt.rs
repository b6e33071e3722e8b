//! Decodes receipts and refusals from the reply of the commit script. Must hold: they are read in the order of the
//! steps of a commit.

use super::commit::changed_presences;
use super::error::RedisError;
use super::value::{number, text};
use tavern_domain::{Epoch, Time};
use tavern_store::{
    Appended, ChangedChannel, ChangedRow, Commit, HeldPresence, HistoryAppended, HistoryPosition, NodeChange,
    Receipt, StoreError, Writer,
};

/// The outcome of one commit.
pub(super) fn read(commit: &Commit, answer: &[u8]) -> Result<Result<Receipt, StoreError>, RedisError> {
    let mut parts = answer.split(|&byte| byte == 0);
    let first = parts.next().unwrap_or_default();
    let Some((&code, rest)) = first.split_first() else {
        return Err(RedisError::Unexpected("an empty answer"));
    };
    Ok(Err(match code {
        b'D' => return receipt(commit, number(rest)?, parts).map(Ok),
        b'C' => {
            let expect = commit.expects.get(number(rest)? as usize);
            let expect = expect.ok_or(RedisError::Unexpected("a conflict without an expectation"))?;
            let found = number(parts.next().unwrap_or_default())?;
            StoreError::Conflict { key: expect.key.clone(), expected: expect.version, found }
        }
        b'T' => lease_held(commit, rest, parts)?,
        b'W' => fenced(commit.writer.as_ref())?,
        b'F' => fenced(changed(commit))?,
        b'L' => {
            let until = Time(number(rest)?);
            StoreError::Leased { node: known(changed(commit))?.clone(), until }
        }
        b'U' => StoreError::UnknownNode { node: known(changed(commit))?.clone() },
        _ => return Err(RedisError::Unexpected("an unknown answer")),
    }))
}

fn lease_held<'a>(
    commit: &Commit,
    which: &[u8],
    parts: impl Iterator<Item = &'a [u8]>,
) -> Result<StoreError, RedisError> {
    let take = commit.takes.get(number(which)? as usize);
    let take = take.ok_or(RedisError::Unexpected("a lease that was not taken"))?;
    let parts: Vec<&[u8]> = parts.collect();
    let [until, node, epoch] = parts[..] else { return Err(RedisError::Unexpected("a short answer")) };
    let by = Writer::new(text(node)?, Epoch(number(epoch)?));
    Ok(StoreError::LeaseHeld { name: take.name.clone(), by, until: Time(number(until)?) })
}

fn changed(commit: &Commit) -> Option<&Writer> {
    match commit.node.as_ref()? {
        NodeChange::Open { .. } => None,
        NodeChange::Renew { node, .. }
        | NodeChange::Close { node, .. }
        | NodeChange::Stop { node }
        | NodeChange::Forget { node } => Some(node),
    }
}

fn known(writer: Option<&Writer>) -> Result<&Writer, RedisError> {
    writer.ok_or(RedisError::Unexpected("an answer about no node"))
}

fn fenced(writer: Option<&Writer>) -> Result<StoreError, RedisError> {
    let writer = known(writer)?;
    Ok(StoreError::Fenced { node: writer.node.clone(), epoch: writer.epoch })
}

fn receipt<'a>(
    commit: &Commit,
    time: u64,
    mut parts: impl Iterator<Item = &'a [u8]>,
) -> Result<Receipt, RedisError> {
    let mut next = || parts.next().ok_or(RedisError::Unexpected("a short answer"));
    let mut receipt = Receipt { time: Time(time), ..Receipt::default() };
    match &commit.node {
        Some(NodeChange::Open { .. }) => receipt.epoch = Some(Epoch(number(next()?)?)),
        Some(NodeChange::Close { .. } | NodeChange::Stop { .. }) => {
            receipt.closed_at = Some(Time(number(next()?)?));
        }
        Some(NodeChange::Renew { .. } | NodeChange::Forget { .. }) | None => {}
    }
    for key in &commit.deletes {
        receipt.deleted.push(ChangedRow { key: key.clone(), version: number(next()?)? });
    }
    for row in &commit.puts {
        receipt.put.push(ChangedRow { key: row.key(), version: number(next()?)? });
    }
    for raise in &commit.raises {
        let (version, was_empty) = (number(next()?)?, next()? == b"1");
        receipt.raised.push(ChangedChannel { channel: raise.channel.clone(), version, was_empty });
    }
    for presence in changed_presences(commit) {
        for _ in 0..number(next()?)? {
            receipt.held.push(HeldPresence { held_with: presence.clone(), channel: text(next()?)?.into() });
        }
    }
    for _ in &commit.takes {
        receipt.taken.push(number(next()?)?);
    }
    for _ in &commit.appends {
        let (position, count) = (number(next()?)?, number(next()?)?);
        receipt.appended.push(Appended { position, count, duplicate: next()? == b"1" });
    }
    for _ in &commit.inbox_messages {
        receipt.inbox_numbers.push(number(next()?)?);
    }
    for _ in &commit.history {
        let position = HistoryPosition { epoch: number(next()?)?, offset: number(next()?)? };
        receipt.history.push(HistoryAppended { position, duplicate: next()? == b"1" });
    }
    Ok(receipt)
}
