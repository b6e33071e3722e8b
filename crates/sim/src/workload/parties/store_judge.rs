//! Judges the store as it changes, commit by commit: the documents of parties and users, and the inbox messages that go with
//! them. Must hold: documents agree with each other; a version is one state; a party that has ended stays so; every member
//! gets every change once, in the commit that makes it; nothing ends before its time; everything that expires has a
//! deadline.

use super::snapshot::PartySnapshot;
use super::{GRACE_MS, MEMBERS, SKEW_MS, USERS};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::inbox::InboxJudge;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::Time;
use tavern_domain::party::{Membership, Party};
use tavern_store::{Found, PresenceKey, Read, Row, RowKind};
use tavern_wire::record::{self, read_membership, read_party};

#[derive(Default)]
pub struct PartyJudge {
    parties: BTreeMap<u64, Party>,
    memberships: BTreeMap<String, Membership>,
    /// Every state that each party has had, by version.
    history: BTreeMap<u64, BTreeMap<u64, PartySnapshot>>,
    over: BTreeSet<u64>,
    /// Since when each user is in which party.
    party_history: BTreeMap<String, Vec<(Time, Option<u64>)>>,
    pub inbox: InboxJudge,
    /// The changes that contain the number of an order: the party and its version.
    pub traces: BTreeMap<u64, BTreeSet<(u64, u64)>>,
}

/// The users, as far as is known without the store.
pub struct KnownUsers {
    /// They have sent a command and may not have the answer yet: they get no message about their own action.
    pub busy: BTreeSet<String>,
    /// They are connected, and the last fault was long enough ago.
    pub settled: BTreeSet<String>,
}

type PartyDocuments = (BTreeMap<u64, Party>, BTreeMap<String, Membership>);

impl PartyJudge {
    /// Checks the changes of the last commit.
    pub fn observe(&mut self, cluster: &Cluster, users: &KnownUsers) -> Outcome {
        let (parties, memberships) = read_documents(cluster)?;
        let names = (0..USERS).map(|user| format!("user{user}"));
        let messages = self.inbox.observe(cluster, names)?;
        if messages.is_empty() && parties == self.parties && memberships == self.memberships {
            return Ok(());
        }
        for party in parties.values() {
            check_party(party, &memberships).map_err(|error| format!("{error}: {party:?}"))?;
        }
        for (user, membership) in &memberships {
            check_guest(user, membership, &parties)
                .map_err(|error| format!("{user} {error}: {membership:?}"))?;
        }
        self.check_changes(cluster, &parties, &messages, users)?;
        self.check_told(cluster, &parties, &messages, users)?;
        check_deadlines(cluster, &parties)?;
        self.remember(cluster.now, parties, memberships);
        Ok(())
    }

    /// A changed party has a new version, a version is one state, and an ended party does not come back.
    fn check_changes(
        &mut self,
        cluster: &Cluster,
        parties: &BTreeMap<u64, Party>,
        messages: &[(String, Value)],
        users: &KnownUsers,
    ) -> Outcome {
        for (id, party) in parties {
            let before = self.parties.get(id);
            if before == Some(party) {
                continue;
            }
            cluster.trace.say(cluster.now, || format!("store: {party:?}"));
            let last = before.map_or(0, |before| before.version);
            if party.version <= last || self.over.contains(id) {
                return Err(format!("party {id} went from version {last} to {}", party.version));
            }
            if let Some(before) = before {
                for version in last + 1..=party.version {
                    check_members_told(before, party, version, messages, users)?;
                }
            }
        }
        Ok(())
    }

    /// Each message describes a change of this commit, to each user once, and nothing before its time.
    fn check_told(
        &mut self,
        cluster: &Cluster,
        parties: &BTreeMap<u64, Party>,
        messages: &[(String, Value)],
        users: &KnownUsers,
    ) -> Outcome {
        let mut seen = BTreeSet::new();
        for (user, message) in messages.iter().filter(|(_, message)| message["event"] == "party") {
            cluster.trace.say(cluster.now, || format!("store: to {user}: {message}"));
            let (id, version) = (number(message, "party_id")?, number(message, "version")?);
            let before = self.parties.get(&id);
            let after = parties.get(&id).map_or(u64::MAX, |party| party.version);
            if version > after || before.is_some_and(|before| version <= before.version) {
                return Err(format!(
                    "{user} gets a message about something this commit does not change: {message}"
                ));
            }
            if !seen.insert((user, id, version)) {
                return Err(format!("{user} gets version {version} of {id} twice"));
            }
            let subject = message["uid"].as_str().unwrap_or_default();
            if let Some(before) = before {
                check_time(cluster, before, user, subject, message)?;
            }
            if message["cmd"] == "leave" && message["reason"] == "timeout" && users.settled.contains(subject)
            {
                return Err(format!("{subject} is connected and was removed from party {id}"));
            }
            for order in orders_named(message) {
                let trace = self.traces.entry(order).or_default();
                trace.insert((id, version));
                if trace.len() > 1 {
                    return Err(format!("order {order} was carried out more than once: {trace:?}"));
                }
            }
        }
        Ok(())
    }

    fn remember(
        &mut self,
        now: Time,
        parties: BTreeMap<u64, Party>,
        memberships: BTreeMap<String, Membership>,
    ) {
        self.over.extend(self.parties.keys().filter(|id| !parties.contains_key(id)));
        for (id, party) in &parties {
            self.history.entry(*id).or_default().insert(party.version, PartySnapshot::stored(party));
        }
        let users: BTreeSet<String> = memberships.keys().chain(self.memberships.keys()).cloned().collect();
        for user in users {
            // A user who logged out is not a member, even if the party does not know it yet.
            let party = memberships
                .get(&user)
                .filter(|membership| membership.logged_out.is_none())
                .and_then(|membership| membership.party);
            let had = self.party_history.entry(user).or_default();
            if had.last().is_none_or(|(_, last)| *last != party) {
                had.push((now, party));
            }
        }
        (self.parties, self.memberships) = (parties, memberships);
    }

    /// A snapshot that a client received is a state that the party had. A member who returns is here in their own, even if the
    /// party does not know it yet.
    pub fn check_snapshot(&self, user: &str, snapshot: &PartySnapshot) -> Outcome {
        let then = self.history.get(&snapshot.id).and_then(|history| history.get(&snapshot.version));
        match then {
            Some(then) if then == snapshot || then.as_shown_to(user) == *snapshot => Ok(()),
            then => Err(format!("{snapshot:?} was received, the store had {then:?}")),
        }
    }

    /// Whether this was the party of a user at some moment since then.
    pub fn had_party(&self, user: &str, since: Time, party: Option<u64>) -> bool {
        let had = self.party_history.get(user).map_or(&[][..], Vec::as_slice);
        let later = had.iter().filter(|(at, _)| *at >= since).map(|(_, party)| *party);
        let last = had.iter().rev().find(|(at, _)| *at < since).and_then(|(_, party)| *party);
        last == party || later.into_iter().any(|later| later == party)
    }

    pub fn was_member(&self, user: &str, party: u64) -> bool {
        self.party_history.get(user).is_some_and(|had| had.iter().any(|(_, had)| *had == Some(party)))
    }

    pub fn ever(&self, party: u64, holds: impl Fn(&PartySnapshot) -> bool) -> bool {
        self.history.get(&party).is_some_and(|history| history.values().any(holds))
    }

    /// Whether any party was ever in this state.
    pub fn had_anywhere(&self, holds: impl Fn(&PartySnapshot) -> bool) -> bool {
        self.history.values().flat_map(|history| history.values()).any(holds)
    }

    pub fn party_of(&self, user: &str) -> Option<PartySnapshot> {
        let party = self.memberships.get(user).filter(|membership| membership.logged_out.is_none())?.party?;
        self.parties.get(&party).map(PartySnapshot::stored)
    }

    pub fn parties(&self) -> impl Iterator<Item = &Party> {
        self.parties.values()
    }

    pub fn count(&self) -> u64 {
        self.history.len() as u64
    }
}

fn read_documents(cluster: &Cluster) -> Result<PartyDocuments, String> {
    let read = Read::Rows { kind: RowKind::Document, after: None, limit: 1000 };
    let Found::Rows(page) = cluster.peek(read) else { return Err("no documents".into()) };
    let (mut parties, mut memberships) = PartyDocuments::default();
    for row in page.rows {
        let Row::Document(document) = row.row else { continue };
        let (kind, name) = (document.key.kind(), document.key.name());
        if kind == record::PARTY {
            let id = name.parse().map_err(|_| format!("a party is called {name}"))?;
            let party = read_party(id, &document.body).map_err(|error| error.to_string())?;
            parties.insert(id, party);
        } else if kind == record::MEMBERSHIP {
            let membership = read_membership(&document.body).map_err(|error| error.to_string())?;
            memberships.insert(name.to_owned(), membership);
        }
    }
    Ok((parties, memberships))
}

fn check_party(party: &Party, memberships: &BTreeMap<String, Membership>) -> Result<(), &'static str> {
    let members: Vec<&str> = party.members.iter().map(|member| &*member.user).collect();
    let invited: Vec<&str> = party.pending.iter().map(|pending| &*pending.user).collect();
    let seats: BTreeSet<&str> = members.iter().chain(&invited).copied().collect();
    if members.is_empty() || seats.len() != members.len() + invited.len() {
        return Err("a user is in it twice");
    }
    if seats.len() > MEMBERS {
        return Err("it has too many members and invites");
    }
    if members.len() == 1 && invited.is_empty() {
        return Err("it should have ended");
    }
    let ticket = party.go.as_ref().map(|go| go.members.iter().map(|user| &**user).collect::<Vec<_>>());
    if ticket.is_some_and(|ticket| ticket != members) {
        return Err("its ticket names others than its members");
    }
    if members
        .iter()
        .any(|user| memberships.get(*user).and_then(|membership| membership.party) != Some(party.id))
    {
        return Err("a member's membership does not name it");
    }
    let sees =
        |user: &str| memberships.get(user).is_some_and(|membership| membership.invites.contains(&party.id));
    if party.pending.iter().any(|pending| sees(&pending.user) == pending.hidden) {
        return Err("an invited user's membership does not have the invite");
    }
    Ok(())
}

fn check_guest(
    user: &str,
    membership: &Membership,
    parties: &BTreeMap<u64, Party>,
) -> Result<(), &'static str> {
    let seated = |id: &u64, find: fn(&Party, &str) -> bool| parties.get(id).is_some_and(|p| find(p, user));
    let member = |party: &Party, user: &str| party.members.iter().any(|member| *member.user == *user);
    let invited = |party: &Party, user: &str| party.pending.iter().any(|pending| *pending.user == *user);
    if membership.party.is_some_and(|id| !seated(&id, member)) {
        return Err("is not in the party that their membership names");
    }
    if membership.invites.iter().any(|id| !seated(id, invited)) {
        return Err("has an invite that is not open");
    }
    Ok(())
}

/// Former and current members get the change, unless it is about them or they may have made it.
fn check_members_told(
    before: &Party,
    after: &Party,
    version: u64,
    messages: &[(String, Value)],
    users: &KnownUsers,
) -> Outcome {
    let of_change = |message: &Value| message["party_id"] == after.id && message["version"] == version;
    let received: Vec<&(String, Value)> = messages.iter().filter(|(_, message)| of_change(message)).collect();
    let stays = |user: &str| after.members.iter().any(|member| *member.user == *user);
    let stayed: Vec<&str> =
        before.members.iter().map(|member| &*member.user).filter(|user| stays(user)).collect();
    for user in &stayed {
        let about = received.iter().any(|(_, message)| message["uid"] == *user);
        let excused = about || users.busy.contains(*user) || stayed.len() == 1;
        if !excused && !received.iter().any(|(to, _)| to == user) {
            return Err(format!("{user} does not get version {version} of party {}: {received:?}", after.id));
        }
    }
    Ok(())
}

/// An invite or membership that expires ends no earlier than its deadline.
fn check_time(cluster: &Cluster, before: &Party, user: &str, subject: &str, message: &Value) -> Outcome {
    let early = |until: Time| cluster.now + SKEW_MS < until;
    let expired = message["reason"] == "expired";
    let invitee = if message["cmd"] == "invite_cancel" { user } else { subject };
    let invite = before.pending.iter().find(|pending| *pending.user == *invitee).filter(|_| expired);
    let timeout = message["cmd"] == "leave" && message["reason"] == "timeout";
    let member = before.members.iter().find(|member| *member.user == *subject).filter(|_| timeout);
    match (invite, member) {
        (Some(invite), _) if early(invite.expires) => Err(format!("an invite ended early: {message}")),
        (_, Some(member)) => {
            // A party that learns late that a member is lost removes them in the same commit.
            let until = member.away.map(|away| away.until).or_else(|| seat_until(cluster, subject));
            match until.is_none_or(early) {
                true => Err(format!("{subject} was removed early: {message}")),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Until when a user who is lost keeps their seat, by their presence. None: they are not lost.
fn seat_until(cluster: &Cluster, user: &str) -> Option<Time> {
    let Found::Presence(Some(found)) =
        cluster.peek(Read::Presence(PresenceKey::new(&format!("user#{user}"), user)))
    else {
        return None;
    };
    let attendance = &found.row.attendance;
    let lost = attendance.clients().iter().filter_map(|client| client.lost).map(|lost| lost.until);
    lost.max().filter(|_| attendance.connected().next().is_none()).map(|until| until + GRACE_MS)
}

fn check_deadlines(cluster: &Cluster, parties: &BTreeMap<u64, Party>) -> Outcome {
    let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 1000 };
    let Found::Deadlines(page) = cluster.peek(read) else { return Ok(()) };
    let kept = page.rows.iter().filter(|row| &*row.kind == "party");
    let kept: BTreeMap<&str, Time> = kept.map(|row| (&*row.name, row.due)).collect();
    for party in parties.values() {
        let invites = party.pending.iter().map(|pending| pending.expires);
        let seats = party.members.iter().filter_map(|member| member.away).map(|away| away.until);
        let due = invites.chain(seats).chain(party.go.as_ref().and_then(|go| go.until)).min();
        if kept.get(&*party.id.to_string()).copied() != due {
            return Err(format!("the deadline {due:?} of party {} is not kept", party.id));
        }
    }
    Ok(())
}

/// The orders whose numbers a message contains.
fn orders_named(message: &Value) -> Vec<u64> {
    let said = message["message"].as_str().and_then(|text| text.strip_prefix('m')?.parse().ok());
    let data = (message["cmd"] == "data").then(|| message["data"]["n"].as_u64()).flatten();
    let params = (message["cmd"] == "party_go").then(|| message["params"].as_u64()).flatten();
    [said, data, params].into_iter().flatten().collect()
}

fn number(message: &Value, name: &str) -> Result<u64, String> {
    message[name].as_u64().ok_or_else(|| format!("no {name} in {message}"))
}
