//! A campaign of runs. Prints what it saw and, for a failure, the command that replays it.

use std::process::ExitCode;
use tavern_sim::run::{Report, run};
use tavern_sim::world::Sabotage;

const USAGE: &str = "usage: tavern-sim [--runs N] [--seed N] [--steps N]";

fn main() -> ExitCode {
    let mut runs = 200;
    let mut first = 1;
    let mut steps = 2_000;
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let Some(number) = args.next().and_then(|text| text.parse::<u64>().ok()) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        match flag.as_str() {
            "--runs" => runs = number,
            "--seed" => (first, runs) = (number, 1),
            "--steps" => steps = number as usize,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    campaign(first, runs, steps)
}

fn campaign(first: u64, runs: u64, steps: usize) -> ExitCode {
    let mut sum = (0, 0, 0, 0);
    let mut failed = 0;
    for seed in first..first + runs {
        let report = run(seed, steps, Sabotage::None);
        sum = (sum.0 + report.heard, sum.1 + report.gaps, sum.2 + report.resumed, sum.3 + report.restarts);
        if let Some(violation) = &report.violation {
            failed += 1;
            tell(&report, violation, steps);
        }
    }
    let (heard, gaps, resumed, restarts) = sum;
    println!("{heard} events heard, {gaps} gaps told, {resumed} sessions resumed, {restarts} restarts");
    println!("{} passed, {failed} failed", runs - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(report: &Report, violation: &str, steps: usize) {
    println!("seed {}: {violation}", report.seed);
    println!("  replay: cargo run --release -p tavern-sim -- --seed {} --steps {steps}", report.seed);
}
