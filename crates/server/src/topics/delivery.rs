//! Drives the node's delivery worker: passes time, wake-ups, the store's answers and the endpoints' replies to it,
//! its work to the store and its posts to the sender. The rules are in `tavern_hub::topics::delivery`.

use super::counters::TopicCounters;
use crate::random::SystemRandom;
use crate::supervisor::panics;
use crate::topics::TopicsApi;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::delivery::{DeliveryOutcome, EndpointReply};
use tavern_domain::topic::{PARTIES, PRESENCE};
use tavern_hub::topics::delivery::{AttemptAnswer, DeliveryNotice, DeliverySettings, DeliveryWorker};
use tavern_store::{StoreAnswer, StoreError, Ticket};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

/// The longest sleep, because clocks may be set.
const SLEEP: Duration = Duration::from_secs(60);
/// How often the gauges of the metrics are set.
const GAUGES_MS: u64 = 1_000;

type AttemptResult = (Arc<str>, u64, AttemptAnswer);

pub async fn keep(api: Arc<TopicsApi>, stop: Arc<Notify>) {
    let settings = settings(&api);
    let mut worker =
        DeliveryWorker::new(api.node.clone(), settings, Box::new(SystemRandom::default()), api.now());
    let mut asked: JoinSet<(Ticket, StoreAnswer)> = JoinSet::new();
    // Bounded by the worker's own limit of posts.
    let (done, mut posts) = mpsc::unbounded_channel::<AttemptResult>();
    let mut next_gauges = api.now();
    let mut other_nodes = api.node.other_nodes();
    let mut ending: Option<tokio::time::Instant> = None;
    loop {
        carry_out(&api, &mut worker, &mut asked, &done);
        if ending.is_some_and(|end| worker.is_at_rest() || tokio::time::Instant::now() >= end) {
            return;
        }
        let wait = Duration::from_millis(worker.next_wake().since(api.now())).min(SLEEP);
        let wait = if ending.is_some() { wait.min(Duration::from_millis(20)) } else { wait };
        tokio::select! {
            Some(asked) = asked.join_next() => {
                let (ticket, answer) = asked.expect("a store request panicked");
                worker.answered(api.now(), ticket, answer);
            }
            Some((name, batch, answer)) = posts.recv() => worker.posted(api.now(), &name, batch, answer),
            update = api.wakeups.next() => {
                let now = api.now();
                update.subscriptions.iter().for_each(|name| worker.changed(name));
                if !update.subscriptions.is_empty() {
                    // The other nodes read the changes now, not at their next heartbeat.
                    api.node.nudge("");
                }
                update.overdue.iter().for_each(|deadline| worker.overdue(now, deadline));
                update.nudged.iter().for_each(|name| worker.nudged(now, name));
                update.topics.iter().for_each(|topic| worker.published(now, topic));
            }
            () = stop.notified(), if ending.is_none() => {
                worker.stop(api.now());
                let drain = Duration::from_millis(api.config.sessions.drain_ms);
                ending = Some(tokio::time::Instant::now() + drain);
            }
            () = tokio::time::sleep(wait) => {}
        }
        let now = api.now();
        worker.wake(now);
        if now >= next_gauges {
            next_gauges = now + GAUGES_MS;
            let oldest = worker.oldest().map(|(name, at)| (name.clone(), now.since(at))).collect();
            let queued = worker.queued().map(|(name, events)| (name.clone(), events)).collect();
            api.counters.set_gauges(worker.in_flight(), oldest, queued);
        }
        api.node.publish_presence(!worker.is_ready() || worker.has_subscription(PRESENCE));
        api.node.publish_parties(!worker.is_ready() || worker.has_subscription(PARTIES));
        let living = api.node.other_nodes();
        if other_nodes.iter().any(|known| !living.contains(known)) {
            // The subscriptions that it delivered need a worker now.
            worker.check_all(now);
        }
        other_nodes = living;
    }
}

fn settings(api: &TopicsApi) -> DeliverySettings {
    let events = &api.config.events;
    DeliverySettings {
        patience: api.node.settings.topics.patience,
        lease_ms: events.lease_ms,
        check_ms: api.config.nodes.heartbeat_ms,
    }
}

fn carry_out(
    api: &Arc<TopicsApi>,
    worker: &mut DeliveryWorker,
    asked: &mut JoinSet<(Ticket, StoreAnswer)>,
    done: &mpsc::UnboundedSender<AttemptResult>,
) {
    for (ticket, work) in worker.effects().work.drain(..) {
        let api = api.clone();
        asked.spawn(async move {
            let answer = api.store.answer_to(work).await;
            (ticket, answer.unwrap_or_else(|| StoreAnswer::Failed(StoreError::timeout())))
        });
    }
    for post in worker.effects().posts.drain(..) {
        let (sender, done) = (api.sender.clone(), done.clone());
        let now_s = api.now().ms() / 1000;
        tokio::spawn(async move {
            // The worker needs an outcome in any case.
            let answer = panics::contain(sender.post(&post, now_s)).await.unwrap_or_else(|error| {
                let error = Some(error.to_string().into());
                EndpointReply { error, ..DeliveryOutcome::Failed.into() }.into()
            });
            // The worker may have stopped with its server.
            let _ = done.send((post.subscription.name.clone(), post.batch, answer));
        });
    }
    for name in worker.effects().nudges.drain(..) {
        api.node.nudge(&name);
    }
    for notice in worker.effects().notices.drain(..) {
        report(&api.counters, &notice);
    }
}

/// Counts and logs the notices for the operator.
pub fn report(counters: &TopicCounters, notice: &DeliveryNotice) {
    counters.note(notice);
    match notice {
        DeliveryNotice::Disabled { subscription, why } => {
            tracing::warn!(%subscription, why = why.as_str(), "subscription disabled; its events stay queued");
        }
        DeliveryNotice::Lost { subscription, first, last } => {
            tracing::warn!(%subscription, first, last, "events dropped before delivery");
        }
        DeliveryNotice::Parked { subscription, events } => {
            tracing::warn!(%subscription, events, "events refused; stored as dead letters");
        }
        DeliveryNotice::Failing { subscription, error } => {
            tracing::warn!(%subscription, %error, "webhook attempt failed; retrying with backoff");
        }
        DeliveryNotice::Recovered { subscription } => {
            tracing::info!(%subscription, "endpoint accepts events again");
        }
        DeliveryNotice::Trouble { subscription, what } => {
            tracing::error!(%subscription, %what, "cannot deliver subscription");
        }
        DeliveryNotice::TookOver { .. }
        | DeliveryNotice::Attempted { .. }
        | DeliveryNotice::FirstAttempt { .. }
        | DeliveryNotice::Deleted { .. } => {}
    }
}
