//! What the tests share: peer processes that execute commands, and direct access to a folder's database.

#![allow(dead_code, unused_imports, reason = "each test file uses only some of it")]

pub mod mounts;
pub mod protocol;

pub use protocol::{Random, decode, encode, now_ns};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tavern_local::{Local, Message};

/// Longer than anything takes, unless it hangs.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Another process that uses the folder, driven by commands (`examples/peer.rs`).
pub struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Peer {
    /// A peer that has a folder open.
    pub fn at(folder: &Path) -> Peer {
        Peer::with(folder, "")
    }

    /// A peer that has a folder open with settings such as `messages=10 busy_timeout=100`.
    pub fn with(folder: &Path, settings: &str) -> Peer {
        let mut peer = Peer::idle();
        peer.ok(format!("open {} {settings}", word_of(folder)).trim_end());
        peer
    }

    /// A peer that has not opened anything yet.
    pub fn idle() -> Peer {
        Peer::start(&mut Command::new(program()))
    }

    pub fn start(command: &mut Command) -> Peer {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer starts");
        let (send, lines) = channel();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        std::thread::spawn(move || {
            use std::io::BufRead;
            for line in std::io::BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Peer { child, stdin, lines }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a command and does not wait for the answer.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the peer was not ended");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("the peer reads commands");
    }

    pub fn line(&mut self) -> String {
        self.line_within(DEADLINE)
    }

    pub fn line_within(&mut self, longest: Duration) -> String {
        self.lines.recv_timeout(longest).expect("the peer answers in time")
    }

    /// The next line, if it has arrived.
    pub fn try_line(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// The rest of an answer, which must begin with `ok`.
    pub fn ok(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        let rest = answer.strip_prefix("ok").unwrap_or_else(|| panic!("{line}: {answer}"));
        rest.trim_start().to_owned()
    }

    pub fn count(&mut self, line: &str) -> u64 {
        let answer = self.ok(line);
        answer.parse().unwrap_or_else(|_| panic!("{line}: {answer}"))
    }

    /// The next `count` messages that the peer receives.
    pub fn receive(&mut self, count: usize) -> Vec<String> {
        self.send(&format!("receive {count}"));
        let received = (0..count).map(|_| self.line()).collect();
        assert_eq!(self.line(), format!("ok {count}"));
        received
    }

    /// Every line until the peer ends.
    pub fn rest(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("the peer does not end"),
            }
        }
    }

    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Stops the peer with SIGSTOP and returns when it has stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.pid());
        until("the peer is stopped", || {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        });
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Kills the peer without a chance to clean up.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.child.wait().expect("the peer ends");
    }

    /// Ends the peer cleanly.
    pub fn end(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("the peer ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn send(pid: i32, signal: i32) {
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{pid} can be signalled");
}

/// The peer program. `cargo test` builds it; `cargo test --test NAME` does not, so its age is checked.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(find_program)
}

fn find_program() -> PathBuf {
    let this = std::env::current_exe().expect("the test has a path");
    let program = this.parent().and_then(Path::parent).expect("a folder").join("examples/peer");
    let advice = "run: cargo build -p tavern-local --example peer";
    let built = std::fs::metadata(&program).and_then(|program| program.modified());
    let built = built.unwrap_or_else(|error| panic!("{}: {error}; {advice}", program.display()));
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = vec![home.join("src"), home.join("examples/peer.rs")];
    while let Some(source) = sources.pop() {
        if source.is_dir() {
            let entries = std::fs::read_dir(&source).expect("the sources are readable");
            sources.extend(entries.map(|entry| entry.expect("the sources are readable").path()));
            continue;
        }
        let changed = std::fs::metadata(&source).and_then(|source| source.modified());
        assert!(changed.is_ok_and(|at| at <= built), "{} is newer: {advice}", source.display());
    }
    program
}

/// A path as one word of a command.
pub fn word_of(path: &Path) -> String {
    encode(path.as_os_str().as_bytes())
}

/// Polls until a condition holds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The rows in a folder's database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub processes: Vec<i64>,
    pub subscriptions: u64,
    pub queued: u64,
    pub log: u64,
}

pub fn rows(folder: &Path) -> Rows {
    let database = database(folder);
    // One transaction, so that the counts belong together.
    database.execute_batch("BEGIN").expect("a read transaction");
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        database.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("a count") as u64
    };
    let mut statement = database.prepare("SELECT id FROM process ORDER BY id").expect("a table");
    let processes = statement.query_map([], |row| row.get(0)).expect("rows");
    let processes: Vec<i64> = processes.collect::<Result<_, _>>().expect("numbers");
    let (subscriptions, queued, log) = (count("subscription"), count("queue"), count("log"));
    let sum = database.query_row("SELECT subscriptions, log_messages FROM counters", [], |row| {
        Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
    });
    assert_eq!(sum.expect("the counters"), (subscriptions, log), "the stored counters match the rows");
    Rows { processes, subscriptions, queued, log }
}

pub fn database(folder: &Path) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(folder.join("bus.db")).expect("a database");
    database.busy_timeout(DEADLINE).expect("a timeout");
    database
}

/// The names of the files in a folder.
pub fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect()
}

/// The processes that have a wake file in a folder.
pub fn wake_files(folder: &Path) -> Vec<i64> {
    let number = |name: &String| name.strip_prefix("bus.db-wake-")?.parse().ok();
    let mut found: Vec<i64> = names(folder).iter().filter_map(number).collect();
    found.sort_unstable();
    found
}

/// Every message that a handle can read without waiting.
pub fn drain(local: &Local) -> Vec<String> {
    std::iter::from_fn(|| local.poll().expect("it can be read")).map(|message| show(&message)).collect()
}

/// A message as a peer prints it.
pub fn show(message: &Message) -> String {
    match message {
        Message::Gap { lost } => format!("gap {lost}"),
        message => {
            let elements = message.elements();
            let kind = String::from_utf8_lossy(elements[0]).into_owned();
            elements[1..].iter().fold(kind, |line, element| format!("{line} {}", encode(element)))
        }
    }
}

/// Panics if a wait took long although its thread could have run: a lost wake-up costs up to a second.
pub fn check_latencies(what: &str, mut late_ns: Vec<u64>) {
    late_ns.sort_unstable();
    let at =
        |part: usize| Duration::from_nanos(late_ns[(late_ns.len() * part / 1000).min(late_ns.len() - 1)]);
    let (median, p99, max) = (at(500), at(990), at(1000));
    println!("{what}: median {median:?}, p99 {p99:?}, most {max:?} of {}", late_ns.len());
    let bound = Duration::from_millis(100);
    assert!(median < bound / 2 && p99 < bound && max < bound, "{what}: {median:?}, {p99:?}, {max:?}");
}
