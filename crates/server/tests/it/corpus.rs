//! Runs every file of the corpora of HTTP requests and tokens as a plain test: a regression test for what the fuzzer found.

use std::path::Path;

fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    // A missing corpus is a failure, not a pass.
    assert!(files.len() >= 30, "only {} files", files.len());
    let mut faults = Vec::new();
    for file in files {
        let data = std::fs::read(&file).unwrap();
        if std::panic::catch_unwind(|| check(&data)).is_err() {
            faults.push(file);
        }
    }
    assert!(faults.is_empty(), "does not hold for {faults:?}");
}

#[test]
fn http_invariants_hold_for_the_corpus() {
    run("http", tavern::fuzz::http);
}

#[test]
fn token_invariants_hold_for_the_corpus() {
    run("token", tavern::fuzz::token);
}
