//! Commits, many in one run of the script that carries them out. Must hold: what the server has not surely refused is not
//! tried again; whoever waits for replicas or the disk is told when they did not come.

use super::door::Wait;
use super::link::Reply;
use super::reader::Pages;
use super::script::{COMMIT, Request};
use super::sheet::{self, Sheet};
use super::table::{Keys, Table};
use super::value::Trouble;
use super::way::Way;
use bytes::Bytes;
use futures_util::future::join;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_store::clock::Clock;
use tavern_store::commit::{Commit, Receipt};
use tavern_store::error::StoreError;
use tavern_wire::resp;

/// How long replicas or the disk may take, which is less than anybody waits for an answer.
const SAFE_WITHIN: Duration = Duration::from_secs(2);

pub(super) type Outcomes = Vec<Result<Receipt, StoreError>>;

/// Whose time it is: the server's, unless a test brings its own.
#[derive(Clone, Default)]
pub(super) struct Watch(pub Option<Arc<dyn Clock>>);

impl Watch {
    pub async fn time(&self, pages: &Pages<'_>) -> Result<Time, Trouble> {
        let (way, keys) = (pages.way, pages.keys);
        let kept = Request::plain(keys.slot, &[b"HGET", keys.get(Table::Clock), b"time"]);
        let wall = Request::plain(keys.slot, &[b"TIME"]);
        let (kept, wall) = join(way.ask(&kept), way.ask(&wall)).await;
        let kept = match kept? {
            Reply::Nothing => Time(0),
            time => Time(time.number()?),
        };
        let wall = match &self.0 {
            Some(clock) => clock.now(),
            None => {
                let parts = wall?.list()?;
                let [seconds, micros] = &parts[..] else { return Err(Trouble::Strange("no time")) };
                Time(seconds.number()? * 1000 + micros.number()? / 1000)
            }
        };
        Ok(kept.max(wall))
    }
}

pub(super) struct Scribe<'a> {
    pub way: &'a Way,
    pub keys: &'a Keys,
    pub watch: &'a Watch,
    pub wait: Wait,
}

impl Scribe<'_> {
    /// An error means that nobody knows what was written, or that nothing was.
    pub async fn write(&self, commits: &[&Commit]) -> Result<Outcomes, Trouble> {
        let mut words = Sheet::default();
        match &self.watch.0 {
            Some(clock) => words.number(clock.now().0),
            None => words.text(""),
        }
        commits.iter().for_each(|commit| words.commit(commit));
        let request = COMMIT.on_all(self.keys, &words);
        let said = match self.safety() {
            None => self.way.ask(&request).await?,
            Some(safety) => {
                let mut both = self.way.ask_all(&request, &[safety]).await?.list()?.into_iter();
                let said = both.next().ok_or(Trouble::Strange("no answer"))?;
                self.judge(both.next().ok_or(Trouble::Strange("no answer"))?)?;
                said
            }
        };
        let said = said.list()?;
        if said.len() != commits.len() {
            return Err(Trouble::Strange("not every commit was answered"));
        }
        commits.iter().zip(said).map(|(commit, said)| sheet::outcome(commit, said.text()?)).collect()
    }

    fn safety(&self) -> Option<Bytes> {
        let patience = SAFE_WITHIN.as_millis().to_string();
        let mut out = Vec::new();
        match self.wait {
            Wait::Primary => return None,
            Wait::Replicas(count) => {
                resp::command(&mut out, &[b"WAIT", count.to_string().as_bytes(), patience.as_bytes()]);
            }
            Wait::Disk => resp::command(&mut out, &[b"WAITAOF", b"1", b"0", patience.as_bytes()]),
        }
        Some(out.into())
    }

    fn judge(&self, reply: Reply) -> Result<(), Trouble> {
        let (found, wanted) = match self.wait {
            Wait::Primary => return Ok(()),
            Wait::Replicas(count) => (reply.number()?, count),
            Wait::Disk => (reply.list()?.first().map_or(Ok(0), Reply::number)?, 1),
        };
        if found < wanted { Err(Trouble::Unsafe { found, wanted }) } else { Ok(()) }
    }
}
