//! What happens next on the street: the seed chooses who does what, which house falls asleep, dies or is cut off, and
//! how the weather is.

use super::tab::{Watch, Wish};
use super::weather::Cut;
use super::world::{Alarm, Street};
use super::{CHANNELS, HOUSES, Outcome, TABS, house};

impl Street {
    pub fn act(&mut self) -> Outcome {
        let dice = self.rng.below(1000);
        self.note(dice as u64);
        match dice {
            0..18 => self.trouble_at_a_house()?,
            18..30 => self.change_weather(),
            _ => {
                let who = self.rng.below(TABS);
                self.live(who)?;
            }
        }
        let ms = match self.rng.below(100) {
            0..70 => self.rng.below(60) as u64,
            70..92 => self.rng.below(400) as u64,
            92..99 => self.rng.below(2_500) as u64,
            _ => self.rng.below(12_000) as u64,
        };
        self.advance(ms)
    }

    /// One thing that the person behind a tab does.
    fn live(&mut self, who: usize) -> Outcome {
        if self.tabs[who].seat.is_none() {
            return if self.rng.chance(35) { self.come_back(who) } else { Ok(()) };
        }
        if !self.tabs[who].is_idle() {
            // It has waited long enough.
            return if self.rng.chance(6) { self.lose(who) } else { Ok(()) };
        }
        let channel = self.rng.below(CHANNELS.len());
        self.states += 1;
        let state = self.states;
        let tab = &mut self.tabs[who];
        let wish = match self.rng.below(100) {
            0..30 => {
                tab.wants.insert(channel, state);
                Wish::Join(channel)
            }
            30..40 => match tab.wants.get_mut(&channel) {
                Some(want) => {
                    *want = state;
                    Wish::Update(channel)
                }
                None => return Ok(()),
            },
            40..52 => {
                tab.wants.remove(&channel);
                Wish::Leave(channel)
            }
            52..72 => {
                if tab.watches.contains_key(&channel) {
                    return Ok(());
                }
                tab.watches.insert(channel, Watch::Asked);
                Wish::Watch(channel)
            }
            72..75 => {
                if !matches!(tab.watches.get(&channel), Some(Watch::Seen(_))) {
                    return Ok(());
                }
                Wish::Unwatch(channel)
            }
            75..80 => Wish::Who(channel),
            80..83 => {
                tab.wants.clear();
                Wish::Bye
            }
            83..90 => {
                // A new page on another house, without a word to the old one.
                self.lose(who)?;
                return self.come_back(who);
            }
            _ => return self.lose(who),
        };
        self.tabs[who].todo.push_back(wish);
        self.pump(who)
    }

    /// To the house of its session, or to any.
    pub fn come_back(&mut self, who: usize) -> Outcome {
        let own = self.tabs[who].home.0;
        let house = if self.rng.chance(60) { own } else { self.rng.below(HOUSES) };
        if !self.houses[house].is_open() {
            return Ok(());
        }
        self.connect(who, house)
    }

    fn trouble_at_a_house(&mut self) -> Outcome {
        let at = self.rng.below(HOUSES);
        if !self.houses[at].is_open() {
            return Ok(());
        }
        let short = self.rng.chance(50);
        let ms = if short { self.rng.below(3_000) } else { self.rng.below(22_000) } as u64;
        let until = self.now + ms + 1;
        self.say(|| format!("trouble at house {at} for {ms}"));
        match self.rng.below(10) {
            0..3 => {
                self.crashes += 1;
                self.crash(at);
                self.alarms.insert((until, Alarm::Boot(at)));
            }
            3..5 => {
                self.stop(at)?;
                self.alarms.insert((until, Alarm::Boot(at)));
            }
            5..8 => {
                self.naps += 1;
                if let Some(running) = self.houses[at].running() {
                    running.asleep = true;
                }
                self.alarms.insert((until, Alarm::Wake(at)));
            }
            _ => {
                self.cuts += 1;
                let silent_ms = if self.rng.chance(40) { ms } else { 0 };
                let (store, bus) = (self.rng.chance(75), self.rng.chance(75));
                house::cut(&self.weather, &self.houses[at].name, Some(Cut { store, silent_ms, bus }));
                self.alarms.insert((until, Alarm::Mend(at)));
            }
        }
        Ok(())
    }

    fn change_weather(&mut self) {
        let rough = if self.rng.chance(50) { 2 } else { self.rng.below(12) };
        self.weather.sky().rough = rough;
        let until = self.now + self.rng.below(20_000) as u64;
        self.alarms.insert((until, Alarm::Calm));
    }
}
