//! Every file of the fuzzing corpus, run as a plain test: what the fuzzer once found stays found.

use std::path::Path;

/// Runs a target over its files. A corpus that has gone missing is a fault, not a pass.
fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 30, "{target} has only {} files", files.len());
    for file in files {
        let data = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| check(&data)) {
            eprintln!("the file is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn resp_holds_for_its_corpus() {
    run("resp", tavern_wire::fuzz::resp);
}

#[test]
fn json_holds_for_its_corpus() {
    run("json", tavern_wire::fuzz::json);
}

#[test]
fn radar_holds_for_its_corpus() {
    run("radar", tavern_wire::fuzz::radar);
}

#[test]
fn ws_holds_for_its_corpus() {
    run("ws", tavern_wire::fuzz::ws);
}

#[test]
fn poll_holds_for_its_corpus() {
    run("poll", tavern_wire::fuzz::poll);
}

#[test]
fn bus_holds_for_its_corpus() {
    run("bus", tavern_wire::fuzz::bus);
}

#[test]
fn record_holds_for_its_corpus() {
    run("record", tavern_wire::fuzz::record);
}

#[test]
fn pattern_holds_for_its_corpus() {
    run("pattern", tavern_wire::fuzz::pattern);
}
