//! The server's clock, unless a test brings its own, and the totals that are kept beside it.

use super::connection::RedisReply;
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::script::ScriptCall;
use futures_util::future::join;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Clock, StoreTotals};

#[derive(Clone)]
pub(super) struct RedisClock {
    /// Instead of the server's clock, for tests.
    pub replaced: Option<Arc<dyn Clock>>,
    /// The node's clock, which bounds the server's.
    pub node: Arc<dyn Clock>,
}

impl RedisClock {
    pub async fn time(&self, pages: &Pages<'_>) -> Result<Time, RedisError> {
        let (pool, keys) = (pages.pool, pages.keys);
        let stored = ScriptCall::plain(&[b"HGET", keys.get(RedisTable::Clock), b"time"]);
        let wall = ScriptCall::plain(&[b"TIME"]);
        let (stored, wall) = join(pool.ask(&stored), pool.ask(&wall)).await;
        let stored = match stored? {
            RedisReply::Nothing => Time(0),
            time => Time(time.number()?),
        };
        let wall = match &self.replaced {
            Some(clock) => clock.now(),
            None => {
                let parts = wall?.list()?;
                let [seconds, micros] = &parts[..] else { return Err(RedisError::Unexpected("not a time")) };
                Time(seconds.number()? * 1000 + micros.number()? / 1000)
            }
        };
        self.node.observe_server(wall);
        Ok(stored.max(wall.min(self.node.latest())))
    }
}

/// How many rows of some kinds there are.
pub(super) async fn totals(pages: &Pages<'_>) -> Result<StoreTotals, RedisError> {
    let key = pages.keys.get(RedisTable::Clock);
    let parts = [&b"HMGET"[..], key, b"users", b"presences", b"parties"];
    let found = pages.pool.ask(&ScriptCall::plain(&parts)).await?.list()?;
    let count = |reply: &RedisReply| match reply {
        RedisReply::Nothing => Ok(0),
        count => count.number().map(u64::cast_signed),
    };
    let [users, presences, parties] = &found[..] else {
        return Err(RedisError::Unexpected("not the totals"));
    };
    Ok(StoreTotals { users: count(users)?, presences: count(presences)?, parties: count(parties)? })
}
