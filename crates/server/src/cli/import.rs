//! `tavern import`: reads an export from stdin into an empty store on which no server runs.
//! Must hold: no existing row is changed, because every row is expected to be absent; a failed import reports how many rows
//! are stored; versions do not repeat, because the new store's time is not before that of the export.

use super::archive::{ArchiveHeader, ArchiveLine, FORMAT, ImportedItem, OLDEST_FORMAT};
use super::export::running_servers;
use super::options::StoreOptions;
use super::progress::Progress;
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, Read as _};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_store::blocking::BlockingStore;
use tavern_store::{ChannelVersionBump, Clock, Commit, Expect, Found, Read, Row, RowKind, SystemClock, Trim};

#[derive(clap::Args)]
pub struct ImportArgs {
    #[command(flatten)]
    options: StoreOptions,
}

const TIMEOUT: Duration = Duration::from_secs(60);
/// Limits of one commit: lines and bytes.
const BATCH_LINES: u64 = 500;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// A session with a full mailbox in base64, with some margin.
const LINE_BYTES: u64 = 16 * 1024 * 1024;

pub fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let config = args.options.config(None)?;
    let mut input = Input { size: size_of_stdin(), read: 0, lines: std::io::stdin().lock() };
    let Some(ArchiveLine::Tavern(header)) = input.next()? else {
        bail!("not an export: the first line must be the header that `tavern export` writes");
    };
    let client =
        tavern_engines::open_client(&config.store, Arc::new(ExportedTime(Time(header.time))), TIMEOUT)?;
    check(&client, &header)?;
    let mut import = Import {
        client: &client,
        time: header.time,
        commit: Commit::default(),
        raised: BTreeSet::new(),
        position: 0,
        bytes: 0,
        done: 0,
        waiting: 0,
        progress: Progress::new("rows"),
    };
    let outcome = import.take_all(&mut input);
    // Clears its bar.
    drop(std::mem::replace(&mut import.progress, Progress::new("rows")));
    match outcome {
        Ok(()) => {
            eprintln!("imported {} rows into {}", import.done, client.store().name());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let done = import.done;
            Err(error.context(match done {
                0 => "nothing was imported".to_owned(),
                _ => format!("only the first {done} rows were imported: empty the store and try again"),
            }))
        }
    }
}

/// The time of the export. The new store starts there, so that versions do not decrease, and no later: only servers check
/// whether a clock can be trusted.
struct ExportedTime(Time);

impl Clock for ExportedTime {
    fn now(&self) -> Time {
        self.0
    }

    fn latest(&self) -> Time {
        self.0
    }
}

fn check(client: &BlockingStore, header: &ArchiveHeader) -> anyhow::Result<()> {
    if !(OLDEST_FORMAT..=FORMAT).contains(&header.format) {
        bail!(
            "the file has format {}, this program reads {OLDEST_FORMAT} to {FORMAT}: use the tavern version that wrote it, {}",
            header.format,
            header.program
        );
    }
    let (now, alive) = running_servers(client)?;
    if !alive.is_empty() {
        bail!("servers run on this store ({}): stop them first", alive.join(", "));
    }
    if let Some(what) = occupied(client)? {
        bail!("this store is not empty, it has {what}: import into a new folder, database or schema");
    }
    let now = now.min(SystemClock.now());
    if now.ms() < header.time {
        let behind = header.time - now.ms();
        bail!(
            "the clock of this store is {behind} ms behind that of the exported store, so versions would decrease: correct the clock"
        );
    }
    Ok(())
}

/// Rows in the store that an import could collide with.
fn occupied(client: &BlockingStore) -> anyhow::Result<Option<&'static str>> {
    let rows = |kind| Read::Rows { kind, after: None, limit: 1 };
    for (what, read) in [
        ("API keys", Read::Keys { after: None, limit: 1 }),
        ("users", rows(RowKind::User)),
        ("follows", rows(RowKind::Follow)),
        ("holds", rows(RowKind::Hold)),
        ("documents", rows(RowKind::Document)),
        ("presences", rows(RowKind::Presence)),
        ("sessions", Read::Sessions { node: None, after: None, limit: 1 }),
        ("deadlines", Read::DueDeadlines { by: Time::NEVER, after: None, limit: 1 }),
        ("messages", Read::Histories { after: None, limit: 1 }),
        ("events", Read::Topics { names: Vec::new(), after: None, limit: 1 }),
    ] {
        let empty = match client.read(read)? {
            Found::Keys(page) => page.rows.is_empty(),
            Found::Rows(page) => page.rows.is_empty(),
            Found::Sessions(page) => page.rows.is_empty(),
            Found::Deadlines(page) => page.rows.is_empty(),
            Found::Histories(list) => list.page.rows.is_empty(),
            Found::Topics(topics) => topics.log.head == 0,
            _ => false,
        };
        if !empty {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

struct Input<R> {
    lines: R,
    read: u64,
    /// Known if the input is a file.
    size: Option<u64>,
}

impl<R: BufRead> Input<R> {
    /// The next line. None: the input has ended.
    fn next(&mut self) -> anyhow::Result<Option<ArchiveLine>> {
        let mut text = Vec::new();
        self.read += self.lines.by_ref().take(LINE_BYTES).read_until(b'\n', &mut text)? as u64;
        match text.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(serde_json::from_slice(&text).context("a line cannot be read")?)),
            Some(_) => bail!("the last line is truncated, or longer than any line of an export"),
        }
    }
}

fn size_of_stdin() -> Option<u64> {
    let file = std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?);
    file.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
}

struct Import<'a> {
    client: &'a BlockingStore,
    /// Of the export.
    time: u64,
    commit: Commit,
    raised: BTreeSet<Arc<str>>,
    /// Of the last event.
    position: u64,
    bytes: usize,
    /// Rows that are stored, and those that are not yet committed.
    done: u64,
    waiting: u64,
    progress: Progress,
}

impl Import<'_> {
    fn take_all(&mut self, input: &mut Input<impl BufRead>) -> anyhow::Result<()> {
        loop {
            self.progress.show(self.done, input.size.map(|size| (input.read, size)));
            let Some(line) = input.next()? else {
                bail!("the file is truncated: its last line is missing");
            };
            if let ArchiveLine::End(end) = &line {
                self.carry_out()?;
                if end.lines != self.done {
                    bail!("the file should have {} rows and has {}", end.lines, self.done);
                }
                return Ok(());
            }
            let at = self.done + self.waiting + 1;
            match line.put().with_context(|| format!("row {at} cannot be read"))? {
                Some(put) => self.add(put)?,
                None => bail!("row {at} is the start of another export"),
            }
        }
    }

    fn add(&mut self, put: ImportedItem) -> anyhow::Result<()> {
        match put {
            ImportedItem::Row(row) => {
                if let Row::Presence(presence) = &row
                    && self.raised.insert(presence.key.channel.clone())
                {
                    self.commit
                        .raises
                        .push(ChannelVersionBump { channel: presence.key.channel.clone(), by: 1 });
                }
                self.bytes += weight(&row);
                self.commit.expects.push(Expect { key: row.key(), version: 0 });
                self.commit.puts.push(row);
            }
            ImportedItem::Event(entry) => {
                if entry.position <= self.position {
                    bail!("the events of the log are not in order");
                }
                self.position = entry.position;
                self.bytes += 200 + entry.body.len();
                self.commit.restores.push(entry);
            }
            ImportedItem::Log(log) => {
                // The events are stored by now: drop the placeholders of earlier ones.
                if log.head != self.position || log.first > log.head + 1 {
                    bail!("the log should end at {} and ends at {}", log.head, self.position);
                }
                self.commit.trim = Some(Trim { before: log.first, ids_before: 0 });
            }
            ImportedItem::Inbox(message) => {
                self.bytes += 200 + message.body.len();
                self.commit.inbox_messages.push(message);
            }
            ImportedItem::History(mut message) => {
                message.keep.ttl_ms = message.keep.ttl_ms.saturating_sub(self.time).max(1);
                self.bytes += 200 + message.body.len();
                self.commit.history.push(message);
            }
            ImportedItem::Deadline(deadline) => {
                self.commit.expects.push(Expect { key: deadline.key(), version: 0 });
                self.commit.deadlines.push(deadline);
            }
        }
        self.waiting += 1;
        if self.waiting >= BATCH_LINES || self.bytes >= BATCH_BYTES { self.carry_out() } else { Ok(()) }
    }

    fn carry_out(&mut self) -> anyhow::Result<()> {
        if self.waiting == 0 {
            return Ok(());
        }
        let (first, last) = (self.done + 1, self.done + self.waiting);
        let commit = std::mem::take(&mut self.commit);
        self.client.commit(commit).with_context(|| format!("cannot store rows {first} to {last}"))?;
        self.raised.clear();
        (self.bytes, self.waiting) = (0, 0);
        self.done = last;
        Ok(())
    }
}

/// Its approximate size in bytes.
fn weight(row: &Row) -> usize {
    match row {
        Row::Session(session) => session.body.len(),
        Row::Document(document) => document.body.len(),
        Row::Presence(presence) => {
            let state = |text: &tavern_domain::presence::ClientState| text.text.len();
            presence
                .attendance
                .clients()
                .iter()
                .map(|client| 200 + client.state.as_ref().map_or(0, state))
                .sum()
        }
        _ => 200,
    }
}
