//! The wanted state of a user, and what their client received.

use crate::session_client::SessionClient;
use crate::workload::view::View;
use std::collections::BTreeMap;

pub struct PresenceClient {
    pub link: SessionClient<PresenceCommand>,
    /// The channels they want to be in, with a state.
    pub wants: BTreeMap<usize, u64>,
    /// The channels they are in, as far as they know.
    pub stands: BTreeMap<usize, Stand>,
    /// The channels they want to watch.
    pub watches: BTreeMap<usize, Watch>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Watch {
    /// Not confirmed yet.
    Asked,
    /// Its node was restarted, and events since then were not received: it queries again and assumes nothing before
    /// that.
    Doubted,
    Seen(View),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    In(u64),
    /// It was queried, and the answer had no snapshot.
    Unknown,
}

/// Channels are named by their index in `CHANNELS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceCommand {
    Hello,
    Join(usize),
    Update(usize),
    Leave(usize),
    Watch(usize),
    Unwatch(usize),
    Who(usize),
    Bye,
}

impl PresenceClient {
    pub fn new(user: String) -> PresenceClient {
        PresenceClient {
            link: SessionClient::new(user),
            wants: BTreeMap::new(),
            stands: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// The session is new: nothing of the old one is valid.
    pub fn begin_anew(&mut self) {
        self.stands.clear();
        self.watches.values_mut().for_each(|watch| *watch = Watch::Asked);
    }

    /// It resumed its session in another process.
    pub fn doubt(&mut self) {
        for watch in self.watches.values_mut().filter(|watch| matches!(watch, Watch::Seen(_))) {
            *watch = Watch::Doubted;
        }
    }

    /// Queues the commands that bring about the state that the user wants.
    pub fn catch_up(&mut self) {
        let todo = &mut self.link.todo;
        todo.clear();
        let unseen = self.watches.iter().filter(|(_, watch)| !matches!(watch, Watch::Seen(_)));
        todo.extend(unseen.map(|(channel, _)| PresenceCommand::Watch(*channel)));
        for (channel, state) in &self.wants {
            if self.stands.get(channel) != Some(&Stand::In(*state)) {
                todo.push_back(PresenceCommand::Join(*channel));
            }
        }
        let unwanted = self.stands.keys().filter(|channel| !self.wants.contains_key(channel));
        todo.extend(unwanted.map(|channel| PresenceCommand::Leave(*channel)));
    }

    /// The connection is closed.
    pub fn cut_off(&mut self) {
        let pending = self.link.cut_off();
        if let Some(
            PresenceCommand::Join(channel)
            | PresenceCommand::Update(channel)
            | PresenceCommand::Leave(channel),
        ) = pending
        {
            self.stands.insert(channel, Stand::Unknown);
        }
    }
}
