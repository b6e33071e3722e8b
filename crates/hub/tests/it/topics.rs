//! Publishing to topics through a shard: claims, reads, conflicts and lost answers. The test answers as the store.

use crate::harness::TestNode;
use tavern_hub::topics::{PublishResult, TopicCaller, TopicCommand, TopicReply};
use tavern_hub::{Settings, ShardEvent};
use tavern_store::{
    Appended, ChangedRow, Commit, Document, DocumentKey, Found, LogEnds, Page, Read, Receipt, RowKey,
    StoreAnswer, StoreError, Ticket, TopicPage, Versioned, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::PublishedEvent;
use tavern_wire::record::{self, DELETED_TOPICS, EVENTS, TOPIC, TopicRecord};

struct Publisher {
    node: TestNode,
    number: u64,
}

impl Publisher {
    fn new() -> Publisher {
        Publisher { node: TestNode::new(Settings::default()), number: 0 }
    }

    fn publish(&mut self, key: &str, topic: &str) {
        self.number += 1;
        let event = PublishedEvent { id: None, body: b"{}".to_vec() };
        let command = TopicCommand::Publish { topic: topic.into(), once: None, events: vec![event] };
        let caller = TopicCaller { id: key.into(), admin: false };
        self.node.handle(ShardEvent::Topic { number: self.number, caller, command });
    }

    fn work(&mut self) -> (Ticket, Work) {
        let mut work = std::mem::take(&mut self.node.shards[0].core.effects.work);
        assert_eq!(work.len(), 1, "one request to the store at a time");
        work.remove(0)
    }

    /// The topic is read; the store returns this.
    fn read(&mut self, topic: &str, found: Option<(u64, Option<&str>)>) {
        let (ticket, work) = self.work();
        let key = DocumentKey::new(TOPIC, topic);
        assert!(matches!(work, Work::Read(Read::Document(asked)) if asked == key));
        let found = found.map(|(version, publisher)| {
            let topic = TopicRecord::new(publisher.map(Into::into), 5, 0);
            Versioned { version, row: Document { key, body: record::write(&topic).into() } }
        });
        self.node.handle(ShardEvent::Answer(ticket, StoreAnswer::Read(Found::Document(found))));
    }

    /// How many events the topic has had is read, after the document that every deletion of a topic changes.
    fn count(&mut self, topic: &str, events: u64) {
        let (ticket, work) = self.work();
        let deletions = DocumentKey::new(EVENTS, DELETED_TOPICS);
        assert!(matches!(work, Work::Read(Read::Document(asked)) if asked == deletions));
        self.node.handle(ShardEvent::Answer(ticket, StoreAnswer::Read(Found::Document(None))));
        let (ticket, work) = self.work();
        assert!(matches!(work, Work::Read(Read::Topics { names, .. }) if names == [topic.into()]));
        self.node.handle(ShardEvent::Answer(ticket, counted(topic, events)));
    }

    fn commit(&mut self, answer: StoreAnswer) -> Commit {
        let (ticket, Work::Commit(commit)) = self.work() else { panic!("no commit") };
        self.node.handle(ShardEvent::Answer(ticket, answer));
        commit
    }

    fn reply(&mut self) -> Result<TopicReply, Refusal> {
        assert!(self.node.shards[0].core.effects.work.is_empty(), "nothing more is asked");
        let mut replies = std::mem::take(&mut self.node.shards[0].topic_effects().replies);
        assert_eq!(replies.len(), 1, "one reply");
        let (number, reply) = replies.remove(0);
        assert_eq!(number, self.number);
        reply
    }

    fn refused(&mut self) -> Code {
        self.reply().expect_err("a refusal").code
    }
}

fn counted(topic: &str, events: u64) -> StoreAnswer {
    let rows = if events > 0 { vec![(topic.into(), events)] } else { Vec::new() };
    let log = LogEnds { first: 1, head: events, bytes: 0 };
    StoreAnswer::Read(Found::Topics(TopicPage { log, page: Page { rows, more: false } }))
}

fn committed(put: &[u64], seq: u64) -> StoreAnswer {
    let appended = vec![Appended { position: seq, count: seq, duplicate: false }];
    let key = RowKey::Document(DocumentKey::new(TOPIC, "orders"));
    let put = put.iter().map(|version| ChangedRow { key: key.clone(), version: *version }).collect();
    StoreAnswer::Committed(Receipt { put, appended, ..Receipt::default() })
}

fn accepted(seq: u64) -> TopicReply {
    TopicReply::Published(PublishResult { first_seq: seq, last_seq: seq, accepted: 1, duplicates: 0 })
}

fn expected(commit: &Commit) -> Vec<u64> {
    let key = RowKey::Document(DocumentKey::new(TOPIC, "orders"));
    commit.expects.iter().filter(|expect| expect.key == key).map(|expect| expect.version).collect()
}

#[test]
fn first_publish_claims_and_the_next_reads_nothing() {
    let mut publisher = Publisher::new();
    publisher.publish("a", "orders");
    publisher.read("orders", None);
    publisher.count("orders", 0);
    let first = publisher.commit(committed(&[7], 1));
    assert_eq!((expected(&first), first.puts.len(), first.appends.len()), (vec![0], 1, 1));
    assert_eq!(publisher.reply(), Ok(accepted(1)));
    publisher.publish("a", "orders");
    let next = publisher.commit(committed(&[], 2));
    assert_eq!((expected(&next), next.puts.len(), next.appends.len()), (vec![7], 0, 1));
    assert_eq!(publisher.reply(), Ok(accepted(2)));
    let published = &publisher.node.shards[0].topic_effects().published;
    assert_eq!(published[..], [("orders".into(), 1, 0), ("orders".into(), 1, 0)]);
}

#[test]
fn topic_claimed_by_another_key_is_refused() {
    let mut publisher = Publisher::new();
    publisher.publish("b", "orders");
    publisher.read("orders", Some((7, Some("a"))));
    assert_eq!(publisher.refused(), Code::Claimed);
}

#[test]
fn stale_claim_conflicts_and_is_read_again() {
    let mut publisher = Publisher::new();
    publisher.publish("a", "orders");
    publisher.read("orders", Some((7, Some("a"))));
    publisher.commit(committed(&[], 1));
    assert_eq!(publisher.reply(), Ok(accepted(1)));
    // Meanwhile an admin has moved it.
    publisher.publish("a", "orders");
    let key = RowKey::Document(DocumentKey::new(TOPIC, "orders"));
    publisher.commit(StoreAnswer::Failed(StoreError::Conflict { key, expected: 7, found: 8 }));
    publisher.read("orders", Some((8, Some("b"))));
    assert_eq!(publisher.refused(), Code::Claimed);
}

#[test]
fn unknown_outcome_is_reported_and_the_claim_is_read_again() {
    let mut publisher = Publisher::new();
    publisher.publish("a", "orders");
    publisher.read("orders", Some((7, Some("a"))));
    publisher.commit(committed(&[], 1));
    assert_eq!(publisher.reply(), Ok(accepted(1)));
    publisher.publish("a", "orders");
    publisher.commit(StoreAnswer::Failed(StoreError::timeout()));
    assert_eq!(publisher.refused(), Code::Unavailable);
    publisher.publish("a", "orders");
    publisher.read("orders", Some((7, Some("a"))));
    publisher.commit(committed(&[], 2));
    assert_eq!(publisher.reply(), Ok(accepted(2)));
}

#[test]
fn invalid_name_is_refused_at_once() {
    let mut publisher = Publisher::new();
    publisher.publish("a", "Orders");
    assert_eq!(publisher.refused(), Code::BadRequest);
    publisher.publish("a", "tavern.presence");
    assert_eq!(publisher.refused(), Code::NotAllowed);
}
