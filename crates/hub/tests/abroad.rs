//! Two nodes on one bus: who hears whom, what a subscription waits for, what is let go, how a loss is told.

#[allow(dead_code, reason = "each binary uses a part of it")]
mod house;

use house::{House, code};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tavern_domain::Time;
use tavern_engine::memory::{Faults, Hall, ParcelFate};
use tavern_engine::{BusError, BusInbox, Interest, Lost, ManualClock, Parcel, Ticket};
use tavern_hub::*;

/// Confirms subscriptions after this long, or refuses them.
struct Script {
    confirms_after: Option<u64>,
}

impl Faults for Script {
    fn parcel(&mut self, _from: &str, _to: &str, parcel: &Parcel) -> ParcelFate {
        match &*parcel.payload {
            b"\"lost\"" => ParcelFate { copies: Vec::new(), told: true },
            _ => ParcelFate::once(),
        }
    }

    fn subscribe(&mut self, _node: &str) -> Option<u64> {
        self.confirms_after
    }
}

#[derive(Default)]
struct Ear {
    words: Mutex<Vec<Parcel>>,
    confirmed: Mutex<Vec<(Ticket, Result<(), BusError>)>>,
    lost: Mutex<Vec<Lost>>,
}

impl BusInbox for Ear {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        self.confirmed.lock().unwrap().push((ticket, outcome));
    }

    fn words(&self, parcels: Vec<Parcel>) {
        self.words.lock().unwrap().extend(parcels);
    }

    fn lost(&self, lost: Lost) {
        self.lost.lock().unwrap().push(lost);
    }
}

struct Street {
    clock: Arc<ManualClock>,
    hall: Arc<Hall>,
    houses: [(House, Arc<Ear>); 2],
}

impl Street {
    fn new(confirms_after: Option<u64>) -> Street {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let hall = Hall::stepped(clock.clone(), Box::new(Script { confirms_after }));
        let houses = ["one", "two"].map(|name| {
            let settings = Settings { node: name.into(), commands_per_second: 0, ..Settings::default() };
            let house = House::new(settings);
            let ear: Arc<Ear> = Arc::default();
            house.shards[0].node().carrier.set_bus(hall.bus(name, ear.clone()));
            (house, ear)
        });
        Street { clock, hall, houses }
    }

    fn house(&mut self, at: usize) -> &mut House {
        &mut self.houses[at].0
    }

    /// Hands everything over that is under way, until nothing is.
    fn settle(&mut self) {
        loop {
            for (house, _) in &mut self.houses {
                let abroad = std::mem::take(&mut house.shards[0].effects.abroad);
                let node = house.shards[0].node().clone();
                if !abroad.is_empty() {
                    node.carrier.bus().unwrap().publish(abroad);
                }
            }
            if !self.hall.step() {
                break;
            }
            for (house, ear) in &mut self.houses {
                take(house, ear);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.clock.advance(ms);
        self.houses.iter_mut().for_each(|(house, _)| house.pass(ms));
        self.settle();
    }

    /// Subscribes and waits for it.
    fn subscribe(&mut self, at: usize, caller: &mut Caller, what: &str) -> Value {
        let frame = format!(r#"{{"op":"subscribe",{what}}}"#);
        let (flow, reply) = self.house(at).flow(caller, &frame);
        assert_eq!(flow, Flow::Wait, "{reply}");
        self.settle();
        let ready = std::mem::take(&mut self.house(at).shards[0].effects.ready);
        assert_eq!(ready, [caller.link.id], "it can run again");
        self.house(at).say(caller, &frame)
    }
}

fn take(house: &mut House, ear: &Ear) {
    let node = house.shards[0].node().clone();
    for parcel in std::mem::take(&mut *ear.words.lock().unwrap()) {
        if let Some((space, words, mask)) = node.unpack(&parcel) {
            assert_eq!(mask, 1);
            house.shards[0].receive(house.now, tavern_hub::Parcel { space, words });
        }
    }
    for (ticket, outcome) in std::mem::take(&mut *ear.confirmed.lock().unwrap()) {
        let links = node.carrier.confirmed(ticket, outcome);
        house.shards[0].effects.ready.extend(links.into_iter().map(|(_, link)| link));
    }
    for lost in std::mem::take(&mut *ear.lost.lock().unwrap()) {
        let channel = match lost {
            Lost::Everything => None,
            Lost::On(subject) => subject.channel(),
        };
        house.shards[0].lost_abroad(house.now, channel.as_deref());
    }
}

fn data(events: &[Value]) -> Vec<&Value> {
    events.iter().map(|event| &event["data"]).collect()
}

#[test]
fn a_message_is_heard_on_both_nodes_with_its_author() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    let (mut bob, hello) = street.house(1).guest("bob");
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    street.subscribe(1, &mut bob, r#""pattern":"game#*""#);
    let said = street.house(1).say(&mut bob, r#"{"op":"publish","channel":"game#A","data":{"n":1}}"#);
    assert_eq!(said["ok"]["receivers"], 1, "subscriptions on this node");
    street.settle();
    let heard = street.house(0).hear(&ann);
    assert_eq!(heard[0]["from"], json!({"user": "bob", "client": hello["client"]}));
    assert_eq!(data(&heard), [&json!({"n": 1})]);
    assert_eq!(street.house(1).hear(&bob).len(), 1, "once, and not again as an echo");
    street.house(0).publish("game#B", "plain");
    street.settle();
    assert_eq!(data(&street.house(1).hear(&bob)), [&json!("plain")], "nobody listens where it was said");
    assert!(street.house(0).hear(&ann).is_empty());
}

#[test]
fn a_subscription_is_answered_when_the_bus_carries_it() {
    let mut street = Street::new(Some(40));
    let (mut ann, _) = street.house(0).guest("ann");
    let (mut eve, _) = street.house(0).guest("eve");
    let frame = r#"{"op":"subscribe","channel":"game#A"}"#;
    assert_eq!(street.house(0).flow(&mut ann, frame).0, Flow::Wait);
    assert_eq!(street.house(0).flow(&mut eve, frame).0, Flow::Wait, "for the same question");
    street.pass(39);
    assert!(street.house(0).shards[0].effects.ready.is_empty());
    street.house(1).publish("game#A", "early");
    street.pass(1);
    let ready = std::mem::take(&mut street.house(0).shards[0].effects.ready);
    assert_eq!(ready, [ann.link.id, eve.link.id]);
    assert!(street.house(0).say(&mut ann, frame)["ok"].is_object());
    assert!(street.house(0).say(&mut eve, frame)["ok"].is_object());
    street.house(1).publish("game#A", "late");
    street.settle();
    assert_eq!(data(&street.house(0).hear(&ann)), [&json!("late")]);
    let (mut kim, _) = street.house(0).guest("kim");
    assert_eq!(street.house(0).flow(&mut kim, frame).0, Flow::Done, "it is carried already");
}

#[test]
fn a_bus_that_refuses_is_told_to_who_waited() {
    let mut street = Street::new(None);
    let (mut ann, _) = street.house(0).guest("ann");
    let reply = street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    assert_eq!(code(&reply), "unavailable");
    assert!(reply["error"]["retry_after_ms"].as_u64() > Some(0), "{reply}");
    street.house(0).publish("game#A", "hi");
    assert!(street.house(0).hear(&ann).is_empty(), "a refused command has changed nothing");
}

#[test]
fn a_name_lingers_and_is_let_go() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    let leave = r#"{"op":"unsubscribe","channel":"game#A"}"#;
    let carried = |street: &mut Street| {
        let bus = street.house(0).shards[0].node().carrier.bus().unwrap().clone();
        let interest = tavern_engine::Subject::of_channel("tavern", b"game#A").unwrap();
        bus.subscribe(vec![Interest::Subject(interest)], Ticket(u64::MAX))
    };
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    street.house(0).say(&mut ann, leave);
    street.pass(29_000);
    let frame = r#"{"op":"subscribe","channel":"game#A"}"#;
    assert_eq!(
        street.house(0).flow(&mut ann, frame).0,
        Flow::Done,
        "back within the time: nothing to wait for"
    );
    street.pass(60_000);
    assert!(carried(&mut street), "somebody listens");
    street.house(0).say(&mut ann, leave);
    street.pass(31_000);
    assert!(!carried(&mut street), "let go");
}

#[test]
fn a_loss_is_told_to_those_it_concerns() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    let (mut eve, _) = street.house(0).guest("eve");
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    street.subscribe(0, &mut eve, r#""channel":"game#B""#);
    let redis = street.house(0).shards[0].open_redis(Link { id: LinkId(99), format: Format::Resp2 });
    street.house(0).shards[0].subscribe(redis, Space::Pattern, b"game#*");
    street.house(1).publish("game#A", "\"lost\"");
    street.settle();
    let heard = street.house(0).hear(&ann);
    assert_eq!(heard, [json!({"seq": 1, "event": "gap", "channel": "game#A"})]);
    assert!(street.house(0).hear(&eve).is_empty());
    assert_eq!(street.house(0).closes(), [(LinkId(99), Goodbye::SlowReader)], "it cannot be told");
    let now = street.house(0).now;
    street.house(0).shards[0].lost_abroad(now, None);
    assert_eq!(street.house(0).hear(&eve), [json!({"seq": 1, "event": "gap", "channel": "game#B"})]);
}

#[test]
fn shard_channels_are_not_channels_on_other_nodes_either() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    let redis = street.house(0).shards[0].open_redis(Link { id: LinkId(99), format: Format::Resp2 });
    let node = street.house(0).shards[0].node().clone();
    node.carrier.hold().carry(Space::Shard, b"game#A", None);
    street.settle();
    street.house(0).shards[0].subscribe(redis, Space::Shard, b"game#A");
    let now = street.house(1).now;
    street.house(1).shards[0].publish(now, Space::Shard, b"game#A", b"x", false, None);
    street.settle();
    assert!(street.house(0).hear(&ann).is_empty());
    let mut scratch = Scratch::default();
    street.house(0).shards[0].render(redis, usize::MAX, &mut scratch);
    assert_eq!(scratch.bytes, b"*3\r\n$8\r\nsmessage\r\n$6\r\ngame#A\r\n$1\r\nx\r\n");
}

#[test]
fn outsiders_do_not_speak_for_the_server() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    street.subscribe(0, &mut ann, r#""channel":"user#bob""#);
    let subject = tavern_engine::Subject::of_channel("tavern", b"user#bob").unwrap();
    let from = tavern_engine::Writer::outsider();
    let parcel =
        tavern_engine::Parcel { subject, from, n: 0, note: Arc::from(*b""), payload: Arc::from(*b"x") };
    assert!(street.house(0).shards[0].node().unpack(&parcel).is_none());
}
