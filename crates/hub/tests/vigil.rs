//! The vigil in virtual time: leases, epochs that end, what is taken over and when, a store that does not answer.

use std::sync::{Arc, Mutex};
use tavern_domain::presence::{Attendance, Attendee, Departure, Home};
use tavern_domain::{ClientId, Epoch, Identity, Time};
use tavern_engine::memory::{Faults, Hall, MemoryStore, Outcome, WorkFate};
use tavern_engine::{
    Answer, Commit, Deadline, Found, Inbox, ManualClock, NodeChange, Presence, PresenceKey, Raise, Read, Row,
    Store, Ticket, Work, Writer,
};
use tavern_hub::vigil::Rules;
use tavern_hub::{Chore, Gate, Node, Notice, Settings, Vigil};
use tavern_wire::error::{Code, Refusal};

const RULES: Rules = Rules {
    heartbeat_ms: 2_000,
    lease_ms: 10_000,
    drain_ms: 15_000,
    sweep_ms: 60_000,
    sweep_age_ms: 120_000,
};

/// Nobody comes in while the vigil is tested.
struct Closed;

impl Gate for Closed {
    fn verify(&self, _token: &str, _now: Time) -> Result<Identity, Refusal> {
        Err(Refusal::new(Code::Unauthenticated, "closed"))
    }
}

/// The store does what it is told to do here.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Fine,
    Down,
    /// Takes a minute for everything.
    Silent,
}

struct Moody(Arc<Mutex<Mood>>);

impl Faults for Moody {
    fn work(&mut self, node: &str, _work: &Work) -> WorkFate {
        match *self.0.lock().unwrap() {
            _ if node == "desk" => WorkFate::NONE,
            Mood::Fine => WorkFate::NONE,
            Mood::Down => WorkFate { outcome: Outcome::FailBefore, ..WorkFate::NONE },
            Mood::Silent => WorkFate { before_ms: 60_000, ..WorkFate::NONE },
        }
    }
}

#[derive(Default)]
struct Letters(Mutex<Vec<(Ticket, Answer)>>);

impl Inbox for Letters {
    fn answer(&self, answers: Vec<(Ticket, Answer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

/// One node that keeps watch, and a desk from which the store is prepared.
struct Watch {
    clock: Arc<ManualClock>,
    hall: Arc<Hall>,
    mood: Arc<Mutex<Mood>>,
    node: Arc<Node>,
    vigil: Vigil,
    store: Arc<MemoryStore>,
    letters: Arc<Letters>,
    orders: Vec<Chore>,
    notices: Vec<Notice>,
    /// Works that went to the store, and those that write.
    asked: usize,
    commits: usize,
}

impl Watch {
    fn new() -> Watch {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let mood = Arc::new(Mutex::new(Mood::Fine));
        let hall = Hall::stepped(clock.clone(), Box::new(Moody(mood.clone())));
        let letters: Arc<Letters> = Arc::default();
        let store = hall.store("own", letters.clone());
        let epoch = open(&hall, "own", RULES.lease_ms);
        let settings = Settings { node: "own".into(), epoch, ..Settings::default() };
        let node = Node::new(settings, Box::new(Closed));
        let vigil = Vigil::new(node.clone(), RULES, Time(1_000_000));
        let (orders, notices) = (Vec::new(), Vec::new());
        Watch { clock, hall, mood, node, vigil, store, letters, orders, notices, asked: 0, commits: 0 }
    }

    fn now(&self) -> Time {
        use tavern_engine::Clock;
        self.clock.now()
    }

    fn settle(&mut self) {
        loop {
            let duties = std::mem::take(&mut self.vigil.duties);
            self.asked += duties.work.len();
            self.commits += duties.work.iter().filter(|(_, work)| matches!(work, Work::Commit(_))).count();
            self.store.submit(duties.work);
            self.orders.extend(duties.orders);
            self.notices.extend(duties.notices);
            self.hall.settle();
            let answers = std::mem::take(&mut *self.letters.0.lock().unwrap());
            if answers.is_empty() {
                return;
            }
            for (ticket, answer) in answers {
                self.vigil.answered(self.now(), ticket, answer);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.clock.advance(100);
            self.vigil.wake(self.now());
            self.settle();
        }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn nodes(&self) -> Vec<tavern_engine::Node> {
        match ask(&self.hall, Work::Read(Read::Nodes { after: None, limit: 100 })) {
            Answer::Read(Found::Nodes(page)) => page.rows,
            other => panic!("no nodes but {other:?}"),
        }
    }

    fn taken(&self) -> Vec<(Arc<str>, Departure, Time)> {
        let taken = self.orders.iter().filter_map(|order| match order {
            Chore::TakeOver(taken) => Some((taken.0.key.user.clone(), taken.2.reason, taken.2.at)),
            _ => None,
        });
        taken.collect()
    }

    fn count(&self, is: impl Fn(&Chore) -> bool) -> usize {
        self.orders.iter().filter(|order| is(order)).count()
    }
}

/// From a desk for which the store is always fine.
fn ask(hall: &Arc<Hall>, work: Work) -> Answer {
    let letters: Arc<Letters> = Arc::default();
    hall.store("desk", letters.clone()).submit(vec![(Ticket(0), work)]);
    hall.settle();
    let answer = letters.0.lock().unwrap().pop();
    answer.expect("the desk is answered").1
}

fn open(hall: &Arc<Hall>, name: &str, lease_ms: u64) -> Epoch {
    let open = NodeChange::Open { name: name.into(), lease_ms };
    match ask(hall, Work::Commit(Commit { node: Some(open), ..Commit::default() })) {
        Answer::Committed(receipt) => receipt.epoch.unwrap(),
        other => panic!("no epoch but {other:?}"),
    }
}

fn change(hall: &Arc<Hall>, change: NodeChange) {
    let answer = ask(hall, Work::Commit(Commit { node: Some(change), ..Commit::default() }));
    assert!(matches!(answer, Answer::Committed(_)), "{answer:?}");
}

fn put(hall: &Arc<Hall>, user: &str, home: &Writer) {
    let client = Attendee {
        client: ClientId::from_random(1),
        home: Home::from(home),
        state: None,
        since: Time(7),
        lost: None,
    };
    let row = Presence {
        key: PresenceKey::new("game#A", user),
        anonymous: false,
        name: None,
        visibility: tavern_domain::presence::Visibility::Everyone,
        attendance: Attendance::restore(vec![client], Time(7), None),
    };
    let raises = vec![Raise { channel: "game#A".into(), by: 2 }];
    let commit = Commit { puts: vec![Row::Presence(row)], raises, ..Commit::default() };
    assert!(matches!(ask(hall, Work::Commit(commit)), Answer::Committed(_)));
}

#[test]
fn a_lease_is_renewed_at_every_heartbeat_and_idle_costs_one_write() {
    let mut watch = Watch::new();
    watch.pass(60_000);
    assert_eq!(watch.nodes().len(), 1);
    assert!(watch.nodes()[0].lease_until > watch.now() + 7_900);
    let renewed = watch.notices.iter().filter(|notice| matches!(notice, Notice::Renewed)).count();
    assert_eq!((renewed, watch.notices.len()), (30, 30));
    assert_eq!(watch.asked, 30 * 4, "the lease, the time, the nodes, what is overdue");
    assert_eq!(watch.count(|order| matches!(order, Chore::Look)), 30);
}

#[test]
fn a_node_that_was_taken_for_dead_begins_again_and_announces_itself() {
    let mut watch = Watch::new();
    let before = watch.node.epoch();
    watch.pass(2_000);
    let node = Writer::new("own", before);
    change(&watch.hall, NodeChange::Close { node, proof: tavern_engine::Proof::ProcessGone });
    watch.pass(2_000);
    assert_eq!(watch.count(|order| matches!(order, Chore::Announce)), 1);
    assert!(watch.node.epoch() > before);
    assert!(watch.taken().is_empty());
    watch.pass(10_000);
    assert_eq!(watch.count(|order| matches!(order, Chore::Announce)), 1);
    assert_eq!(watch.nodes().len(), 1, "nothing is left of the earlier life: it is forgotten");
}

#[test]
fn its_own_past_is_not_taken_over_before_the_living_are_announced() {
    let mut watch = Watch::new();
    let before = Writer::new("own", watch.node.epoch());
    watch.pass(2_000);
    put(&watch.hall, "ann", &before);
    change(&watch.hall, NodeChange::Close { node: before, proof: tavern_engine::Proof::ProcessGone });
    watch.pass(2_000);
    let announced = watch.orders.iter().position(|order| matches!(order, Chore::Announce));
    assert!(announced.is_some() && watch.taken().is_empty());
    watch.pass(2_000);
    assert_eq!(watch.taken().len(), 1, "whoever was not announced by then is lost");
}

#[test]
fn a_dead_node_is_closed_first_and_its_clients_are_lost_at_once() {
    let mut watch = Watch::new();
    let other = Writer::new("other", open(&watch.hall, "other", 5_000));
    put(&watch.hall, "ann", &other);
    watch.pass(4_900);
    assert!(watch.taken().is_empty() && watch.nodes().iter().all(|node| node.closed_at.is_none()));
    watch.pass(100);
    let closed_at =
        watch.nodes().iter().find_map(|node| node.closed_at).expect("closed when its lease ended");
    assert!(watch.notices.iter().any(|notice| matches!(notice, Notice::Ended(node) if *node == other)));
    assert_eq!(
        watch.taken(),
        [(Arc::from("ann"), Departure::NodeDown, closed_at)],
        "and not a heartbeat later"
    );
}

#[test]
fn what_somebody_else_closed_is_left_to_him_until_the_next_look() {
    let mut watch = Watch::new();
    let other = Writer::new("other", open(&watch.hall, "other", 5_000));
    put(&watch.hall, "ann", &other);
    watch.pass(4_900);
    watch.clock.advance(100);
    watch.vigil.wake(watch.now());
    let closes = |work: &Work| matches!(work, Work::Commit(commit) if matches!(commit.node, Some(NodeChange::Close { .. })));
    while !watch.vigil.duties.work.iter().any(|(_, work)| closes(work)) {
        let work = std::mem::take(&mut watch.vigil.duties.work);
        assert!(!work.is_empty(), "it looks at the nodes and closes what has ended");
        watch.store.submit(work);
        watch.hall.settle();
        for (ticket, answer) in std::mem::take(&mut *watch.letters.0.lock().unwrap()) {
            watch.vigil.answered(watch.now(), ticket, answer);
        }
    }
    // Between this node's look and its own attempt to close it.
    change(&watch.hall, NodeChange::Close { node: other, proof: tavern_engine::Proof::LeaseEnded });
    watch.clock.advance(1);
    watch.settle();
    assert!(watch.taken().is_empty());
    watch.pass(2_000);
    assert_eq!(watch.taken().len(), 1, "he may have died meanwhile");
}

#[test]
fn a_lease_that_is_renewed_costs_no_look_of_its_own() {
    let mut watch = Watch::new();
    let other = Writer::new("other", open(&watch.hall, "other", 5_000));
    watch.pass(2_000);
    let before = watch.asked;
    for _ in 0..10 {
        change(&watch.hall, NodeChange::Renew { node: other.clone(), lease_ms: 5_000 });
        watch.pass(2_000);
    }
    let looks = watch.orders.iter().filter(|order| matches!(order, Chore::Look)).count();
    assert!(looks <= 12, "{looks} looks in eleven heartbeats, {} works", watch.asked - before);
}

#[test]
fn a_node_that_said_goodbye_has_the_whole_grace() {
    let mut watch = Watch::new();
    let other = Writer::new("other", open(&watch.hall, "other", 5_000));
    put(&watch.hall, "ann", &other);
    change(&watch.hall, NodeChange::Stop { node: other });
    watch.pass(14_900);
    assert!(watch.taken().is_empty());
    watch.pass(2_100);
    assert_eq!(watch.taken(), [(Arc::from("ann"), Departure::Lost, Time(1_000_000))]);
    watch.pass(60_000);
    assert_eq!(watch.nodes().len(), 2, "something is left of it: it stays known");
}

#[test]
fn a_node_is_forgotten_when_nothing_is_left_and_it_could_have_come_back() {
    let mut watch = Watch::new();
    let other = Writer::new("other", open(&watch.hall, "other", 5_000));
    change(&watch.hall, NodeChange::Stop { node: other });
    watch.pass(24_900);
    assert_eq!(watch.nodes().len(), 2);
    watch.pass(2_100);
    assert_eq!(watch.nodes().len(), 1);
}

#[test]
fn what_nobody_settled_is_given_to_a_shard_a_second_later() {
    let mut watch = Watch::new();
    let deadline = Deadline::new(Time(1_003_000), "grace", "6:game#A/ann");
    let commit = Commit { deadlines: vec![deadline.clone()], ..Commit::default() };
    ask(&watch.hall, Work::Commit(commit));
    watch.pass(3_900);
    assert_eq!(watch.count(|order| matches!(order, Chore::Overdue(_))), 0);
    watch.pass(200);
    assert_eq!(watch.count(|order| matches!(order, Chore::Overdue(found) if *found == deadline)), 1);
}

#[test]
fn a_store_that_is_down_is_told_and_survived() {
    let mut watch = Watch::new();
    watch.pass(2_000);
    watch.set(Mood::Down);
    watch.pass(4_000);
    let failed = watch.notices.iter().filter(|notice| matches!(notice, Notice::NotRenewed(Some(_)))).count();
    assert_eq!(failed, 2);
    watch.set(Mood::Fine);
    watch.pass(2_000);
    assert!(matches!(watch.notices[..], [.., Notice::Renewed]));
}

#[test]
fn a_life_that_the_store_may_have_forgotten_parts_of_ends_cleanly_and_a_new_one_is_announced() {
    let mut watch = Watch::new();
    let before = Writer::new("own", watch.node.epoch());
    watch.pass(2_000);
    put(&watch.hall, "ghost", &before);
    watch.set(Mood::Down);
    watch.vigil.begin_anew(watch.now());
    watch.settle();
    assert_eq!(watch.node.epoch(), before.epoch, "the store does not take it yet");
    watch.set(Mood::Fine);
    watch.pass(2_000);
    assert!(watch.node.epoch() > before.epoch);
    assert_eq!(watch.count(|order| matches!(order, Chore::Announce)), 1);
    assert!(watch.nodes().iter().any(|node| node.writer == before && node.clean));
    assert!(watch.taken().is_empty(), "whoever is not announced has time");
    watch.pass(20_000);
    assert_eq!(watch.taken()[0].0, Arc::from("ghost"));
    assert_eq!(watch.count(|order| matches!(order, Chore::Announce)), 1);
}

#[test]
fn when_the_store_was_away_for_long_the_others_get_a_lease_to_renew_theirs() {
    let mut watch = Watch::new();
    let alive = Writer::new("alive", open(&watch.hall, "alive", RULES.lease_ms));
    let dead = Writer::new("dead", open(&watch.hall, "dead", RULES.lease_ms));
    watch.pass(2_000);
    watch.set(Mood::Down);
    watch.pass(30_000);
    watch.set(Mood::Fine);
    watch.pass(4_000);
    // It comes back a little later than this one.
    change(&watch.hall, NodeChange::Renew { node: alive, lease_ms: 60_000 });
    watch.pass(14_000);
    let ended: Vec<&Writer> = watch
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Ended(node) => Some(node),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [&dead]);
}

#[test]
fn a_store_that_is_silent_is_asked_little_and_survived() {
    let mut watch = Watch::new();
    watch.pass(2_000);
    watch.set(Mood::Silent);
    watch.asked = 0;
    watch.pass(60_000);
    assert!(watch.asked <= 2 * 60 / 5, "{} works pile up", watch.asked);
    assert!(watch.notices.iter().any(|notice| matches!(notice, Notice::NotRenewed(None))));
    watch.set(Mood::Fine);
    // What was asked in the silence is answered late: it must not confuse.
    watch.pass(70_000);
    assert!(watch.nodes().iter().any(|node| node.closed_at.is_none() && node.lease_until > watch.now()));
    assert!(matches!(watch.notices[..], [.., Notice::Renewed]));
}

#[test]
fn what_no_living_node_vouches_for_is_swept_and_nothing_else() {
    let mut watch = Watch::new();
    let gone = Writer::new("gone", Epoch(9));
    let own = Writer::new("own", watch.node.epoch());
    put(&watch.hall, "ann", &gone);
    put(&watch.hall, "bob", &own);
    watch.pass(59_900);
    assert_eq!(watch.count(|order| matches!(order, Chore::Sweep(_))), 0);
    watch.pass(2_200);
    let swept: Vec<_> = watch.orders.iter().filter(|order| matches!(order, Chore::Sweep(_))).collect();
    let [Chore::Sweep(astray)] = swept[..] else { panic!("{swept:?}") };
    assert_eq!((&*astray.user, &astray.homes[..]), ("ann", &[Home::from(&gone)][..]));
    let told = |notice: &&Notice| matches!(notice, Notice::Astray(key) if &*key.user == "ann");
    assert_eq!(watch.notices.iter().filter(told).count(), 1);
    watch.pass(40_000);
    assert_eq!(watch.count(|order| matches!(order, Chore::Sweep(_))), 1, "once a minute");
}

#[test]
fn a_sweep_with_nothing_astray_writes_nothing() {
    let mut watch = Watch::new();
    put(&watch.hall, "ann", &Writer::new("own", watch.node.epoch()));
    watch.pass(1_000);
    let renewals = |watch: &Watch| watch.notices.iter().filter(|n| matches!(n, Notice::Renewed)).count();
    let (commits, renewed) = (watch.commits, renewals(&watch));
    watch.pass(300_000);
    assert_eq!(watch.commits - commits, renewals(&watch) - renewed, "nothing but the lease");
}
