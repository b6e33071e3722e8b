//! Forked children and child programs: they share nothing of their parent's registration.

use crate::support::{Peer, Rows, decode, names, rows, send, until, wake_files};
use std::time::Duration;
use tavern_local::open;

#[test]
fn a_forked_child_is_refused_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let publisher = open(path).unwrap();
    let mut parent = Peer::at(path);
    parent.ok("subscribe c");
    assert_eq!(publisher.publish("c", "before").unwrap(), 1);
    // Every method of a handle, then opening this folder and another one.
    assert_eq!(parent.ask("fork"), ["Forked"; 10].join(" "));
    assert_eq!(parent.line(), "ok");
    assert!(!names(path).contains("other"));
    assert_eq!((rows(path).processes.len(), wake_files(path).len()), (1, 1));
    assert_eq!(publisher.sweep().unwrap(), 0);
    assert_eq!(publisher.publish("c", "after").unwrap(), 1);
    assert_eq!(parent.receive(2), ["message c before", "message c after"]);
    parent.send("wait 20000");
    assert_eq!(publisher.publish("c", "woken").unwrap(), 1);
    assert_eq!(parent.line_within(Duration::from_millis(700)), "message c woken");
    assert_eq!(parent.count("publish c echo"), 1);
    parent.end();
    assert_eq!(rows(path), Rows::default());
}

#[test]
fn a_child_that_outlives_its_parent_does_not_keep_it_alive() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = open(folder.path()).unwrap();
    let mut parent = Peer::at(folder.path());
    parent.ok("subscribe c");
    let child = parent.count("fork-and-stay") as i32;
    assert_eq!(publisher.publish("c", "x").unwrap(), 1);
    parent.kill();
    let counted = publisher.publish("c", "y");
    let found = (rows(folder.path()).processes, wake_files(folder.path()));
    let stat = format!("/proc/{child}/stat");
    let lives = std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
    send(child, libc::SIGKILL);
    assert!(lives, "the child was alive all the time");
    assert_eq!(counted.unwrap(), 0);
    assert_eq!(found, (vec![], vec![]));
    until("the child is gone", || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z ")));
}

#[test]
fn a_started_program_inherits_nothing_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let mut parent = Peer::at(&path);
    parent.ok("subscribe c");
    assert_eq!(parent.ask("poll"), "none");
    let links = decode(&parent.ok("descriptors"));
    let links = String::from_utf8(links).unwrap();
    assert!(links.lines().count() >= 3, "{links}");
    for link in links.lines() {
        let inherited = link.starts_with(path.to_str().unwrap());
        assert!(!inherited && !link.contains("socket:") && !link.contains("eventfd"), "{links}");
    }
}
