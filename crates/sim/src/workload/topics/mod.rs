//! Topics over several nodes: events are published with ids and repeated when they are not acknowledged;
//! subscriptions are delivered to endpoints that are slow, fail, throttle and refuse; nodes crash, stop, sleep and
//! are cut off. Must hold: an acknowledged event reaches every subscription, at least once, in order and numbered
//! without holes, or is kept as a dead letter if its endpoint refuses it; an id is one event; a topic has one
//! publisher; in the end nothing is in flight.
//!
//! | file | holds |
//! |---|---|
//! | `publisher` | who publishes, and what they were answered |
//! | `endpoint` | who gets the batches of a subscription, and judges them |
//! | `puller` | a service that creates, pulls, replays and deletes a subscription of its own |
//! | `end` | what must hold when the faults have ended |

mod end;
mod endpoint;
mod publisher;
mod puller;

use super::{LIVENESS, Outcome, Profile, Trouble, Workload, number, shards_of};
use crate::cluster::{Cluster, Setup, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use endpoint::SimEndpoint;
use publisher::SimPublisher;
use puller::SimPuller;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{DeliveryOutcome, DeliveryProgress, EndpointReply, LogMark, RetryPolicy};
use tavern_domain::topic::SubscriptionMarks;
use tavern_hub::Settings;
use tavern_hub::topics::delivery::{AttemptEntry, AttemptRequest, DeliverySettings};
use tavern_store::{Commit, Document, DocumentKey, Expect, Found, Read, Row, RowKey, RowKind};
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::{self, DeadLetterRecord, SubscriptionSettings};

pub const STEPS: usize = 300;
const NODES: usize = 3;
const TOPICS: [&str; 2] = ["a", "b"];
const RETRY_MS: u64 = 300;
const SKEW_MS: u64 = 100;
const DELIVERIES: DeliverySettings = DeliverySettings {
    patience: RetryPolicy { backoff_min_ms: 500, backoff_max_ms: 4_000, disable_after_ms: 0 },
    lease_ms: 15_000,
    check_ms: 2_000,
};
/// Long enough for a lease, the longest backoff, and a bad event to be found by halving.
const END_MS: u64 = 180_000;

/// Whether endpoints refuse this event for good.
fn is_poison(number: u64) -> bool {
    number.is_multiple_of(17)
}

pub struct TopicsWorkload {
    shards: Vec<usize>,
    publisher: SimPublisher,
    puller: SimPuller,
    endpoints: Vec<SimEndpoint>,
    subscribed: bool,
    /// The percentage of posts that fail.
    trouble: usize,
    /// Posts in flight, by when they are answered.
    posts: Vec<(Time, PendingResponse)>,
    counts: BTreeMap<&'static str, u64>,
}

/// The answer that an endpoint will give.
struct PendingResponse {
    process: (usize, u64),
    subscription: Arc<str>,
    batch: u64,
    reply: EndpointReply<String>,
}

impl TopicsWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> TopicsWorkload {
        TopicsWorkload {
            shards: shards_of(shards, NODES, rng),
            publisher: SimPublisher::default(),
            puller: SimPuller::default(),
            endpoints: vec![
                SimEndpoint::new("one", &[0], 1),
                SimEndpoint::new("both", &[0, 1], 1),
                SimEndpoint::new("wide", &[1], 3),
            ],
            subscribed: false,
            trouble: 0,
            posts: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn missing_subscriptions(&self, cluster: &Cluster) -> impl Iterator<Item = &SimEndpoint> {
        self.endpoints.iter().filter(|endpoint| {
            matches!(cluster.peek(Read::Document(subscription_key(endpoint))), Found::Document(None))
        })
    }

    /// An endpoint gets a batch, and answers it later.
    fn posted(&mut self, cluster: &mut Cluster, process: (usize, u64), post: &AttemptRequest) -> Outcome {
        self.count("posts");
        cluster.trace.say(cluster.now, || format!("n{} posts {post:?}", process.0));
        let name = post.subscription.name.clone();
        let fate = cluster.faults.endpoint(&name, self.trouble);
        let (what, ms) = fate.unwrap_or_else(|| ("takes".into(), 1));
        dead_letters(cluster, &name)?;
        let endpoint = self.endpoints.iter_mut().find(|endpoint| endpoint.name == name);
        let endpoint = endpoint.ok_or_else(|| format!("there is no subscription {name}"))?;
        let reply = match what.as_str() {
            "throttled" => EndpointReply::throttled(Some(ms)),
            "fails" => DeliveryOutcome::Failed.into(),
            _ if endpoint.refuses(post) => DeliveryOutcome::Refused.into(),
            "partly" => {
                endpoint.take(post, false).map_err(|error| format!("{name}: {error}"))?;
                let mut ids = post.events.iter().rev().filter_map(|event| match event {
                    AttemptEntry::Event { entry, .. } => entry.id.as_deref().map(str::to_owned),
                    AttemptEntry::Gap { .. } => None,
                });
                EndpointReply::partly(ids.next().into_iter().collect())
            }
            what => {
                endpoint.take(post, true).map_err(|error| format!("{name}: {error}"))?;
                let lost = what == "lost";
                (if lost { DeliveryOutcome::Failed } else { DeliveryOutcome::Delivered }).into()
            }
        };
        let answer = PendingResponse { process, subscription: name, batch: post.batch, reply };
        self.posts.push((cluster.now + ms, answer));
        Ok(())
    }
}

/// The numbers of the events that a subscription has as dead letters.
fn dead_letters(cluster: &Cluster, subscription: &str) -> Result<BTreeSet<u64>, String> {
    let read = Read::Rows { kind: RowKind::Document, after: None, limit: 1000 };
    let Found::Rows(page) = cluster.peek(read) else { return Err("no documents".into()) };
    let mut dead = BTreeSet::new();
    for row in page.rows {
        let Row::Document(document) = row.row else { continue };
        let own = document.key.name().strip_prefix(subscription).is_some_and(|rest| rest.starts_with('/'));
        if document.key.kind() == record::DEAD && own {
            let letter: DeadLetterRecord = record::read(&document.body).map_err(|error| error.to_string())?;
            if !letter.id.parse().is_ok_and(is_poison) {
                return Err(format!("{subscription} never refused {letter:?}"));
            }
            dead.insert(letter.seq);
        }
    }
    Ok(dead)
}

/// The commit that creates the subscription of an endpoint, unless it exists.
fn subscription(endpoint: &SimEndpoint) -> Commit {
    let topics: Vec<Arc<str>> = endpoint.topics.iter().map(|topic| TOPICS[*topic].into()).collect();
    let counts = topics.iter().map(|topic| (topic.clone(), 0)).collect();
    let subscription = SubscriptionSettings {
        name: endpoint.name.clone(),
        owner: "key0".into(),
        topics,
        callback: Some("http://endpoint/".into()),
        timeout_ms: 200,
        max_events: 5,
        max_bytes: 1 << 20,
        max_backlog_bytes: 0,
        format: BatchFormat::Standard,
        concurrency: endpoint.concurrency,
        pull: false,
        uuid: None,
        headers: BTreeMap::new(),
        secrets: Vec::new(),
        created_at: 1,
    };
    let name = &*endpoint.name;
    let row = |kind: &str, name: &str, body: Vec<u8>| {
        Row::Document(Document { key: DocumentKey::new(kind, name), body: body.into() })
    };
    let puts = vec![
        row(record::SUBSCRIPTION, name, record::write(&subscription)),
        row(record::MARKS, name, record::write_marks(&SubscriptionMarks::begin(0, counts))),
        row(record::DELIVERY, name, record::write_progress(&DeliveryProgress::starting(LogMark::default()))),
        row(record::EVENTS, record::SUBSCRIPTIONS, Vec::new()),
    ];
    let absent = Expect { key: RowKey::Document(subscription_key(endpoint)), version: 0 };
    Commit { puts, expects: vec![absent], ..Commit::default() }
}

fn subscription_key(endpoint: &SimEndpoint) -> DocumentKey {
    DocumentKey::new(record::SUBSCRIPTION, &endpoint.name)
}

impl Workload for TopicsWorkload {
    fn profile(&self) -> Profile {
        Profile {
            setup: Setup {
                shards: self.shards.clone(),
                rules: LIVENESS,
                moves: true,
                ordered_channels: true,
                deliveries: Some(DELIVERIES),
                shard_delay_ms: 0,
            },
            trouble: Trouble {
                nodes: 24,
                crash: 3,
                stop: 2,
                sleep: 2,
                cut: 2,
                level: 12,
                level_max: 10,
                skew_ms: SKEW_MS,
            },
            pace_ms: [100, 600, 3_000, 12_000],
            last_sleep_ms: LIVENESS.lease_ms + 2 * LIVENESS.heartbeat_ms,
            end_ms: END_MS,
        }
    }

    fn settings(&self, _variant: u64, _fault: Option<PlantedFault>) -> Settings {
        Settings::default()
    }

    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        if !self.subscribed {
            if self.missing_subscriptions(cluster).next().is_some() {
                return vec!["subscribe".into()];
            }
            self.subscribed = true;
        }
        match rng.below(100) {
            0..4 => vec![format!("endpoints {}", [0, 30, 60, 95][rng.below(4)])],
            4..60 => self.publisher.choose(cluster, rng).into_iter().collect(),
            60..75 => self.puller.choose(cluster, rng).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        match words {
            ["subscribe"] => {
                // The store may fail some of them: those are committed again.
                let missing: Vec<Commit> = self.missing_subscriptions(cluster).map(subscription).collect();
                missing.into_iter().for_each(|commit| cluster.commit_by_operator(commit));
                Ok(())
            }
            ["endpoints", percent] => {
                self.trouble = number(percent)?;
                Ok(())
            }
            ["create" | "delete" | "pull" | "replay", ..] => self.puller.perform(cluster, words),
            ["pull_rest"] => {
                self.puller.pull_rest(cluster);
                Ok(())
            }
            words => self.publisher.perform(cluster, words),
        }
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        match signal {
            Signal::TopicAnswered { number, reply } => match SimPuller::owns(number) {
                true => {
                    let judged = self.puller.answered(cluster, number, &reply);
                    judged.map_err(|error| format!("puller: {error}"))
                }
                false => self.publisher.answered(cluster, number, &reply),
            },
            Signal::Posted { node, process, post } => self.posted(cluster, (node, process), &post),
            Signal::Ended { node, .. } => {
                self.publisher.node_ended(cluster, node);
                self.puller.node_ended(cluster, node);
                Ok(())
            }
            Signal::Broken(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn choose_last(&mut self, _cluster: &Cluster, _rng: &mut Rng) -> Vec<String> {
        vec!["endpoints 0".into(), "pull_rest".into()]
    }

    fn check_end(&mut self, cluster: &Cluster) -> Outcome {
        self.publisher.check_end()?;
        self.puller.check_end(&self.publisher.accepted).map_err(|error| format!("puller: {error}"))?;
        self.check_deliveries(cluster)?;
        self.check_rest(cluster)
    }

    fn next_wake(&self) -> Option<Time> {
        let wakes = [self.publisher.next_wake(), self.puller.next_wake()];
        self.posts.iter().map(|(due, _)| *due).chain(wakes.into_iter().flatten()).min()
    }

    fn wake(&mut self, cluster: &mut Cluster) -> Outcome {
        let now = cluster.now;
        self.publisher.wake(cluster);
        self.puller.wake(cluster);
        let posts = std::mem::take(&mut self.posts);
        let (due, rest): (Vec<_>, Vec<_>) = posts.into_iter().partition(|(due, _)| *due <= now);
        self.posts = rest;
        for (_, answer) in due {
            cluster.answer_post(answer.process, &answer.subscription, answer.batch, answer.reply);
        }
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let taken: u64 = self.endpoints.iter().map(|endpoint| endpoint.events.len() as u64).sum();
        let repeated: u64 = self.endpoints.iter().map(|endpoint| endpoint.repeated).sum();
        let judged = [
            ("events accepted", self.publisher.accepted.len() as u64),
            ("events known before", self.publisher.repeated),
            ("foreign keys refused", self.publisher.claimed),
            ("events delivered", taken),
            ("batches repeated", repeated),
            ("events pulled", self.puller.pulled),
            ("replays", self.puller.replays),
            ("subscriptions created", self.puller.subscriptions),
        ];
        self.counts.iter().map(|(what, count)| (*what, *count)).chain(judged).collect()
    }
}
