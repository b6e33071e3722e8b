//! `tavern export`: writes the whole store as JSON lines to stdout, for `tavern import`.
//! Must hold: memory is bounded by a page; import refuses a file without the last line.

use super::archive::{ArchiveEnd, ArchiveHeader, ArchiveLine, FORMAT, LogLine};
use super::options::StoreOptions;
use super::progress::Progress;
use anyhow::{Context, bail};
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_domain::topic::{AUDIT, RESERVED};
use tavern_store::blocking::BlockingStore;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{
    Clock, Deadline, DocumentKey, Found, HistoryList, HistoryPage, HistorySummary, InboxPage, LogEnds,
    LogPage, Read, Row, RowKey, RowKind, SystemClock, TopicPage, Versioned,
};
use tavern_wire::record::SUBSCRIPTION;

#[derive(clap::Args)]
pub struct ExportArgs {
    /// Export while servers are running: leaves out sessions and presence; rows may be of different moments
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    options: StoreOptions,
}

/// The kind of the deadlines of inboxes.
const INBOX: &str = "inbox";
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
    let client = args.options.open_existing(TIMEOUT)?;
    let (time, alive) = running_servers(&client)?;
    if !alive.is_empty() && !args.live {
        bail!(
            "servers run on this store ({}): stop them first, so that sessions and presence are exported too, or use --live",
            alive.join(", ")
        );
    }
    let out = BufWriter::new(std::io::stdout().lock());
    let progress = Progress::beside_stdout("rows");
    let mut export = Export { client: &client, out, lines: 0, highest: 0, progress };
    export.refuse_live_log(!alive.is_empty())?;
    let store = client.store().name().to_owned();
    let program = env!("CARGO_PKG_VERSION").to_owned();
    let live = !alive.is_empty();
    export.line(&ArchiveLine::Tavern(ArchiveHeader {
        format: FORMAT,
        program,
        store,
        time: time.ms(),
        live,
    }))?;
    export.keys()?;
    for kind in [RowKind::User, RowKind::Follow, RowKind::Hold, RowKind::Document] {
        export.rows(kind)?;
    }
    if !live {
        export.log()?;
        export.sessions()?;
        export.rows(RowKind::Presence)?;
    }
    export.deadlines()?;
    export.histories()?;
    if !live && export.highest > time.ms().saturating_mul(1000) {
        bail!(
            "a row has a version above the store's time: the clock was set back; retry when that time has passed"
        );
    }
    let lines = export.lines - 1;
    export.line(&ArchiveLine::End(ArchiveEnd { lines }))?;
    export.out.flush()?;
    let left_out = if live { Some(export.left_out()?) } else { None };
    drop(export);
    eprintln!("exported {lines} rows");
    if let Some(left_out) = left_out {
        eprintln!("servers were running: not in the file are {left_out}, all sessions, and later changes");
    }
    Ok(ExitCode::SUCCESS)
}

/// The store's time, and the names of the servers that run on it.
pub fn running_servers(client: &BlockingStore) -> anyhow::Result<(Time, Vec<String>)> {
    let now = match client.read(Read::Time)? {
        Found::Time(now) => now,
        _ => SystemClock.now(),
    };
    // Without a server the store's time stands still, and the lease of a killed server would never end.
    let wall = now.max(SystemClock.now());
    let (mut alive, mut after) = (Vec::new(), None);
    loop {
        let Found::Nodes(page) = client.read(Read::Nodes { after, limit: PAGE_ROWS })? else {
            bail!("the store did not answer with nodes");
        };
        after = page.rows.last().map(|node| node.writer.clone());
        let living = page.rows.iter().filter(|node| node.closed_at.is_none() && wall < node.lease_until);
        alive.extend(living.map(|node| node.writer.node.to_string()));
        if !page.more {
            return Ok((now, alive));
        }
    }
}

struct Export<'a, W> {
    client: &'a BlockingStore,
    out: W,
    lines: u64,
    highest: u64,
    progress: Progress,
}

impl<W: Write> Export<'_, W> {
    /// A log that servers append to and trim cannot be read consistently: it is not in a live export. The audit trail, and events
    /// of the server itself that nobody has subscribed to, do not prevent one.
    fn refuse_live_log(&self, live: bool) -> anyhow::Result<()> {
        let topics = if live { self.topics(None)?.page.rows } else { Vec::new() };
        let has = |wanted: fn(&str) -> bool| topics.iter().any(|(topic, _)| wanted(topic));
        let is_kept = has(|topic| !topic.starts_with(RESERVED));
        if is_kept || (has(|topic| topic != AUDIT) && self.has_subscriptions()?) {
            bail!(
                "the store has topic events, which running servers still change: stop them first, or back up the store with its own tools"
            );
        }
        Ok(())
    }

    fn has_subscriptions(&self) -> anyhow::Result<bool> {
        let after = Some(RowKey::Document(DocumentKey::new(SUBSCRIPTION, "")));
        let Found::Rows(page) = self.client.read(Read::Rows { kind: RowKind::Document, after, limit: 1 })?
        else {
            bail!("the store did not answer with rows");
        };
        Ok(page
            .rows
            .iter()
            .any(|found| matches!(found.row.key(), RowKey::Document(key) if *key.kind() == *SUBSCRIPTION)))
    }

    /// What is in the store and not in a live export.
    fn left_out(&self) -> anyhow::Result<String> {
        let Found::Totals(totals) = self.client.read(Read::Totals)? else {
            bail!("the store did not answer with its totals");
        };
        let LogEnds { first, head, .. } = self.topics(None)?.log;
        let events = (head + 1).saturating_sub(first);
        Ok(format!(
            "{} presences, {events} events of the audit trail and of the server itself",
            totals.presences
        ))
    }

    fn topics(&self, after: Option<Arc<str>>) -> anyhow::Result<TopicPage> {
        match self.client.read(Read::Topics { names: Vec::new(), after, limit: PAGE_ROWS })? {
            Found::Topics(topics) => Ok(topics),
            _ => bail!("the store did not answer with topics"),
        }
    }

    fn stretch(&self, topics: Vec<Arc<str>>, after: u64, limit: u32) -> anyhow::Result<LogPage> {
        match self.client.read(Read::Log { topics, after, limit })? {
            Found::Log(stretch) => Ok(stretch),
            _ => bail!("the store did not answer with events"),
        }
    }

    /// The events with their positions and counts; before them the topics that have had more events than are kept.
    fn log(&mut self) -> anyhow::Result<()> {
        let LogEnds { first, head, .. } = self.topics(None)?.log;
        if head == 0 {
            return Ok(());
        }
        let (mut earlier, mut after) = (Vec::new(), None);
        loop {
            let page = self.topics(after)?.page;
            for (topic, count) in &page.rows {
                let oldest = self.stretch(vec![topic.clone()], 0, 1)?.page.rows.into_iter().next();
                let before = oldest.map_or(*count, |entry| entry.count - 1);
                earlier.extend((before > 0).then(|| (topic.clone(), before)));
            }
            after = page.rows.last().map(|(topic, _)| topic.clone());
            if !page.more {
                break;
            }
        }
        // Each of these topics had an event that was removed, so positions below the first kept one are free.
        let begins = first.checked_sub(earlier.len() as u64).filter(|begins| *begins > 0);
        let begins = begins.context("the log of topics is inconsistent: events are missing at its start")?;
        for (position, (topic, count)) in (begins..).zip(&earlier) {
            self.line(&ArchiveLine::of_topic(topic, *count, position))?;
        }
        let mut after = first - 1;
        loop {
            let page = self.stretch(Vec::new(), after, PAGE_ROWS)?.page;
            for entry in &page.rows {
                self.line(&ArchiveLine::of_event(entry))?;
            }
            after = page.rows.last().map_or(after, |entry| entry.position);
            if !page.more {
                break;
            }
        }
        self.line(&ArchiveLine::Log(LogLine { first, head }))
    }

    fn line(&mut self, line: &ArchiveLine) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.out, line).map_err(std::io::Error::from)?;
        self.out.write_all(b"\n")?;
        self.lines += 1;
        self.progress.show(self.lines, None);
        Ok(())
    }

    fn row(&mut self, version: u64, row: &Row) -> anyhow::Result<()> {
        self.highest = self.highest.max(version);
        self.line(&ArchiveLine::of_row(row)?)
    }

    fn keys(&mut self) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let Found::Keys(page) = self.client.read(Read::Keys { after, limit: PAGE_ROWS })? else {
                bail!("the store did not answer with keys");
            };
            after = page.rows.last().map(|key| key.row.id.clone());
            for Versioned { version, row } in page.rows {
                self.row(version, &Row::Key(row))?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn sessions(&mut self) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let read = Read::Sessions { node: None, after, limit: PAGE_ROWS };
            let Found::Sessions(page) = self.client.read(read)? else {
                bail!("the store did not answer with sessions");
            };
            after = page.rows.last().map(|session| session.row.client);
            for Versioned { version, row } in page.rows {
                self.row(version, &Row::Session(row))?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn rows(&mut self, kind: RowKind) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let read = Read::Rows { kind, after, limit: PAGE_ROWS };
            let Found::Rows(page) = self.client.read(read).context("rows cannot be listed")? else {
                bail!("the store did not answer with rows");
            };
            after = page.rows.last().map(|found| found.row.key());
            for Versioned { version, row } in page.rows {
                self.row(version, &row)?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn deadlines(&mut self) -> anyhow::Result<()> {
        let mut after: Option<Deadline> = None;
        loop {
            let read = Read::DueDeadlines { by: Time::NEVER, after, limit: PAGE_ROWS };
            let Found::Deadlines(page) = self.client.read(read)? else {
                bail!("the store did not answer with deadlines");
            };
            after = page.rows.last().cloned();
            for deadline in &page.rows {
                self.line(&ArchiveLine::of_deadline(deadline))?;
                // Every inbox with messages has one.
                if &*deadline.kind == INBOX {
                    self.inbox(&deadline.name)?;
                }
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn inbox(&mut self, user: &Arc<str>) -> anyhow::Result<()> {
        let mut after = 0;
        loop {
            let read = Read::Inbox { user: user.clone(), after, limit: PAGE_ROWS };
            let Found::Inbox(InboxPage { page, .. }) = self.client.read(read)? else {
                bail!("the store did not answer with inbox messages");
            };
            after = page.rows.last().map_or(after, |message| message.n);
            for message in &page.rows {
                self.line(&ArchiveLine::of_inbox(user, message))?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn histories(&mut self) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let read = Read::Histories { after, limit: PAGE_ROWS };
            let Found::Histories(HistoryList { page, .. }) = self.client.read(read)? else {
                bail!("the store did not answer with histories");
            };
            after = page.rows.last().map(|history| (history.expires_at, history.channel.clone()));
            for history in &page.rows {
                self.history(history)?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn history(&mut self, HistorySummary { channel, expires_at, .. }: &HistorySummary) -> anyhow::Result<()> {
        let mut after = 0;
        loop {
            let (channel, limit) = (channel.clone(), PAGE_ROWS);
            let read =
                Read::History { channel: channel.clone(), after, before: u64::MAX, newest: false, limit };
            let Found::History(HistoryPage { page, .. }) = self.client.read(read)? else {
                bail!("the store did not answer with messages");
            };
            after = page.rows.last().map_or(after, |message| message.offset);
            for message in &page.rows {
                self.line(&ArchiveLine::of_history(&channel, *expires_at, message))?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }
}
