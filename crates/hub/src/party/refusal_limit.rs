//! Blocks users who are rate-limited again and again for a while. Kept in this shard's memory, bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::PartyCommand;

/// Rate-limit refusals, within a minute, after which a user is blocked.
const STRIKES: u32 = 10;
const MINUTE_MS: u64 = 60_000;
/// Users tracked because they exceeded the rate limit recently.
const USERS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct RefusalLimits(BTreeMap<Arc<str>, RefusalLimit>);

#[derive(Clone, Copy)]
struct RefusalLimit {
    since: Time,
    strikes: u32,
    until: Time,
}

impl RefusalLimits {
    /// A command of a user was rate-limited.
    pub fn strike(&mut self, now: Time, user: &Arc<str>, block_ms: u64) {
        if self.0.len() >= USERS_MAX {
            self.0.retain(|_, flood| now < flood.until || now.since(flood.since) < MINUTE_MS);
        }
        if self.0.len() >= USERS_MAX && !self.0.contains_key(user) {
            return;
        }
        let fresh = RefusalLimit { since: now, strikes: 0, until: Time(0) };
        let flood = self.0.entry(user.clone()).or_insert(fresh);
        if now.since(flood.since) >= MINUTE_MS {
            *flood = fresh;
        }
        flood.strikes += 1;
        if flood.strikes >= STRIKES {
            *flood = RefusalLimit { since: now, strikes: 0, until: now + block_ms };
        }
    }

    /// For how much longer a user is blocked from this command.
    pub fn blocked_ms(&self, now: Time, user: &str, command: &PartyCommand) -> Option<u64> {
        let free = matches!(
            command,
            PartyCommand::Get
                | PartyCommand::Leave { .. }
                | PartyCommand::Decline { .. }
                | PartyCommand::Accept { .. }
        );
        let flood = self.0.get(user).filter(|flood| !free && now < flood.until)?;
        Some(flood.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_refusals_within_a_minute_shut_out_for_a_while_but_not_from_leaving() {
        let (mut floods, ann) = (RefusalLimits::default(), Arc::from("ann"));
        let invite = PartyCommand::Invite { user: "bob".into() };
        for at in 0..9 {
            floods.strike(Time(at), &ann, 500);
        }
        assert_eq!(floods.blocked_ms(Time(9), "ann", &invite), None);
        floods.strike(Time(9), &ann, 500);
        assert_eq!(floods.blocked_ms(Time(9), "ann", &invite), Some(500));
        assert_eq!(floods.blocked_ms(Time(9), "bob", &invite), None);
        assert_eq!(floods.blocked_ms(Time(9), "ann", &PartyCommand::Leave { message: None }), None);
        assert_eq!(floods.blocked_ms(Time(509), "ann", &invite), None);
    }

    #[test]
    fn slow_refusals_do_not_block_a_user() {
        let (mut floods, ann) = (RefusalLimits::default(), Arc::from("ann"));
        for at in 0..30 {
            floods.strike(Time(at * 7_000), &ann, 500);
        }
        assert_eq!(floods.blocked_ms(Time(30 * 7_000), "ann", &PartyCommand::CancelGo), None);
    }
}
