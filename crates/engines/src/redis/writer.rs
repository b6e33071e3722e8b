//! Commits, many in one call of the commit script. Must hold: a batch is retried only if the server has certainly
//! refused it; a batch that replicas or the disk did not confirm in time is an error.

use super::address::Durability;
use super::clock::RedisClock;
use super::connection::RedisReply;
use super::encoder::Encoder;
use super::error::RedisError;
use super::pool::ConnectionPool;
use super::schema::RedisKeys;
use super::script::COMMIT;
use super::{commit, receipt};
use bytes::Bytes;
use std::time::Duration;
use tavern_domain::Time;
use tavern_store::{Commit, Receipt, StoreError};
use tavern_wire::resp;

/// How long replicas or the disk may take: less than callers wait for an answer.
const CONFIRM_WITHIN: Duration = Duration::from_secs(2);

pub(super) type ScriptResults = Vec<Result<Receipt, StoreError>>;

pub(super) struct RedisWriter<'a> {
    pub pool: &'a ConnectionPool,
    pub keys: &'a RedisKeys,
    pub clock: &'a RedisClock,
    pub durability: Durability,
}

impl RedisWriter<'_> {
    /// An error means that nothing was written, or that the outcome is unknown.
    pub async fn write(&self, commits: &[&Commit]) -> Result<ScriptResults, RedisError> {
        let mut arguments = Encoder::default();
        match &self.clock.replaced {
            Some(clock) => arguments.number(clock.now().0),
            None => arguments.text(""),
        }
        match self.clock.node.latest() {
            Time::NEVER => arguments.text(""),
            latest => arguments.number(latest.0),
        }
        commits.iter().for_each(|commit| commit::encode(&mut arguments, commit));
        let request = COMMIT.on_all(self.keys, &arguments);
        let answer = match self.confirmation() {
            None => self.pool.ask(&request).await?,
            Some(confirmation) => {
                let mut both = self.pool.ask_all(&request, &[confirmation]).await?.list()?.into_iter();
                let answer = both.next().ok_or(RedisError::Unexpected("a missing answer"))?;
                self.check(both.next().ok_or(RedisError::Unexpected("a missing answer"))?)?;
                answer
            }
        };
        let answers = answer.list()?;
        if answers.len() != commits.len() {
            return Err(RedisError::Unexpected("a missing answer"));
        }
        commits.iter().zip(answers).map(|(commit, answer)| receipt::read(commit, answer.text()?)).collect()
    }

    fn confirmation(&self) -> Option<Bytes> {
        let timeout = CONFIRM_WITHIN.as_millis().to_string();
        let mut out = Vec::new();
        match self.durability {
            Durability::Primary => return None,
            Durability::Replicas(count) => {
                resp::command(&mut out, &[b"WAIT", count.to_string().as_bytes(), timeout.as_bytes()]);
            }
            Durability::Disk => resp::command(&mut out, &[b"WAITAOF", b"1", b"0", timeout.as_bytes()]),
        }
        Some(out.into())
    }

    fn check(&self, reply: RedisReply) -> Result<(), RedisError> {
        let (found, wanted) = match self.durability {
            Durability::Primary => return Ok(()),
            Durability::Replicas(count) => (reply.number()?, count),
            Durability::Disk => (reply.list()?.first().map_or(Ok(0), RedisReply::number)?, 1),
        };
        if found < wanted { Err(RedisError::NotReplicated { found, wanted }) } else { Ok(()) }
    }
}
