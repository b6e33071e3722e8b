//! Random subscriptions, publishes and polls, over handles of this process and of peers, compared with a model of a few
//! lists. Every count and every message must equal the model's.

use crate::support::{Peer, Random, encode, show};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use tavern_local::{Local, open};

const CHANNELS: [&str; 6] = ["a", "ab", "abc", "b", "b*", "%"];
/// Patterns, and the channels they match.
const PATTERNS: [(&str, &[&str]); 7] = [
    ("*", &["a", "ab", "abc", "b", "b*", "%"]),
    ("a*", &["a", "ab", "abc"]),
    ("?", &["a", "b", "%"]),
    ("a?c", &["abc"]),
    ("[ab]*", &["a", "ab", "abc", "b", "b*"]),
    ("b\\*", &["b*"]),
    ("x*", &[]),
];

/// A subscriber, here or in another process.
enum Member {
    Here(Local),
    There(Peer),
}

impl Member {
    fn change(&mut self, verb: &str, name: &str) -> usize {
        match self {
            Member::There(peer) => peer.count(&format!("{verb} {}", encode(name.as_bytes()))) as usize,
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
            Member::There(peer) => peer.count(&format!("publish {} {payload}", encode(channel.as_bytes()))),
        }
    }

    fn poll(&mut self) -> String {
        match self {
            Member::Here(local) => local.poll().unwrap().as_ref().map_or("none".into(), show),
            Member::There(peer) => peer.ask("poll"),
        }
    }

    fn numsub(&mut self, channel: &str) -> u64 {
        match self {
            Member::Here(local) => local.numsub([channel]).unwrap()[0].1,
            Member::There(peer) => peer.count(&format!("numsub {}", encode(channel.as_bytes()))),
        }
    }

    fn numpat(&mut self) -> u64 {
        match self {
            Member::Here(local) => local.numpat().unwrap(),
            Member::There(peer) => peer.count("numpat"),
        }
    }
}

/// What one member subscribes to and has not read.
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
    sent: u64,
}

impl World<'_> {
    fn step(&mut self, random: &mut Random) {
        let at = random.below(self.members.len() as u64) as usize;
        let channel = CHANNELS[random.below(CHANNELS.len() as u64) as usize];
        let (pattern, matches) = PATTERNS[random.below(PATTERNS.len() as u64) as usize];
        let (member, model) = &mut self.members[at];
        match random.below(20) {
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
            _ => self.replace(at, random),
        }
    }

    fn publish(&mut self, at: usize, channel: &str) {
        self.sent += 1;
        let payload = format!("{}", self.sent);
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

    /// One member leaves, cleanly or killed, and a new one comes.
    fn replace(&mut self, at: usize, random: &mut Random) {
        let folder = self.folder;
        let (old, _) =
            std::mem::replace(&mut self.members[at], (Member::Here(open(folder).unwrap()), Model::default()));
        match old {
            Member::Here(local) => local.close().unwrap(),
            Member::There(mut peer) => {
                if random.below(2) == 0 {
                    peer.kill();
                } else {
                    peer.end();
                }
                self.members[at].0 = Member::There(Peer::at(folder));
            }
        }
    }
}

#[test]
fn every_count_and_every_message_equals_the_models() {
    for seed in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let here = || (Member::Here(open(folder.path()).unwrap()), Model::default());
        let there = || (Member::There(Peer::at(folder.path())), Model::default());
        let members = vec![here(), here(), here(), there(), there()];
        let mut world = World { folder: folder.path(), members, sent: 0 };
        let mut random = Random::new(seed);
        println!("seed {seed}");
        for _ in 0..300 {
            world.step(&mut random);
        }
        for (member, model) in &mut world.members {
            model.unread.push_back("none".into());
            model.unread.iter().for_each(|expected| assert_eq!(&member.poll(), expected));
        }
    }
}
