//! Which subscriber of this process receives what. In memory only; the database holds the same for other processes.
//! Must hold: a subscriber receives nothing published before it subscribed or after it unsubscribed.

use crate::message::{ChannelNamespace, Interest, InterestKind, Message, Publication};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tavern_domain::pattern;

#[derive(Clone, Copy, Debug)]
struct SubscriberRoute {
    subscriber: u64,
    /// It receives messages after this id.
    since: i64,
    /// And none after this one.
    until: i64,
}

#[derive(Debug, Default)]
pub struct SubscriberRoutes {
    channels: [HashMap<Arc<[u8]>, Vec<SubscriberRoute>>; 2],
    patterns: [BTreeMap<Arc<[u8]>, Vec<SubscriberRoute>>; 2],
    everything: [Vec<SubscriberRoute>; 2],
}

/// How many subscriptions of one subscriber match a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Matches {
    /// All of them.
    pub subscriptions: u32,
    /// Without those to everything, which do not count as recipients.
    pub recipients: u32,
}

impl SubscriberRoutes {
    pub fn add(&mut self, subscriber: u64, interest: &Interest, since: i64) {
        self.routes(interest).push(SubscriberRoute { subscriber, since, until: i64::MAX });
    }

    /// Stops routing messages after this id.
    pub fn end(&mut self, subscriber: u64, interest: &Interest, until: i64) {
        for route in self.routes(interest).iter_mut().filter(|route| route.subscriber == subscriber) {
            route.until = route.until.min(until);
        }
    }

    pub fn remove(&mut self, subscriber: u64, interest: &Interest) {
        self.routes(interest).retain(|route| route.subscriber != subscriber);
        let namespace = interest.namespace as usize;
        match interest.kind {
            InterestKind::Channel
                if self.channels[namespace].get(&interest.name).is_some_and(Vec::is_empty) =>
            {
                self.channels[namespace].remove(&interest.name);
            }
            InterestKind::Pattern
                if self.patterns[namespace].get(&interest.name).is_some_and(Vec::is_empty) =>
            {
                self.patterns[namespace].remove(&interest.name);
            }
            _ => {}
        }
    }

    fn routes(&mut self, interest: &Interest) -> &mut Vec<SubscriberRoute> {
        let namespace = interest.namespace as usize;
        match interest.kind {
            InterestKind::Channel => self.channels[namespace].entry(interest.name.clone()).or_default(),
            InterestKind::Pattern => self.patterns[namespace].entry(interest.name.clone()).or_default(),
            InterestKind::Everything => &mut self.everything[namespace],
        }
    }

    /// Calls `deliver` for every route of a message: by channel first, then by pattern, then those to everything.
    pub fn route(&self, publication: &Arc<Publication>, mut deliver: impl FnMut(u64, Message)) {
        let namespace = publication.namespace as usize;
        let is_open =
            |route: &&SubscriberRoute| route.since < publication.id && publication.id <= route.until;
        for route in self.channels[namespace].get(&*publication.channel).into_iter().flatten().filter(is_open)
        {
            deliver(route.subscriber, Message::Channel(publication.clone()));
        }
        for (pattern, routes) in &self.patterns[namespace] {
            if pattern::matches(pattern, &publication.channel) {
                for route in routes.iter().filter(is_open) {
                    let (pattern, publication) = (pattern.clone(), publication.clone());
                    deliver(route.subscriber, Message::Pattern { pattern, publication });
                }
            }
        }
        for route in self.everything[namespace].iter().filter(is_open) {
            deliver(route.subscriber, Message::Channel(publication.clone()));
        }
    }

    /// How many subscriptions to everything in a namespace a subscriber has.
    pub fn count_everything(&self, subscriber: u64, namespace: ChannelNamespace) -> u32 {
        count_of(subscriber, &self.everything[namespace as usize])
    }

    /// How many subscriptions of one subscriber match a channel.
    pub fn matches(&self, subscriber: u64, namespace: ChannelNamespace, channel: &[u8]) -> Matches {
        let at = namespace as usize;
        let mut recipients = self.channels[at].get(channel).map_or(0, |routes| count_of(subscriber, routes));
        for (pattern, routes) in &self.patterns[at] {
            if pattern::matches(pattern, channel) {
                recipients += count_of(subscriber, routes);
            }
        }
        Matches { recipients, subscriptions: recipients + self.count_everything(subscriber, namespace) }
    }
}

fn count_of(subscriber: u64, routes: &[SubscriberRoute]) -> u32 {
    let is_own = |route: &&SubscriberRoute| route.subscriber == subscriber && route.until == i64::MAX;
    routes.iter().filter(is_own).count() as u32
}
