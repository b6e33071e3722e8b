//! Commits as the words that the script of commits reads, and receipts from what it answers. Must hold: the steps of a commit stand in
//! the order of the one algorithm (`commit.rs`), and answers are read in the order in which its steps give them.

use super::table::Table;
use super::value::{Trouble, number, text};
use super::{deadline, document, hold, inbox, key, lease, log, presence, session, social};
use std::io::Write;
use tavern_domain::{Epoch, Time};
use tavern_store::commit::{Commit, NodeChange, Proof, Receipt};
use tavern_store::error::StoreError;
use tavern_store::log::Appended;
use tavern_store::node::Writer;
use tavern_store::presence::{Held, Presence, PresenceKey};
use tavern_store::row::{Row, RowKey};
use tavern_wire::resp;

/// Words on their way to a script.
#[derive(Default)]
pub(super) struct Sheet {
    pub out: Vec<u8>,
    pub words: usize,
    /// Numbers and names that are put together.
    scratch: Vec<u8>,
}

impl Sheet {
    pub fn word(&mut self, word: &[u8]) {
        resp::bulk(&mut self.out, word);
        self.words += 1;
    }

    pub fn text(&mut self, text: &str) {
        self.word(text.as_bytes());
    }

    pub fn number(&mut self, number: u64) {
        let mut digits = std::mem::take(&mut self.scratch);
        digits.clear();
        let _ = write!(digits, "{number}");
        self.word(&digits);
        self.scratch = digits;
    }

    pub fn table(&mut self, table: Table) {
        self.number(table as u64);
    }

    /// Names with a zero byte between them: no name has one.
    pub fn names(&mut self, names: &[&str]) {
        let mut joined = std::mem::take(&mut self.scratch);
        joined.clear();
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                joined.push(0);
            }
            joined.extend_from_slice(name.as_bytes());
        }
        self.word(&joined);
        self.scratch = joined;
    }

    /// A member of a list that a row is always in.
    pub fn listed(&mut self, table: Table, names: &[&str]) {
        self.table(table);
        self.names(names);
    }

    fn writer(&mut self, writer: &Writer) {
        self.names(&[&writer.node, &padded(writer.epoch.0)]);
    }

    pub fn commit(&mut self, commit: &Commit) {
        let mut inner = Sheet::default();
        match &commit.writer {
            Some(writer) => inner.writer(writer),
            None => inner.text(""),
        }
        match plain(commit) {
            Some((presence, expected, by)) => inner.plain(presence, expected, by),
            None => inner.steps(commit),
        }
        self.number(inner.words as u64 + 1);
        self.out.extend_from_slice(&inner.out);
        self.words += inner.words;
    }

    /// The same as its steps, in fewer words: most commits are of this kind.
    fn plain(&mut self, presence: &Presence, expected: u64, by: u32) {
        let (json, terms) = presence::written(presence);
        self.text("J");
        self.text(&presence.key.channel);
        self.text(&presence.key.user);
        self.number(expected);
        self.word(&json);
        self.word(&terms.0);
        self.number(by.into());
    }

    fn steps(&mut self, commit: &Commit) {
        for (n, expect) in commit.expects.iter().enumerate() {
            self.text("E");
            self.place(&expect.key);
            self.number(expect.version);
            self.number(n as u64);
        }
        for (n, take) in commit.takes.iter().enumerate() {
            lease::check(self, n, take, holder_of(commit));
        }
        if let Some(change) = &commit.node {
            self.node(change);
        }
        for key in &commit.deletes {
            self.delete(key);
        }
        commit.puts.iter().for_each(|row| self.put(row));
        for raise in &commit.raises {
            self.text("R");
            self.text(&raise.channel);
            self.number(raise.by.into());
        }
        commit.seen.iter().for_each(|seen| social::see(self, seen));
        for carrier in carriers(commit) {
            self.text("H");
            self.names(&[&carrier.channel, &carrier.user]);
        }
        commit.deadlines.iter().for_each(|deadline| deadline::put(self, deadline));
        commit.takes.iter().for_each(|take| lease::take(self, take, holder_of(commit)));
        commit.restores.iter().for_each(|entry| log::restore(self, entry));
        commit.appends.iter().for_each(|append| log::append(self, append));
        commit.trim.iter().for_each(|trim| log::trim(self, trim));
        commit.freed_messages.iter().for_each(|freed| inbox::free(self, freed));
        commit.inbox_messages.iter().for_each(|message| inbox::add(self, message));
    }

    fn node(&mut self, change: &NodeChange) {
        match change {
            NodeChange::Open { name, lease_ms } => {
                self.text("NO");
                self.text(name);
                self.number(*lease_ms);
            }
            NodeChange::Renew { node, lease_ms } => {
                self.text("NR");
                self.writer(node);
                self.number(*lease_ms);
            }
            NodeChange::Close { node, proof } => {
                self.text("NC");
                self.writer(node);
                self.number((*proof == Proof::LeaseEnded).into());
            }
            NodeChange::Stop { node } => {
                self.text("NS");
                self.writer(node);
            }
            NodeChange::Forget { node } => {
                self.text("NF");
                self.writer(node);
                self.number(node.epoch.0);
            }
        }
    }

    /// Where a row stands: its table and its field.
    fn place(&mut self, key: &RowKey) {
        match key {
            RowKey::Key(id) => self.listed(Table::Keys, &[id]),
            RowKey::Session(client) => self.listed(Table::Sessions, &[&client.to_string()]),
            RowKey::Document(key) => self.listed(Table::Documents, &[key.kind(), key.name()]),
            RowKey::Presence(key) => self.listed(Table::Presences, &[&key.channel, &key.user]),
            RowKey::Hold(key) => self.listed(Table::Holds, &[&key.channel, &key.user]),
            RowKey::User(user) => self.listed(Table::Users, &[user]),
            RowKey::Follow { follower, followee } => self.listed(Table::Follows, &[follower, followee]),
            RowKey::Lease(name) => self.listed(Table::Leases, &[name]),
            RowKey::Deadline { kind, name } => self.listed(Table::Deadlines, &[kind, name]),
        }
    }

    /// The lists that a row is in because of its key alone.
    fn lists(&mut self, key: &RowKey) {
        match key {
            RowKey::Key(id) => {
                self.number(1);
                self.listed(Table::KeyIds, &[id]);
            }
            RowKey::Session(client) => {
                self.number(1);
                self.listed(Table::SessionIds, &[&client.to_string()]);
            }
            RowKey::Presence(key) => {
                self.number(2);
                self.listed(Table::Roster, &[&key.channel, &key.user]);
                self.listed(Table::Places, &[&key.user, &key.channel]);
            }
            RowKey::Follow { follower, followee } => {
                self.number(2);
                self.listed(Table::Following, &[follower, followee]);
                self.listed(Table::Followers, &[followee, follower]);
            }
            RowKey::Document(key) => {
                self.number(1);
                self.listed(Table::DocumentIds, &[key.kind(), key.name()]);
            }
            RowKey::Hold(key) => {
                self.number(1);
                self.listed(Table::HoldIds, &[&key.channel, &key.user]);
            }
            RowKey::User(user) => {
                self.number(1);
                self.listed(Table::UserIds, &[user]);
            }
            RowKey::Lease(_) | RowKey::Deadline { .. } => self.number(0),
        }
    }

    fn delete(&mut self, key: &RowKey) {
        self.text("X");
        self.place(key);
        self.text(channel_of(key));
        self.number((!matches!(key, RowKey::Deadline { .. })).into());
        self.lists(key);
    }

    fn put(&mut self, row: &Row) {
        let (json, terms) = match row {
            Row::User(user) => return social::put_user(self, user),
            Row::Key(key) => key::written(key),
            Row::Session(session) => session::written(session),
            Row::Document(document) => document::written(document),
            Row::Presence(presence) => presence::written(presence),
            Row::Hold(hold) => hold::written(hold),
            Row::Follow(follow) => social::written(follow),
            Row::Lease(lease) => lease::written(lease),
        };
        let key = row.key();
        self.text("P");
        self.place(&key);
        self.text(channel_of(&key));
        self.word(&json);
        self.word(&terms.0);
        self.lists(&key);
    }
}

/// The lists that a row is in because of what it says, as they stand behind it.
#[derive(Default)]
pub(super) struct Terms(pub Vec<u8>);

impl Terms {
    pub fn with(mut self, table: Table, names: &[&str]) -> Terms {
        let length = names.iter().map(|name| name.len()).sum::<usize>() + names.len() - 1;
        let _ = write!(self.0, "{}:{length}:", table as u8);
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                self.0.push(0);
            }
            self.0.extend_from_slice(name.as_bytes());
        }
        self
    }
}

/// Digits whose order as text is that of the numbers.
pub(super) fn padded(number: u64) -> String {
    format!("{number:020}")
}

/// A commit that does nothing but put one presence that it expects, and raise its channel.
fn plain(commit: &Commit) -> Option<(&Presence, u64, u32)> {
    let Commit { expects, puts, raises, .. } = commit;
    let ([expect], [Row::Presence(presence)], [raise]) = (&expects[..], &puts[..], &raises[..]) else {
        return None;
    };
    let RowKey::Presence(key) = &expect.key else { return None };
    let is_alone = commit.node.is_none()
        && commit.deletes.is_empty()
        && (commit.seen.is_empty() && commit.deadlines.is_empty())
        && (commit.takes.is_empty() && commit.appends.is_empty() && commit.trim.is_none())
        && commit.restores.is_empty()
        && (commit.freed_messages.is_empty() && commit.inbox_messages.is_empty());
    let is_same = *key == presence.key && raise.channel == key.channel;
    (is_alone && is_same).then_some((presence, expect.version, raise.by))
}

fn channel_of(key: &RowKey) -> &str {
    match key {
        RowKey::Presence(key) => &key.channel,
        _ => "",
    }
}

fn carriers(commit: &Commit) -> impl Iterator<Item = PresenceKey> {
    let keys = commit.puts.iter().map(Row::key).chain(commit.deletes.iter().cloned());
    keys.filter_map(|key| match key {
        RowKey::Presence(key) => Some(key),
        _ => None,
    })
}

/// What the script answered to one commit.
pub(super) fn outcome(commit: &Commit, said: &[u8]) -> Result<Result<Receipt, StoreError>, Trouble> {
    let mut parts = said.split(|&byte| byte == 0);
    let first = parts.next().unwrap_or_default();
    let Some((&code, rest)) = first.split_first() else { return Err(Trouble::Strange("an empty answer")) };
    Ok(Err(match code {
        b'D' => return receipt(commit, number(rest)?, parts).map(Ok),
        b'C' => {
            let expect = commit.expects.get(number(rest)? as usize);
            let expect = expect.ok_or(Trouble::Strange("a conflict with nothing"))?;
            let found = number(parts.next().unwrap_or_default())?;
            StoreError::Conflict { key: expect.key.clone(), expected: expect.version, found }
        }
        b'T' => taken(commit, rest, parts)?,
        b'W' => fenced(commit.writer.as_ref())?,
        b'F' => fenced(changed(commit))?,
        b'L' => {
            let until = Time(number(rest)?);
            StoreError::Leased { node: known(changed(commit))?.clone(), until }
        }
        b'U' => StoreError::UnknownNode { node: known(changed(commit))?.clone() },
        _ => return Err(Trouble::Strange("an unknown answer")),
    }))
}

fn taken<'a>(
    commit: &Commit,
    which: &[u8],
    parts: impl Iterator<Item = &'a [u8]>,
) -> Result<StoreError, Trouble> {
    let take = commit.takes.get(number(which)? as usize).ok_or(Trouble::Strange("nothing was taken"))?;
    let parts: Vec<&[u8]> = parts.collect();
    let [until, node, epoch] = parts[..] else { return Err(Trouble::Strange("an answer is too short")) };
    let by = Writer::new(text(node)?, Epoch(number(epoch)?));
    Ok(StoreError::LeaseHeld { name: take.name.clone(), by, until: Time(number(until)?) })
}

fn holder_of(commit: &Commit) -> &Writer {
    commit.writer.as_ref().expect("checked: whoever takes a lease is a node")
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

fn known(writer: Option<&Writer>) -> Result<&Writer, Trouble> {
    writer.ok_or(Trouble::Strange("an answer about nobody"))
}

fn fenced(writer: Option<&Writer>) -> Result<StoreError, Trouble> {
    let writer = known(writer)?;
    Ok(StoreError::Fenced { node: writer.node.clone(), epoch: writer.epoch })
}

fn receipt<'a>(
    commit: &Commit,
    time: u64,
    mut parts: impl Iterator<Item = &'a [u8]>,
) -> Result<Receipt, Trouble> {
    let mut next = || parts.next().ok_or(Trouble::Strange("an answer is too short"));
    let mut receipt = Receipt { time: Time(time), ..Receipt::default() };
    match &commit.node {
        Some(NodeChange::Open { .. }) => receipt.epoch = Some(Epoch(number(next()?)?)),
        Some(NodeChange::Close { .. } | NodeChange::Stop { .. }) => {
            receipt.closed_at = Some(Time(number(next()?)?));
        }
        Some(NodeChange::Renew { .. } | NodeChange::Forget { .. }) | None => {}
    }
    for _ in &commit.deletes {
        receipt.deleted.push(number(next()?)?);
    }
    for _ in &commit.puts {
        receipt.put.push(number(next()?)?);
    }
    for _ in &commit.raises {
        receipt.raised.push(number(next()?)?);
        receipt.begun.push(next()? == b"1");
    }
    for carrier in carriers(commit) {
        for _ in 0..number(next()?)? {
            receipt.held.push(Held { carrier: carrier.clone(), channel: text(next()?)?.into() });
        }
    }
    for _ in &commit.takes {
        receipt.taken.push(number(next()?)?);
    }
    for _ in &commit.appends {
        let (position, count) = (number(next()?)?, number(next()?)?);
        receipt.appended.push(Appended { position, count, again: next()? == b"1" });
    }
    for _ in &commit.inbox_messages {
        receipt.inbox_numbers.push(number(next()?)?);
    }
    Ok(receipt)
}
