//! Topics over several nodes: events are published with ids and repeated when they are not acknowledged;
//! subscriptions are delivered to endpoints that are slow, fail, throttle and refuse; an operator deletes topics,
//! changes subscriptions and retries dead letters; the log is limited by age and size; nodes crash, stop, sleep and
//! are cut off. Must hold: an acknowledged event reaches every subscription that has its topic, and no other, at least
//! once, in order and numbered without holes; or it is kept as a dead letter if its endpoint refuses it; or a gap
//! reports it, if a limit has dropped it. An id is one event; a topic has one publisher; in the end nothing is in
//! flight.
//!
//! | file | holds |
//! |---|---|
//! | `setup` | the subscriptions that exist from the beginning |
//! | `publisher` | who publishes, and what they were answered |
//! | `endpoint` | who gets the batches of a subscription, and judges them |
//! | `puller` | a service that creates, pulls, replays and deletes a subscription of its own |
//! | `operator` | who administers topics and the subscriptions of endpoints |
//! | `pending` | a command of these two, until it is answered |
//! | `membership` | which topics a subscription has, as they were told |
//! | `log` | what is in the log, commit by commit |
//! | `queue` | what one subscription must get of it |
//! | `limits` | what may be dropped |
//! | `end` | what must hold when the faults have ended |

mod end;
mod endpoint;
mod limits;
mod log;
mod membership;
mod operator;
mod pending;
mod publisher;
mod puller;
mod queue;
mod setup;

use super::{LIVENESS, Outcome, Profile, Trouble, Workload, number, shards_of};
use crate::cluster::{Cluster, Setup, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use end::dead_letters;
use endpoint::SimEndpoint;
use log::LogJudge;
use membership::Memberships;
use operator::SimOperator;
use publisher::SimPublisher;
use puller::SimPuller;
use setup::{subscription, subscription_key};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{DeliveryOutcome, EndpointReply, RetryPolicy};
use tavern_hub::topics::TopicReply;
use tavern_hub::topics::delivery::{AttemptEntry, AttemptRequest, DeliverySettings};
use tavern_hub::{RetentionRules, Settings};
use tavern_store::{Commit, Found, Read};

pub const STEPS: usize = 300;
const NODES: usize = 3;
const TOPICS: [&str; 2] = ["a", "b"];
/// The subscriptions: of endpoints, and of the puller.
const NAMES: [&str; 4] = ["one", "both", "wide", PULLED];
const PULLED: &str = "pulled";
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

fn topic_index(name: &str) -> Option<usize> {
    TOPICS.iter().position(|topic| *topic == name)
}

/// Whether a topic is among the bits of this number.
fn is_member(topics: usize, topic: usize) -> bool {
    topics & 1 << topic != 0
}

pub struct TopicsWorkload {
    shards: Vec<usize>,
    log: LogJudge,
    memberships: Memberships,
    publisher: SimPublisher,
    puller: SimPuller,
    operator: SimOperator,
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
            log: LogJudge::default(),
            memberships: Memberships::default(),
            publisher: SimPublisher::default(),
            puller: SimPuller::default(),
            operator: SimOperator::default(),
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

    fn answered(
        &mut self,
        cluster: &mut Cluster,
        number: u64,
        reply: &Result<TopicReply, String>,
    ) -> Outcome {
        let (log, memberships) = (&self.log, &mut self.memberships);
        if self.puller.owns(number) {
            let judged = self.puller.answered(cluster, number, reply, log, memberships);
            return judged.map_err(|error| format!("puller: {error}"));
        }
        if self.operator.owns(number) {
            return self.operator.answered(cluster, number, reply, log, memberships);
        }
        self.publisher.answered(cluster, number, reply, log)
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
            // Only an event can be named.
            "partly" if let Some(AttemptEntry::Event { entry, .. }) = post.events.last() => {
                endpoint.take(&self.log, post, false).map_err(|error| format!("{name}: {error}"))?;
                let id = log::event_number(&entry.body).map(|number| number.to_string());
                EndpointReply::partly(id.into_iter().collect())
            }
            what => {
                endpoint.take(&self.log, post, true).map_err(|error| format!("{name}: {error}"))?;
                let lost = what == "lost";
                (if lost { DeliveryOutcome::Failed } else { DeliveryOutcome::Delivered }).into()
            }
        };
        let answer = PendingResponse { process, subscription: name, batch: post.batch, reply };
        self.posts.push((cluster.now + ms, answer));
        Ok(())
    }
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
        let mut settings = Settings::default();
        settings.topics.retention = self.log.limits.rules;
        settings
    }

    fn choose_first(&mut self, rng: &mut Rng) -> Vec<String> {
        let retention_ms = [30_000, 60_000, 3_600_000][rng.below(3)];
        let max_bytes = [5_000, 60_000, 1 << 30][rng.below(3)];
        vec![format!("retention {retention_ms} {max_bytes}")]
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
            75..87 => {
                let pulled = self.puller.has_subscription();
                self.operator.choose(cluster, rng, &self.log, &self.endpoints, pulled).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        match words {
            ["retention", retention_ms, max_bytes] => {
                let max_bytes = number(max_bytes)?;
                self.log.limits.rules = Some(RetentionRules {
                    retention_ms: number(retention_ms)?,
                    max_bytes,
                    low_bytes: max_bytes / 4 * 3,
                    dedupe_max: 1_000_000,
                });
                Ok(())
            }
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
            ["create" | "delete" | "pull" | "replay", ..] => {
                let busy = !self.operator.is_idle();
                self.puller.perform(cluster, words, &mut self.memberships, busy)
            }
            ["pull_rest"] => {
                self.operator.restore(cluster, &mut self.memberships);
                self.puller.pull_rest(cluster);
                Ok(())
            }
            ["publish" | "publish_large" | "steal", ..] => self.publisher.perform(cluster, words),
            // The puller creates or deletes its subscription.
            _ if !self.puller.is_settled() => Ok(()),
            // A shrunk script may lack its creation.
            ["topics", PULLED, ..] if !self.puller.has_subscription() => Ok(()),
            words => self.operator.perform(cluster, words, &mut self.endpoints, &mut self.memberships),
        }
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        match signal {
            Signal::TopicAnswered { number, reply } => self.answered(cluster, number, &reply),
            Signal::Committed => {
                let rewound = self.log.observe(cluster, &self.publisher, &self.memberships)?;
                for (name, after) in rewound {
                    let endpoint = self.endpoints.iter_mut().find(|endpoint| &*endpoint.name == name);
                    endpoint.into_iter().for_each(|endpoint| endpoint.replay(after));
                }
                Ok(())
            }
            Signal::Posted { node, process, post } => self.posted(cluster, (node, process), &post),
            Signal::Ended { node, .. } => {
                self.publisher.node_ended(cluster, node);
                self.puller.node_ended(cluster, node);
                self.operator.node_ended(cluster, node);
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
        self.publisher.check_end(&self.log)?;
        self.operator.check_end()?;
        self.puller.check_end(&self.log).map_err(|error| format!("puller: {error}"))?;
        self.check_deliveries(cluster)?;
        self.check_rest(cluster)
    }

    fn next_wake(&self) -> Option<Time> {
        let wakes = [self.publisher.next_wake(), self.puller.next_wake(), self.operator.next_wake()];
        self.posts.iter().map(|(due, _)| *due).chain(wakes.into_iter().flatten()).min()
    }

    fn wake(&mut self, cluster: &mut Cluster) -> Outcome {
        let now = cluster.now;
        self.publisher.wake(cluster);
        self.puller.wake(cluster);
        self.operator.wake(cluster);
        let posts = std::mem::take(&mut self.posts);
        let (due, rest): (Vec<_>, Vec<_>) = posts.into_iter().partition(|(due, _)| *due <= now);
        self.posts = rest;
        for (_, answer) in due {
            cluster.answer_post(answer.process, &answer.subscription, answer.batch, answer.reply);
        }
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let sum = |count: fn(&SimEndpoint) -> u64| self.endpoints.iter().map(count).sum::<u64>();
        let judged = [
            ("events accepted", self.publisher.accepted.len() as u64),
            ("events known before", self.publisher.repeated),
            ("foreign keys refused", self.publisher.claimed),
            ("topics created", self.log.topics_created),
            ("events trimmed", self.log.limits.trimmed),
            ("events above a backlog limit", self.log.backlog_dropped()),
            ("events delivered", sum(|endpoint| endpoint.delivered)),
            ("refused events accepted later", sum(|endpoint| endpoint.requeued)),
            ("gaps delivered", sum(|endpoint| endpoint.gaps)),
            ("batches repeated", sum(|endpoint| endpoint.repeated)),
            ("events pulled", self.puller.pulled),
            ("gaps pulled", self.puller.gaps),
            ("replays", self.puller.replays),
            ("subscriptions created", self.puller.subscriptions),
        ];
        let counted = self.counts.iter().chain(&self.operator.counts);
        counted.map(|(what, count)| (*what, *count)).chain(judged).collect()
    }
}
