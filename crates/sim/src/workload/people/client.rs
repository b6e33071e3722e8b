//! The wanted state of a user, and what their client received about the users they follow.

use crate::session_client::SessionClient;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::Time;

pub struct PeopleClient {
    pub link: SessionClient<PeopleCommand>,
    /// The last inbox message that this session received.
    pub message_id: u64,
    /// The channels that they want to be in, and those that they are in as far as they know.
    pub wants: BTreeSet<usize>,
    pub stands: BTreeSet<usize>,
    /// The channels for which it is unknown whether they are in them.
    pub doubts: BTreeSet<usize>,
    /// The last received status of others.
    pub statuses: BTreeMap<String, ReportedStatus>,
    /// The session has requested all statuses.
    pub knows: bool,
    /// A change with an unknown outcome: it is sent again.
    pub change: Option<PeopleChange>,
    pub sent_at: Time,
    /// Since when it is connected and its hello answered.
    pub here_since: Option<Time>,
}

/// The part of a status that is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedStatus {
    pub online: bool,
    pub channels: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeopleCommand {
    Hello,
    Ack,
    Bye,
    Join(usize),
    Leave(usize),
    /// The current statuses, as a query: later events may arrive before its answer.
    Statuses,
    /// Another hello, to receive all statuses in order among the events.
    Refresh,
    Change(PeopleChange),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeopleChange {
    Follow(usize),
    Unfollow(usize),
    /// By its index in `VISIBILITIES`.
    Show(usize),
}

impl ReportedStatus {
    pub fn read(status: &Value) -> ReportedStatus {
        let names = status["channels"].as_array().into_iter().flatten();
        ReportedStatus {
            online: status["online"] == true,
            channels: names.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
}

impl PeopleClient {
    pub fn new(user: String) -> PeopleClient {
        PeopleClient {
            link: SessionClient::new(user),
            message_id: 0,
            wants: BTreeSet::new(),
            stands: BTreeSet::new(),
            doubts: BTreeSet::new(),
            statuses: BTreeMap::new(),
            knows: false,
            change: None,
            sent_at: Time(0),
            here_since: None,
        }
    }

    /// The session is new: nothing of the old one is valid.
    pub fn begin_anew(&mut self) {
        (self.message_id, self.knows) = (0, false);
        self.stands.clear();
        self.doubts.clear();
        self.statuses.clear();
    }

    /// Queues the commands that bring about the state that the user wants.
    pub fn catch_up(&mut self) {
        let todo = &mut self.link.todo;
        todo.clear();
        todo.extend(self.change.map(PeopleCommand::Change));
        let changed = self.wants.symmetric_difference(&self.stands).chain(&self.doubts);
        for channel in changed.copied().collect::<BTreeSet<usize>>() {
            todo.push_back(match self.wants.contains(&channel) {
                true => PeopleCommand::Join(channel),
                false => PeopleCommand::Leave(channel),
            });
        }
        if !self.knows {
            todo.push_back(PeopleCommand::Refresh);
        }
    }

    /// The connection is closed.
    pub fn cut_off(&mut self) {
        self.here_since = None;
        if let Some(command) = self.link.cut_off() {
            self.doubt(command);
        }
    }

    /// It is unknown whether a command was executed: it is repeated either way.
    pub fn doubt(&mut self, command: PeopleCommand) {
        if let PeopleCommand::Join(channel) | PeopleCommand::Leave(channel) = command {
            self.doubts.insert(channel);
        }
    }
}
