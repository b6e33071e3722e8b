//! Scripted scenarios of one subscription. The script gives the outcomes; the log is read as wanted; a save is confirmed at
//! once unless saves are held; what can be sent is sent. Deadlines are applied before each step.
//!
//! `5: publish 3` · `5: publish 3 of 400` (bytes each, 100 by default) · `5: publish 3 accepted at 2` · `5: 1 delivered` (batch 1) ·
//! `5: 1 failed` · `5: 1 failed ~900` (the random number, 0 by default: the shortest wait) · `5: 1 throttled` · `5: 1 throttled 700` ·
//! `5: 1 names 3 4` (partly) · `5: timeout 0` (a rule) · `5: replay after 3` · `5: shed 5` · `5: retry 2 3` · `5: crash` ·
//! `5: hold saves` · `5: saved` · `5` (time passes).
//! The results are `1: 3-4 full` (batch 1 is sent), `1 again: 3-4 probe`, `!3-9` (a gap), and the effects.

mod backoff;
mod batches;
mod cursor;
mod outcomes;

use super::*;
use alloc::format;
use alloc::string::{String, ToString};

struct World {
    delivery: Delivery,
    rules: DeliveryRules,
    saved: DeliveryProgress,
    holding: bool,
    log: Vec<QueuedEvent>,
    results: Vec<String>,
    effects: Vec<DeliveryEffect>,
}

const RULES: DeliveryRules =
    DeliveryRules { timeout_ms: 500, max_events: 3, max_bytes: 1_000, envelope_bytes: 100, concurrency: 1 };
const POLICY: RetryPolicy =
    RetryPolicy { backoff_min_ms: 1_000, backoff_max_ms: 60_000, disable_after_ms: 0 };

impl World {
    fn new(rules: DeliveryRules, policy: RetryPolicy) -> World {
        let progress = DeliveryProgress::default();
        World {
            delivery: Delivery::new(Time(0), progress.clone(), rules, policy),
            rules,
            saved: progress,
            holding: false,
            log: Vec::new(),
            results: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn step(&mut self, now: Time, words: &str) {
        let (words, random) = words.split_once(" ~").unwrap_or((words, "0"));
        let parts: Vec<&str> = words.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{words:?} is no step"));
        let answer = |batch: &str, reply| DeliveryInput::Answered {
            batch: number(batch),
            reply,
            random: number(random),
        };
        let input = match parts[..] {
            [""] => return self.delivery.wake(now, &mut self.effects),
            ["publish", count, ref more @ ..] => return self.publish(now, number(count), more),
            ["crash"] => return self.crash(now),
            ["hold", "saves"] => return self.holding = true,
            ["saved"] => DeliveryInput::Saved,
            ["stop"] => DeliveryInput::Stop,
            ["enable"] => DeliveryInput::Enable,
            ["disable"] => DeliveryInput::Disable,
            ["replay", "after", seq] => DeliveryInput::Rewind(mark(number(seq))),
            ["shed", seq] => DeliveryInput::Shed { through: mark(number(seq)) },
            ["retry", ref seqs @ ..] => {
                DeliveryInput::Retry(seqs.iter().map(|seq| dead_letter(number(seq))).collect())
            }
            [batch, "delivered"] => answer(batch, DeliveryOutcome::Delivered.into()),
            [batch, "names", ref seqs @ ..] => {
                answer(batch, EndpointReply::partly(seqs.iter().map(|seq| number(seq)).collect()))
            }
            [batch, "gone"] => answer(batch, DeliveryOutcome::Gone.into()),
            [batch, "too", "large"] => answer(batch, DeliveryOutcome::TooLarge.into()),
            [batch, "throttled"] => answer(batch, EndpointReply::throttled(None)),
            [batch, "throttled", ms] => answer(batch, EndpointReply::throttled(Some(number(ms)))),
            [batch, "refused"] => answer(batch, DeliveryOutcome::Refused.into()),
            [batch, "failed"] => answer(batch, DeliveryOutcome::Failed.into()),
            [rule, value] => DeliveryInput::Rules(self.rule(rule, number(value))),
            _ => panic!("{words:?} is no step"),
        };
        self.delivery.handle(now, input, &mut self.effects);
    }

    fn rule(&mut self, rule: &str, value: u64) -> DeliveryRules {
        let small = u32::try_from(value).unwrap();
        match rule {
            "timeout" => self.rules.timeout_ms = value,
            "events" => self.rules.max_events = small,
            "bytes" => self.rules.max_bytes = value,
            "concurrency" => self.rules.concurrency = small,
            _ => panic!("{rule:?} is no rule"),
        }
        self.rules
    }

    fn publish(&mut self, now: Time, count: u64, more: &[&str]) {
        let (bytes, accepted) = match more {
            [] => (100, now),
            ["of", bytes] => (bytes.parse().unwrap(), now),
            ["accepted", "at", time] => (100, Time(time.parse().unwrap())),
            _ => panic!("{more:?} is no event"),
        };
        for seq in (self.log.len() as u64 + 1..).take(count as usize) {
            self.log.push(QueuedEvent { seq, position: mark(seq).position, bytes, accepted });
        }
    }

    /// The batch in flight.
    fn in_flight(&self) -> Option<u64> {
        let mut numbers = self.delivery.progress.batches.iter().map(|batch| batch.number);
        numbers.find(|number| self.delivery.attempts.has(*number))
    }

    fn crash(&mut self, now: Time) {
        let (rules, policy) = (self.rules, self.delivery.policy);
        self.delivery = Delivery::new(now, self.saved.clone(), rules, policy);
        self.delivery.wake(now, &mut self.effects);
    }

    /// Does what the hub does after every input.
    fn pump(&mut self, now: Time) {
        loop {
            for effect in core::mem::take(&mut self.effects) {
                self.carry_out(now, effect);
            }
            while let Some(AttemptStart { batch, attempt, reason }) = self.delivery.start(now) {
                let again = if attempt > 1 { " again" } else { "" };
                let runs = show(&self.delivery.batch(batch).unwrap().ranges);
                self.results.push(format!("{batch}{again}: {runs} {}", reason.as_str()));
            }
            let Some(want) = self.delivery.want(now) else { break };
            let follow = self.log.iter().filter(|item| item.seq > want.after.seq);
            let items: Vec<QueuedEvent> = follow.take(want.events as usize).copied().collect();
            if items.is_empty() {
                break;
            }
            self.delivery.handle(now, DeliveryInput::Items(items), &mut self.effects);
        }
        assert!(self.effects.is_empty());
        assert!(self.delivery.next_wake().is_none_or(|wake| wake > now), "what is due is done");
    }

    fn carry_out(&mut self, now: Time, effect: DeliveryEffect) {
        match effect {
            DeliveryEffect::Save { parked, retried } => {
                self.saved = self.delivery.progress().clone();
                let parked = parked.iter().map(|run| format!("parks {}", show(core::slice::from_ref(run))));
                let retried = retried.iter().map(|seq| format!("takes back {seq}"));
                self.results.extend(parked.chain(retried));
                if self.holding {
                    self.results.push("save".into());
                } else {
                    self.delivery.handle(now, DeliveryInput::Saved, &mut self.effects);
                }
            }
            DeliveryEffect::Disabled(why) => self.results.push(format!("disabled {}", why.as_str())),
            DeliveryEffect::Recovered => self.results.push("recovered".into()),
            DeliveryEffect::Lost { first, last } => self.results.push(format!("lost {first}-{last}")),
        }
        // The effects of a save come before what follows from it.
        for effect in core::mem::take(&mut self.effects) {
            self.carry_out(now, effect);
        }
    }
}

fn mark(seq: u64) -> LogMark {
    LogMark { seq, position: 10 * seq }
}

fn dead_letter(seq: u64) -> RetriedDeadLetter {
    RetriedDeadLetter {
        run: EntryRange { after: mark(seq - 1), first: seq, last: seq, gap: false },
        bytes: 100,
    }
}

fn show(runs: &[EntryRange]) -> String {
    let one = |run: &EntryRange| match (run.gap, run.first == run.last) {
        (true, _) => format!("!{}-{}", run.first, run.last),
        (false, true) => run.first.to_string(),
        (false, false) => format!("{}-{}", run.first, run.last),
    };
    runs.iter().map(one).collect::<Vec<_>>().join("+")
}

/// Runs a story. The results of each step are listed after its time; steps without results are omitted.
fn run_story(mut world: World, story: &str) -> (String, World) {
    let mut results = Vec::new();
    for step in story.split(';').map(str::trim) {
        let (time, words) = step.split_once(": ").unwrap_or((step, ""));
        let now = Time(time.parse().unwrap_or_else(|_| panic!("{step:?} has no time")));
        for words in ["", words] {
            world.step(now, words);
            world.pump(now);
        }
        if !world.results.is_empty() {
            results.push(format!("{}: {}", now.ms(), core::mem::take(&mut world.results).join(", ")));
        }
    }
    (results.join("; "), world)
}

/// At most 3 events and 1000 bytes, of which 100 are the envelope; 500 ms; one at a time; backoff from 1 s to 60 s.
fn check(story: &str, expected: &str) {
    assert_eq!(run_story(World::new(RULES, POLICY), story).0, expected, "{story}");
}
