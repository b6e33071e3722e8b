//! A client that reads and publishes: where it is in each channel, and what it must get next.

use super::log::{HistoryLog, Place, words_of};
use crate::cluster::ConnectionId;
use crate::session_client::SessionClient;
use crate::workload::Outcome;
use serde_json::Value;
use std::collections::BTreeMap;

pub struct HistoryClient {
    pub link: SessionClient<HistoryOp>,
    /// The channels it wants to get, and where it is.
    pub channels: BTreeMap<usize, Listening>,
    /// How many messages it has published.
    pub published: u64,
    /// A message whose outcome is not known: it is repeated with its id.
    pub unanswered: Option<NumberedPublish>,
    /// A connection that is still open while another one connects.
    pub old: Option<ConnectionId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Listening {
    /// The session is subscribed.
    pub confirmed: bool,
    /// Everything up to here was received; none: it has no position yet.
    pub place: Option<Place>,
    /// The place that its last subscribe named. Messages may arrive before the answer.
    pub named: Option<Place>,
    /// What was known to be cleared when that subscribe was sent.
    pub cleared: Place,
    /// A gap was received: any later message may follow.
    pub open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedPublish {
    pub channel: usize,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryOp {
    Hello,
    /// With how many of the last messages, unless it has a position.
    Subscribe {
        channel: usize,
        last: Option<u64>,
    },
    Unsubscribe(usize),
    Publish(NumberedPublish),
    Page {
        channel: usize,
        limit: u64,
    },
    Ack,
}

impl HistoryClient {
    pub fn new(number: usize) -> HistoryClient {
        HistoryClient {
            link: SessionClient::new(format!("user{number}")),
            channels: BTreeMap::new(),
            published: 0,
            unanswered: None,
            old: None,
        }
    }

    /// Its session is another one.
    pub fn session_lost(&mut self) {
        self.channels.values_mut().for_each(|listening| listening.confirmed = false);
    }

    /// Queues what is missing: subscriptions, and the message whose outcome is not known.
    pub fn catch_up(&mut self) {
        let missing = self.channels.iter().filter(|(_, listening)| !listening.confirmed);
        self.link.todo = missing.map(|(&channel, _)| HistoryOp::Subscribe { channel, last: None }).collect();
        self.link.todo.extend(self.unanswered.map(HistoryOp::Publish));
    }
}

impl Listening {
    /// A message arrived.
    pub fn message(&mut self, log: &HistoryLog, channel: usize, event: &Value) -> Outcome {
        let (Some(epoch), Some(offset)) = (event["epoch"].as_u64(), event["offset"].as_u64()) else {
            return Err(format!("a message without a place: {event}"));
        };
        let Some(known) = self.place else {
            return Err(format!("a message before its place is known: {event}"));
        };
        let place = (epoch, offset);
        let follows = place == (known.0, known.1 + 1) || (epoch > known.0 && offset == 1);
        let may_jump = self.open && place > known;
        if !follows && !may_jump {
            return Err(format!("{place:?} arrived after {known:?}"));
        }
        let words = words_of(&event["data"]);
        if words.is_none() || log.words(channel, place) != words {
            return Err(format!(
                "{place:?} has {}, the store had {:?}",
                event["data"],
                log.words(channel, place)
            ));
        }
        (self.place, self.open) = (Some(place), false);
        Ok(())
    }
}
