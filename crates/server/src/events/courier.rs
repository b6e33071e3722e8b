//! Drives the node's courier: gives it time, news, the store's answers and the endpoints' answers, carries its work to the
//! store and its posts to the sender. The rules are in `tavern_hub::events`.

use super::post::Postman;
use super::tally::Tally;
use crate::events::TopicsApi;
use crate::random::SystemRandom;
use crate::supervisor::panics;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::delivery::Patience;
use tavern_domain::topic::{PARTIES, PRESENCE};
use tavern_hub::events::{Courier, CourierRules, Notice, Outcome};
use tavern_store::{Answer, StoreError, Ticket};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

/// The longest sleep: clocks may be set.
const SLEEP: Duration = Duration::from_secs(60);
/// How long posts that are under way may take when the server stops.
const LAST_POSTS: Duration = Duration::from_secs(2);

/// How often the metrics are told how the work stands.
const TOLD_MS: u64 = 1_000;

type Posted = (Arc<str>, u64, Outcome);

pub async fn keep(api: Arc<TopicsApi>, postman: Arc<Postman>, stop: Arc<Notify>) {
    let rules = rules(&api);
    let mut courier = Courier::new(api.node.clone(), rules, Box::new(SystemRandom::default()), api.now());
    let mut asked: JoinSet<(Ticket, Answer)> = JoinSet::new();
    // Bounded by the courier's own bound of posts.
    let (done, mut posts) = mpsc::unbounded_channel::<Posted>();
    let mut told = api.now();
    let mut neighbours = api.node.neighbours();
    let mut ending: Option<tokio::time::Instant> = None;
    loop {
        carry_out(&api, &mut courier, &mut asked, &postman, &done);
        if ending.is_some_and(|end| courier.is_at_rest() || tokio::time::Instant::now() >= end) {
            return;
        }
        let wait = Duration::from_millis(courier.next_wake().since(api.now())).min(SLEEP);
        let wait = if ending.is_some() { wait.min(Duration::from_millis(20)) } else { wait };
        tokio::select! {
            Some(asked) = asked.join_next() => {
                let (ticket, answer) = asked.expect("a question to the store panicked");
                courier.answered(api.now(), ticket, answer);
            }
            Some((name, batch, outcome)) = posts.recv() => courier.posted(api.now(), &name, batch, outcome),
            rung = api.bell.next() => {
                let now = api.now();
                rung.subscriptions.iter().for_each(|name| courier.changed(name));
                if !rung.subscriptions.is_empty() {
                    // The others look at what has changed, and not only at their next heartbeat.
                    api.node.nudge("");
                }
                rung.overdue.iter().for_each(|deadline| courier.overdue(now, deadline));
                rung.nudged.iter().for_each(|name| courier.nudged(now, name));
                rung.topics.iter().for_each(|topic| courier.published(now, topic));
            }
            () = stop.notified(), if ending.is_none() => {
                courier.stop(api.now());
                ending = Some(tokio::time::Instant::now() + LAST_POSTS);
            }
            () = tokio::time::sleep(wait) => {}
        }
        let now = api.now();
        courier.wake(now);
        if now >= told {
            told = now + TOLD_MS;
            let oldest = courier.oldest().map(|(name, at)| (name.clone(), now.since(at))).collect();
            api.tally.stands(courier.in_flight(), oldest);
        }
        api.node.tell_presence(!courier.is_ready() || courier.is_heard(PRESENCE));
        api.node.tell_parties(!courier.is_ready() || courier.is_heard(PARTIES));
        let living = api.node.neighbours();
        if neighbours.iter().any(|known| !living.contains(known)) {
            // What it worked on is somebody's now.
            courier.look_all(now);
        }
        neighbours = living;
    }
}

fn rules(api: &TopicsApi) -> CourierRules {
    let events = &api.config.events;
    CourierRules {
        patience: Patience {
            backoff_min_ms: events.backoff_min_ms,
            backoff_max_ms: events.backoff_max_ms,
            disable_after_ms: events.disable_after_ms,
        },
        lease_ms: events.lease_ms,
        look_ms: api.config.nodes.heartbeat_ms,
    }
}

fn carry_out(
    api: &Arc<TopicsApi>,
    courier: &mut Courier,
    asked: &mut JoinSet<(Ticket, Answer)>,
    postman: &Arc<Postman>,
    done: &mpsc::UnboundedSender<Posted>,
) {
    for (ticket, work) in courier.errands.work.drain(..) {
        let api = api.clone();
        asked.spawn(async move {
            let answer = api.store.answer_to(work).await;
            (ticket, answer.unwrap_or_else(|| Answer::Failed(StoreError::late())))
        });
    }
    for post in courier.errands.posts.drain(..) {
        let (postman, done) = (postman.clone(), done.clone());
        let now_s = api.now().ms() / 1000;
        tokio::spawn(async move {
            // The worker waits for an outcome, whatever happens here.
            let outcome = panics::contain(postman.post(&post, now_s)).await.unwrap_or(Outcome::Failed);
            // The courier may have ended with its server.
            let _ = done.send((post.subscription.name.clone(), post.batch, outcome));
        });
    }
    for name in courier.errands.nudges.drain(..) {
        api.node.nudge(&name);
    }
    for notice in courier.errands.notices.drain(..) {
        tell(&api.tally, &notice);
    }
}

fn tell(tally: &Tally, notice: &Notice) {
    tally.note(notice);
    match notice {
        Notice::Disabled { subscription, why } => {
            tracing::warn!(%subscription, why = why.as_str(), "a subscription is disabled; it keeps collecting");
        }
        Notice::Lost { subscription, first, last } => {
            tracing::warn!(%subscription, first, last, "events were dropped before they were delivered");
        }
        Notice::Parked { subscription, events } => {
            tracing::warn!(%subscription, events, "events were refused and are dead letters now");
        }
        Notice::Recovered { subscription } => {
            tracing::info!(%subscription, "the endpoint takes events again");
        }
        Notice::Trouble { subscription, what } => {
            tracing::error!(%subscription, %what, "a subscription cannot be worked on");
        }
        Notice::TookOver { .. } | Notice::Attempted { .. } => {}
    }
}
