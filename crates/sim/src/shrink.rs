//! Makes a recorded failure small: removes every line without which the run still fails in the same way.

use crate::run::replay;
use crate::script::Script;

/// A script that fails like this one, with as few lines as can be found by removing lines.
pub fn shrink(script: &Script) -> Script {
    let Some(wanted) = failure(script) else { return script.clone() };
    let fails = |lines: &[(u64, String)]| {
        let shorter = Script { lines: lines.to_vec(), ..script.clone() };
        failure(&shorter).as_ref() == Some(&wanted)
    };
    // Most faults have nothing to do with the failure.
    let is_fate = |line: &(u64, String)| line.1.starts_with("fate ");
    let without: Vec<_> = script.lines.iter().filter(|line| !is_fate(line)).cloned().collect();
    let mut lines = if fails(&without) { without } else { script.lines.clone() };
    let mut size = lines.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let before = lines.len();
        while at < lines.len() {
            let mut shorter = lines.clone();
            drop(shorter.drain(at..(at + size).min(lines.len())));
            match fails(&shorter) {
                true => lines = shorter,
                false => at += size,
            }
        }
        // A line may become unnecessary when later ones are removed.
        size = if size == 1 && lines.len() < before { 1 } else { size / 2 };
    }
    Script { lines, ..script.clone() }
}

/// The failure of a script, without the parts that differ each time: numbers and ids.
fn failure(script: &Script) -> Option<String> {
    let violation = replay(script, false).violation?;
    let words = violation.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    Some(words.collect::<Vec<_>>().join(" "))
}
