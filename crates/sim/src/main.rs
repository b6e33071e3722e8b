//! Runs workloads on the simulated cluster. Prints the results and, for a failure, the command that replays it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use tavern_sim::planted::PlantedFault;
use tavern_sim::run::{self, RunRequest};
use tavern_sim::script::Script;
use tavern_sim::shrink::shrink;
use tavern_sim::workload::Name;

const USAGE: &str =
    "usage: tavern-sim [--workload NAME|all] [--runs N] [--seed N] [--steps N] [--trace] [--swarm] [--twice]
       tavern-sim --workload NAME --seed N --record FILE    keep a failure as a small script
       tavern-sim --workload NAME --fault NAME [--seed N]   plant a fault that the judges must find
       tavern-sim --script FILE [--trace]                   run a script";

struct Campaign {
    workloads: Vec<Name>,
    first: u64,
    runs: u64,
    steps: Option<usize>,
    trace: bool,
    /// Also a run of each seed with a random part of the faults and actions.
    swarm: bool,
    /// Every run happens twice, and must be equal.
    twice: bool,
    record: Option<String>,
    script: Option<String>,
    fault: Option<PlantedFault>,
}

fn main() -> ExitCode {
    let Some(campaign) = read_arguments() else {
        let names: Vec<&str> = Name::ALL.iter().map(|name| name.text()).collect();
        eprintln!("{USAGE}\nworkloads: {}", names.join(", "));
        return ExitCode::from(2);
    };
    if let Some(file) = &campaign.script {
        return campaign.run_script(file);
    }
    let failed: u64 = campaign.workloads.iter().map(|workload| campaign.run(*workload)).sum();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read_arguments() -> Option<Campaign> {
    let workloads = Name::ALL.to_vec();
    let mut campaign = Campaign {
        workloads,
        first: 1,
        runs: 200,
        steps: None,
        trace: false,
        swarm: false,
        twice: false,
        record: None,
        script: None,
        fault: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let switch = match flag.as_str() {
            "--trace" => Some(&mut campaign.trace),
            "--swarm" => Some(&mut campaign.swarm),
            "--twice" => Some(&mut campaign.twice),
            _ => None,
        };
        if let Some(on) = switch {
            *on = true;
            continue;
        }
        let value = args.next()?;
        match flag.as_str() {
            "--workload" if value == "all" => {}
            "--workload" => campaign.workloads = vec![Name::parse(&value)?],
            "--runs" => campaign.runs = value.parse().ok()?,
            "--seed" => (campaign.first, campaign.runs) = (value.parse().ok()?, 1),
            "--record" => campaign.record = Some(value),
            "--fault" => campaign.fault = Some(fault(&value)?),
            "--script" => campaign.script = Some(value),
            "--steps" => campaign.steps = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(campaign)
}

fn fault(name: &str) -> Option<PlantedFault> {
    let all = Name::ALL.iter().flat_map(|workload| workload.planted());
    all.copied().find(|fault| format!("{fault:?}") == name)
}

impl Campaign {
    fn run_script(&self, file: &str) -> ExitCode {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        let outcome = text.and_then(|text| Script::parse(&text));
        match outcome.map(|script| run::replay(&script, self.trace).violation) {
            Ok(None) => println!("{file}: passed"),
            Ok(Some(violation)) => {
                println!("{file}: {violation}");
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::from(2);
            }
        }
        ExitCode::SUCCESS
    }

    /// Saves a failure as a script.
    fn keep(&self, script: Option<Script>) {
        if let (Some(file), Some(script)) = (&self.record, script) {
            let small = shrink(&script);
            match std::fs::write(file, small.to_string()) {
                Ok(()) => println!("  {} of {} lines in {file}", small.lines.len(), script.lines.len()),
                Err(error) => eprintln!("{file}: {error}"),
            }
        }
    }

    /// Returns the number of failures.
    fn run(&self, workload: Name) -> u64 {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut failed = 0;
        let steps = self.steps.unwrap_or(workload.steps());
        let name = workload.text();
        let seeds = self.first..self.first + self.runs;
        let modes: &[bool] = if self.swarm { &[false, true] } else { &[false] };
        for (seed, swarm) in seeds.flat_map(|seed| modes.iter().map(move |swarm| (seed, *swarm))) {
            let record = self.record.is_some();
            let (print, fault) = (self.trace, self.fault);
            let order = RunRequest { steps, print, record, fault, swarm, ..RunRequest::new(workload, seed) };
            let mut report = run::run(order);
            if self.twice && run::run(RunRequest { print: false, ..order }).trace != report.trace {
                report.violation.get_or_insert("a second run of this seed was different".into());
            }
            report.counts.iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
            if self.runs == 1 {
                let kind = if swarm { ", swarm" } else { "" };
                println!("{name}, seed {seed}{kind}: trace {:016x}", report.trace);
            }
            if let Some(violation) = report.violation {
                failed += 1;
                self.keep(report.script);
                println!("{name}, seed {seed}: {violation}");
                let swarm = if swarm { " --swarm" } else { "" };
                println!(
                    "  replay: cargo run --release -p tavern-sim -- --workload {name} --seed {seed} --steps {steps}{swarm}"
                );
            }
        }
        let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!("{name}: {}", counts.join(", "));
        println!("{name}: {} passed, {failed} failed", self.runs * modes.len() as u64 - failed);
        failed
    }
}
