//! The faults end. After a while everybody must know the same, and it must be so: who is connected is present where it
//! joined, who is gone is not, every watcher sees what the store has, and nothing is left undone.

use super::house::Life;
use super::tab::{Stand, Tab, Watch};
use super::truth::{Snapshot, find, roster, snapshot_of};
use super::world::{Alarm, Street};
use super::{CHANNELS, HEARTBEAT_MS, HOUSES, LEASE_MS, Outcome};
use std::collections::BTreeSet;
use tavern_domain::{ClientId, Time};
use tavern_engine::{Found, Read};

/// Long enough for a lease, the longest grace, and the looks in between.
const LONG_MS: u64 = 50_000;

impl Street {
    pub fn heal(&mut self) -> Outcome {
        self.sleep_past_the_lease()?;
        self.end_of_faults()?;
        for who in 0..self.tabs.len() {
            if self.tabs[who].seat.is_none() && self.rng.chance(60) {
                self.come_back(who)?;
            }
        }
        for _ in 0..20 {
            self.advance(500)?;
            for who in 0..self.tabs.len() {
                self.alarm(Alarm::Again(who))?;
            }
        }
        self.advance(LONG_MS)?;
        self.check_tabs()?;
        self.check_rows()?;
        self.check_views()?;
        self.check_store()
    }

    /// The last trouble of every run: a node that is taken for dead while its clients sit there and wait.
    fn sleep_past_the_lease(&mut self) -> Outcome {
        let sits = |at: usize| move |tab: &&Tab| tab.seat.as_ref().is_some_and(|seat| seat.house == at);
        let guests =
            |at: &usize| self.tabs.iter().filter(sits(*at)).map(|tab| tab.stands.len()).sum::<usize>();
        let at = (0..HOUSES).max_by_key(guests).unwrap_or(0);
        if let Some(running) = self.houses[at].running() {
            running.asleep = true;
        }
        self.advance(LEASE_MS + 2 * HEARTBEAT_MS)
    }

    fn end_of_faults(&mut self) -> Outcome {
        {
            let mut sky = self.weather.sky();
            sky.rough = 0;
            sky.cut.clear();
        }
        for at in 0..HOUSES {
            self.alarm(Alarm::Wake(at))?;
        }
        for _ in 0..200 {
            for at in 0..HOUSES {
                self.alarm(Alarm::Boot(at))?;
            }
            if self.houses.iter().all(|house| house.is_open()) {
                return Ok(());
            }
            self.advance(250)?;
        }
        Err("a house does not come up again".into())
    }

    /// Everybody who is connected has every answer, and is where he wants to be.
    fn check_tabs(&self) -> Outcome {
        for (who, tab) in self.tabs.iter().enumerate().filter(|(_, tab)| tab.seat.is_some()) {
            if !tab.is_idle() || !tab.todo.is_empty() {
                return Err(format!("tab {who} waits for ever: {:?}, then {:?}", tab.pending, tab.todo));
            }
            let client = tab.client.as_deref().and_then(ClientId::parse).ok_or("no client")?;
            for (channel, state) in &tab.wants {
                if tab.stands.get(channel) != Some(&Stand::In(*state)) {
                    return Err(format!("tab {who} asked for {} in vain", CHANNELS[*channel].0));
                }
                let row = self.truth.row(*channel, &tab.user);
                let kept = row.and_then(|row| find(row, client)).filter(|kept| kept.lost.is_none());
                let Some(kept) = kept else {
                    return Err(format!(
                        "tab {who} is connected and not present in {}",
                        CHANNELS[*channel].0
                    ));
                };
                if kept.state.as_ref().map(|state| state.text.to_string())
                    != Some(format!("{{\"s\":{state}}}"))
                {
                    return Err(format!("tab {who} is present with {:?}, not {state}", kept.state));
                }
                if !self.truth.is_home_open(&kept.home) {
                    return Err(format!("nobody vouches for tab {who} any more"));
                }
            }
        }
        Ok(())
    }

    /// Nobody is present who is not connected.
    fn check_rows(&self) -> Outcome {
        let mut right: BTreeSet<(usize, String)> = BTreeSet::new();
        for tab in self.tabs.iter().filter(|tab| tab.seat.is_some()) {
            right.extend(tab.wants.keys().filter_map(|channel| Some((*channel, tab.client.clone()?))));
        }
        for (channel, user, row) in self.truth.rows() {
            for client in row.clients() {
                // Whoever was lost while another tab was there is forgotten with the next change.
                let lost = client.lost.is_some() && row.living().next().is_none();
                if lost || client.lost.is_none() && !right.contains(&(channel, client.client.to_string())) {
                    return Err(format!("{user} is still in {}: {client:?}", CHANNELS[channel].0));
                }
            }
        }
        Ok(())
    }

    fn check_views(&self) -> Outcome {
        for (channel, (name, _)) in CHANNELS.iter().enumerate() {
            let there: Snapshot = snapshot_of(&roster(&self.hall, channel).1);
            for (who, tab) in self.tabs.iter().enumerate().filter(|(_, tab)| tab.seat.is_some()) {
                let Some(watch) = tab.watches.get(&channel) else { continue };
                if !matches!(watch, Watch::Seen(view) if view.users == there) {
                    return Err(format!("tab {who} sees {watch:?} in {name}, the store has {there:?}"));
                }
            }
        }
        Ok(())
    }

    /// No deadline is overdue, no epoch is left behind.
    fn check_store(&self) -> Outcome {
        let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 10 };
        if let Found::Deadlines(page) = self.hall.peek(read)
            && let Some(deadline) = page.rows.first()
        {
            return Err(format!("a deadline is left: {deadline:?}"));
        }
        let open = self.truth.nodes().filter(|node| node.closed_at.is_none()).count();
        let running = self.houses.iter().filter(|house| matches!(house.life, Life::Up(_))).count();
        let nodes = self.truth.nodes().count();
        if (open, running, nodes) != (HOUSES, HOUSES, HOUSES) {
            return Err(format!("{open} epochs are open, {nodes} known"));
        }
        Ok(())
    }
}
