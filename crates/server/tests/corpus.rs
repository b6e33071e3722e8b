//! Every file of the corpus of the HTTP edge, run as a plain test: what the fuzzer once found stays found.

use std::path::Path;

#[test]
fn http_holds_for_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    // A corpus that has gone missing is a fault, not a pass.
    assert!(files.len() >= 30, "only {} files", files.len());
    let mut faults = Vec::new();
    for file in files {
        let data = std::fs::read(&file).unwrap();
        if std::panic::catch_unwind(|| tavern::fuzz::http(&data)).is_err() {
            faults.push(file);
        }
    }
    assert!(faults.is_empty(), "does not hold for {faults:?}");
}
