//! What only the SQLite engine promises: durability, several processes on one folder, clear refusals at opening.
//! The other processes are this test binary, started again.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tavern_domain::{Scopes, Time};
use tavern_engines::CheckHealth;
use tavern_engines::sqlite::SqliteStore;
use tavern_store::blocking::BlockingStore;
use tavern_store::{
    AnswerReceiver, ApiKey, CloseProof, Commit, Deadline, Document, DocumentKey, Found, NodeChange, Read,
    Row, RowKind, Store, StoreAnswer, StoreError, SystemClock, Ticket, Work, Writer,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn open(folder: &Path) -> Result<BlockingStore, StoreError> {
    tavern_engines::open_client(&format!("sqlite:{}", folder.display()), Arc::new(SystemClock), PATIENCE)
}

fn document(name: &str, bytes: usize) -> Row {
    Row::Document(Document { key: DocumentKey::new("thing", name), body: vec![7; bytes].into() })
}

fn put(name: &str, bytes: usize) -> Commit {
    Commit { puts: vec![document(name, bytes)], ..Commit::default() }
}

fn version(client: &BlockingStore, name: &str) -> u64 {
    match client.read(Read::Document(DocumentKey::new("thing", name))).unwrap() {
        Found::Document(found) => found.map_or(0, |found| found.version),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_epoch_that_ends_inside_a_batch_writes_nothing_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let client = open(folder.path()).unwrap();
    let change = |node: NodeChange| Commit { node: Some(node), ..Commit::default() };
    let opened = client.commit(change(NodeChange::Open { name: "n1".into(), lease_ms: 60_000 })).unwrap();
    let writer = Writer::new("n1", opened.epoch.unwrap());
    let by_it = |name: &str| Commit { writer: Some(writer.clone()), ..put(name, 1) };
    let close = change(NodeChange::Close { node: writer.clone(), proof: CloseProof::ProcessGone });
    let batch = [by_it("before"), close, by_it("after"), put("by another writer", 1)];
    let answers = client.run(batch.into_iter().map(Work::Commit).collect());
    let fenced = |answer: &StoreAnswer| matches!(answer, StoreAnswer::Failed(StoreError::Fenced { .. }));
    assert_eq!(answers.iter().map(fenced).collect::<Vec<_>>(), [false, false, true, false]);
    assert!(version(&client, "before") > 0 && version(&client, "after") == 0);
}

/// Starts this binary again, to run one of the ignored tests below on that folder.
fn start(role: &str, folder: &Path, name: &str) -> Process {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([role, "--exact", "--ignored", "--nocapture"])
        .env("TAVERN_TEST_FOLDER", folder)
        .env("TAVERN_TEST_NAME", name)
        .stdout(Stdio::piped())
        .spawn();
    Process(child.unwrap())
}

/// Ends with the test, also when the test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn role() -> Option<(std::path::PathBuf, String)> {
    Some((std::env::var_os("TAVERN_TEST_FOLDER")?.into(), std::env::var("TAVERN_TEST_NAME").ok()?))
}

/// Prints every acknowledgement when it arrives.
struct Reporter {
    answered: Mutex<u64>,
    more: Condvar,
}

impl AnswerReceiver for Reporter {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        let mut out = std::io::stdout().lock();
        for (ticket, answer) in &answers {
            match answer {
                StoreAnswer::Committed(_) => writeln!(out, "ack {}", ticket.0).unwrap(),
                other => writeln!(out, "failed {other:?}").unwrap(),
            }
        }
        out.flush().unwrap();
        *self.answered.lock().unwrap() += answers.len() as u64;
        self.more.notify_all();
    }
}

#[test]
#[ignore = "a role: commits until it is killed"]
fn role_commits_until_killed() {
    const UNDER_WAY: u64 = 64;
    let Some((folder, name)) = role() else { return };
    let reporter = Arc::new(Reporter { answered: Mutex::new(0), more: Condvar::new() });
    let store = SqliteStore::open(&folder, Arc::new(SystemClock), reporter.clone()).unwrap();
    for group in 0u64.. {
        let commit = |n: u64| {
            // Two documents and a deadline: a half commit would show.
            let puts = vec![document(&format!("{name}-{n}-a"), 10), document(&format!("{name}-{n}-b"), 3000)];
            let deadlines = vec![Deadline::new(Time(n + 1), "kill", &format!("{name}-{n}"))];
            (Ticket(n), Work::Commit(Commit { puts, deadlines, ..Commit::default() }))
        };
        store.submit((group * 8..group * 8 + 8).map(commit).collect());
        let answered = reporter.answered.lock().unwrap();
        let many = |answered: &mut u64| group * 8 + 8 - *answered > UNDER_WAY;
        drop(reporter.more.wait_while(answered, many).unwrap());
    }
}

#[test]
#[ignore = "a role: makes one key, as a tool beside a running server does"]
fn role_creates_a_key() {
    let Some((folder, name)) = role() else { return };
    let key = ApiKey {
        id: name.as_str().into(),
        name: name.as_str().into(),
        hash: [9; 32],
        scopes: Scopes::ALL,
        created_at: Time(1),
        revoked_at: None,
        expires_at: None,
        last_used_at: None,
    };
    open(&folder).unwrap().commit(Commit { puts: vec![Row::Key(key)], ..Commit::default() }).unwrap();
}

/// The acknowledgements that a child has printed, read up to a count or to the end.
struct Acks(BufReader<ChildStdout>, BTreeSet<u64>);

impl Acks {
    fn of(process: &mut Process) -> Acks {
        Acks(BufReader::new(process.0.stdout.take().unwrap()), BTreeSet::new())
    }

    fn read(&mut self, max: usize) {
        let mut left = max;
        while left > 0 {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            // The kill may have cut the last line short: a line without its end is ignored.
            let Some(line) = line.strip_suffix('\n') else { return };
            assert!(!line.starts_with("failed"), "{line}");
            if let Some(n) = line.strip_prefix("ack ") {
                self.1.insert(n.parse().unwrap());
                left -= 1;
            }
        }
    }
}

fn check_acknowledged(folder: &Path, name: &str, acknowledged: &BTreeSet<u64>) {
    let client = open(folder).unwrap();
    let last = *acknowledged.last().unwrap();
    // Beyond the last acknowledgement there may be commits whose answer never arrived.
    for n in 0..last + 200 {
        let parts = ["a", "b"].map(|part| version(&client, &format!("{name}-{n}-{part}")) != 0);
        assert_eq!(parts[0], parts[1], "{name}-{n} is half there");
        assert!(parts[0] || !acknowledged.contains(&n), "{name}-{n} was acknowledged and is lost");
    }
}

#[test]
fn kill_nine_loses_nothing_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let names = [format!("one{round}"), format!("two{round}")];
        let mut children =
            names.each_ref().map(|name| start("sqlite::role_commits_until_killed", home.path(), name));
        let mut acks = children.each_mut().map(Acks::of);
        acks.iter_mut().for_each(|acks| acks.read(60 + 37 * round));
        children[0].0.kill().unwrap();
        acks[0].read(usize::MAX);
        // The dead one's lock is free: the other goes on.
        acks[1].read(200);
        children[1].0.kill().unwrap();
        acks[1].read(usize::MAX);
        drop(children);
        for (name, acks) in names.iter().zip(&acks) {
            check_acknowledged(home.path(), name, &acks.1);
        }
    }
}

#[test]
fn a_key_made_by_another_process_is_seen_by_the_running_store() {
    let home = tempfile::tempdir().unwrap();
    let running = open(home.path()).unwrap();
    assert!(matches!(running.read(Read::KeyByHash([9; 32])), Ok(Found::Key(None))));
    let tool = start("sqlite::role_creates_a_key", home.path(), "k1").0.wait().unwrap();
    assert!(tool.success());
    match running.read(Read::KeyByHash([9; 32])).unwrap() {
        Found::Key(Some(key)) => assert_eq!(&*key.row.id, "k1"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_is_there_after_opening_again() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("deep").join("a folder");
    let first = open(&folder).unwrap();
    let node = Some(NodeChange::Open { name: "n1".into(), lease_ms: 1000 });
    let epoch = first.commit(Commit { node: node.clone(), ..put("a", 100) }).unwrap();
    drop(first);
    let left: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "tavern.db" || name == "tavern.lock"), "{left:?}");
    let second = open(&folder).unwrap();
    assert_eq!(version(&second, "a"), epoch.put[0].version);
    assert!(second.commit(Commit { node, ..Commit::default() }).unwrap().epoch > epoch.epoch);
    assert!(matches!(second.read(Read::Time), Ok(Found::Time(time)) if time >= epoch.time));
}

#[test]
fn a_database_of_another_version_is_refused_and_left_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()).unwrap());
    let database = home.path().join("tavern.db");
    for other in [2, 99] {
        let connection = rusqlite::Connection::open(&database).unwrap();
        connection.pragma_update(None, "user_version", other as i64).unwrap();
        drop(connection);
        let before = std::fs::read(&database).unwrap();
        match open(home.path()).map(drop) {
            Err(error @ StoreError::SchemaVersion { found, known: 1 }) => {
                assert_eq!(found, other);
                assert!(error.to_string().contains("start the tavern version"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(std::fs::read(&database).unwrap(), before);
    }
}

#[test]
fn a_foreign_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let database = home.path().join("tavern.db");
    std::fs::write(&database, "no database at all, but long enough to look at it").unwrap();
    assert!(matches!(open(home.path()).map(drop), Err(StoreError::Damaged { .. })));
    std::fs::remove_file(&database).unwrap();
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("CREATE TABLE recipes (soup)").unwrap();
    drop(connection);
    match open(home.path()).map(drop) {
        Err(StoreError::Corrupt { what, .. }) => assert!(what.contains("another program"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_with_its_name() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    for folder in [Path::new("/proc/tavern-data"), &file, &file.join("below")] {
        match open(folder).map(drop) {
            Err(error @ StoreError::Folder { .. }) => {
                assert!(error.to_string().contains(&folder.display().to_string()), "{error}");
            }
            other => panic!("{}: {other:?}", folder.display()),
        }
    }
}

#[test]
fn a_full_disk_refuses_the_batch_and_heals() {
    let home = tempfile::tempdir().unwrap();
    let client = BlockingStore::with(PATIENCE, |inbox| {
        Ok(Arc::new(SqliteStore::open_within(home.path(), Arc::new(SystemClock), inbox, Some(60))?))
    })
    .unwrap();
    let mut written = 0;
    let error = loop {
        match client.commit(put(&written.to_string(), 8000)) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the bound does not hold");
    };
    let StoreError::Unavailable { source, .. } = error else { panic!("{error}") };
    assert!(source.to_string().contains("full"), "{source}");
    assert_eq!(version(&client, &written.to_string()), 0);
    (0..written).for_each(|n| assert_ne!(version(&client, &n.to_string()), 0));
    let key = tavern_store::RowKey::Document(DocumentKey::new("thing", "0"));
    client.commit(Commit { deletes: vec![key], ..Commit::default() }).unwrap();
    client.commit(put("again", 4000)).expect("there is room again");
}

#[test]
fn an_unknown_address_is_reported_without_its_secrets() {
    let refused =
        tavern_engines::open_client("mysql://me:hush@db/tavern", Arc::new(SystemClock), PATIENCE).map(drop);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("mysql") && !text.contains("hush"), "{text}");
    for url in ["", "sqlite:", "memory:x", "nothing"] {
        assert!(tavern_engines::open_client(url, Arc::new(SystemClock), PATIENCE).is_err(), "{url}");
    }
    assert_eq!(
        tavern_engines::open_client("memory:", Arc::new(SystemClock), PATIENCE).unwrap().store().name(),
        "memory"
    );
}

#[test]
fn an_emptied_database_is_not_taken_as_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()).unwrap());
    let database = home.path().join("tavern.db");
    for empty in [true, false] {
        match empty {
            true => std::fs::write(&database, "").unwrap(),
            false => std::fs::remove_file(&database).unwrap(),
        }
        match open(home.path()).map(drop) {
            Err(error @ StoreError::Folder { .. }) => {
                assert!(error.to_string().contains("restore it from a backup"), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn damage_is_reported_as_such_and_found_by_the_check() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path()).unwrap();
    (0..100).for_each(|n| drop(store.commit(put(&format!("d{n}"), 20_000)).unwrap()));
    drop(store);
    let url = format!("sqlite:{}", home.path().display());
    let health = || tavern_engines::store_facts(&url).unwrap().facts[0].health;
    assert_eq!(health(), CheckHealth::Good);
    let database = home.path().join("tavern.db");
    let mut bytes = std::fs::read(&database).unwrap();
    // Documents: the tables that opening reads come before them.
    let from = bytes.len() / 2 / 4096 * 4096;
    bytes[from..].fill(0xAB);
    std::fs::write(&database, bytes).unwrap();
    assert_eq!(health(), CheckHealth::Bad);
    let store = open(home.path()).unwrap();
    let rows = Read::Rows { kind: RowKind::Document, after: None, limit: 1000 };
    assert!(matches!(store.read(rows), Err(StoreError::Damaged { .. })));
}

#[test]
fn erased_rows_are_in_no_file() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path()).unwrap();
    let secret = b"the words of somebody who wants to be forgotten";
    let row = |n: u32| Document { key: DocumentKey::new("thing", &n.to_string()), body: Arc::from(*secret) };
    let puts = |from| (from..from + 100).map(|n| Row::Document(row(n))).collect();
    store.commit(Commit { puts: puts(0), ..Commit::default() }).unwrap();
    let found = || {
        let files =
            std::fs::read_dir(home.path()).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        let copies =
            |bytes: Vec<u8>| bytes.windows(secret.len()).filter(|part| *part == secret.as_slice()).count();
        files.map(copies).sum::<usize>()
    };
    assert!(found() >= 100);
    let deletes = (0..100).map(|n| Row::Document(row(n)).key()).collect();
    store.commit(Commit { deletes, erases: true, ..Commit::default() }).unwrap();
    assert_eq!(found(), 0);
}
