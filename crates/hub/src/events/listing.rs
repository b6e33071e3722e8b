//! Which subscriptions there are: all of them are read when their common document says that something has changed, one of
//! them when somebody says which.

use super::courier::{Asked, Courier};
use super::line::{Line, State};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::Input;
use tavern_engine::limits::PAGE_ROWS;
use tavern_engine::{Answer, Document, DocumentKey, Found, Read, Row, RowKey, RowKind, Versioned, Work};
use tavern_wire::record::{self, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, Subscription};

impl Courier {
    pub(super) fn look(&mut self) {
        if !std::mem::replace(&mut self.looks, true) {
            let key = DocumentKey::new(EVENTS, SUBSCRIPTIONS);
            self.ask(Asked::Look, Work::Read(Read::Document(key)));
        }
    }

    pub(super) fn looked(&mut self, answer: Answer) {
        self.looks = false;
        let Answer::Read(Found::Document(found)) = answer else { return };
        let version = found.map_or(0, |found| found.version);
        if self.listed != Some(version) {
            self.looks = true;
            // Before every name that a subscription may have.
            self.list(version, BTreeSet::new(), DocumentKey::new(SUBSCRIPTION, ""));
        }
    }

    fn list(&mut self, version: u64, names: BTreeSet<Arc<str>>, after: DocumentKey) {
        let after = Some(RowKey::Document(after));
        let read = Read::Rows { kind: RowKind::Document, after, limit: PAGE_ROWS };
        self.ask(Asked::List { version, names }, Work::Read(read));
    }

    pub(super) fn listed(&mut self, now: Time, version: u64, mut names: BTreeSet<Arc<str>>, answer: Answer) {
        let Answer::Read(Found::Rows(page)) = answer else {
            self.looks = false;
            return;
        };
        let mut last = None;
        for Versioned { version, row } in page.rows {
            let Row::Document(document) = row else { continue };
            if document.key.kind() != SUBSCRIPTION {
                last = None;
                break;
            }
            names.insert(document.key.name().into());
            self.learn(now, &Versioned { version, row: document.clone() });
            last = page.more.then_some(document.key);
        }
        if let Some(last) = last {
            return self.list(version, names, last);
        }
        self.looks = false;
        let first = self.listed.replace(version).is_none();
        let gone: Vec<Arc<str>> = self.lines.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.forget(name));
        if first {
            self.look_all(now);
        }
    }

    /// Somebody has changed this subscription, or its progress.
    pub fn changed(&mut self, name: &Arc<str>) {
        let key = DocumentKey::new(SUBSCRIPTION, name);
        self.ask(Asked::One(name.clone()), Work::Read(Read::Document(key)));
    }

    pub(super) fn read_one(&mut self, now: Time, name: &Arc<str>, answer: Answer) {
        match answer {
            Answer::Read(Found::Document(Some(found))) => {
                self.learn(now, &found);
                match self.lines.get_mut(name).map(|line| &mut line.state) {
                    // What it reads may be older than the change.
                    Some(State::Loads(load)) => load.stale = true,
                    Some(State::Active(_)) => self.check(name),
                    _ => self.feed(now, name),
                }
            }
            Answer::Read(_) => self.forget(name),
            // The next look tells.
            _ => self.listed = None,
        }
    }

    /// Asks whether somebody else has changed the progress; a change of topics does.
    fn check(&mut self, name: &Arc<str>) {
        if matches!(self.lines.get(name).map(|line| &line.state), Some(State::Active(_))) {
            let key = DocumentKey::new(record::DELIVERY, name);
            self.ask(Asked::Check(name.clone()), Work::Read(Read::Document(key)));
        }
    }

    /// Whether the progress is still what this node has written.
    pub(super) fn checked(&mut self, name: &Arc<str>, version: u64) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if line.active().is_some_and(|active| active.version != version && active.machine.is_at_rest()) {
            line.state = State::Idle;
            line.hungry = true;
            self.queue(name);
        }
    }

    fn learn(&mut self, now: Time, found: &Versioned<Document>) {
        let name: Arc<str> = found.row.key.name().into();
        if self.lines.get(&name).is_some_and(|line| line.version == found.version) {
            return;
        }
        let subscription: Subscription = match record::read(&found.row.body) {
            Ok(subscription) => subscription,
            Err(error) => return self.trouble(&name, error.to_string()),
        };
        let subscription = Arc::new(subscription);
        let before = self.lines.get(&name).map(|line| line.subscription.clone());
        for topic in before.iter().flat_map(|before| &before.topics) {
            self.unlisten(topic, &name);
        }
        for topic in &subscription.topics {
            self.topics.entry(topic.clone()).or_default().insert(name.clone());
        }
        match self.lines.get_mut(&name) {
            Some(line) => {
                (line.subscription, line.version) = (subscription, found.version);
                if line.subscription.pull && matches!(line.state, State::Active(_)) {
                    line.state = State::Idle;
                }
                let rules = line.rules();
                self.give(now, &name, Some(Input::Rules(rules)));
                // Its topics may be others, and with them its marks.
                self.check(&name);
            }
            None => drop(self.lines.insert(name.clone(), Line::new(subscription, found.version))),
        }
        if self.listed.is_some() {
            self.feed(now, &name);
        }
    }

    fn forget(&mut self, name: &Arc<str>) {
        let Some(line) = self.lines.remove(name) else { return };
        self.unload(&line);
        for topic in &line.subscription.topics {
            self.unlisten(topic, name);
        }
    }

    fn unlisten(&mut self, topic: &Arc<str>, name: &Arc<str>) {
        if let Some(names) = self.topics.get_mut(topic) {
            names.remove(name);
            if names.is_empty() {
                self.topics.remove(topic);
            }
        }
    }
}
