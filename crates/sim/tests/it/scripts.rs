//! Failures that were found are kept as scripts with a description of the bug: the run of a seed changes with the
//! code, a script does not.

use std::path::PathBuf;
use tavern_sim::run::{RunRequest, replay, run};
use tavern_sim::script::Script;
use tavern_sim::workload::Name;

#[test]
fn fixed_failures_do_not_return() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut found = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let script = Script::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!script.story.is_empty(), "{} has no description", path.display());
        assert_eq!(replay(&script, false).violation, None, "{}: {}", path.display(), script.story);
        found += 1;
    }
    assert!(found > 0, "no scripts in {}", folder.display());
}

#[test]
fn recorded_run_is_replayed_identically() {
    for workload in Name::ALL {
        let order = RunRequest { steps: 120, record: true, ..RunRequest::new(*workload, 5) };
        let recorded = run(order);
        let script = recorded.script.expect("it was recorded");
        let script = Script::parse(&script.to_string()).unwrap();
        let replayed = replay(&script, false);
        assert_eq!(replayed.violation, recorded.violation, "{workload:?}");
        for what in ["commits", "events received"] {
            assert_eq!(replayed.counts.get(what), recorded.counts.get(what), "{what} of {workload:?}");
        }
    }
}
