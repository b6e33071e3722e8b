//! What the configured limits allow to be dropped. Must hold: the log is trimmed only by age, or by size and then no
//! further than to its lower bound; a backlog is dropped only above the limit of its subscription.

use super::SKEW_MS;
use super::log::BrowsedEvent;
use crate::workload::Outcome;
use tavern_domain::Time;
use tavern_hub::RetentionRules;

/// How long after a check the log may be trimmed: the store may be slow, and another node may trim first.
const TRIM_MS: u64 = 60_000;

#[derive(Default)]
pub struct LimitJudge {
    /// The limits of all nodes. None: nothing may be dropped.
    pub rules: Option<RetentionRules>,
    /// When the log was last larger than it may be.
    large_at: Option<Time>,
    pub trimmed: u64,
}

impl LimitJudge {
    pub fn note_size(&mut self, now: Time, bytes: u64) {
        if self.rules.is_some_and(|rules| bytes > rules.max_bytes) {
            self.large_at = Some(now);
        }
    }

    /// These events were trimmed, oldest first; the log had this many bytes before.
    pub fn judge_trim<'a>(
        &mut self,
        now: Time,
        mut bytes: u64,
        trimmed: impl Iterator<Item = &'a BrowsedEvent>,
    ) -> Outcome {
        for event in trimmed {
            let Some(rules) = &self.rules else {
                return Err(format!("event {} was trimmed, and there is no limit", event.number));
            };
            let is_old = (now + SKEW_MS).since(event.stored_at) > rules.retention_ms;
            let was_large = self.large_at.is_some_and(|at| now.since(at) <= TRIM_MS);
            let is_allowed = is_old || (was_large && bytes > rules.low_bytes);
            if !is_allowed {
                let age_ms = now.since(event.stored_at);
                return Err(format!("event {} was trimmed at {bytes} bytes, {age_ms} ms old", event.number));
            }
            bytes -= event.bytes;
            self.trimmed += 1;
        }
        Ok(())
    }
}
