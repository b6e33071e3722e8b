//! One run: a seed or a script determines the actions; every change is judged as it happens, and the final state when the
//! faults have ended.

use crate::cluster::{Cluster, Exit, Signal, Start};
use crate::faults::NetworkCut;
use crate::planted::PlantedFault;
use crate::rng::Rng;
use crate::script::Script;
use crate::swarm::Swarm;
use crate::trace::{BEGINS, Trace};
use crate::workload::{Name, Outcome, Profile, Workload, number};
use std::collections::BTreeMap;
use tavern_domain::Time;

/// How long after a failure a process is started again.
const RESTART_MS: u64 = 500;
/// How often to check whether all nodes are up after the faults have ended, and the maximum number of checks.
const LOOK_MS: u64 = 250;
const LOOKS: usize = 200;
/// The maximum number of steps at one moment: a livelock fails the run.
const STEPS_AT_ONCE: usize = 100_000;

/// The actions after the cluster has converged: everything must still work, and converge again.
const CALM_STEPS: usize = 40;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunRequest {
    pub workload: Name,
    pub seed: u64,
    pub steps: usize,
    pub fault: Option<PlantedFault>,
    /// Print everything that happens.
    pub print: bool,
    /// Keep everything that happens as a script.
    pub record: bool,
    /// A random part of the faults and actions.
    pub swarm: bool,
}

impl RunRequest {
    pub fn new(workload: Name, seed: u64) -> RunRequest {
        let steps = workload.steps();
        RunRequest { workload, seed, steps, fault: None, print: false, record: false, swarm: false }
    }
}

#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    /// The same seed gives the same trace.
    pub trace: u64,
    pub counts: BTreeMap<&'static str, u64>,
    /// The planted fault has happened.
    pub struck: bool,
    pub violation: Option<String>,
    pub script: Option<Script>,
}

/// Runs one seed.
pub fn run(order: RunRequest) -> Report {
    let mut rng = Rng::new(order.seed);
    let workload = order.workload.begin(&[], &mut rng);
    let mut run = Run::new(order, workload, rng);
    if order.record {
        run.cluster.faults.record();
    }
    let outcome = run.play(order.steps);
    run.report(outcome)
}

/// Runs a script.
pub fn replay(script: &Script, print: bool) -> Report {
    let order = RunRequest { print, ..RunRequest::new(script.workload, script.seed) };
    let mut rng = Rng::new(order.seed);
    let workload = order.workload.begin(&script.shards, &mut rng);
    let mut run = Run::new(order, workload, rng);
    run.scripted = true;
    run.cluster.faults.follow_script();
    let outcome = run.follow(script);
    run.report(outcome)
}

struct Run {
    order: RunRequest,
    profile: Profile,
    cluster: Cluster,
    workload: Box<dyn Workload>,
    rng: Rng,
    swarm: Option<Swarm>,
    /// A script determines the actions and the faults.
    scripted: bool,
    /// Postponed actions: a start after a crash, the end of a sleep.
    planned: BTreeMap<(Time, u64), String>,
    plans: u64,
    recorded: Vec<(u64, String)>,
    /// The index of the last action in it.
    acted: usize,
    counts: BTreeMap<&'static str, u64>,
}

impl Run {
    fn new(order: RunRequest, workload: Box<dyn Workload>, rng: Rng) -> Run {
        let mut profile = workload.profile();
        let swarm = order.swarm.then(|| Swarm::choose(order.seed, &mut profile.trouble));
        let trace = Trace::new(order.seed, order.print);
        let cluster = Cluster::new(order.seed, &profile.setup, order.fault, trace);
        Run {
            order,
            profile,
            cluster,
            workload,
            rng,
            swarm,
            scripted: false,
            planned: BTreeMap::new(),
            plans: 0,
            recorded: Vec::new(),
            acted: 0,
            counts: BTreeMap::new(),
        }
    }

    fn play(&mut self, steps: usize) -> Outcome {
        for action in self.workload.choose_first(&mut self.rng) {
            self.act(&action)?;
        }
        for node in 0..self.cluster.nodes.len() {
            let start = self.choose_start(node);
            self.act(&start)?;
        }
        self.pass(1_000)?;
        for step in 0..steps {
            let at = |run: &Run, error| format!("step {step} at {}: {error}", run.cluster.now.ms());
            self.step().map_err(|error| at(self, error))?;
            self.cluster.trace.note(self.cluster.now.ms());
            self.cluster.trace.note(self.cluster.commits());
        }
        self.finish().map_err(|error| format!("after the faults, at {}: {error}", self.cluster.now.ms()))
    }

    fn follow(&mut self, script: &Script) -> Outcome {
        for (ms, action) in &script.lines {
            let wait = (BEGINS + *ms).since(self.cluster.now);
            self.pass(wait)?;
            self.act(action).map_err(|error| format!("{ms} {action}: {error}"))?;
        }
        // The invariants of the end cannot hold while a fault lasts.
        if !self.cluster.is_sound() {
            return Err("the faults of this script do not end".into());
        }
        self.pass(self.profile.end_ms)?;
        self.workload.check_end(&self.cluster)
    }

    fn report(mut self, outcome: Outcome) -> Report {
        // Also what was decided since the last action.
        self.keep_fates();
        self.counts.extend(self.workload.counts());
        self.counts.insert("commits", self.cluster.commits());
        self.counts.insert("new epochs", self.cluster.new_epochs as u64);
        self.counts.values().for_each(|count| self.cluster.trace.note(*count));
        let script = self.order.record.then(|| Script {
            workload: self.order.workload,
            seed: self.order.seed,
            shards: self.profile.setup.shards.clone(),
            story: outcome.as_ref().err().cloned().unwrap_or_default(),
            lines: std::mem::take(&mut self.recorded),
        });
        Report {
            seed: self.order.seed,
            trace: self.cluster.trace.hash(),
            counts: self.counts,
            struck: self.cluster.planted.has_struck(),
            violation: outcome.err(),
            script,
        }
    }

    /// One action, then some time passes.
    fn step(&mut self) -> Outcome {
        let trouble = self.profile.trouble;
        let pick = self.rng.below(1000);
        self.cluster.trace.note(pick as u64);
        let actions = if pick < trouble.nodes {
            self.choose_trouble()
        } else if pick < trouble.nodes + trouble.level {
            self.choose_level()
        } else {
            self.choose_actions()
        };
        for action in actions {
            self.act(&action)?;
        }
        self.pass_a_moment()
    }

    /// What clients do next.
    fn choose_actions(&mut self) -> Vec<String> {
        let mut actions = self.workload.choose(&self.cluster, &mut self.rng);
        if let Some(swarm) = self.swarm {
            actions.retain(|action| swarm.allows(action));
        }
        actions
    }

    fn pass_a_moment(&mut self) -> Outcome {
        let [often, less, seldom, rare] = self.profile.pace_ms;
        let max = match self.rng.below(100) {
            0..70 => often,
            70..92 => less,
            92..99 => seldom,
            _ => rare,
        };
        let ms = self.rng.below(max.max(1)) as u64;
        self.pass(ms)
    }

    fn choose_start(&mut self, node: usize) -> String {
        let skew_ms = self.profile.trouble.skew_ms as usize;
        let skew = self.rng.below(2 * skew_ms + 1) as i64 - skew_ms as i64;
        let variant = (0..8).map(|bit| u64::from(self.rng.chance(20)) << bit).sum::<u64>();
        format!("node {node} start {skew} {variant}")
    }

    fn choose_trouble(&mut self) -> Vec<String> {
        let trouble = self.profile.trouble;
        let node = self.rng.below(self.cluster.nodes.len());
        if !self.cluster.nodes[node].is_open() {
            return Vec::new();
        }
        let short = self.rng.chance(50);
        let ms = if short { self.rng.below(3_000) } else { self.rng.below(22_000) } as u64;
        let until = self.cluster.now + ms + 1;
        let (crash, stop, sleep) = (trouble.crash, trouble.crash + trouble.stop, trouble.sleep);
        let pick = self.rng.below(stop + sleep + trouble.cut);
        if pick < stop {
            let start = self.choose_start(node);
            self.plan(until, start);
            return vec![format!("node {node} {}", if pick < crash { "crash" } else { "stop" })];
        }
        if pick < stop + sleep {
            self.plan(until, format!("node {node} wake"));
            return vec![format!("node {node} sleep")];
        }
        let silent_ms = if self.rng.chance(40) { ms } else { 0 };
        let (store, bus) = (self.rng.chance(75), self.rng.chance(75));
        self.plan(until, format!("node {node} mend"));
        vec![format!("node {node} cut {} {} {silent_ms}", u8::from(store), u8::from(bus))]
    }

    fn choose_level(&mut self) -> Vec<String> {
        let max = self.profile.trouble.level_max.max(1);
        let level = if self.rng.chance(50) { 2 } else { self.rng.below(max) };
        let until = self.cluster.now + self.rng.below(20_000) as u64;
        self.plan(until, "faults 0".into());
        vec![format!("faults {level}")]
    }

    fn plan(&mut self, due: Time, action: String) {
        self.plans += 1;
        self.planned.insert((due, self.plans), action);
    }

    /// Performs the action of a line, and everything that follows at once.
    fn act(&mut self, action: &str) -> Outcome {
        self.keep_fates();
        if self.order.record {
            self.acted = self.recorded.len();
            self.recorded.push((self.cluster.now.since(BEGINS), action.to_owned()));
        }
        self.cluster.trace.say(self.cluster.now, || format!("-- {action}"));
        let words: Vec<&str> = action.split(' ').collect();
        match &words[..] {
            // No action yet: a fate for a later decision.
            ["fate", ..] => return self.cluster.faults.expect(action.trim_start_matches("fate ")),
            ["faults", level] => {
                let level = number(level)?;
                self.cluster.faults.state().level = level;
                self.workload.observe(&mut self.cluster, Signal::Disturbed)?;
            }
            ["node", node, rest @ ..] => {
                self.act_on_node(number(node)?, rest)?;
                self.workload.observe(&mut self.cluster, Signal::Disturbed)?;
            }
            _ => self.workload.perform(&mut self.cluster, &words)?,
        }
        self.settle()
    }

    /// Does everything that is due now.
    fn settle(&mut self) -> Outcome {
        self.react()?;
        for _ in 0..STEPS_AT_ONCE {
            if !self.cluster.step() {
                return Ok(());
            }
            self.react()?;
        }
        Err("livelock: too many steps at one moment".into())
    }

    fn act_on_node(&mut self, node: usize, words: &[&str]) -> Outcome {
        if node >= self.cluster.nodes.len() {
            return Err("no such node".into());
        }
        match words {
            ["start", skew, variant] => {
                let settings = self.workload.settings(number(variant)?, self.order.fault);
                self.cluster.start(node, Start { skew: number(skew)?, settings });
            }
            ["crash"] => {
                *self.counts.entry("crashes").or_default() += 1;
                self.cluster.crash(node);
            }
            ["stop"] => {
                *self.counts.entry("stops").or_default() += 1;
                self.cluster.stop(node);
            }
            ["sleep"] => {
                *self.counts.entry("sleeps").or_default() += 1;
                self.cluster.sleep(node);
            }
            ["wake"] => self.cluster.wake(node),
            ["cut", store, bus, silent_ms] => {
                *self.counts.entry("cuts").or_default() += 1;
                let cut =
                    NetworkCut { store: *store == "1", bus: *bus == "1", silent_ms: number(silent_ms)? };
                let name = self.cluster.nodes[node].name.clone();
                self.cluster.faults.state().cut.insert(name, cut);
            }
            ["mend"] => drop(self.cluster.faults.state().cut.remove(&self.cluster.nodes[node].name)),
            _ => return Err("not an action on a node".into()),
        }
        Ok(())
    }

    /// Decisions since the last action are written before it, so that a script has them in time.
    fn keep_fates(&mut self) {
        if !self.order.record || self.recorded.is_empty() {
            return;
        }
        let ms = self.recorded[self.acted].0;
        let fates = self.cluster.faults.take_recorded().into_iter().map(|fate| (ms, format!("fate {fate}")));
        drop(self.recorded.splice(self.acted..self.acted, fates));
    }

    /// Gives the signals to clients and judges.
    fn react(&mut self) -> Outcome {
        while let Some(signal) = self.cluster.next_signal() {
            if let Signal::Ended { node, how: Exit::StoreFailed } = &signal
                && !self.scripted
            {
                let start = self.choose_start(*node);
                self.plan(self.cluster.now + RESTART_MS, start);
            }
            self.workload.observe(&mut self.cluster, signal)?;
        }
        Ok(())
    }

    /// Advances time, event by event.
    fn pass(&mut self, ms: u64) -> Outcome {
        let until = self.cluster.now + ms;
        loop {
            self.settle()?;
            let now = self.cluster.now;
            if let Some(entry) = self.planned.first_entry().filter(|entry| entry.key().0 <= now) {
                let action = entry.remove();
                self.act(&action)?;
                continue;
            }
            if now >= until {
                return Ok(());
            }
            let planned = self.planned.first_key_value().map(|((due, _), _)| *due);
            let dues = [self.cluster.next_due(), self.workload.next_wake(), planned];
            let due = dues.into_iter().flatten().min().unwrap_or(until);
            self.cluster.set_time(due.max(now + 1).min(until));
            if self.workload.next_wake().is_some_and(|due| due <= self.cluster.now) {
                self.workload.wake(&mut self.cluster)?;
            }
        }
    }

    /// The last fault, then no more: the cluster must recover.
    fn finish(&mut self) -> Outcome {
        if self.profile.last_sleep_ms > 0 {
            let busiest = self.workload.busiest_node();
            self.act(&format!("node {busiest} sleep"))?;
            self.pass(self.profile.last_sleep_ms)?;
        }
        self.planned.clear();
        self.act("faults 0")?;
        for node in 0..self.cluster.nodes.len() {
            self.act(&format!("node {node} mend"))?;
            self.act(&format!("node {node} wake"))?;
        }
        self.start_all()?;
        self.converge()?;
        // Liveness: what has recovered works, and converges again.
        for _ in 0..CALM_STEPS {
            for action in self.choose_actions() {
                if !action.starts_with("faults ") && !action.starts_with("node ") {
                    self.act(&action)?;
                }
            }
            self.pass_a_moment()?;
        }
        // Perhaps there are no actions left: a script waits for the end from its last line.
        self.act("faults 0")?;
        self.converge().map_err(|error| format!("although nothing failed any more: {error}"))
    }

    /// Without faults everything is true again within a bound.
    fn converge(&mut self) -> Outcome {
        for action in self.workload.choose_last(&self.cluster, &mut self.rng) {
            self.act(&action)?;
        }
        self.pass(self.profile.end_ms)?;
        self.workload.check_end(&self.cluster)
    }

    fn start_all(&mut self) -> Outcome {
        for _ in 0..LOOKS {
            self.planned.clear();
            for node in 0..self.cluster.nodes.len() {
                if self.cluster.nodes[node].is_down() {
                    let start = self.choose_start(node);
                    self.act(&start)?;
                }
            }
            if self.cluster.nodes.iter().all(|node| node.is_open()) {
                return Ok(());
            }
            self.pass(LOOK_MS)?;
        }
        Err("a node does not start again".into())
    }
}
