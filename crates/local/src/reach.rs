//! Who hears a channel, by process, as a publisher remembers it: valid for one version of the roster, looked up in the
//! database when it is not known. Must hold: what is remembered for the current version is the truth.

use crate::message::{Kind, Space};
use crate::table::Head;
use crate::{limits, message};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_domain::pattern;

/// One process that hears a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hearer {
    pub process: i64,
    /// How many of its subscriptions match.
    pub listeners: u32,
    /// Of those, the ones that count as recipients.
    pub recipients: u32,
}

pub type Audience = Arc<[Hearer]>;

#[derive(Debug, Default)]
pub struct Reach {
    version: u64,
    patterns_version: u64,
    /// Until then those who hear everything are left alone: they did not answer.
    patient_until: Option<Instant>,
    known: [HashMap<Box<[u8]>, Audience>; 2],
    patterns: [Patterns; 2],
}

/// A pattern and a process that listens by it.
type Listener = (Arc<[u8]>, Hearer);

/// Patterns by the literal they begin with.
#[derive(Debug, Default)]
struct Patterns {
    by_literal: HashMap<Box<[u8]>, Vec<Listener>>,
    lengths: BTreeMap<usize, ()>,
    everything: Vec<Hearer>,
}

impl Reach {
    /// What is known without asking. None: the database must be asked.
    pub fn remembered(&self, version: u64, space: Space, channel: &[u8]) -> Option<&Audience> {
        if self.version != version {
            return None;
        }
        self.known[space as usize].get(channel)
    }

    /// Whether somebody who hears everything may be asked what it wants to hear.
    pub fn may_ask(&self) -> bool {
        self.patient_until.is_none_or(|until| Instant::now() >= until)
    }

    pub fn asked_in_vain(&mut self) {
        self.patient_until = Some(Instant::now() + Duration::from_millis(limits::NARROW_AGAIN_MS));
    }

    /// Brings it up to the state that a transaction sees.
    pub fn refresh(&mut self, database: &Connection, head: &Head) -> rusqlite::Result<()> {
        if self.version != head.roster {
            self.known = Default::default();
        }
        if self.patterns_version != head.patterns {
            self.patterns = read_patterns(database)?;
            self.patterns_version = head.patterns;
        }
        self.version = head.roster;
        Ok(())
    }

    /// The audience of a channel. `refresh` comes first.
    pub fn audience(
        &mut self,
        database: &Connection,
        space: Space,
        channel: &[u8],
    ) -> rusqlite::Result<Audience> {
        if let Some(audience) = self.known[space as usize].get(channel) {
            return Ok(audience.clone());
        }
        let sql = "SELECT process, count(*) FROM subscription WHERE space = ?1 AND kind = 0 AND name = ?2 GROUP BY process";
        let mut statement = database.prepare_cached(sql)?;
        let mut rows = statement.query(params![space as i64, channel])?;
        let mut hearers: BTreeMap<i64, Hearer> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let (process, listeners) = (row.get(0)?, row.get(1)?);
            hearers.insert(process, Hearer { process, listeners, recipients: listeners });
        }
        self.patterns[space as usize].matching(channel, |hearer| {
            let sum =
                hearers.entry(hearer.process).or_insert(Hearer { listeners: 0, recipients: 0, ..*hearer });
            sum.listeners += hearer.listeners;
            sum.recipients += hearer.recipients;
        });
        let audience: Audience = hearers.into_values().collect();
        if channel.len() <= limits::REMEMBERED_BYTES {
            let known = &mut self.known[space as usize];
            if known.len() >= limits::REMEMBERED {
                known.clear();
            }
            known.insert(channel.into(), audience.clone());
        }
        Ok(audience)
    }
}

impl Patterns {
    fn matching(&self, channel: &[u8], mut each: impl FnMut(&Hearer)) {
        for (&length, ()) in self.lengths.range(..=channel.len()) {
            for (glob, hearer) in self.by_literal.get(&channel[..length]).into_iter().flatten() {
                if pattern::matches(glob, channel) {
                    each(hearer);
                }
            }
        }
        self.everything.iter().for_each(each);
    }
}

fn read_patterns(database: &Connection) -> rusqlite::Result<[Patterns; 2]> {
    let sql = "SELECT space, kind, name, process, count(*) FROM subscription WHERE kind > 0 AND space IN (0, 1) \
               GROUP BY space, kind, name, process";
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut patterns = [Patterns::default(), Patterns::default()];
    while let Some(row) = rows.next()? {
        let of = &mut patterns[message::Space::of(row.get(0)?) as usize];
        let (process, listeners) = (row.get(3)?, row.get(4)?);
        if Kind::of(row.get(1)?) == Kind::Everything {
            of.everything.push(Hearer { process, listeners, recipients: 0 });
            continue;
        }
        let glob: Arc<[u8]> = row.get::<_, Vec<u8>>(2)?.into();
        let literal = pattern::literal_prefix(&glob);
        of.lengths.insert(literal.len(), ());
        let hearer = Hearer { process, listeners, recipients: listeners };
        of.by_literal.entry(literal.into()).or_default().push((glob, hearer));
    }
    Ok(patterns)
}
