//! The stored record of a ban, and of their number.

use super::RecordError;
use crate::bus::control::Ban;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tavern_domain::Time;

/// The kind of the document of a ban; its name is the user.
pub const BAN: &str = "ban";
/// One document that counts them and changes with each of them.
pub const BANS: &str = "bans";
pub const BANS_ALL: &str = "all";

#[derive(Serialize, Deserialize)]
struct StoredBan {
    until: Option<u64>,
    reason: Arc<str>,
    at: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredBanCount {
    bans: u64,
}

pub fn write_ban(ban: &Ban) -> Vec<u8> {
    let until = (ban.until != Time::NEVER).then_some(ban.until.ms());
    super::write(&StoredBan { until, reason: ban.reason.clone(), at: ban.at.ms() })
}

pub fn read_ban(body: &[u8]) -> Result<Ban, RecordError> {
    let StoredBan { until, reason, at } = super::read(body)?;
    Ok(Ban { until: until.map_or(Time::NEVER, Time), reason, at: Time(at) })
}

pub fn write_ban_count(bans: u64) -> Vec<u8> {
    super::write(&StoredBanCount { bans })
}

pub fn read_ban_count(body: &[u8]) -> Result<u64, RecordError> {
    let StoredBanCount { bans } = super::read(body)?;
    Ok(bans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_is_read_back_as_it_was_written() {
        for until in [Time::NEVER, Time(7)] {
            let ban = Ban { until, reason: "spam \"ü\"".into(), at: Time(1) };
            assert_eq!(read_ban(&write_ban(&ban)).unwrap(), ban);
        }
        assert_eq!(read_ban_count(&write_ban_count(7)).unwrap(), 7);
        assert!(read_ban(b"{}").is_err() && read_ban_count(b"").is_err());
    }
}
