//! What an operator who watches a node sees of its messages and commands, and that nobody sees more than that.

use crate::harness::{TestNode, code};
use std::sync::{Arc, Mutex};
use tavern_hub::*;

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl TrafficObserver for Seen {
    fn see(&self, traffic: Traffic<'_>) {
        let who = traffic.author.and_then(|author| author.user.as_deref()).unwrap_or("-");
        let what = match traffic.what {
            TrafficKind::Message { channel, payload, json, receivers } => {
                let [channel, payload] = [channel, payload].map(String::from_utf8_lossy);
                format!("message {channel} {payload} {json} {receivers}")
            }
            TrafficKind::Command { op, target } => format!("{op} {}", target.unwrap_or("-")),
            TrafficKind::Refused { op, target, refusal } => {
                format!("refused {} {} {}", op.unwrap_or("-"), target.unwrap_or("-"), refusal.code.as_str())
            }
        };
        self.0.lock().unwrap().push(format!("{who}: {what}"));
    }
}

impl Seen {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn tap(node: &TestNode) -> &Node {
    node.shards[0].core.node()
}

#[test]
fn watched_node_tells_messages_commands_and_refusals() {
    let mut node = TestNode::new(Settings { commands_per_second: 0, ..Settings::default() });
    let (mut ann, _) = node.client("ann:game#*=subscribe,publish");
    let seen = Arc::new(Seen::default());
    let observer: Arc<dyn TrafficObserver> = seen.clone();
    assert!(tap(&node).traffic.add(observer.clone(), 1));
    assert!(!tap(&node).traffic.add(observer.clone(), 1), "there is one already");
    node.send(&mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
    node.send(&mut ann, r#"{"op":"publish","channel":"game#A","data":{"n":1}}"#);
    node.send(&mut ann, r#"{"op":"ping"}"#);
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"join","channel":"lobby"}"#)), "not_allowed");
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"dance"}"#)), "bad_request");
    node.publish("game#A", "by a service");
    let (_bob, _) = node.client("bob");
    let mut stranger = node.socket();
    node.send(&mut stranger, r#"{"op":"hello","token":"bad"}"#);
    assert_eq!(
        seen.take(),
        [
            "ann: subscribe game#A",
            "ann: message game#A {\"n\":1} true 1",
            "ann: join lobby",
            "ann: refused join lobby not_allowed",
            "ann: refused - - bad_request",
            "-: message game#A by a service false 1",
            "bob: hello -",
            "-: refused hello - unauthenticated",
        ]
    );
    tap(&node).traffic.remove(&observer);
    assert!(!tap(&node).traffic.is_watched());
    node.publish("game#A", "unseen");
    assert_eq!(seen.take(), Vec::<String>::new());
}
