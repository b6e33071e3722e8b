//! How far a long command is, on stderr: a bar that is drawn again and again on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Rows between two lines where there is no terminal.
const LINES: u64 = 50_000;
const REDRAW: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

pub struct Progress {
    unit: &'static str,
    bar: bool,
    drawn: Option<Instant>,
    done: u64,
}

impl Progress {
    pub fn new(unit: &'static str) -> Progress {
        let bar =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Progress { unit, bar, drawn: None, done: 0 }
    }

    /// For a command that writes its result to stdout: no bar in the middle of it.
    pub fn beside_stdout(unit: &'static str) -> Progress {
        let progress = Progress::new(unit);
        Progress { bar: progress.bar && !std::io::stdout().is_terminal(), ..progress }
    }

    pub fn is_bar(&self) -> bool {
        self.bar
    }

    /// So many are done. `part`: how much of how much, if the whole is known.
    pub fn show(&mut self, done: u64, part: Option<(u64, u64)>) {
        if self.bar {
            if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
                self.draw(&format!("\r{}\x1b[K", line(done, self.unit, part)));
                self.drawn = Some(Instant::now());
            }
        } else if done / LINES > self.done / LINES {
            eprintln!("{done} {}", self.unit);
        }
        self.done = done;
    }

    fn draw(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        // Progress that cannot be shown is no reason to fail.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// What is printed next stands on an empty line.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            self.draw("\r\x1b[K");
        }
    }
}

fn line(done: u64, unit: &str, part: Option<(u64, u64)>) -> String {
    let Some((part, whole)) = part.filter(|(_, whole)| *whole > 0) else {
        return format!("{done} {unit}");
    };
    let share = |scale: u64| (u128::from(part.min(whole)) * u128::from(scale) / u128::from(whole)) as usize;
    let full = share(WIDTH);
    format!("[{}{}] {:3} %  {done} {unit}", "#".repeat(full), "-".repeat(WIDTH as usize - full), share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_the_share_if_the_whole_is_known() {
        let check = |done, part, expected: &str| assert_eq!(line(done, "rows", part), expected);
        check(7, None, "7 rows");
        check(7, Some((0, 0)), "7 rows");
        check(0, Some((0, 10)), "[------------------------------]   0 %  0 rows");
        check(5, Some((5, 10)), "[###############---------------]  50 %  5 rows");
        check(10, Some((u64::MAX, u64::MAX)), "[##############################] 100 %  10 rows");
        check(11, Some((11, 10)), "[##############################] 100 %  11 rows");
    }
}
