//! Random subscriptions, publications and polls, over handles of this process and of others, against a model that is
//! a few lists. Every count and every message must be the model's.

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use support::{Dice, Voice, encode, show};
use tavern_local::{Local, open};

const CHANNELS: [&str; 6] = ["a", "ab", "abc", "b", "b*", "%"];
/// Patterns, and what they match among the channels.
const PATTERNS: [(&str, &[&str]); 7] = [
    ("*", &["a", "ab", "abc", "b", "b*", "%"]),
    ("a*", &["a", "ab", "abc"]),
    ("?", &["a", "b", "%"]),
    ("a?c", &["abc"]),
    ("[ab]*", &["a", "ab", "abc", "b", "b*"]),
    ("b\\*", &["b*"]),
    ("x*", &[]),
];

/// One who subscribes, here or in another process.
enum Member {
    Here(Local),
    There(Voice),
}

impl Member {
    fn change(&mut self, verb: &str, name: &str) -> usize {
        match self {
            Member::There(voice) => voice.count(&format!("{verb} {}", encode(name.as_bytes()))) as usize,
            Member::Here(local) => match verb {
                "subscribe" => local.subscribe([name]).unwrap(),
                "psubscribe" => local.psubscribe([name]).unwrap(),
                "unsubscribe" => local.unsubscribe([name]).unwrap(),
                "punsubscribe" => local.punsubscribe([name]).unwrap(),
                _ => unreachable!("{verb}"),
            },
        }
    }

    fn publish(&mut self, channel: &str, payload: &str) -> u64 {
        match self {
            Member::Here(local) => local.publish(channel, payload).unwrap(),
            Member::There(voice) => voice.count(&format!("publish {} {payload}", encode(channel.as_bytes()))),
        }
    }

    fn poll(&mut self) -> String {
        match self {
            Member::Here(local) => local.poll().unwrap().as_ref().map_or("none".into(), show),
            Member::There(voice) => voice.ask("poll"),
        }
    }

    fn numsub(&mut self, channel: &str) -> u64 {
        match self {
            Member::Here(local) => local.numsub([channel]).unwrap()[0].1,
            Member::There(voice) => voice.count(&format!("numsub {}", encode(channel.as_bytes()))),
        }
    }

    fn numpat(&mut self) -> u64 {
        match self {
            Member::Here(local) => local.numpat().unwrap(),
            Member::There(voice) => voice.count("numpat"),
        }
    }
}

/// What one member listens to and has not read.
#[derive(Default)]
struct Model {
    channels: BTreeSet<&'static str>,
    patterns: BTreeMap<&'static str, &'static [&'static str]>,
    unread: VecDeque<String>,
}

impl Model {
    fn size(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    fn publish(&mut self, channel: &str, payload: &str) -> u64 {
        let name = encode(channel.as_bytes());
        let before = self.unread.len();
        if self.channels.contains(channel) {
            self.unread.push_back(format!("message {name} {payload}"));
        }
        for (pattern, _) in self.patterns.iter().filter(|(_, matches)| matches.contains(&channel)) {
            self.unread.push_back(format!("pmessage {} {name} {payload}", encode(pattern.as_bytes())));
        }
        (self.unread.len() - before) as u64
    }
}

struct World<'a> {
    folder: &'a Path,
    members: Vec<(Member, Model)>,
    said: u64,
}

impl World<'_> {
    fn step(&mut self, dice: &mut Dice) {
        let at = dice.roll(self.members.len() as u64) as usize;
        let channel = CHANNELS[dice.roll(CHANNELS.len() as u64) as usize];
        let (pattern, matches) = PATTERNS[dice.roll(PATTERNS.len() as u64) as usize];
        let (member, model) = &mut self.members[at];
        match dice.roll(20) {
            0..3 => {
                model.channels.insert(channel);
                assert_eq!(member.change("subscribe", channel), model.size());
            }
            3..5 => {
                model.patterns.insert(pattern, matches);
                assert_eq!(member.change("psubscribe", pattern), model.size());
            }
            5..7 => {
                model.channels.remove(channel);
                assert_eq!(member.change("unsubscribe", channel), model.size());
            }
            7 => {
                model.patterns.remove(pattern);
                assert_eq!(member.change("punsubscribe", pattern), model.size());
            }
            8..13 => self.publish(at, channel),
            13..18 => {
                let expected = model.unread.pop_front().unwrap_or("none".into());
                assert_eq!(member.poll(), expected);
            }
            18 => self.count(at, channel),
            _ => self.replace(at, dice),
        }
    }

    fn publish(&mut self, at: usize, channel: &str) {
        self.said += 1;
        let payload = format!("{}", self.said);
        let expected: u64 = self.members.iter_mut().map(|(_, model)| model.publish(channel, &payload)).sum();
        assert_eq!(self.members[at].0.publish(channel, &payload), expected);
    }

    fn count(&mut self, at: usize, channel: &str) {
        let models = || self.members.iter().map(|(_, model)| model);
        let listening = models().filter(|model| model.channels.contains(channel)).count() as u64;
        let patterns: BTreeSet<&str> = models().flat_map(|model| model.patterns.keys().copied()).collect();
        let all: BTreeSet<&str> = models().flat_map(|model| model.channels.iter().copied()).collect();
        let shown = open(self.folder).unwrap().channels(None).unwrap();
        assert_eq!(shown, all.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
        let member = &mut self.members[at].0;
        assert_eq!((member.numsub(channel), member.numpat()), (listening, patterns.len() as u64));
    }

    /// One leaves, one way or another, and a new one comes.
    fn replace(&mut self, at: usize, dice: &mut Dice) {
        let folder = self.folder;
        let (old, _) =
            std::mem::replace(&mut self.members[at], (Member::Here(open(folder).unwrap()), Model::default()));
        match old {
            Member::Here(local) => local.close().unwrap(),
            Member::There(mut voice) => {
                if dice.roll(2) == 0 {
                    voice.kill();
                } else {
                    voice.end();
                }
                self.members[at].0 = Member::There(Voice::at(folder));
            }
        }
    }
}

#[test]
fn whatever_is_done_every_count_and_every_message_is_the_models() {
    for seed in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let here = || (Member::Here(open(folder.path()).unwrap()), Model::default());
        let there = || (Member::There(Voice::at(folder.path())), Model::default());
        let members = vec![here(), here(), here(), there(), there()];
        let mut world = World { folder: folder.path(), members, said: 0 };
        let mut dice = Dice::new(seed);
        println!("seed {seed}");
        for _ in 0..300 {
            world.step(&mut dice);
        }
        for (member, model) in &mut world.members {
            model.unread.push_back("none".into());
            model.unread.iter().for_each(|expected| assert_eq!(&member.poll(), expected));
        }
    }
}
