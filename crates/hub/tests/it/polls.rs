//! Long-polls and sessions that survive a restart.

use crate::harness::TestNode;
use serde_json::Value;
use tavern_domain::SessionKey;
use tavern_hub::*;

struct Poller {
    session: String,
    key: SessionKey,
    cursor: u64,
}

fn arrive(node: &mut TestNode) -> Poller {
    let mut caller = node.socket();
    caller.passing = true;
    let hello = node.send(&mut caller, r#"{"op":"hello","token":"ann"}"#);
    node.send(&mut caller, r#"{"op":"subscribe","channel":"game#A"}"#);
    let session = hello["ok"]["session"].as_str().unwrap().to_owned();
    let (key, _) = read_session(&session).unwrap();
    Poller { session, key, cursor: 0 }
}

impl Poller {
    fn poll(&self, node: &mut TestNode, link: u32, timeout_ms: u64) -> Poll {
        node.shards[0].poll(node.now, self.key, None, LinkId(link), Some(self.cursor), timeout_ms)
    }

    fn answer(&self, node: &mut TestNode) -> Value {
        let id = node.shards[0].core.find_session(self.key).unwrap();
        let link = node.shards[0].core.listener(id).unwrap().link.unwrap().id;
        let mut body = Vec::new();
        while !node.shards[0].render_poll(node.now, id, link, PollFlags::default(), &mut body) {
            assert!(node.answer_from_nothing(0), "it waits for the store");
        }
        serde_json::from_slice(&body).unwrap()
    }
}

fn numbers(answer: &Value) -> Vec<u64> {
    answer["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[test]
fn poll_whose_session_is_taken_while_it_waits_for_the_party_is_superseded() {
    let mut node = TestNode::new(Settings::default());
    let ann = arrive(&mut node);
    assert_eq!(ann.poll(&mut node, 7, 0), Poll::Ready { reset: false });
    let id = node.shards[0].core.find_session(ann.key).unwrap();
    let mut body = Vec::new();
    assert!(!node.shards[0].render_poll(node.now, id, LinkId(7), PollFlags::default(), &mut body));
    // A socket takes the session and is sent an event before the poll is answered.
    let mut socket = node.socket();
    let hello = format!(r#"{{"op":"hello","token":"ann","session":"{}","seq":0}}"#, ann.session);
    assert_eq!(node.send(&mut socket, &hello)["ok"]["resumed"], true);
    node.publish("game#A", "1");
    assert_eq!(node.event_numbers(&socket), [1]);
    assert!(node.shards[0].render_poll(node.now, id, LinkId(7), PollFlags::default(), &mut body));
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&answer["superseded"], &answer["cursor"]), (&true.into(), &0.into()), "{answer}");
    node.publish("game#A", "2");
    assert_eq!(node.event_numbers(&socket), [2], "the socket still has the session");
}

#[test]
fn an_answer_with_messages_alone_has_no_party_and_costs_no_read() {
    let mut node = TestNode::new(Settings::default());
    let mut ann = arrive(&mut node);
    assert_eq!(ann.poll(&mut node, 7, 0), Poll::Ready { reset: false });
    assert_eq!(ann.answer(&mut node)["party"], Value::Null);
    node.publish("game#A", "1");
    ann.poll(&mut node, 8, 0);
    let id = node.shards[0].core.find_session(ann.key).unwrap();
    let mut body = Vec::new();
    assert!(node.shards[0].render_poll(node.now, id, LinkId(8), PollFlags::default(), &mut body));
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((numbers(&answer), answer.get("party")), (vec![1], None));
    ann.cursor = 1;
    ann.poll(&mut node, 9, 0);
    assert_eq!(ann.answer(&mut node).get("party"), Some(&Value::Null), "nothing came: the party is read");
}

#[test]
fn a_lost_answer_is_repeated_with_the_same_numbers_until_a_cursor_covers_it() {
    let mut node = TestNode::new(Settings::default());
    let mut ann = arrive(&mut node);
    node.publish("game#A", "1");
    node.publish("game#A", "2");
    for _ in 0..3 {
        assert_eq!(ann.poll(&mut node, 7, 0), Poll::Ready { reset: false });
        let answer = ann.answer(&mut node);
        assert_eq!(
            (numbers(&answer), &answer["cursor"], &answer["more"]),
            (vec![1, 2], &2.into(), &false.into())
        );
    }
    ann.cursor = 1;
    ann.poll(&mut node, 7, 0);
    assert_eq!(numbers(&ann.answer(&mut node)), [2]);
    ann.cursor = 2;
    assert_eq!(ann.poll(&mut node, 7, 0), Poll::Ready { reset: false });
    let empty = ann.answer(&mut node);
    assert_eq!((numbers(&empty), &empty["cursor"]), (vec![], &2.into()));
}

#[test]
fn parked_poll_is_answered_by_an_event_or_at_its_timeout() {
    let mut node = TestNode::new(Settings::default());
    let ann = arrive(&mut node);
    assert_eq!(ann.poll(&mut node, 7, 15_000), Poll::Parked);
    assert!(node.shards[0].core.effects.dirty.is_empty());
    node.publish("game#A", "1");
    assert_eq!(node.shards[0].core.effects.dirty.len(), 1);
    node.shards[0].core.effects.dirty.clear();
    assert_eq!(numbers(&ann.answer(&mut node)), [1]);
    let ann = Poller { cursor: 1, ..ann };
    let begin = node.now;
    assert_eq!(ann.poll(&mut node, 8, 15_000), Poll::Parked);
    while node.shards[0].core.effects.dirty.is_empty() {
        node.pass(10);
    }
    let parked = node.now.since(begin);
    assert!((13_500..=16_520).contains(&parked), "{parked} ms");
}

#[test]
fn a_newer_poll_supersedes_a_parked_one() {
    let mut node = TestNode::new(Settings::default());
    let ann = arrive(&mut node);
    assert_eq!(ann.poll(&mut node, 7, 15_000), Poll::Parked);
    assert_eq!(ann.poll(&mut node, 8, 15_000), Poll::Parked);
    assert_eq!(node.closes(), [(LinkId(7), CloseReason::Superseded)]);
}

#[test]
fn cursor_ahead_of_the_mailbox_resets_and_one_below_gets_a_gap() {
    let mut node = TestNode::new(Settings { mailbox_events: 3, ..Settings::default() });
    let mut ann = arrive(&mut node);
    for n in 0..6 {
        node.publish("game#A", &n.to_string());
    }
    ann.cursor = 99;
    assert_eq!(ann.poll(&mut node, 7, 0), Poll::Ready { reset: true });
    assert_eq!(numbers(&ann.answer(&mut node)), [4, 5, 6]);
    ann.cursor = 1;
    ann.poll(&mut node, 8, 0);
    let answer = ann.answer(&mut node);
    assert_eq!(answer["gap"], true);
    assert_eq!(numbers(&answer), [3, 4, 5, 6]);
    assert_eq!(answer["events"][0]["event"], "gap");
}

#[test]
fn answer_is_bounded_and_marks_that_there_is_more() {
    let mut node = TestNode::new(Settings::default());
    let mut ann = arrive(&mut node);
    for n in 0..150 {
        node.publish("game#A", &n.to_string());
    }
    ann.poll(&mut node, 7, 0);
    let answer = ann.answer(&mut node);
    assert_eq!((numbers(&answer).len(), &answer["more"]), (100, &true.into()));
    ann.cursor = 150;
    ann.poll(&mut node, 7, 0);
    ann.answer(&mut node);
    let payload = "y".repeat(30_000);
    for _ in 0..4 {
        node.publish("game#A", &payload);
    }
    ann.poll(&mut node, 7, 0);
    let answer = ann.answer(&mut node);
    assert_eq!((numbers(&answer).len(), &answer["more"]), (2, &true.into()));
}

#[test]
fn polling_session_stays_alive_while_it_polls() {
    let mut node = TestNode::new(Settings::default());
    let ann = arrive(&mut node);
    for link in 0..20 {
        assert_eq!(ann.poll(&mut node, link, 0), Poll::Ready { reset: false });
        ann.answer(&mut node);
        node.pass(40_000);
    }
    // 45 s of silence, 15 s of grace, 60 s of margin.
    node.pass(70_000);
    assert_eq!(node.shards[0].core.listener_count(), 1);
    node.pass(15_000);
    assert_eq!(ann.poll(&mut node, 99, 0), Poll::Unknown);
}

#[test]
fn restart_is_not_noticed_by_clients() {
    let mut node = TestNode::new(Settings::default());
    let (mut ann, hello) = node.client("ann");
    node.send(&mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
    node.send(&mut ann, r#"{"op":"subscribe","pattern":"lobby#*"}"#);
    node.publish("game#A", "1");
    node.events(&ann);
    node.publish("game#A", "2");
    let packed = node.shards[0].pack(node.now);
    assert_eq!(node.closes(), [(ann.link.id, CloseReason::Closing)]);
    assert_eq!(node.publish("game#A", "not lost"), 0);
    let mut reborn = TestNode::new(Settings::default());
    for session in &packed {
        assert!(reborn.shards[0].adopt(reborn.now, session));
        assert!(!reborn.shards[0].adopt(reborn.now, session), "once");
    }
    reborn.publish("lobby#x", "3");
    let mut again = reborn.socket();
    let session = hello["session"].as_str().unwrap();
    let reply =
        reborn.send(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":1}}"#));
    assert_eq!((&reply["ok"]["resumed"], &reply["ok"]["client"]), (&true.into(), &hello["client"]));
    let data: Vec<u64> = reborn.events(&again).iter().map(|event| event["data"].as_u64().unwrap()).collect();
    assert_eq!(data, [2, 3]);
}
