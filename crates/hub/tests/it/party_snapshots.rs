//! Snapshots of a party in answers: never older than the events beside them, nor than a command that was answered before;
//! and the presence of a hello's own user is visible on every node.

use crate::harness::party_cluster::{OWN_GRACE, PartyCluster, RESUME, settings};
use serde_json::{Value, json};
use tavern_domain::SessionKey;
use tavern_hub::{Flow, LinkId, Poll, PollFlags, read_session};
use tavern_store::memory::WorkFault;
use tavern_store::{Found, PresenceKey, Read, Row, Work};

/// How long a hello waits for a store that is slow.
const PATIENCE: u64 = 2_500;

/// A client that polls a node.
struct Poller {
    at: usize,
    key: SessionKey,
    link: LinkId,
    cursor: u64,
}

impl Poller {
    fn new(scene: &mut PartyCluster, at: usize, user: &str) -> Poller {
        let mut caller = scene.cluster.node(at).socket();
        caller.passing = true;
        let frame = format!(r#"{{"op":"hello","token":"{user}"}}"#);
        let hello = scene.cluster.send(at, &mut caller, &frame);
        let (key, _) = read_session(hello["ok"]["session"].as_str().unwrap()).unwrap();
        Poller { at, key, link: caller.link.id, cursor: 0 }
    }

    fn command(&self, scene: &mut PartyCluster, frame: &str) -> Value {
        let mut caller = scene.cluster.node(self.at).socket();
        (caller.passing, caller.listener) =
            (true, scene.cluster.node(self.at).shards[0].core.find_session(self.key));
        scene.cluster.send(self.at, &mut caller, frame)
    }

    fn begin(&mut self, scene: &mut PartyCluster, timeout_ms: u64) -> Poll {
        let node = scene.cluster.node(self.at);
        self.link = node.socket().link.id;
        node.shards[0].poll(node.now, self.key, None, self.link, Some(self.cursor), timeout_ms)
    }

    fn try_answer(&mut self, scene: &mut PartyCluster) -> Option<Value> {
        let node = scene.cluster.node(self.at);
        let (id, mut body) = (node.shards[0].core.find_session(self.key).unwrap(), Vec::new());
        if !node.shards[0].render_poll(node.now, id, self.link, PollFlags::default(), &mut body) {
            return None;
        }
        let answer: Value = serde_json::from_slice(&body).unwrap();
        self.cursor = answer["cursor"].as_u64().unwrap();
        Some(answer)
    }

    /// The answer at the first moment at which it can be given, as a server gives it.
    fn answer(&mut self, scene: &mut PartyCluster, ready: bool) -> Value {
        if ready && let Some(answer) = self.try_answer(scene) {
            return answer;
        }
        for _ in 0..1_000 {
            if !scene.cluster.step() {
                scene.cluster.pass(1);
            }
            let core = &mut scene.cluster.node(self.at).shards[0].core;
            let id = core.find_session(self.key).unwrap();
            let dirty = std::mem::take(&mut core.effects.dirty).contains(&id);
            let ready = std::mem::take(&mut core.effects.ready).contains(&self.link);
            if (dirty || ready)
                && let Some(answer) = self.try_answer(scene)
            {
                return answer;
            }
        }
        panic!("the poll is not answered")
    }

    fn poll(&mut self, scene: &mut PartyCluster, timeout_ms: u64) -> Value {
        let outcome = self.begin(scene, timeout_ms);
        self.answer(scene, outcome != Poll::Parked)
    }

    /// Polls until there are no events.
    fn drain(&mut self, scene: &mut PartyCluster) {
        while !self.poll(scene, 0)["events"].as_array().unwrap().is_empty() {}
    }
}

/// Ann on the first node and bob, who polls the second, are in a party.
fn party_of_two() -> (PartyCluster, usize, Poller) {
    let mut scene = PartyCluster::new(2, &settings());
    let ann = scene.client(0, "ann");
    let mut bob = Poller::new(&mut scene, 1, "bob");
    let id = scene.ok(ann, "party.invite", r#""user":"bob""#)["party_id"].as_u64().unwrap();
    let accepted = bob.command(&mut scene, &format!(r#"{{"op":"party.accept","party_id":{id}}}"#));
    assert_eq!(crate::harness::code(&accepted), "ok", "{accepted}");
    bob.drain(&mut scene);
    (scene, ann, bob)
}

/// Nothing reaches the other node for this long.
fn delay_bus(scene: &mut PartyCluster, ms: u64) {
    scene.cluster.set_fate(move |_, _, _| vec![ms]);
}

#[test]
fn snapshot_in_a_poll_is_not_older_than_the_events_beside_it() {
    let (mut scene, ann, mut bob) = party_of_two();
    for n in 1..=5 {
        assert_eq!(bob.begin(&mut scene, 10_000), Poll::Parked);
        scene.begin(ann, "party.set_data", &format!(r#""data":{{"n":{n}}}"#));
        let answer = bob.answer(&mut scene, false);
        assert_eq!(answer["events"].as_array().unwrap().len(), 1, "{answer}");
        assert_eq!(answer["party"]["data"]["n"], json!(n), "{answer}");
        scene.answer(ann);
    }
}

#[test]
fn message_in_a_party_comes_with_the_party() {
    let (mut scene, ann, mut bob) = party_of_two();
    assert_eq!(bob.begin(&mut scene, 10_000), Poll::Parked);
    scene.begin(ann, "party.say", r#""data":"hi""#);
    let answer = bob.answer(&mut scene, false);
    assert_eq!(answer["events"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["party"]["members"].as_array().unwrap().len(), 2, "{answer}");
}

#[test]
fn snapshot_in_a_poll_is_not_older_than_a_command_that_was_answered() {
    let (mut scene, ann, mut bob) = party_of_two();
    delay_bus(&mut scene, 60_000);
    for n in 1..=3 {
        scene.ok(ann, "party.set_data", &format!(r#""data":{{"n":{n}}}"#));
        let answer = bob.poll(&mut scene, 0);
        assert_eq!(answer["party"]["data"]["n"], json!(n), "{answer}");
    }
}

/// It is read before the command, and the store's answer comes after the news of the change.
#[test]
fn snapshot_that_is_being_read_while_the_party_changes_elsewhere_is_read_again() {
    let (mut scene, ann, mut bob) = party_of_two();
    scene.cluster.set_work_fate(|node, work| {
        let slow = node == "two" && matches!(work, Work::Read(Read::Document(_)));
        WorkFault { after_ms: if slow { 50 } else { 0 }, ..WorkFault::NONE }
    });
    for n in 1..=3 {
        assert_eq!(bob.begin(&mut scene, 0), Poll::Ready { reset: false });
        assert_eq!(bob.try_answer(&mut scene), None);
        scene.ok(ann, "party.set_data", &format!(r#""data":{{"n":{n}}}"#));
        let answer = bob.answer(&mut scene, false);
        assert_eq!(answer["party"]["data"]["n"], json!(n), "{answer}");
    }
}

#[test]
fn snapshot_in_a_hello_is_not_older_than_a_command_that_was_answered() {
    let mut scene = PartyCluster::new(2, &settings());
    let (ann, bob) = (scene.client(0, "ann"), scene.client(1, "bob"));
    scene.join(ann, bob);
    let session = scene.sessions[bob].hello["session"].as_str().unwrap().to_owned();
    delay_bus(&mut scene, 60_000);
    for (n, more) in [(1, format!(r#","session":"{session}","seq":0"#)), (2, String::new())] {
        scene.ok(ann, "party.set_data", &format!(r#""data":{{"n":{n}}}"#));
        let again = scene.connect(1, "bob", &more);
        assert_eq!(scene.sessions[again].hello["party"]["data"]["n"], json!(n), "{more}");
    }
}

#[test]
fn snapshot_in_a_refusal_is_not_older_than_a_command_that_was_answered() {
    let (mut scene, ann, bob) = party_of_two();
    delay_bus(&mut scene, 60_000);
    scene.ok(ann, "party.set_data", r#""data":{"n":7}"#);
    let refused = bob.command(&mut scene, r#"{"op":"party.accept","party_id":"x"}"#);
    assert_eq!(crate::harness::code(&refused), "bad_request", "{refused}");
    assert_eq!(refused["error"]["party"]["data"]["n"], json!(7), "{refused}");
}

/// Runs a hello step by step. Returns how long it took.
fn hello_step_by_step(scene: &mut PartyCluster, at: usize, user: &str) -> u64 {
    let mut caller = scene.cluster.node(at).socket();
    let frame = format!(r#"{{"op":"hello","token":"{user}"}}"#);
    let began = scene.now();
    let mut flow = scene.cluster.node(at).run(0, &mut caller, &frame).0;
    while flow == Flow::Wait {
        if !scene.cluster.step() {
            scene.cluster.pass(1);
        }
        let ready = std::mem::take(&mut scene.cluster.node(at).shards[0].core.effects.ready);
        if ready.contains(&caller.link.id) {
            flow = scene.cluster.node(at).run(0, &mut caller, &frame).0;
        }
    }
    assert_eq!(flow, Flow::Greeted);
    scene.now().since(began)
}

fn is_stored(scene: &PartyCluster, user: &str) -> bool {
    let key = PresenceKey::new(&format!("user#{user}"), user);
    matches!(scene.cluster.stored(Read::Presence(key)), Found::Presence(Some(_)))
}

#[test]
fn user_whose_hello_was_answered_can_be_found_by_others() {
    let mut scene = PartyCluster::new(2, &settings());
    let ann = scene.client(0, "ann");
    hello_step_by_step(&mut scene, 1, "dan");
    assert!(is_stored(&scene, "dan"), "others can find them at this moment");
    scene.ok(ann, "party.block", r#""user":"dan""#);
}

#[test]
fn hello_waits_for_a_slow_store_only_so_long() {
    let mut scene = PartyCluster::new(2, &settings());
    scene.cluster.set_work_fate(|_, work| {
        let presence = matches!(work, Work::Commit(commit) if matches!(commit.puts[..], [Row::Presence(_)]));
        WorkFault { before_ms: if presence { 2 * PATIENCE } else { 0 }, ..WorkFault::NONE }
    });
    assert_eq!(hello_step_by_step(&mut scene, 1, "dan"), PATIENCE);
    assert!(!is_stored(&scene, "dan"));
}

/// The store answers every read, but takes long to write that the member is back.
#[test]
fn hello_of_a_returning_member_has_the_party_before_it_knows_them_back() {
    let mut scene = PartyCluster::new(2, &settings());
    let (ann, bob) = (scene.client(0, "ann"), scene.client(1, "bob"));
    let id = scene.join(ann, bob);
    scene.lose(bob);
    scene.live(RESUME + OWN_GRACE / 2);
    assert!(scene.party(id).unwrap().member("bob").unwrap().away.is_some(), "it was noticed");
    scene.cluster.set_work_fate(|_, work| {
        let is_party = |row: &Row| matches!(row, Row::Document(document) if document.key.kind() == "party");
        let slow = matches!(work, Work::Commit(commit) if commit.puts.iter().any(is_party));
        WorkFault { before_ms: if slow { 2 * PATIENCE } else { 0 }, ..WorkFault::NONE }
    });
    let again = scene.connect(1, "bob", "");
    let party = &scene.sessions[again].hello["party"];
    let own = party["members"].as_array().and_then(|all| all.iter().find(|member| member["user"] == "bob"));
    assert_eq!(own.map(|own| &own["online"]), Some(&true.into()), "{party}");
}

#[test]
fn reconnecting_member_is_online_in_their_own_hello() {
    let mut scene = PartyCluster::new(2, &settings());
    let (ann, bob) = (scene.client(0, "ann"), scene.client(1, "bob"));
    let id = scene.join(ann, bob);
    let session = scene.sessions[bob].hello["session"].as_str().unwrap().to_owned();
    for more in [String::new(), format!(r#","session":"{session}","seq":0"#)] {
        scene.lose(bob);
        let others: Vec<usize> = (bob + 1..scene.sessions.len()).collect();
        others.into_iter().for_each(|tab| scene.lose(tab));
        scene.live(RESUME + OWN_GRACE / 2);
        assert!(scene.party(id).unwrap().member("bob").unwrap().away.is_some(), "it was noticed");
        let again = scene.connect(1, "bob", &more);
        let party = &scene.sessions[again].hello["party"];
        let members = party["members"].as_array().unwrap();
        let own = members.iter().find(|member| member["user"] == "bob").unwrap();
        assert_eq!(own["online"], true, "{party}");
    }
}
