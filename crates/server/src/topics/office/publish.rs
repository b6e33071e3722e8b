//! Publishing: events go to the log in one commit with the claim of their topic, and are answered after it.
//! Must hold: a topic has one publisher; all events of a request are kept or none; the same id is kept once.

use super::caller::Caller;
use super::ledger::{Edit, Tries, now_ms, record};
use super::topic;
use crate::topics::TopicsApi;
use std::sync::Arc;
use tavern_domain::topic::is_reserved;
use tavern_store::limits::ID_BYTES;
use tavern_store::{Append, Appended, Versioned};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{KEY_ID, parse_events};
use tavern_wire::record::{self, TOPIC, Topic};

/// A request as a whole. A list of a thousand events has about a kilobyte for each.
pub const BODY_BYTES: usize = 1 << 20;

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    pub first_seq: u64,
    pub last_seq: u64,
    pub accepted: usize,
    pub duplicates: usize,
}

/// `once` is the `Idempotency-Key`, if there was one.
pub async fn publish(
    api: &TopicsApi,
    caller: &Caller,
    name: &str,
    once: Option<&str>,
    body: &[u8],
) -> Result<Published, Refusal> {
    topic::check_name(name)?;
    if is_reserved(name) {
        let message =
            "topics that begin with \"tavern.\" are published by the server alone; choose another name";
        return Err(Refusal::new(Code::NotAllowed, message));
    }
    let name: Arc<str> = name.into();
    let appends = appends(&name, caller, once, parse_events(body, now_ms(api))?);
    let mut tries = Tries::default();
    let mut known = api.office.topics.get(&name);
    loop {
        tries.another().await?;
        let topic = match known.take() {
            Some(topic) if topic.row.publisher.as_deref() == Some(&*caller.id) => Some(topic),
            // What would refuse it, or has to be changed, is looked at as it is now.
            _ => record(api, TOPIC, &name).await?,
        };
        let mut edit = Edit::new(api);
        let version = topic.as_ref().map_or(0, |topic| topic.version);
        edit.expect(TOPIC, &name, version);
        let claimed = claim(api, caller, topic.as_ref().map(|topic| &topic.row))?;
        if let Some(claimed) = &claimed {
            edit.put(TOPIC, &name, record::write(claimed));
        }
        edit.append(appends.iter().cloned());
        match edit.commit(api).await? {
            Some(receipt) => {
                let version = receipt.put.first().copied().unwrap_or(version);
                if let Some(row) = claimed.or(topic.map(|topic| topic.row)) {
                    api.office.topics.keep(&name, Versioned { version, row });
                }
                let published = tally(&appends, &receipt.appended);
                let added = receipt.appended.iter().filter(|appended| !appended.again).count();
                api.counters.published(&name, added as u64, (appends.len() - added) as u64);
                api.wakeups.published(name);
                return Ok(published);
            }
            None => api.office.topics.forget(&name),
        }
    }
}

/// The topic as it must become before this caller publishes to it; none when it is so already.
fn claim(api: &TopicsApi, caller: &Caller, topic: Option<&Topic>) -> Result<Option<Topic>, Refusal> {
    match topic {
        None => Ok(Some(Topic { publisher: Some(caller.id.clone()), created_at: now_ms(api) })),
        Some(Topic { publisher: None, created_at }) => {
            Ok(Some(Topic { publisher: Some(caller.id.clone()), created_at: *created_at }))
        }
        Some(Topic { publisher: Some(publisher), .. }) if caller.owns(publisher) => Ok(None),
        Some(_) => {
            let message =
                "another key publishes to this topic; an admin can move it with PUT /v1/topics/{topic}";
            Err(Refusal::new(Code::Claimed, message))
        }
    }
}

fn appends(
    topic: &Arc<str>,
    caller: &Caller,
    once: Option<&str>,
    events: Vec<tavern_wire::json::event::NewEvent>,
) -> Vec<Append> {
    let append = |(at, event): (usize, tavern_wire::json::event::NewEvent)| {
        let id = event.id.or_else(|| once.map(|once| made_id(&caller.id, once, at)));
        Append { topic: topic.clone(), id: id.map(Into::into), body: event.body.into() }
    };
    events.into_iter().enumerate().map(append).collect()
}

/// What the log calls the event at this place of a request with an `Idempotency-Key`.
fn made_id(caller: &str, once: &str, at: usize) -> String {
    let id = format!("{KEY_ID}{caller}:{once}:{at}");
    if id.len() <= ID_BYTES {
        return id;
    }
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, once.as_bytes());
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{KEY_ID}{caller}:{hash}:{at}")
}

/// Counts what was added and what was known. The numbers are those of what was added, or of the first time.
fn tally(appends: &[Append], appended: &[Appended]) -> Published {
    let by_key = |append: &Append| append.id.as_ref().is_some_and(|id| id.starts_with(KEY_ID));
    // A request that was repeated with its key is answered as the first time.
    let repeated = appends.iter().zip(appended).any(|(append, appended)| by_key(append) && appended.again);
    let counts = |appended: &Appended| !appended.again || repeated;
    let duplicates = appended.iter().filter(|appended| !counts(appended)).count();
    let accepted = appended.len() - duplicates;
    let numbered = appended.iter().filter(|appended| accepted == 0 || counts(appended));
    let (mut first_seq, mut last_seq) = (u64::MAX, 0);
    for appended in numbered {
        first_seq = first_seq.min(appended.count);
        last_seq = last_seq.max(appended.count);
    }
    Published { first_seq, last_seq, accepted, duplicates }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ids: &[&str], counts: &[(u64, bool)], expected: (u64, u64, usize, usize)) {
        let append = |id: &&str| Append {
            topic: "t".into(),
            id: (!id.is_empty()).then(|| (*id).into()),
            body: Arc::from(*b"{}"),
        };
        let appends: Vec<Append> = ids.iter().map(append).collect();
        let appended: Vec<Appended> =
            counts.iter().map(|&(count, again)| Appended { position: count, count, again }).collect();
        let (first_seq, last_seq, accepted, duplicates) = expected;
        let published = Published { first_seq, last_seq, accepted, duplicates };
        assert_eq!(tally(&appends, &appended), published, "{ids:?}");
    }

    #[test]
    fn new_ones_and_known_ones_are_counted() {
        check(&["", ""], &[(5, false), (6, false)], (5, 6, 2, 0));
        check(&["a", "b"], &[(2, true), (6, false)], (6, 6, 1, 1));
        check(&["a", "b"], &[(2, true), (3, true)], (2, 3, 0, 2));
    }

    #[test]
    fn a_request_that_comes_again_with_its_key_is_answered_as_the_first_time() {
        let id = |at| made_id("k", "once", at);
        check(&[&id(0), &id(1)], &[(4, true), (5, true)], (4, 5, 2, 0));
        check(&[&id(0), "b"], &[(4, true), (5, true)], (4, 5, 2, 0));
    }

    #[test]
    fn the_id_of_the_longest_key_fits() {
        let long = made_id("admin", &"x".repeat(255), 999);
        assert!(long.len() <= ID_BYTES && long.ends_with(":999"));
        assert_ne!(long, made_id("admin", &"y".repeat(255), 999));
    }
}
