//! Which processes receive a channel: a publisher's cache, valid for one version of the subscriptions and filled from
//! the database. Must hold: what is cached for the current version equals the database.

use crate::database::FolderCounters;
use crate::limits;
use crate::message::{ChannelNamespace, InterestKind};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_domain::pattern;

/// A process that receives a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient {
    pub process: i64,
    /// How many of its subscriptions match.
    pub subscriptions: u32,
    /// Without those to everything, which do not count as recipients.
    pub recipients: u32,
}

pub type Audience = Arc<[Recipient]>;

#[derive(Debug, Default)]
pub struct AudienceCache {
    version: u64,
    patterns_version: u64,
    /// Subscribers to everything did not answer a request to narrow: do not ask again before this.
    ask_again_at: Option<Instant>,
    channels: [HashMap<Box<[u8]>, Audience>; 2],
    patterns: [PatternIndex; 2],
}

/// A pattern and a process that subscribes to it.
type PatternRoute = (Arc<[u8]>, Recipient);

/// Patterns by the literal they begin with.
#[derive(Debug, Default)]
struct PatternIndex {
    by_literal: HashMap<Box<[u8]>, Vec<PatternRoute>>,
    literal_lengths: BTreeSet<usize>,
    everything: Vec<Recipient>,
}

impl AudienceCache {
    /// The cached audience, if it is current. `None`: the database must be asked.
    pub fn get(&self, version: u64, namespace: ChannelNamespace, channel: &[u8]) -> Option<&Audience> {
        if self.version != version {
            return None;
        }
        self.channels[namespace as usize].get(channel)
    }

    /// Whether subscribers to everything may be asked to narrow.
    pub fn may_ask_to_narrow(&self) -> bool {
        self.ask_again_at.is_none_or(|at| Instant::now() >= at)
    }

    /// A request to narrow was not answered in time.
    pub fn narrow_timed_out(&mut self) {
        self.ask_again_at = Some(Instant::now() + Duration::from_millis(limits::NARROW_AGAIN_MS));
    }

    /// Drops what is stale for the transaction that read these counters.
    pub fn refresh(&mut self, database: &Connection, counters: &FolderCounters) -> rusqlite::Result<()> {
        if self.version != counters.subscriptions_version {
            self.channels = Default::default();
        }
        if self.patterns_version != counters.patterns_version {
            self.patterns = read_patterns(database)?;
            self.patterns_version = counters.patterns_version;
        }
        self.version = counters.subscriptions_version;
        Ok(())
    }

    /// The audience of a channel, from the cache or the database. Call `refresh` first.
    pub fn load(
        &mut self,
        database: &Connection,
        namespace: ChannelNamespace,
        channel: &[u8],
    ) -> rusqlite::Result<Audience> {
        if let Some(audience) = self.channels[namespace as usize].get(channel) {
            return Ok(audience.clone());
        }
        let sql = "SELECT process, count(*) FROM subscription \
                   WHERE namespace = ?1 AND kind = 0 AND name = ?2 GROUP BY process";
        let mut statement = database.prepare_cached(sql)?;
        let mut rows = statement.query(params![namespace as i64, channel])?;
        let mut found: BTreeMap<i64, Recipient> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let (process, subscriptions) = (row.get(0)?, row.get(1)?);
            found.insert(process, Recipient { process, subscriptions, recipients: subscriptions });
        }
        self.patterns[namespace as usize].matching(channel, |matched| {
            let none = Recipient { subscriptions: 0, recipients: 0, ..*matched };
            let sum = found.entry(matched.process).or_insert(none);
            sum.subscriptions += matched.subscriptions;
            sum.recipients += matched.recipients;
        });
        let audience: Audience = found.into_values().collect();
        if channel.len() <= limits::CACHED_NAME_BYTES {
            let channels = &mut self.channels[namespace as usize];
            if channels.len() >= limits::CACHED_CHANNELS {
                channels.clear();
            }
            channels.insert(channel.into(), audience.clone());
        }
        Ok(audience)
    }
}

impl PatternIndex {
    fn matching(&self, channel: &[u8], mut each: impl FnMut(&Recipient)) {
        for &length in self.literal_lengths.range(..=channel.len()) {
            for (glob, recipient) in self.by_literal.get(&channel[..length]).into_iter().flatten() {
                if pattern::matches(glob, channel) {
                    each(recipient);
                }
            }
        }
        self.everything.iter().for_each(each);
    }
}

fn read_patterns(database: &Connection) -> rusqlite::Result<[PatternIndex; 2]> {
    let sql = "SELECT namespace, kind, name, process, count(*) FROM subscription \
               WHERE kind > 0 AND namespace IN (0, 1) GROUP BY namespace, kind, name, process";
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut indexes = [PatternIndex::default(), PatternIndex::default()];
    while let Some(row) = rows.next()? {
        let index = &mut indexes[ChannelNamespace::from_column(row.get(0)?) as usize];
        let (process, subscriptions) = (row.get(3)?, row.get(4)?);
        if InterestKind::from_column(row.get(1)?) == InterestKind::Everything {
            index.everything.push(Recipient { process, subscriptions, recipients: 0 });
            continue;
        }
        let glob: Arc<[u8]> = row.get::<_, Vec<u8>>(2)?.into();
        let literal = pattern::literal_prefix(&glob);
        index.literal_lengths.insert(literal.len());
        let recipient = Recipient { process, subscriptions, recipients: subscriptions };
        index.by_literal.entry(literal.into()).or_default().push((glob, recipient));
    }
    Ok(indexes)
}
