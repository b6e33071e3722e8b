//! Runs one hot path a number of times and measures nothing: `scripts/bench-guard` counts the instructions of `repeat` with
//! valgrind. Must hold: the same arguments execute the same instructions, except for the seeds of hash tables; a path
//! neither grows nor shrinks what it works on.

mod node;
mod paths;

use std::process::ExitCode;

/// Runs before those that are counted: mailboxes, histories and buffers reach their final sizes.
const WARM_UP: u64 = 40;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for path in paths::ALL {
                println!("{} {}", path.name, path.times);
            }
            ExitCode::SUCCESS
        }
        [name, times] => {
            let path = paths::ALL.iter().find(|path| path.name == name);
            let (Some(path), Ok(times)) = (path, times.parse::<u64>()) else {
                eprintln!(
                    "tavern-guard: expected a path of `tavern-guard list` and a number, got {name} {times}"
                );
                return ExitCode::from(2);
            };
            let mut run = (path.prepare)();
            (0..WARM_UP).for_each(|_| run());
            repeat(&mut run, times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("tavern-guard: expected `list`, or a path and how often to run it");
            ExitCode::from(2)
        }
    }
}

/// `scripts/bench-guard` names this function: only what happens in it is counted.
#[inline(never)]
fn repeat(run: &mut dyn FnMut(), times: u64) {
    (0..times).for_each(|_| run());
}
