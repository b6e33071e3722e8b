//! Several pipelined commands of one connection: which are answered, in which order, and the resulting presence.

use crate::harness::cluster::TestCluster;
use crate::harness::code;
use serde_json::Value;
use tavern_hub::{Caller, CloseReason, Flow};
use tavern_store::Work;

struct Socket {
    cluster: TestCluster,
    caller: Caller,
}

impl Socket {
    fn of(user: &str) -> Socket {
        let mut cluster = TestCluster::new(Some(0));
        let caller = cluster.client(0, user).0.pipelining();
        // Their presence in their own channel is committed by then.
        cluster.settle();
        Socket { cluster, caller }
    }

    fn begin(&mut self, frame: &str) -> Flow {
        self.cluster.node(0).flow(&mut self.caller, frame).0
    }

    fn resume(&mut self) -> Flow {
        let node = self.cluster.node(0);
        node.shards[0].resume(node.now, &mut self.caller, &mut Vec::new())
    }

    fn change(&mut self, id: u64, op: &str, channel: &str) -> Flow {
        self.begin(&format!(r#"{{"id":{id},"op":"{op}","channel":"{channel}"}}"#))
    }

    /// The replies that are available by now.
    fn replies(&mut self) -> Vec<Value> {
        let mut found = Vec::new();
        loop {
            let mut out = Vec::new();
            let node = self.cluster.node(0);
            if node.shards[0].next_reply(&mut self.caller, &mut out).is_none() {
                return found;
            }
            found.push(serde_json::from_slice(&out).unwrap());
        }
    }

    #[track_caller]
    fn check(&mut self, expected: &str) {
        let replies = self.replies();
        let replies: Vec<String> =
            replies.iter().map(|reply| format!("{} {}", reply["id"], code(reply))).collect();
        assert_eq!(replies.join("; "), expected);
    }

    fn who(&mut self, channel: &str) -> u64 {
        let mut other = self.cluster.client(0, "eve").0;
        let frame = format!(r#"{{"op":"who","channel":"{channel}"}}"#);
        self.cluster.send(0, &mut other, &frame)["ok"]["count"].as_u64().unwrap()
    }
}

#[test]
fn changes_begin_together_and_are_answered_in_order() {
    let mut ann = Socket::of("ann");
    for id in 1..=8 {
        assert_eq!(ann.change(id, "join", &format!("game#{id}")), Flow::Begun);
    }
    assert_eq!(ann.cluster.node(0).shards[0].core.effects.work.len(), 8, "all of them are with the store");
    ann.check("");
    ann.cluster.settle();
    assert_eq!(ann.cluster.node(0).shards[0].core.effects.ready, [ann.caller.link.id], "named once");
    ann.check("1 ok; 2 ok; 3 ok; 4 ok; 5 ok; 6 ok; 7 ok; 8 ok");
    assert_eq!(ann.who("game#8"), 1);
}

#[test]
fn changes_of_one_channel_wait_for_each_other() {
    let mut ann = Socket::of("ann");
    for (id, op) in [(1, "join"), (2, "leave"), (3, "join"), (4, "leave"), (5, "leave"), (6, "join")] {
        assert_eq!(ann.change(id, op, "game#A"), Flow::Begun);
    }
    ann.cluster.settle();
    ann.check("1 ok; 2 ok; 3 ok; 4 ok; 5 ok; 6 ok");
    assert_eq!(ann.who("game#A"), 1);
    assert_eq!(ann.change(7, "leave", "game#A"), Flow::Begun);
    ann.cluster.settle();
    ann.check("7 ok");
    assert_eq!(ann.who("game#A"), 0);
    // The session, too, knows its channels: no presence remains that could be lost.
    let caller = ann.caller.clone();
    ann.cluster.node(0).detach(&caller);
    ann.cluster.live(30_000);
    assert_eq!(ann.who("game#A"), 0);
}

#[test]
fn refusal_does_not_overtake_earlier_replies() {
    let mut ann = Socket::of("ann");
    assert_eq!(ann.change(1, "join", "game#A"), Flow::Begun);
    assert_eq!(ann.change(2, "join", "No"), Flow::Begun);
    assert_eq!(ann.begin(r#"{"id":3,"op":"update","channel":"game#A","state":1}"#), Flow::Begun);
    assert_eq!(ann.begin(r#"{"id":4,"op":"update","channel":"game#B","state":1}"#), Flow::Begun);
    ann.cluster.settle();
    ann.check("1 ok; 2 bad_request; 3 ok; 4 not_found");
    assert_eq!(ann.change(5, "join", "No"), Flow::Done, "with nothing before it, it is answered at once");
}

#[test]
fn every_other_command_waits_for_the_pipelined_ones() {
    let others = [
        (r#"{"id":2,"op":"publish","channel":"game#A","data":1}"#, Flow::Done),
        (r#"{"id":2,"op":"bye"}"#, Flow::Close(CloseReason::Bye)),
        ("{broken", Flow::Done),
    ];
    for (frame, expected) in others {
        let mut ann = Socket::of("ann");
        assert_eq!(ann.change(1, "join", "game#A"), Flow::Begun);
        assert_eq!(ann.begin(frame), Flow::Wait, "{frame}");
        ann.cluster.settle();
        assert_eq!(ann.resume(), Flow::Wait, "its reply would come before the first");
        ann.check("1 ok");
        assert_eq!(ann.resume(), expected, "{frame}");
    }
}

#[test]
fn pipelined_commands_of_one_connection_are_bounded() {
    let mut ann = Socket::of("ann");
    let begun = (1..).take_while(|&id| ann.change(id, "join", &format!("game#{id}")) == Flow::Begun).count();
    assert_eq!(begun, 64);
    ann.cluster.settle();
    assert_eq!(ann.replies().len(), 64);
    assert_eq!(ann.change(65, "join", "game#65"), Flow::Begun);
}

#[test]
fn limit_of_channels_is_exact() {
    let mut ann = Socket::of("ann");
    let (mut ok, mut refused) = (0, 0);
    for id in 1..=300 {
        while ann.change(id, "join", &format!("game#{id}")) == Flow::Wait {
            ann.cluster.settle();
            ok += ann.replies().iter().filter(|reply| code(reply) == "ok").count();
        }
        ann.cluster.settle();
        let replies = ann.replies();
        ok += replies.iter().filter(|reply| code(reply) == "ok").count();
        refused += usize::from(replies.is_empty());
    }
    assert_eq!((ok, refused), (256, 44));
}

#[test]
fn only_client_of_a_user_leaves_and_is_lost_without_a_read() {
    let mut ann = Socket::of("ann");
    assert_eq!(ann.change(1, "join", "game#A"), Flow::Begun);
    assert_eq!(ann.change(2, "join", "game#B"), Flow::Begun);
    ann.cluster.settle();
    ann.check("1 ok; 2 ok");
    assert_eq!(ann.change(3, "leave", "game#A"), Flow::Begun);
    let caller = ann.caller.clone();
    ann.cluster.node(0).detach(&caller);
    ann.cluster.node(0).pass(2_000);
    let work = &ann.cluster.node(0).shards[0].core.effects.work;
    assert_eq!(work.len(), 3, "both, and their own channel");
    assert!(work.iter().all(|(_, work)| matches!(work, Work::Commit(_))), "{work:?}");
    ann.cluster.settle();
    assert_eq!((ann.who("game#A"), ann.who("game#B")), (0, 1));
    ann.cluster.live(15_000);
    assert_eq!(ann.who("game#B"), 0);
}

#[test]
fn cached_presence_is_not_used_after_another_tab_joined() {
    let mut ann = Socket::of("ann");
    assert_eq!(ann.change(1, "join", "game#A"), Flow::Begun);
    ann.cluster.settle();
    let mut tab = ann.cluster.client(1, "ann").0;
    ann.cluster.send(1, &mut tab, r#"{"op":"join","channel":"game#A"}"#);
    assert_eq!(ann.change(2, "leave", "game#A"), Flow::Begun);
    ann.cluster.settle();
    ann.check("1 ok; 2 ok");
    assert_eq!(ann.who("game#A"), 1, "the other tab is there");
    ann.cluster.send(1, &mut tab, r#"{"op":"leave","channel":"game#A"}"#);
    assert_eq!(ann.who("game#A"), 0);
}

#[test]
fn answers_for_a_closed_connection_are_dropped() {
    let mut ann = Socket::of("ann");
    assert_eq!(ann.change(1, "join", "game#A"), Flow::Begun);
    let caller = ann.caller.clone();
    ann.cluster.node(0).detach(&caller);
    ann.cluster.settle();
    ann.check("");
    assert_eq!(ann.who("game#A"), 1);
}
