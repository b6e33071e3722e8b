//! The commands that clients send, and the frames they receive, checked against the store at that moment.

use super::client::{PartiesCommand, PartyOrder, PartyVerb};
use super::snapshot::PartySnapshot;
use super::{PartiesWorkload, RETRY_MS, is_stored};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::inbox::MESSAGE_ID;
use serde_json::Value;
use tavern_domain::Time;

/// How long an order with an unknown outcome is repeated: shorter than its request id is stored.
const PATIENCE_MS: u64 = 60_000;
/// How long a user may receive messages of a party after they have left it.
const LATE_MS: u64 = 15_000;

impl PartiesWorkload {
    /// Sends the next command, if none is pending.
    pub(super) fn pump(&mut self, cluster: &mut Cluster, who: usize) {
        let client = &mut self.clients[who];
        if !client.link.is_idle() {
            return;
        }
        let Some(command) = client.link.todo.pop_front() else { return };
        let body = match command {
            PartiesCommand::Hello => return,
            PartiesCommand::Get => r#""op":"party.get""#.into(),
            PartiesCommand::Bye => r#""op":"bye""#.into(),
            PartiesCommand::Say(number) => format!(r#""op":"party.say","data":{number}"#),
            PartiesCommand::Ack => {
                self.acknowledge(who);
                let client = &self.clients[who];
                format!(r#""op":"ack","seq":{}"#, client.link.seq)
            }
            PartiesCommand::Order(order) => {
                client.order = Some(order);
                order.body()
            }
        };
        let client = &mut self.clients[who];
        (client.sent_at, client.outdated) = (cluster.now, false);
        client.link.send(cluster, command, &body);
    }

    /// A client acknowledges what it has received, for all sessions of its user.
    pub(super) fn acknowledge(&mut self, who: usize) {
        let client = &self.clients[who];
        let (user, message_id) = (client.link.user.clone(), client.message_id);
        self.judge.inbox.acknowledge(&user, message_id);
        for other in self.clients.iter_mut().filter(|other| other.link.user == user) {
            if other.message_id < message_id {
                other.acknowledged = other.acknowledged.max(message_id);
                other.outdate();
            }
        }
    }

    pub(super) fn receive_frame(&mut self, cluster: &mut Cluster, who: usize, frame: &Value) -> Outcome {
        cluster.trace.say(cluster.now, || format!("client {who} receives {frame}"));
        let Some(command) = self.clients[who].link.answered(frame)? else {
            self.event(cluster, who, frame)?;
            self.pump(cluster, who);
            return Ok(());
        };
        match frame.get("error") {
            Some(error) => self.refused(cluster, who, command, error),
            None => self.done(cluster, who, command, &frame["ok"]),
        }
        .map_err(|error| format!("{command:?}: {error}"))?;
        self.pump(cluster, who);
        Ok(())
    }

    fn refused(&mut self, cluster: &Cluster, who: usize, command: PartiesCommand, error: &Value) -> Outcome {
        let code = error["code"].as_str().unwrap_or_default();
        if let Some(party) = error.get("party") {
            let party = self.check_told_party(who, party)?;
            // While the store does not answer, it is the last one that the server has seen.
            if code != "unavailable" {
                self.clients[who].learn_party(party);
            }
        }
        match command {
            _ if code == "unavailable" => {
                self.count("commands unavailable");
                if self.last_fault.calm_ms(cluster) >= super::CALM_MS {
                    return Err(format!("there is no fault, and it is refused with {error}"));
                }
                let retry_at = cluster.now + RETRY_MS + 41 * who as u64;
                self.clients[who].link.retry_at.get_or_insert(retry_at);
                Ok(())
            }
            // It may be allowed a moment later: such a refusal is not stored.
            PartiesCommand::Order(_) if code == "rate_limited" => {
                self.clients[who].order = None;
                Ok(())
            }
            PartiesCommand::Order(order) => self.decided(who, order, code),
            // A user without a party cannot send to one.
            PartiesCommand::Say(_) if code == "not_member" => Ok(()),
            _ => Err(format!("refused: {error}")),
        }
    }

    fn done(&mut self, cluster: &mut Cluster, who: usize, command: PartiesCommand, ok: &Value) -> Outcome {
        match command {
            PartiesCommand::Hello => self.greeted(cluster, who, ok),
            PartiesCommand::Ack => Ok(()),
            PartiesCommand::Say(_) => {
                self.count("party messages sent");
                Ok(())
            }
            PartiesCommand::Get => {
                let party = self.check_told_party(who, &ok["party"])?;
                let client = &mut self.clients[who];
                let id = party.as_ref().map(|party| party.id);
                if !self.judge.had_party(&client.link.user, client.sent_at, id) {
                    return Err(format!("{} is reported to be in {id:?}", client.link.user));
                }
                client.learn_party(party);
                Ok(())
            }
            PartiesCommand::Bye => {
                let client = &mut self.clients[who];
                client.cut_off();
                client.link.forget();
                client.message_id = 0;
                self.count("logouts");
                self.look_again(cluster, who);
                Ok(())
            }
            PartiesCommand::Order(order) => {
                self.check_done(who, &order, ok)?;
                self.decided(who, order, "ok")?;
                self.look_again(cluster, who);
                Ok(())
            }
        }
    }

    /// Users get their own actions only in the answer: their other clients query too.
    fn look_again(&mut self, cluster: &mut Cluster, who: usize) {
        let user = self.clients[who].link.user.clone();
        for other in
            (0..self.clients.len()).filter(|other| self.clients[*other].link.user == user).collect::<Vec<_>>()
        {
            let client = &mut self.clients[other];
            client.party = None;
            client.outdate();
            if client.link.todo.is_empty() {
                client.catch_up();
            }
            self.pump(cluster, other);
        }
    }

    /// An acknowledged order is in the store, or was.
    fn check_done(&mut self, who: usize, order: &PartyOrder, ok: &Value) -> Outcome {
        let lost = || Err(format!("answered {ok}, and the store never had it"));
        let number = order.number;
        let user = self.orders.get(&number).map(|entry| entry.user.clone()).unwrap_or_default();
        match order.verb {
            PartyVerb::Invite => {
                let target = format!("user{}", order.target);
                let invited = |party: &PartySnapshot| {
                    let mut seats = party.pending.iter().map(|(to, _)| to);
                    seats.any(|to| *to == target) || party.members.iter().any(|(user, _)| *user == target)
                };
                let party = ok["party_id"].as_u64().ok_or("no party_id")?;
                if self.judge.ever(party, invited) { Ok(()) } else { lost() }
            }
            PartyVerb::Accept => {
                self.check_told_party(who, &ok["party"])?;
                let member = |party: &PartySnapshot| party.members.iter().any(|(member, _)| *member == user);
                if self.judge.ever(order.target, member) { Ok(()) } else { lost() }
            }
            PartyVerb::SetData => {
                let set = |party: &PartySnapshot| party.data["n"] == number;
                if self.judge.had_anywhere(set) { Ok(()) } else { lost() }
            }
            _ => Ok(()),
        }
    }

    /// The outcome of an order is known, and must not change.
    fn decided(&mut self, who: usize, order: PartyOrder, code: &str) -> Outcome {
        let client = &mut self.clients[who];
        (client.order, client.done) = (None, Some(order));
        let Some(entry) = self.orders.get_mut(&order.number) else { return Err("no such order".into()) };
        match &entry.code {
            Some(known) if known != code => {
                return Err(format!("the same request was answered {known} before, and {code} now"));
            }
            Some(_) => self.count("requests repeated"),
            None => {
                entry.code = Some(code.to_owned());
                self.count(if code == "ok" { "orders carried out" } else { "orders refused" });
            }
        }
        Ok(())
    }

    /// A party that a client receives is a state that the store had.
    fn check_told_party(&self, who: usize, party: &Value) -> Result<Option<PartySnapshot>, String> {
        let snapshot = PartySnapshot::received(party)?;
        if let Some(snapshot) = &snapshot {
            self.judge.check_snapshot(&self.clients[who].link.user, snapshot)?;
        }
        Ok(snapshot)
    }

    fn greeted(&mut self, cluster: &mut Cluster, who: usize, ok: &Value) -> Outcome {
        if let Some(party) = ok.get("party") {
            self.check_told_party(who, party)?;
        }
        let client = &mut self.clients[who];
        let process = cluster.nodes[client.link.node].process;
        let greeting = client.link.greet(ok, process)?;
        client.here_since = Some(cluster.now);
        if !greeting.resumed {
            client.message_id = 0;
        }
        // Later changes arrive as inbox messages; other sessions may have acknowledged some of them.
        client.party = None;
        let is_fresh = |order: &PartyOrder| cluster.now.since(order.at) < PATIENCE_MS;
        client.order = client.order.filter(|order| is_fresh(order) && is_stored(&self.orders, *order));
        client.catch_up();
        // An order that is given up may have been executed.
        self.look_again(cluster, who);
        cluster.trace.note(u64::from(greeting.resumed));
        self.count(if greeting.resumed { "sessions resumed" } else { "sessions begun" });
        Ok(())
    }

    fn event(&mut self, cluster: &Cluster, who: usize, event: &Value) -> Outcome {
        if event["seq"].is_null() {
            return Ok(());
        }
        let client = &mut self.clients[who];
        client.link.number(event)?;
        match event["event"].as_str() {
            Some("party") => {
                client.message_id =
                    self.judge.inbox.check_event(&client.link.user, client.message_id, event)?;
                client.party = None;
                client.outdate();
                match event["cmd"].as_str() {
                    Some("invite") => client.invites.extend(event["party_id"].as_u64()),
                    Some("invite_cancel") => client.invites.retain(|id| event["party_id"] != *id),
                    _ => {}
                }
                client.go_id = event["go_id"].as_u64().unwrap_or(client.go_id);
                if client.link.todo.is_empty() {
                    client.catch_up();
                }
                self.count("inbox messages received");
                Ok(())
            }
            Some("message") => self.overheard(cluster, who, event),
            // Messages of the party were lost between nodes.
            Some("gap") if event.get(MESSAGE_ID).is_none() && event["channel"].is_string() => Ok(()),
            _ => Err(format!("an unknown event: {event}")),
        }
    }

    /// Only members receive the messages of a party.
    fn overheard(&mut self, cluster: &Cluster, who: usize, event: &Value) -> Outcome {
        let user = self.clients[who].link.user.clone();
        let party = event["channel"].as_str().and_then(|name| name.strip_prefix("party#")?.parse().ok());
        let party: u64 = party.ok_or_else(|| format!("an unknown message: {event}"))?;
        let since = Time(cluster.now.ms().saturating_sub(LATE_MS));
        // A user who was disconnected may receive earlier messages.
        let long = |since: Time| cluster.now.since(since) >= LATE_MS;
        let here = self.clients[who].here_since.is_some_and(long);
        let late = here && self.last_fault.calm_ms(cluster) >= super::CALM_MS + LATE_MS;
        if !self.judge.was_member(&user, party) || late && !self.judge.had_party(&user, since, Some(party)) {
            return Err(format!("{user} is not a member and receives {event}"));
        }
        self.count("party messages received");
        Ok(())
    }
}
