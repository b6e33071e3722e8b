//! What passes between the hub and the world, on its way: conflicts that rough weather makes, and the planted faults.

use super::CHANNELS;
use super::plant::Plant;
use super::world::Street;
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Departure, Home, Loss, Lost, News, Visibility};
use tavern_engine::{Answer, Commit, Parcel, Presence, PresenceKey, Receipt, Row, RowKey, StoreError, Work};
use tavern_hub::LivenessTask;
use tavern_wire::bus::{BusMessage, news};

impl Street {
    /// Work of a shard on its way to the store, or an answer that the store never gave.
    pub fn tamper_work(&mut self, work: Work) -> Result<Work, Box<Answer>> {
        let Work::Commit(mut commit) = work else { return Ok(work) };
        let rough = self.weather.sky().rough;
        if let Some(expect) = commit.expects.first()
            && rough > 0
            && self.rng.below(100) < rough
        {
            let (key, expected) = (expect.key.clone(), expect.version);
            return Err(Box::new(Answer::Failed(StoreError::Conflict {
                key,
                expected,
                found: expected + 1,
            })));
        }
        let plant = self.plant;
        match plant {
            Plant::NoFence => {
                let writer = commit.writer.take();
                let open = writer.is_none_or(|writer| self.truth.is_home_open(&Home::from(&writer)));
                self.planted |= !open;
            }
            Plant::NoExpectation => {
                self.planted = true;
                commit.expects.clear();
            }
            Plant::ForgetDeadline
                if !commit.deadlines.is_empty() && self.strikes(Plant::ForgetDeadline, 20) =>
            {
                commit.deadlines.clear();
            }
            Plant::FreshDeadline => self.prolong(&mut commit),
            Plant::SmallRaise => {
                if let Some(raise) = commit.raises.iter_mut().find(|raise| raise.by > 1)
                    && self.rng.chance(20)
                {
                    self.planted = true;
                    raise.by -= 1;
                }
            }
            Plant::EarlyAnswer if is_arrival(&commit) && self.strikes(Plant::EarlyAnswer, 10) => {
                let receipt =
                    Receipt { time: self.now, raised: vec![1], begun: vec![false], ..Receipt::default() };
                return Err(Box::new(Answer::Committed(receipt)));
            }
            _ => {}
        }
        Ok(Work::Commit(commit))
    }

    /// A loss is reported as if it had happened later.
    fn prolong(&mut self, commit: &mut Commit) {
        for row in &mut commit.puts {
            let Row::Presence(presence) = row else { continue };
            if presence.attendance.next_wake().is_none() || !self.strikes(Plant::FreshDeadline, 30) {
                continue;
            }
            let mut clients = presence.attendance.clients().to_vec();
            for client in &mut clients {
                client.lost = client.lost.map(|lost| Lost { until: lost.until + 4_000, ..lost });
            }
            let (since, departed) = (presence.attendance.since(), presence.attendance.departed());
            presence.attendance = Attendance::restore(clients, since, departed);
            commit.deadlines.iter_mut().for_each(|deadline| deadline.due = deadline.due + 4_000);
        }
    }

    /// News on their way into a house.
    pub fn tamper_news(&mut self, at: usize, parcel: Parcel) -> Vec<Parcel> {
        let key = (at, format!("{:?}", parcel.subject));
        match self.plant {
            Plant::WrongVersion if self.rng.chance(15) => {
                self.planted = true;
                vec![renumbered(&parcel, |news| news.to + 1)]
            }
            Plant::SwapVersions => match self.kept.remove(&key) {
                Some(held) => match (read(&held), read(&parcel)) {
                    (Some(one), Some(two)) if one.changes.len() == two.changes.len() => {
                        self.planted = true;
                        vec![renumbered(&held, |_| two.to), renumbered(&parcel, |_| one.to)]
                    }
                    _ => vec![held, parcel],
                },
                None if self.rng.chance(30) => {
                    self.kept.insert(key, parcel);
                    Vec::new()
                }
                None => vec![parcel],
            },
            Plant::OldNews => {
                let to = read(&parcel).map_or(0, |news| news.to);
                let old = self.kept.get(&key).cloned().filter(|_| self.rng.chance(20));
                if old.is_none() {
                    self.kept.entry(key).or_insert_with(|| parcel.clone());
                }
                self.planted |= old.is_some();
                let again = old.map(|old| renumbered(&old, |news| to + news.changes.len() as u64));
                [parcel].into_iter().chain(again).collect()
            }
            _ => vec![parcel],
        }
    }

    /// A liveness task on its way to the shards. None: it is dropped.
    pub fn tamper_order(&mut self, at: usize, order: LivenessTask) -> Option<LivenessTask> {
        let dropped = matches!(
            (self.plant, &order),
            (Plant::NeverLook, LivenessTask::Compare)
                | (Plant::NoTakeOver, LivenessTask::TakeOver(_))
                | (Plant::NoAnnounce, LivenessTask::Announce)
        );
        self.planted |= dropped;
        if dropped {
            return None;
        }
        if matches!(order, LivenessTask::Compare) && self.plant == Plant::FalseAlarm && self.rng.chance(10) {
            return self.false_alarm(at).or(Some(order));
        }
        Some(order)
    }

    /// Somebody whose node lives.
    fn false_alarm(&mut self, at: usize) -> Option<LivenessTask> {
        let own = self.houses[at].name.as_str();
        let living = self.truth.rows().find_map(|(channel, user, row)| {
            let client = row
                .living()
                .find(|client| *client.home.node != *own && self.truth.is_home_open(&client.home))?;
            Some((channel, user.clone(), row.clone(), client.home.clone()))
        });
        let (channel, user, attendance, home): (usize, String, Attendance, Home) = living?;
        self.planted = true;
        let (name, grace_ms) = CHANNELS[channel];
        let key = PresenceKey::new(name, &user);
        let presence =
            Presence { key, anonymous: false, name: None, visibility: Visibility::Everyone, attendance };
        let loss = Loss { at: self.now, grace_ms, reason: Departure::NodeDown };
        Some(LivenessTask::TakeOver(Box::new((presence, home, loss))))
    }
}

fn is_arrival(commit: &Commit) -> bool {
    let absent =
        |expect: &tavern_engine::Expect| matches!(expect.key, RowKey::Presence(_)) && expect.version == 0;
    commit.expects.iter().any(absent)
}

fn read(parcel: &Parcel) -> Option<News> {
    match BusMessage::decode(&parcel.payload)? {
        BusMessage::Presence(news) => Some(news),
        _ => None,
    }
}

fn renumbered(parcel: &Parcel, to: impl FnOnce(&News) -> u64) -> Parcel {
    let Some(mut news) = read(parcel) else { return parcel.clone() };
    news.to = to(&news);
    Parcel { payload: Arc::from(news::encode(&news)), ..parcel.clone() }
}
