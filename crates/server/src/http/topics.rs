//! Topics and subscriptions over HTTP: which route does what, which scope it needs, how bodies are read and replies
//! written. Everything is decided by the hub.

use super::api::HttpApi;
use super::attempts;
use super::body::{HttpResponse, json, typed, whole};
use super::key_holder::{KeyHolder, RequestBody};
use super::request::Query;
use super::rest::{OnceAnswer, once_key, page_of, run_once};
use super::routes;
use crate::auth::ADMIN;
use crate::config::ServerMode;
use crate::topics::body::object;
use crate::topics::commands::{PULL_WAIT_MS_MAX, unexpected};
use crate::topics::{policy, report, settings};
use crate::traces;
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Scope;
use tavern_domain::topic::AUDIT;
use tavern_hub::topics::{
    ANONYMOUS_PUBLISHER, DeadLetterChoice, PublishResult, Pulled, ReplayFrom, SQL_PUBLISHER, TopicCaller,
    TopicCommand, TopicReply, once_bytes,
};
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{Found, Read};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{
    self, AttemptList, DeadLetterList, Deleted, PublishReport, ReplayReport, RetryReport, SubscriptionList,
    SubscriptionPutReply, TopicList, encode,
};
use tavern_wire::json::event::parse_events;
use tavern_wire::json::parse_moment;

/// A list of events: a thousand of about 1 KiB each.
const BODY_BYTES: usize = 1 << 20;
/// Settings with all their headers, or a list of all dead letters to retry at once.
const SETTINGS_BYTES: usize = 256 * 1024;
/// Events in the answer to a pull, unless it asks for fewer.
const PULLED: u32 = 100;
const PULLED_MAX: u64 = PAGE_ROWS as u64;

pub async fn answer(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    segments: &[&str],
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let scopes: &[Scope] = match (parts.method.as_str(), segments) {
        ("POST", ["topics", _, "events"]) => &[Scope::Events],
        // The hub asks for the scope admin.
        ("GET", ["topics", AUDIT, "events"]) => &[Scope::Subscriptions, Scope::Admin],
        // A subscriber gets them anyway.
        ("GET", ["topics", _, "events"]) => &[Scope::Subscriptions],
        ("PUT", ["topics", _]) => &[Scope::Admin],
        ("DELETE", ["topics", _]) => &[Scope::Events, Scope::Admin],
        (_, ["topics", ..]) => &[Scope::Events, Scope::Subscriptions],
        _ => &[Scope::Subscriptions],
    };
    let caller = &TopicCaller::of(holder.with_scope(scopes).await?);
    let max = if segments.first() == Some(&"topics") { BODY_BYTES } else { SETTINGS_BYTES };
    // Read before refusing: a connection whose body was not read cannot be reused.
    let body = &*body.read(max).await?;
    let command = match (parts.method.as_str(), segments) {
        ("POST", ["topics", topic, "events"]) => {
            return publish(api, parts, holder, caller, topic, body).await;
        }
        ("GET", ["topics"]) => {
            let (after, limit) = page_of(parts)?;
            TopicCommand::ListTopics { after, limit: small(limit) }
        }
        ("GET", ["topics", topic, "events"]) => attempts::browse(parts, topic)?,
        ("GET", ["topics", topic]) => TopicCommand::ShowTopic { topic: (*topic).into() },
        ("PUT", ["topics", topic]) => assign(api, topic, body).await?,
        ("DELETE", ["topics", topic]) => TopicCommand::DeleteTopic { topic: (*topic).into() },
        ("GET", ["subscriptions"]) => {
            let (after, limit) = page_of(parts)?;
            TopicCommand::ListSubscriptions { after, limit: small(limit) }
        }
        ("PUT", ["subscriptions", name]) => {
            let change = Box::new(settings::parse(body, &policy(&api.config))?);
            TopicCommand::PutSubscription { name: (*name).into(), change }
        }
        ("GET", ["subscriptions", name]) => TopicCommand::ShowSubscription { name: (*name).into() },
        ("DELETE", ["subscriptions", name]) => TopicCommand::DeleteSubscription { name: (*name).into() },
        // A HEAD request acknowledges nothing.
        ("GET", ["subscriptions", name, "events"]) if routes::is_head(&parts.extensions) => {
            TopicCommand::ShowSubscription { name: (*name).into() }
        }
        ("GET", ["subscriptions", name, "events"]) => return pull(api, parts, holder, caller, name).await,
        ("GET", ["subscriptions", name, "attempts"]) => attempts::list(parts, name)?,
        ("GET", ["subscriptions", name, "attempts", number]) => attempts::show(name, number)?,
        ("POST", ["subscriptions", name, "rotate"]) => attempts::rotate(name, body)?,
        ("POST", ["subscriptions", name, "test"]) => return attempts::test(api, caller, name).await,
        ("POST", ["subscriptions", name, "replay"]) => {
            TopicCommand::Replay { name: (*name).into(), from: replay_from(body)? }
        }
        ("POST", ["subscriptions", name, order @ ("enable" | "disable")]) => {
            let switch = TopicCommand::SwitchSubscription { name: (*name).into(), on: *order == "enable" };
            api.topics.run(caller, switch).await?;
            TopicCommand::ShowSubscription { name: (*name).into() }
        }
        ("GET", ["subscriptions", name, "dead-letters"]) => {
            let (after, limit) = page_of(parts)?;
            let after = (!after.is_empty()).then(|| seq_of(&after)).transpose()?;
            TopicCommand::ListDeadLetters { name: (*name).into(), after, limit: small(limit) }
        }
        ("POST", ["subscriptions", name, "dead-letters", "retry"]) => {
            TopicCommand::RetryDeadLetters { name: (*name).into(), choice: letter_choice(body)? }
        }
        (method, _) => {
            let path = parts.uri.path();
            return Err(Refusal::new(Code::NotFound, format!("no route for {method} {path}")));
        }
    };
    let reply = api.topics.run(caller, command).await?;
    if reply == TopicReply::Done {
        return Ok(typed(&Deleted { deleted: segments.last().copied().unwrap_or_default() }));
    }
    shown(api, caller, &reply)
}

fn small(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

fn shown(api: &HttpApi, caller: &TopicCaller, reply: &TopicReply) -> Result<HttpResponse, Refusal> {
    let now = api.now();
    Ok(match reply {
        TopicReply::Topics { topics, next } => {
            typed(&TopicList { topics: topics.iter().map(report::topic).collect(), next: next.as_deref() })
        }
        TopicReply::Topic(topic) => typed(&report::topic(topic)),
        TopicReply::Subscriptions { subscriptions, next } => {
            let reports = subscriptions.iter().map(|state| report::subscription(caller, state, now));
            typed(&SubscriptionList { subscriptions: reports.collect(), next: next.as_deref() })
        }
        TopicReply::Subscription(state) => typed(&report::subscription(caller, state, now)),
        TopicReply::Put { subscription, created, secret } => {
            let settings = report::settings(caller, subscription);
            let reply = SubscriptionPutReply { settings, created: *created, secret: secret.as_deref() };
            created_if(*created, typed(&reply))
        }
        TopicReply::Assigned { topic, created } => created_if(*created, typed(&report::topic(topic))),
        TopicReply::Pulled(events) => pulled(events),
        TopicReply::Browsed { entries, next } => json(api::browsed(entries, *next)),
        TopicReply::Attempts { attempts, next } => {
            typed(&AttemptList { attempts, next: next.map(|number| number.to_string()) })
        }
        TopicReply::Attempt(attempt) => typed(attempt),
        TopicReply::Replayed { from_seq, rewound } => {
            typed(&ReplayReport { from_seq: *from_seq, rewound: *rewound })
        }
        TopicReply::DeadLetters { letters, next } => {
            let dead_letters = letters.iter().map(report::dead_letter).collect();
            typed(&DeadLetterList { dead_letters, next: next.map(|seq| seq.to_string()) })
        }
        TopicReply::Retried { retried, more } => typed(&RetryReport { retried: *retried, more: *more }),
        TopicReply::Done | TopicReply::Published(_) => return Err(unexpected()),
    })
}

/// 201 for something that did not exist before.
fn created_if(created: bool, mut answer: HttpResponse) -> HttpResponse {
    if created {
        *answer.status_mut() = StatusCode::CREATED;
    }
    answer
}

/// Events for a client that pulls.
pub fn pulled(events: &Pulled) -> HttpResponse {
    json(api::pulled(&events.entries, events.count, events.first_seq, events.last_seq))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Assignment {
    #[serde(deserialize_with = "Option::deserialize")]
    publisher: Option<String>,
}

/// Moves the claim on a topic, or clears it.
async fn assign(api: &HttpApi, topic: &str, body: &[u8]) -> Result<TopicCommand, Refusal> {
    let assignment: Assignment = object(body, "give {\"publisher\": KEY} with the id of a key, or null")?;
    let publisher = assignment.publisher.map(Into::into);
    if let Some(id) = &publisher {
        check_key(api, id).await?;
    }
    Ok(TopicCommand::AssignTopic { topic: topic.into(), publisher })
}

/// Whether a key with this id exists.
async fn check_key(api: &HttpApi, id: &Arc<str>) -> Result<(), Refusal> {
    let configured = api.authenticator.keyring().has_admin().then_some(ADMIN);
    let anonymous = (api.config.mode == ServerMode::Dev).then_some(ANONYMOUS_PUBLISHER);
    if [configured, anonymous, Some(SQL_PUBLISHER)].contains(&Some(&**id)) {
        return Ok(());
    }
    let mut after = None;
    loop {
        let found = api.store.read(Read::Keys { after, limit: PAGE_ROWS }).await;
        let Ok(Found::Keys(page)) = found else {
            return Err(Refusal::new(Code::Unavailable, "the store did not answer; retry")
                .retry_after(RETRY_AFTER_MS));
        };
        if page.rows.iter().any(|key| key.row.id == *id && key.row.revoked_at.is_none()) {
            return Ok(());
        }
        after = page.rows.last().filter(|_| page.more).map(|last| last.row.id.clone());
        if after.is_none() {
            let message = format!(
                "there is no key {id:?}; `publisher` must be the id of an API key (see `tavern key list`), or null"
            );
            return Err(Refusal::new(Code::BadRequest, message));
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayBody {
    from_seq: Option<u64>,
    from_time: Option<ReplayTime>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ReplayTime {
    Ms(u64),
    Text(String),
}

fn replay_from(body: &[u8]) -> Result<ReplayFrom, Refusal> {
    let wanted = "give {\"from_seq\": N} from 1 on, or {\"from_time\": T} in milliseconds since 1970 or as \
                  2026-11-15T10:00:00Z";
    let body: ReplayBody = object(body, wanted)?;
    let from = match (body.from_seq, body.from_time) {
        (Some(seq), None) if seq > 0 => Some(ReplayFrom::Seq(seq)),
        (None, Some(ReplayTime::Ms(ms))) => Some(ReplayFrom::Time(ms)),
        (None, Some(ReplayTime::Text(text))) => parse_moment(&text).map(ReplayFrom::Time),
        _ => None,
    };
    from.ok_or_else(|| Refusal::new(Code::BadRequest, wanted))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryBody {
    ids: Option<Vec<DeadLetterName>>,
}

/// An event by its id or by its number.
#[derive(Deserialize)]
#[serde(untagged)]
enum DeadLetterName {
    Seq(u64),
    Id(String),
}

fn letter_choice(body: &[u8]) -> Result<DeadLetterChoice, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(DeadLetterChoice::All);
    }
    let wanted = "give {} for all, or {\"ids\": […]} with ids or seqs of dead letters";
    let body: RetryBody = object(body, wanted)?;
    let Some(names) = body.ids else { return Ok(DeadLetterChoice::All) };
    let (mut seqs, mut ids) = (Vec::new(), Vec::new());
    for name in names {
        match name {
            DeadLetterName::Seq(seq) => seqs.push(seq),
            DeadLetterName::Id(id) => ids.push(id),
        }
    }
    Ok(DeadLetterChoice::Some { seqs, ids })
}

fn seq_of(after: &str) -> Result<u64, Refusal> {
    let wrong = |_| {
        Refusal::new(
            Code::BadRequest,
            format!("`after` must be the `next` of an earlier page, not {after:?}"),
        )
    };
    after.parse().map_err(wrong)
}

async fn publish(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    caller: &TopicCaller,
    topic: &str,
    body: &[u8],
) -> Result<HttpResponse, Refusal> {
    // The log also dedupes by the key; this node repeats its response even if the body is different this time.
    let once = once_key(parts, holder, &format!("events\n{topic}"))?;
    let given = once.as_ref().and_then(|_| parts.headers.get("idempotency-key")?.to_str().ok());
    let work = async {
        let published = add_events(api, caller, topic, given, body).await?;
        Ok(OnceAnswer::from(report(topic, &published)))
    };
    let body = run_once(api, once.as_ref(), work).await?;
    Ok(whole(StatusCode::ACCEPTED, "application/json", body))
}

/// Parses the events and gives them to a shard. `once` is the `Idempotency-Key`, if there was one.
async fn add_events(
    api: &HttpApi,
    caller: &TopicCaller,
    topic: &str,
    once: Option<&str>,
    body: &[u8],
) -> Result<PublishResult, Refusal> {
    let events = parse_events(body, api.now().ms(), traces::current())?;
    let once = once.map(|key| short_key(key, once_bytes(&caller.id)));
    let command = TopicCommand::Publish { topic: topic.into(), once, events };
    match api.topics.run(caller, command).await? {
        TopicReply::Published(published) => Ok(published),
        _ => Err(unexpected()),
    }
}

/// An `Idempotency-Key` as part of event ids: unchanged, or its hash if it is too long.
fn short_key(key: &str, bytes: usize) -> String {
    if key.len() <= bytes {
        return key.to_owned();
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn report(topic: &str, published: &PublishResult) -> Vec<u8> {
    let PublishResult { first_seq, last_seq, accepted, duplicates } = *published;
    encode(&PublishReport { topic, first_seq, last_seq, accepted, duplicates })
}

async fn pull(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    caller: &TopicCaller,
    name: &str,
) -> Result<HttpResponse, Refusal> {
    let query = Query::of(parts)?;
    let limit = query.number("limit", 1..=PULLED_MAX)?.map_or(PULLED, |limit| limit as u32);
    let wait = Duration::from_millis(query.number("wait_ms", 0..=PULL_WAIT_MS_MAX)?.unwrap_or(0));
    let after = query.number("after", 0..=u64::MAX)?;
    let check = || holder.check_again();
    api.topics.pull(caller, name, after, limit, wait, check).await.map(|events| pulled(&events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_idempotency_key_is_hashed() {
        assert_eq!(short_key("once", 4), "once");
        let (one, other) = (short_key(&"x".repeat(255), 100), short_key(&"y".repeat(255), 100));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
        assert!(once_bytes("admin") >= 64, "the hash fits");
    }
    #[test]
    fn replay_begins_at_a_number_or_a_time() {
        let read = |json: &str| replay_from(json.as_bytes()).ok();
        assert_eq!(read(r#"{"from_seq":7}"#), Some(ReplayFrom::Seq(7)));
        assert_eq!(read(r#"{"from_time":7}"#), Some(ReplayFrom::Time(7)));
        assert_eq!(read(r#"{"from_time":"1970-01-01T00:00:02Z"}"#), Some(ReplayFrom::Time(2_000)));
        for bad in [
            "",
            "{}",
            r#"{"from_seq":0}"#,
            r#"{"from_seq":1,"from_time":1}"#,
            r#"{"from_time":"now"}"#,
            r#"{"seq":1}"#,
            "[1]",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn dead_letters_are_named_by_id_or_number_or_not_at_all() {
        let read = |json: &str| letter_choice(json.as_bytes()).ok();
        assert_eq!(read(""), Some(DeadLetterChoice::All));
        assert_eq!(read("{}"), Some(DeadLetterChoice::All));
        let named = DeadLetterChoice::Some { seqs: vec![2], ids: vec!["a".into()] };
        assert_eq!(read(r#"{"ids":["a",2]}"#), Some(named));
        assert_eq!(read("[1]"), None);
        assert_eq!(read(r#"{"id":1}"#), None);
    }
}
