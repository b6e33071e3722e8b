//! The stored facts about people, as they change: who follows whom, who shows themselves to whom, when they were last
//! seen.
//! Must hold: a user is never last seen in the future, and never earlier than before; the time is recorded when they go
//! offline, in the same commit, and at no other time; it is not recorded where nobody saw them.

use super::SKEW_MS;
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::inbox::InboxJudge;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::Time;
use tavern_domain::presence::Visibility;
use tavern_store::{Found, Read, Row, RowKind};

#[derive(Default)]
pub struct PeopleJudge {
    now: StoredPeople,
    /// Earlier facts, and until when they were valid.
    past: Vec<(Time, StoredPeople)>,
    pub last_seen: BTreeMap<String, Time>,
    /// Since when users are online, and who sees them.
    online: BTreeMap<String, (Time, Visibility)>,
    /// Users whom nobody saw when they last went offline.
    pub left_hidden: BTreeSet<String>,
    pub inbox: InboxJudge,
    /// How often the message with this number was stored.
    posted: BTreeMap<u64, u64>,
}

/// The stored follows and visibilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredPeople {
    pub follows: BTreeSet<(String, String)>,
    pub visibility: BTreeMap<String, Visibility>,
}

impl StoredPeople {
    pub fn follows(&self, follower: &str, followee: &str) -> bool {
        self.follows.contains(&(follower.to_owned(), followee.to_owned()))
    }

    /// Whether a follower may see a user's status.
    pub fn shows(&self, user: &str, to: &str) -> bool {
        match self.visibility_of(user) {
            Visibility::Everyone => true,
            Visibility::Nobody => false,
            _ => self.follows(to, user) && self.follows(user, to),
        }
    }

    pub fn visibility_of(&self, user: &str) -> Visibility {
        self.visibility.get(user).copied().unwrap_or_default()
    }
}

impl PeopleJudge {
    /// Checks the changes of the last commit.
    pub fn observe(&mut self, cluster: &Cluster, users: &[String]) -> Outcome {
        for (user, message) in self.inbox.observe(cluster, users.iter().cloned())? {
            let number = message["data"]["n"].as_u64().ok_or_else(|| format!("{user} got {message}"))?;
            let count = self.posted.entry(number).or_default();
            *count += 1;
            if *count > 1 {
                return Err(format!("message {number} was stored {count} times"));
            }
        }
        let online = online(cluster);
        let mut facts = StoredPeople::default();
        for row in rows(cluster, RowKind::Follow).into_iter().chain(rows(cluster, RowKind::User)) {
            match row {
                Row::Follow(follow) => {
                    facts.follows.insert((follow.follower.to_string(), follow.followee.to_string()));
                }
                Row::User(user) => {
                    facts.visibility.insert(user.user.to_string(), user.visibility);
                    self.seen(cluster.now, &user.user, user.last_seen, &online)?;
                }
                _ => {}
            }
        }
        self.note_online(online)?;
        if facts != self.now {
            cluster.trace.say(cluster.now, || format!("store: {facts:?}"));
            self.past.push((cluster.now, std::mem::replace(&mut self.now, facts)));
        }
        Ok(())
    }

    fn seen(
        &mut self,
        now: Time,
        user: &str,
        seen: Option<Time>,
        online: &BTreeMap<String, (Time, Visibility)>,
    ) -> Outcome {
        let before = self.last_seen.get(user).copied();
        if seen != before {
            match self.online.get(user) {
                None => return Err(format!("{user} was not online, and was seen")),
                Some((_, Visibility::Nobody)) => return Err(format!("{user} was hidden, and was seen")),
                Some((since, _)) if online.get(user).is_some_and(|(now, _)| now == since) => {
                    return Err(format!("{user} is online, and a time is stored"));
                }
                Some(_) => {}
            }
        }
        match (before, seen) {
            (Some(before), None) => Err(format!("{user} was seen at {}, and never was", before.ms())),
            (Some(before), Some(seen)) if seen < before => {
                Err(format!("{user} was seen earlier than before"))
            }
            (_, Some(seen)) if seen > now + SKEW_MS => Err(format!("{user} is seen in the future")),
            (_, Some(seen)) => {
                self.last_seen.insert(user.to_owned(), seen);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// Notes who went offline.
    fn note_online(&mut self, online: BTreeMap<String, (Time, Visibility)>) -> Outcome {
        for (user, (_, visibility)) in std::mem::replace(&mut self.online, online) {
            if self.online.contains_key(&user) {
                continue;
            }
            if visibility == Visibility::Nobody {
                self.left_hidden.insert(user);
            } else if !self.last_seen.contains_key(&user) {
                return Err(format!("{user} went offline, and was never seen"));
            } else {
                self.left_hidden.remove(&user);
            }
        }
        Ok(())
    }

    /// Whether something was true at some moment since then.
    pub fn was(&self, since: Time, holds: impl Fn(&StoredPeople) -> bool) -> bool {
        let past = self.past.iter().rev().take_while(|(until, _)| *until >= since);
        holds(&self.now) || past.into_iter().any(|(_, facts)| holds(facts))
    }

    pub fn facts(&self) -> &StoredPeople {
        &self.now
    }

    pub fn has_message(&self, number: u64) -> bool {
        self.posted.contains_key(&number)
    }

    /// An inbox message was delivered to a session that had the messages up to `before`.
    pub fn check_message(&self, user: &str, before: u64, event: &Value) -> Result<u64, String> {
        self.inbox.check_event(user, before, event)
    }
}

/// Where named users are present, and who may see them there.
pub fn presences(cluster: &Cluster) -> impl Iterator<Item = (String, String, Visibility)> {
    rows(cluster, RowKind::Presence).into_iter().filter_map(|row| match row {
        Row::Presence(row) if !row.anonymous => {
            Some((row.key.user.to_string(), row.key.channel.to_string(), row.visibility))
        }
        _ => None,
    })
}

/// Since when users are online, and who sees them.
fn online(cluster: &Cluster) -> BTreeMap<String, (Time, Visibility)> {
    let rows = rows(cluster, RowKind::Presence).into_iter();
    let own = rows.filter_map(|row| match row {
        Row::Presence(row) if row.key.channel.starts_with("user#") => Some(row),
        _ => None,
    });
    own.map(|row| (row.key.user.to_string(), (row.attendance.since(), row.visibility))).collect()
}

fn rows(cluster: &Cluster, kind: RowKind) -> Vec<Row> {
    match cluster.peek(Read::Rows { kind, after: None, limit: 1000 }) {
        Found::Rows(page) => page.rows.into_iter().map(|row| row.row).collect(),
        _ => Vec::new(),
    }
}
