//! A campaign of runs of both worlds. Prints what it saw and, for a failure, the command that replays it.

use std::process::ExitCode;
use tavern_sim::street::{self, Plant};
use tavern_sim::world::Sabotage;
use tavern_sim::{run, street::Report};

const USAGE: &str =
    "usage: tavern-sim [--world messages|street|both] [--runs N] [--seed N] [--steps N] [--tell]";

struct Campaign {
    messages: bool,
    street: bool,
    first: u64,
    runs: u64,
    steps: Option<usize>,
    /// Tell everything that happens on the street.
    tell: bool,
}

fn main() -> ExitCode {
    let Some(campaign) = read_arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    if campaign.messages {
        failed += campaign.run_messages();
    }
    if campaign.street {
        failed += campaign.run_street();
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read_arguments() -> Option<Campaign> {
    let mut campaign =
        Campaign { messages: true, street: true, first: 1, runs: 200, steps: None, tell: false };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        if flag == "--tell" {
            campaign.tell = true;
            continue;
        }
        let value = args.next()?;
        match flag.as_str() {
            "--world" => {
                campaign.messages = matches!(value.as_str(), "messages" | "both");
                campaign.street = matches!(value.as_str(), "street" | "both");
            }
            "--runs" => campaign.runs = value.parse().ok()?,
            "--seed" => (campaign.first, campaign.runs) = (value.parse().ok()?, 1),
            "--steps" => campaign.steps = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    (campaign.messages || campaign.street).then_some(campaign)
}

impl Campaign {
    fn seeds(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.runs
    }

    fn run_messages(&self) -> u64 {
        let steps = self.steps.unwrap_or(2_000);
        let mut sum = (0, 0, 0, 0);
        let mut failed = 0;
        for seed in self.seeds() {
            let report = run::run(seed, steps, Sabotage::None);
            sum =
                (sum.0 + report.heard, sum.1 + report.gaps, sum.2 + report.resumed, sum.3 + report.restarts);
            failed += self.judge("messages", seed, steps, report.trace, report.violation.as_deref());
        }
        let (heard, gaps, resumed, restarts) = sum;
        println!(
            "messages: {heard} events heard, {gaps} gaps told, {resumed} sessions resumed, {restarts} restarts"
        );
        println!("messages: {} passed, {failed} failed", self.runs - failed);
        failed
    }

    fn run_street(&self) -> u64 {
        let steps = self.steps.unwrap_or(street::STEPS);
        let mut reports: Vec<Report> = Vec::new();
        let mut failed = 0;
        for seed in self.seeds() {
            let report =
                if self.tell { street::show(seed, steps) } else { street::run(seed, steps, Plant::None) };
            failed += self.judge("street", seed, steps, report.trace, report.violation.as_deref());
            reports.push(report);
        }
        let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
        println!(
            "street: {} events heard, {} commits, {} crashes, {} naps, {} cuts, {} stops, {} sessions resumed, {} taken up",
            sum(|report| report.heard),
            sum(|report| report.commits as usize),
            sum(|report| report.crashes),
            sum(|report| report.naps),
            sum(|report| report.cuts),
            sum(|report| report.stops),
            sum(|report| report.resumed),
            sum(|report| report.adopted),
        );
        println!(
            "street: {} nodes began again, {} clients taken over, {} graces ran out, {} commands refused",
            sum(|report| report.epochs),
            sum(|report| report.taken_over),
            sum(|report| report.expired),
            sum(|report| report.refused),
        );
        println!("street: {} passed, {failed} failed", self.runs - failed);
        failed
    }

    /// Says what is wrong with a run and how to see it again. A single run says its trace: the same each time.
    fn judge(&self, world: &str, seed: u64, steps: usize, trace: u64, violation: Option<&str>) -> u64 {
        if self.runs == 1 {
            println!("{world}, seed {seed}: trace {trace:016x}");
        }
        let Some(violation) = violation else { return 0 };
        println!("{world}, seed {seed}: {violation}");
        println!(
            "  replay: cargo run --release -p tavern-sim -- --world {world} --seed {seed} --steps {steps}"
        );
        1
    }
}
