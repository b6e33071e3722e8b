//! Sessions by the protocol: hello, resume, supersede, bye, acknowledgement, gaps, polls, limits.

#[allow(dead_code, reason = "each binary uses a part of it")]
mod house;

use house::{House, code};
use tavern_hub::*;

fn house() -> House {
    House::new(Settings { commands_per_second: 0, ..Settings::default() })
}

const SUBSCRIBE: &str = r#"{"id":1,"op":"subscribe","channel":"game#A"}"#;

#[test]
fn commands_before_hello_are_refused() {
    let mut house = house();
    let mut caller = house.socket();
    for frame in [SUBSCRIBE, r#"{"op":"publish","channel":"a","data":1}"#, r#"{"op":"ack","seq":1}"#] {
        assert_eq!(code(&house.say(&mut caller, frame)), "unauthenticated");
    }
    assert_eq!(code(&house.say(&mut caller, r#"{"op":"hello","token":"bad"}"#)), "unauthenticated");
    assert_eq!(code(&house.say(&mut caller, r#"{"op":"hello"}"#)), "unauthenticated");
    assert_eq!(code(&house.say(&mut caller, r#"{"op":"ping"}"#)), "ok");
}

#[test]
fn hello_tells_who_and_where() {
    let mut house = house();
    let (_, hello) = house.guest("ann");
    assert_eq!(hello["user"], "ann");
    assert_eq!(hello["node"], "node");
    assert_eq!(hello["resumed"], false);
    assert_eq!(hello["seq"], 0);
    assert!(hello["party"].is_null());
    assert_eq!(hello["client"].as_str().unwrap().len(), 16);
    assert!(hello["session"].as_str().unwrap().ends_with("~node"));
}

#[test]
fn a_resumed_session_misses_nothing_and_keeps_its_client() {
    let mut house = house();
    let (mut first, hello) = house.guest("ann");
    house.say(&mut first, SUBSCRIBE);
    house.publish("game#A", "1");
    assert_eq!(house.hear_numbers(&first), [1]);
    house.detach(&first);
    house.publish("game#A", "2");
    house.publish("game#A", "3");
    house.pass(60_000);
    let mut second = house.socket();
    let session = hello["session"].as_str().unwrap();
    let again =
        house.say(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":1}}"#));
    assert_eq!(again["ok"]["resumed"], true);
    assert_eq!(again["ok"]["client"], hello["client"]);
    assert_eq!(again["ok"]["seq"], 3);
    assert_eq!(house.hear_numbers(&second), [2, 3]);
}

#[test]
fn a_session_is_forgotten_after_its_window() {
    let mut house = house();
    let (mut first, hello) = house.guest("ann");
    house.say(&mut first, SUBSCRIBE);
    house.detach(&first);
    house.pass(74_000);
    assert_eq!(house.shards[0].listener_count(), 1);
    house.pass(3_000);
    assert_eq!(house.shards[0].listener_count(), 0);
    assert_eq!(house.publish("game#A", "1"), 0);
    let session = hello["session"].as_str().unwrap();
    let mut second = house.socket();
    let again =
        house.say(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(again["ok"]["resumed"], false);
    assert_ne!(again["ok"]["client"], hello["client"]);
}

#[test]
fn another_user_cannot_resume_and_disturbs_nobody() {
    let mut house = house();
    let (mut ann, hello) = house.guest("ann");
    house.say(&mut ann, SUBSCRIBE);
    let mut bob = house.socket();
    let session = hello["session"].as_str().unwrap();
    let reply = house.say(&mut bob, &format!(r#"{{"op":"hello","token":"bob","session":"{session}"}}"#));
    assert_eq!(reply["ok"]["resumed"], false);
    assert_eq!(reply["ok"]["user"], "bob");
    assert!(house.closes().is_empty(), "ann keeps her transport");
    house.publish("game#A", "1");
    assert_eq!(house.hear_numbers(&ann), [1]);
}

#[test]
fn a_newer_transport_supersedes_the_older() {
    let mut house = house();
    let (mut first, hello) = house.guest("ann");
    house.say(&mut first, SUBSCRIBE);
    let mut second = house.socket();
    let session = hello["session"].as_str().unwrap();
    house.say(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(house.closes(), [(first.link.id, Goodbye::Superseded)]);
    // The older one going away later changes nothing for the newer.
    house.detach(&first);
    house.publish("game#A", "1");
    assert_eq!(house.shards[0].effects.dirty.len(), 1);
    assert_eq!(house.hear_numbers(&second), [1]);
}

#[test]
fn a_transport_that_was_superseded_in_the_same_moment_takes_nothing() {
    let mut house = house();
    let (mut first, hello) = house.guest("ann");
    house.say(&mut first, SUBSCRIBE);
    house.publish("game#A", "1");
    assert_eq!(house.hear_numbers(&first), [1]);
    let mut second = house.socket();
    let session = hello["session"].as_str().unwrap();
    house.say(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    // The older one is written to before it is closed: what it would take the newer one would never see.
    assert!(house.hear(&first).is_empty());
    assert_eq!(house.hear_numbers(&second), [1]);
}

#[test]
fn bye_ends_the_session_at_once() {
    let mut house = house();
    let (mut ann, hello) = house.guest("ann");
    house.say(&mut ann, SUBSCRIBE);
    let (flow, reply) = house.flow(&mut ann, r#"{"id":9,"op":"bye"}"#);
    assert_eq!(flow, Flow::Close(Goodbye::Bye));
    assert_eq!(reply["id"], 9);
    assert_eq!(house.publish("game#A", "1"), 0);
    let mut again = house.socket();
    let session = hello["session"].as_str().unwrap();
    let reply = house.say(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}"}}"#));
    assert_eq!(reply["ok"]["resumed"], false);
}

#[test]
fn a_slow_reader_is_told_what_it_missed_in_its_place() {
    let mut house = House::new(Settings { mailbox_events: 4, ..Settings::default() });
    let (mut ann, _) = house.guest("ann");
    house.say(&mut ann, SUBSCRIBE);
    for n in 1..=10 {
        house.publish("game#A", &n.to_string());
    }
    let events = house.hear(&ann);
    assert_eq!(events[0]["event"], "gap");
    assert_eq!((&events[0]["seq"], &events[0]["from"], &events[0]["to"]), (&6.into(), &1.into(), &6.into()));
    let data: Vec<u64> = events[1..].iter().map(|event| event["data"].as_u64().unwrap()).collect();
    assert_eq!(data, [7, 8, 9, 10]);
}

#[test]
fn a_kind_may_close_its_slow_readers_instead() {
    let mut settings = Settings { mailbox_events: 4, ..Settings::default() };
    settings
        .kinds
        .insert("game".into(), KindRules { slow_reader: SlowReader::Close, ..KindRules::default() });
    let mut house = House::new(settings);
    let (mut ann, hello) = house.guest("ann");
    house.say(&mut ann, SUBSCRIBE);
    for n in 1..=10 {
        house.publish("game#A", &n.to_string());
    }
    assert_eq!(house.closes(), [(ann.link.id, Goodbye::SlowReader)], "once");
    house.detach(&ann);
    let mut again = house.socket();
    let session = hello["session"].as_str().unwrap();
    let reply =
        house.say(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(reply["ok"]["resumed"], true, "the session may be resumed");
    assert_eq!(house.hear(&again)[0]["event"], "gap");
}

#[test]
fn acknowledged_events_are_freed_and_claims_beyond_what_was_sent_refused() {
    let mut house = house();
    let (mut ann, _) = house.guest("ann");
    house.say(&mut ann, SUBSCRIBE);
    house.publish("game#A", "1");
    assert_eq!(code(&house.say(&mut ann, r#"{"op":"ack","seq":1}"#)), "bad_request");
    house.hear(&ann);
    assert_eq!(code(&house.say(&mut ann, r#"{"op":"ack","seq":1}"#)), "ok");
    assert!(house.shards[0].listener(ann.listener.unwrap()).unwrap().mailbox.is_empty());
}

#[test]
fn sent_history_is_kept_for_a_while_only() {
    let mut house = house();
    let (mut ann, _) = house.guest("ann");
    house.say(&mut ann, SUBSCRIBE);
    house.publish("game#A", "1");
    house.hear(&ann);
    let kept = |house: &House| house.shards[0].listener(ann.listener.unwrap()).unwrap().mailbox.len();
    house.pass(29_000);
    assert_eq!(kept(&house), 1);
    house.pass(3_000);
    assert_eq!(kept(&house), 0);
}

#[test]
fn all_mailboxes_together_stay_within_their_budget() {
    let budget = 200_000;
    let mut house = House::new(Settings { mailbox_total_bytes: budget, ..Settings::default() });
    let mut guests: Vec<Caller> = (0..20).map(|n| house.guest(&format!("user{n}")).0).collect();
    for (n, guest) in guests.iter_mut().enumerate() {
        house.say(guest, &format!(r#"{{"op":"subscribe","channel":"room#{}"}}"#, n % 10));
    }
    let payload = "x".repeat(1000);
    for n in 0..2000 {
        house.publish(&format!("room#{}", n % 10), &payload);
    }
    house.pass(2_000);
    let held = house.shards[0].node().stats[0].event_bytes.get() as usize;
    assert!(held <= budget + budget / 4, "{held} bytes are held");
    for guest in &guests {
        let events = house.hear(guest);
        assert_eq!(events[0]["event"], "gap", "nothing is dropped in silence");
        assert_eq!(events.last().unwrap()["seq"], 200);
    }
}

#[test]
fn too_many_commands_are_refused_with_a_time_and_abuse_ends_it() {
    let mut house = House::new(Settings { commands_per_second: 10, ..Settings::default() });
    let (mut ann, _) = house.guest("ann");
    let mut refused = None;
    for _ in 0..25 {
        let reply = house.say(&mut ann, r#"{"op":"ping"}"#);
        if code(&reply) == "rate_limited" {
            refused = Some(reply);
            break;
        }
    }
    let wait = refused.expect("refused")["error"]["retry_after_ms"].as_u64().unwrap();
    house.pass(wait);
    assert_eq!(code(&house.say(&mut ann, r#"{"op":"ping"}"#)), "ok");
    let mut flow = Flow::Done;
    for _ in 0..1100 {
        flow = house.flow(&mut ann, "{broken").0;
        if flow != Flow::Done {
            break;
        }
    }
    assert_eq!(flow, Flow::Close(Goodbye::Abuse));
}

#[test]
fn a_stranger_who_only_breaks_things_is_shown_out() {
    let mut house = house();
    let mut stranger = house.socket();
    let refusals = (0..2000).take_while(|_| house.flow(&mut stranger, "{broken").0 == Flow::Done).count();
    assert_eq!(refusals, 999);
}

#[test]
fn an_expired_token_ends_its_session_unless_a_fresh_one_comes() {
    let mut house = house();
    let (mut ann, _) = house.guest("ann@1010");
    let (mut bob, _) = house.guest("bob@1010");
    house.pass(5_000);
    assert_eq!(code(&house.say(&mut bob, r#"{"op":"hello","token":"bob@1100"}"#)), "ok");
    assert_eq!(code(&house.say(&mut bob, r#"{"op":"hello","token":"ann"}"#)), "conflict");
    house.now = house.now + 5_000;
    assert_eq!(code(&house.say(&mut ann, SUBSCRIBE)), "unauthenticated");
    house.pass(2_000);
    assert_eq!(house.closes(), [(ann.link.id, Goodbye::TokenExpired)]);
    assert_eq!(code(&house.say(&mut bob, SUBSCRIBE)), "ok");
}

#[test]
fn a_hello_for_a_session_of_another_shard_moves_there() {
    let mut house = House::new(Settings { shards: 2, ..Settings::default() });
    let mut ann = house.socket();
    house.run(1, &mut ann, r#"{"op":"hello","token":"ann"}"#);
    house.find_no_party(1);
    let hello = house.run(1, &mut ann, r#"{"op":"hello","token":"ann"}"#).1;
    let session = hello["ok"]["session"].as_str().unwrap();
    let mut again = house.socket();
    let (flow, reply) =
        house.flow(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(flow, Flow::Move(1));
    assert!(reply.is_null(), "the other shard answers");
}
