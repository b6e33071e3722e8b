//! What goes out to an endpoint, and what comes back. Nothing here decides.

use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{Reason, Verdict, Why};
use tavern_engine::Entry;
use tavern_wire::json::event::{Format, MADE_ID, Numbered, stored};
use tavern_wire::record::Subscription;

/// What a publisher's `Idempotency-Key` makes of events without an id begins with it. Subscribers do not see it.
pub const KEYED: &str = "idempotency-key:";

/// An attempt that somebody must make, and answer once by subscription and number.
#[derive(Clone, Debug)]
pub struct Post {
    pub subscription: Arc<Subscription>,
    /// The number of the batch.
    pub batch: u64,
    pub attempt: u32,
    pub reason: Reason,
    /// When the first event was accepted.
    pub accepted: Time,
    pub events: Vec<Posted>,
}

/// One entry of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Posted {
    Event {
        seq: u64,
        entry: Entry,
    },
    /// These were dropped.
    Gap {
        first: u64,
        last: u64,
    },
}

/// What became of a post, with the ids that the endpoint named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    Partly { failed: Vec<String> },
    Gone,
    TooLarge,
    Throttled { after_ms: Option<u64> },
    Refused,
    Failed,
}

/// What somebody who looks after the server wants to know.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An attempt has ended; its batch was cut so long after its first event was accepted.
    Attempted {
        subscription: Arc<str>,
        reason: Reason,
        verdict: Verdict,
        events: u64,
        waited_ms: u64,
    },
    Disabled {
        subscription: Arc<str>,
        why: Why,
    },
    Recovered {
        subscription: Arc<str>,
    },
    /// Events that will never be delivered.
    Lost {
        subscription: Arc<str>,
        first: u64,
        last: u64,
    },
    Parked {
        subscription: Arc<str>,
        events: u64,
    },
    /// Another node's worker was followed.
    TookOver {
        subscription: Arc<str>,
    },
    /// A human must look.
    Trouble {
        subscription: Arc<str>,
        what: String,
    },
}

/// Number, id, topic and body.
type Parts<'a> = (u64, Cow<'a, str>, &'a str, Cow<'a, [u8]>);

/// What subscribers call an event.
pub fn event_id(entry: &Entry) -> Cow<'_, str> {
    match &entry.id {
        Some(id) if !id.starts_with(KEYED) => Cow::Borrowed(id),
        _ => Cow::Owned(format!("{MADE_ID}{}", entry.position)),
    }
}

impl Post {
    /// Names this batch of this subscription, and never another.
    pub fn id(&self) -> String {
        format!("msg_{}_{:x}_{}", self.subscription.name, self.subscription.created_at, self.batch)
    }

    /// The body: the same at every attempt.
    pub fn body(&self) -> Vec<u8> {
        let format = self.subscription.format;
        let made: Vec<Parts<'_>> = self.events.iter().map(|event| event.parts(format)).collect();
        let numbered = made.iter().map(|(seq, id, topic, body)| Numbered { seq: *seq, id, topic, body });
        format.batch(&self.subscription.name, numbered)
    }
}

impl Posted {
    pub fn seq(&self) -> u64 {
        match self {
            Posted::Event { seq, .. } => *seq,
            Posted::Gap { first, .. } => *first,
        }
    }

    /// What the endpoint calls it.
    pub(super) fn id(&self) -> Cow<'_, str> {
        self.parts(Format::Standard).1
    }

    fn parts(&self, format: Format) -> Parts<'_> {
        match self {
            Posted::Event { seq, entry } => {
                (*seq, event_id(entry), &entry.topic, Cow::Borrowed(&*entry.body))
            }
            Posted::Gap { first, last } => {
                let data = format!("{{\"first_seq\":{first},\"last_seq\":{last}}}");
                let kind = match format {
                    Format::Standard => "tavern.gap",
                    Format::Routemaster => "noop",
                };
                let body = stored(kind, None, 0, &data);
                (*first, Cow::Owned(format!("gap-{first}")), "tavern.gap", Cow::Owned(body))
            }
        }
    }
}
