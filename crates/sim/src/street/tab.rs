//! One client of the street: its session, where it sits, what its person wants, what it was told. It asks one thing at
//! a time and believes nothing that was not answered.

use super::view::View;
use std::collections::{BTreeMap, VecDeque};
use tavern_hub::Caller;

pub struct Tab {
    pub user: String,
    /// The secret from hello, and the client it names to others.
    pub session: Option<String>,
    pub client: Option<String>,
    /// Where the session lives, and in which process.
    pub home: (usize, u64),
    /// The last number that was heard.
    pub seq: u64,
    pub seat: Option<Seat>,
    pub greeted: bool,
    pub pending: Option<Wish>,
    pub todo: VecDeque<Wish>,
    /// The channels its person wants to be in, with a state.
    pub wants: BTreeMap<usize, u64>,
    /// Where it is as far as it was told.
    pub stands: BTreeMap<usize, Stand>,
    /// The channels its person wants to watch.
    pub watches: BTreeMap<usize, Watch>,
}

pub struct Seat {
    pub house: usize,
    pub shard: usize,
    pub caller: Caller,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Watch {
    /// Not confirmed yet.
    Asked,
    /// Its node was started again, and what happened meanwhile was not told: it asks anew and believes nothing before.
    Doubted,
    Seen(View),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    In(u64),
    /// It was asked, and the answer did not say.
    Maybe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Hello,
    Join(usize),
    Update(usize),
    Leave(usize),
    Watch(usize),
    Unwatch(usize),
    Who(usize),
    Bye,
}

impl Tab {
    pub fn new(user: String) -> Tab {
        Tab {
            user,
            session: None,
            client: None,
            home: (0, 0),
            seq: 0,
            seat: None,
            greeted: false,
            pending: None,
            todo: VecDeque::new(),
            wants: BTreeMap::new(),
            stands: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Can take a command now.
    pub fn is_idle(&self) -> bool {
        self.seat.is_some() && self.greeted && self.pending.is_none()
    }

    /// The session is another one: nothing of the old one holds.
    pub fn begin_anew(&mut self) {
        self.seq = 0;
        self.stands.clear();
        self.watches.values_mut().for_each(|watch| *watch = Watch::Asked);
    }

    /// It came back to its session in another process.
    pub fn doubt(&mut self) {
        for watch in self.watches.values_mut().filter(|watch| matches!(watch, Watch::Seen(_))) {
            *watch = Watch::Doubted;
        }
    }

    /// What must be asked so that it is as its person wants it.
    pub fn catch_up(&mut self) {
        self.todo.clear();
        let unseen = self.watches.iter().filter(|(_, watch)| !matches!(watch, Watch::Seen(_)));
        self.todo.extend(unseen.map(|(channel, _)| Wish::Watch(*channel)));
        for (channel, state) in &self.wants {
            if self.stands.get(channel) != Some(&Stand::In(*state)) {
                self.todo.push_back(Wish::Join(*channel));
            }
        }
        let unwanted = self.stands.keys().filter(|channel| !self.wants.contains_key(channel));
        self.todo.extend(unwanted.map(|channel| Wish::Leave(*channel)));
    }

    /// The transport is gone, and with it every answer that was under way.
    pub fn cut_off(&mut self) -> Option<Seat> {
        if let Some(Wish::Join(channel) | Wish::Update(channel) | Wish::Leave(channel)) = self.pending.take()
        {
            self.stands.insert(channel, Stand::Maybe);
        }
        self.greeted = false;
        self.todo.clear();
        self.seat.take()
    }
}
