//! Limits per user and node: command rates, sessions, patterns. In virtual time.

use crate::harness::cluster::TestCluster;
use crate::harness::{TestNode, code};
use std::sync::{Arc, Mutex};
use tavern_domain::AddressGroup;
use tavern_hub::*;
use tavern_store::memory::WorkFault;
use tavern_store::{Found, PresenceKey, Read, Row, Work};

const PING: &str = r#"{"op":"ping"}"#;

fn node(settings: Settings) -> TestNode {
    TestNode::new(settings)
}

#[test]
fn all_sessions_of_a_user_share_one_rate_on_all_shards() {
    let mut node = node(Settings { shards: 2, ..Settings::default() });
    let mut passed = 0;
    for _ in 0..10 {
        for shard in 0..2 {
            let mut caller = node.socket();
            let hello = node.flow_on(shard, &mut caller, r#"{"op":"hello","token":"ann"}"#).1;
            assert_eq!(code(&hello), "ok", "{hello}");
            passed += (0..100).filter(|_| code(&node.flow_on(shard, &mut caller, PING).1) == "ok").count();
        }
    }
    assert_eq!(passed, 200, "a burst of twice the rate, whatever the number of sessions");
    let (mut bob, _) = node.client("bob");
    assert_eq!(code(&node.send(&mut bob, PING)), "ok");
}

#[test]
fn commands_and_logins_from_one_address_are_limited_with_and_without_a_login() {
    let settings =
        Settings { address_commands_per_second: 10, address_hellos_per_second: 3, ..Settings::default() };
    let mut node = node(settings);
    let from = |text: &str| Some(AddressGroup::of(text.parse().unwrap()));
    let pings = |node: &mut TestNode, address| {
        let mut passed = 0;
        for _ in 0..10 {
            let mut caller = node.socket().from_address(address);
            passed += (0..10).filter(|_| code(&node.send(&mut caller, PING)) == "ok").count();
        }
        passed
    };
    assert_eq!(pings(&mut node, from("2001:db8::1")), 20);
    assert_eq!(pings(&mut node, from("2001:db8::2")), 0, "the same /64");
    assert_eq!(pings(&mut node, from("2001:db8:1::1")), 20);
    let mut logins = |address, token: &str| {
        let mut caller = node.socket().from_address(address);
        code(&node.send(&mut caller, &format!(r#"{{"op":"hello","token":"{token}"}}"#))).to_owned()
    };
    for _ in 0..6 {
        assert_eq!(logins(from("10.0.0.1"), "bad"), "unauthenticated");
    }
    assert_eq!(logins(from("10.0.0.1"), "bad"), "rate_limited", "failed logins count");
    assert_eq!(logins(from("10.0.0.1"), "ann"), "rate_limited");
    assert_eq!(logins(from("10.0.0.2"), "ann"), "ok");
}

#[test]
fn the_oldest_detached_session_gives_way_and_attached_ones_do_not() {
    let mut node = node(Settings { sessions_per_user: 3, commands_per_second: 0, ..Settings::default() });
    let (_first, _) = node.client("ann");
    let (second, hello) = node.client("ann");
    let (third, _) = node.client("ann");
    let mut refused = node.socket();
    let reply = node.send(&mut refused, r#"{"op":"hello","token":"ann"}"#);
    assert_eq!(code(&reply), "rate_limited", "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("limits.sessions_per_user"), "{reply}");
    node.detach(&second);
    node.pass(1);
    node.detach(&third);
    let (_fourth, _) = node.client("ann");
    let session = hello["session"].as_str().unwrap();
    let mut late = node.socket();
    let again = format!(r#"{{"op":"hello","token":"ann","session":"{session}"}}"#);
    let reply = node.send(&mut late, &again);
    assert_eq!(reply["ok"]["resumed"], false, "the second was without a connection for longest: {reply}");
    node.pass(2_000);
    assert_eq!(node.shards[0].core.listener_count(), 3, "the third gave way to the new one");
    let (_bob, _) = node.client("bob");
}

#[test]
fn a_polling_session_gives_way_only_when_it_is_idle() {
    let mut node = node(Settings { sessions_per_user: 1, commands_per_second: 0, ..Settings::default() });
    let ann = node.shards[0].core.node().token_verifier.verify("ann", node.now).unwrap();
    let open = |node: &mut TestNode| node.shards[0].open_session(node.now, ann.clone(), None, None);
    assert!(open(&mut node).is_ok());
    node.pass(40_000);
    assert!(open(&mut node).is_err());
    node.pass(6_000);
    assert!(open(&mut node).is_ok());
}

/// The sizes of the presences that were written, in clients.
fn written(cluster: &mut TestCluster) -> Arc<Mutex<Vec<usize>>> {
    let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let kept = sizes.clone();
    cluster.set_work_fate(move |_, work| {
        if let Work::Commit(commit) = work {
            for row in &commit.puts {
                if let Row::Presence(row) = row {
                    kept.lock().unwrap().push(row.attendance.clients().len());
                }
            }
        }
        WorkFault::NONE
    });
    sizes
}

#[test]
fn the_thousandth_session_of_a_user_costs_no_more_than_the_first() {
    let settings = Settings { sessions_per_user: 0, commands_per_second: 0, ..Settings::default() };
    let mut cluster = TestCluster::sized(1, &settings);
    let sizes = written(&mut cluster);
    let mut callers = Vec::new();
    for n in 0..1000 {
        let before: usize = sizes.lock().unwrap().iter().sum();
        callers.push(cluster.client(0, "ann").0);
        let cost: usize = sizes.lock().unwrap().iter().sum::<usize>() - before;
        let max = if n < 40 { 40 } else { 0 };
        assert!(cost <= max, "session {n} wrote {cost} clients");
    }
    let total: usize = sizes.lock().unwrap().iter().sum();
    assert!(total <= 40 * 40 / 2, "{total} clients were written for 1000 sessions");
}

#[test]
fn a_user_stays_online_while_any_session_is_there() {
    let settings = Settings { sessions_per_user: 0, commands_per_second: 0, ..Settings::default() };
    let mut cluster = TestCluster::sized(1, &settings);
    let mut callers: Vec<Caller> = (0..40).map(|_| cluster.client(0, "ann").0).collect();
    let last = callers.split_off(35);
    for (n, caller) in callers.iter_mut().enumerate() {
        match n % 2 {
            0 => drop(cluster.send(0, caller, r#"{"op":"bye"}"#)),
            _ => cluster.node(0).detach(caller),
        }
    }
    cluster.pass(120_000);
    let key = PresenceKey { channel: "user#ann".into(), user: "ann".into() };
    let Found::Presence(Some(found)) = cluster.stored(Read::Presence(key.clone())) else {
        panic!("the user is offline although {} sessions are there", last.len())
    };
    assert_eq!(found.row.attendance.connected().count(), 5);
    for mut caller in last {
        cluster.send(0, &mut caller, r#"{"op":"bye"}"#);
    }
    cluster.pass(120_000);
    assert!(matches!(cluster.stored(Read::Presence(key)), Found::Presence(None)));
}

#[test]
fn patterns_are_bounded_per_session_and_in_cost() {
    let settings = Settings { commands_per_second: 0, sessions_per_user: 0, ..Settings::default() };
    let mut node = node(settings);
    let subscribe = |node: &mut TestNode, caller: &mut Caller, pattern: &str| {
        let frame = format!(r#"{{"op":"subscribe","pattern":"{pattern}"}}"#);
        code(&node.send(caller, &frame)).to_owned()
    };
    let (mut ann, _) = node.client("ann");
    for n in 0..64 {
        assert_eq!(subscribe(&mut node, &mut ann, &format!("game#{n}*")), "ok");
    }
    assert_eq!(subscribe(&mut node, &mut ann, "game#64*"), "too_large");
    assert_eq!(subscribe(&mut node, &mut ann, "game#1*"), "ok", "an existing subscription");
    let mut admitted = 0;
    for session in 0..160 {
        let (mut mallory, _) = node.client("mallory");
        for n in 0..64 {
            let hostile = format!("game#*{session}*{n}*a*a*a");
            admitted += usize::from(subscribe(&mut node, &mut mallory, &hostile) == "ok");
        }
    }
    assert!((100..2_000).contains(&admitted), "{admitted}");
    let (mut bob, _) = node.client("bob");
    assert_eq!(subscribe(&mut node, &mut bob, "room#*"), "ok", "patterns of other names are not concerned");
    assert_eq!(subscribe(&mut node, &mut bob, "room#*a*b*c"), "ok");
}
