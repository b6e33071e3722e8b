//! The subscriptions that exist from the beginning: an operator writes them to the store, because no endpoint is
//! reachable by an address that the server accepts.

use super::TOPICS;
use super::endpoint::SimEndpoint;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::delivery::{DeliveryProgress, LogMark};
use tavern_domain::topic::SubscriptionMarks;
use tavern_store::{Commit, Document, DocumentKey, Expect, Row, RowKey};
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::{self, SubscriptionSettings};

/// The commit that creates the subscription of an endpoint, unless it exists.
pub fn subscription(endpoint: &SimEndpoint) -> Commit {
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

pub fn subscription_key(endpoint: &SimEndpoint) -> DocumentKey {
    DocumentKey::new(record::SUBSCRIPTION, &endpoint.name)
}
