//! Counters of events and deliveries, for the metrics. Must hold: one row for each known subscription and topic, no more.

use crate::metrics::{Label, MetricKind, MetricSource, Series};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_domain::delivery::{BatchReason, DeliveryOutcome};
use tavern_hub::topics::delivery::DeliveryNotice;

/// Names above this many share one row, so that made-up names cannot fill the memory.
const NAMES_MAX: usize = 10_000;
const OTHERS: &str = "others";

#[derive(Default)]
pub struct TopicCounters {
    counts: Mutex<TopicCounts>,
}

#[derive(Default)]
struct TopicCounts {
    topics: BTreeMap<Arc<str>, PublishedCount>,
    subscriptions: BTreeMap<Arc<str>, DeliveredCount>,
    /// For the subscriptions that this node delivers: the age of the oldest event.
    oldest_ms: BTreeMap<Arc<str>, u64>,
    /// How many events are queued for each of them.
    queued: BTreeMap<Arc<str>, u64>,
    in_flight: u64,
    taken_over: u64,
}

/// All topics and all subscriptions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Events accepted from publishers here.
    pub accepted: u64,
    /// Events delivered from here.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    pub dropped: u64,
    pub parked: u64,
    pub in_flight: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PublishedCount {
    events: u64,
    duplicates: u64,
}

#[derive(Clone, Debug, Default)]
struct DeliveredCount {
    /// Batches that were cut, by reason.
    reasons: BTreeMap<&'static str, u64>,
    /// Attempts, by outcome.
    outcomes: BTreeMap<&'static str, u64>,
    events: u64,
    dropped: u64,
    parked: u64,
    /// From the first event's acceptance to the batch's delivery.
    waited_ms: u64,
    delivered: u64,
    /// From the first event's acceptance to the first attempt, and how many such attempts.
    first_attempt_ms: u64,
    first_attempts: u64,
}

impl TopicCounters {
    fn counts(&self) -> MutexGuard<'_, TopicCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn published(&self, topic: &Arc<str>, events: u64, duplicates: u64) {
        let mut counts = self.counts();
        let row = row(&mut counts.topics, topic);
        row.events += events;
        row.duplicates += duplicates;
    }

    pub fn note(&self, notice: &DeliveryNotice) {
        let mut counts = self.counts();
        match notice {
            DeliveryNotice::Attempted { subscription, reason, outcome, events, waited_ms } => {
                let row = row(&mut counts.subscriptions, subscription);
                *row.outcomes.entry(outcome.as_str()).or_default() += 1;
                if *outcome == DeliveryOutcome::Delivered {
                    *row.reasons.entry(BatchReason::as_str(*reason)).or_default() += 1;
                    row.events += events;
                    row.waited_ms += waited_ms;
                    row.delivered += 1;
                }
            }
            DeliveryNotice::Lost { subscription, first, last } => {
                row(&mut counts.subscriptions, subscription).dropped += last - first + 1;
            }
            DeliveryNotice::Parked { subscription, events } => {
                row(&mut counts.subscriptions, subscription).parked += events;
            }
            DeliveryNotice::FirstAttempt { subscription, waited_ms } => {
                let row = row(&mut counts.subscriptions, subscription);
                row.first_attempt_ms += waited_ms;
                row.first_attempts += 1;
            }
            DeliveryNotice::Deleted { subscription } => {
                counts.subscriptions.remove(subscription);
                counts.oldest_ms.remove(subscription);
                counts.queued.remove(subscription);
            }
            DeliveryNotice::TookOver { .. } => counts.taken_over += 1,
            DeliveryNotice::Disabled { .. }
            | DeliveryNotice::Failing { .. }
            | DeliveryNotice::Recovered { .. }
            | DeliveryNotice::Trouble { .. } => {}
        }
    }

    /// Sets the gauges.
    pub fn set_gauges(
        &self,
        in_flight: usize,
        oldest_ms: BTreeMap<Arc<str>, u64>,
        queued: BTreeMap<Arc<str>, u64>,
    ) {
        let mut counts = self.counts();
        (counts.in_flight, counts.oldest_ms, counts.queued) = (in_flight as u64, oldest_ms, queued);
    }

    /// How many events wait on this node, and the age of the oldest in milliseconds.
    pub fn backlog(&self) -> (u64, u64) {
        let counts = self.counts();
        (counts.queued.values().sum(), counts.oldest_ms.values().copied().max().unwrap_or(0))
    }

    pub fn sums(&self) -> Sums {
        let counts = self.counts();
        let mut sums = Sums { in_flight: counts.in_flight, ..Sums::default() };
        sums.accepted = counts.topics.values().map(|row| row.events).sum();
        for row in counts.subscriptions.values() {
            let attempts: u64 = row.outcomes.values().sum();
            sums.delivered += row.events;
            sums.failed += attempts - row.delivered.min(attempts);
            sums.dropped += row.dropped;
            sums.parked += row.parked;
        }
        sums
    }
}

impl MetricSource for TopicCounters {
    fn gather(&self, all: &mut Vec<Series>) {
        let counts = self.counts();
        let mut put = |name, kind, help, rows: &mut dyn Iterator<Item = (Vec<Label>, u64)>| {
            let mut series = Series::new(name, kind, help);
            rows.for_each(|(labels, value)| series.add(labels, value));
            all.push(series);
        };
        let topic = |name: &Arc<str>| ("topic", name.clone());
        let of = |name: &Arc<str>| ("subscription", name.clone());
        let topics = || counts.topics.iter();
        let subscriptions = || counts.subscriptions.iter();
        put(
            "tavern_topic_events_total",
            MetricKind::Counter,
            "Events accepted on this node",
            &mut topics().map(|(name, row)| (vec![topic(name)], row.events)),
        );
        put(
            "tavern_topic_duplicates_total",
            MetricKind::Counter,
            "Duplicate events, dropped by id",
            &mut topics().map(|(name, row)| (vec![topic(name)], row.duplicates)),
        );
        let by = |name: &Arc<str>, label, value: &'static str| vec![of(name), (label, value.into())];
        put(
            "tavern_deliveries_total",
            MetricKind::Counter,
            "Delivery attempts by outcome",
            &mut subscriptions().flat_map(|(name, row)| {
                row.outcomes.iter().map(move |(outcome, count)| (by(name, "outcome", outcome), *count))
            }),
        );
        put(
            "tavern_batches_total",
            MetricKind::Counter,
            "Batches by the reason they were sealed",
            &mut subscriptions().flat_map(|(name, row)| {
                row.reasons.iter().map(move |(reason, count)| (by(name, "reason", reason), *count))
            }),
        );
        for (name, help, pick) in SUMS {
            let mut rows = subscriptions().map(|(name, row)| (vec![of(name)], pick(row)));
            put(name, MetricKind::Counter, help, &mut rows);
        }
        put(
            "tavern_subscription_queued_events",
            MetricKind::Gauge,
            "Queued events of subscriptions that this node delivers",
            &mut counts.queued.iter().map(|(name, events)| (vec![of(name)], *events)),
        );
        let mut oldest = Series::new(
            "tavern_subscription_oldest_seconds",
            MetricKind::Gauge,
            "Age of the oldest event that this node is to deliver",
        );
        counts.oldest_ms.iter().for_each(|(name, age)| oldest.add_seconds([of(name)], *age));
        all.push(oldest);
        for (name, help, pick) in DURATIONS {
            let mut series = Series::new(name, MetricKind::Summary, help);
            for (name, row) in subscriptions() {
                let (sum_ms, count) = pick(row);
                series.add_summary(&[of(name)], sum_ms, count);
            }
            all.push(series);
        }
        all.push(Series::one(
            "tavern_webhooks_in_flight",
            MetricKind::Gauge,
            "Posts in flight",
            counts.in_flight,
        ));
        all.push(Series::one(
            "tavern_delivery_leases_taken_over_total",
            MetricKind::Counter,
            "Subscriptions taken over from another worker",
            counts.taken_over,
        ));
    }
}

type Sum = (&'static str, &'static str, fn(&DeliveredCount) -> u64);

const SUMS: [Sum; 3] = [
    ("tavern_subscription_events_total", "Events delivered", |row| row.events),
    ("tavern_subscription_dropped_total", "Events dropped before they were delivered", |row| row.dropped),
    ("tavern_subscription_dead_letters_total", "Events refused and stored as dead letters", |row| row.parked),
];

/// A sum in milliseconds, and of how many batches.
type DurationSum = (&'static str, &'static str, fn(&DeliveredCount) -> (u64, u64));

const DURATIONS: [DurationSum; 2] = [
    ("tavern_subscription_wait_seconds", "From acceptance of a batch's first event to its delivery", |row| {
        (row.waited_ms, row.delivered)
    }),
    (
        "tavern_subscription_first_attempt_seconds",
        "From acceptance of a batch's first event to the first attempt",
        |row| (row.first_attempt_ms, row.first_attempts),
    ),
];

fn row<'a, T: Default>(rows: &'a mut BTreeMap<Arc<str>, T>, name: &Arc<str>) -> &'a mut T {
    let name = match rows.len() < NAMES_MAX || rows.contains_key(name) {
        true => name.clone(),
        false => OTHERS.into(),
    };
    rows.entry(name).or_default()
}
