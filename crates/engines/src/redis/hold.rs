//! Presences set by apps: the rows `holds` by channel and user, the lists `hold-ids` and
//! `held-with`, by the channel that a hold follows.

use super::encoder::IndexEntries;
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::{Json, StoredRow};
use tavern_store::{PresenceHold, PresenceKey, Versioned};

pub(super) fn encode(hold: &PresenceHold) -> (Vec<u8>, IndexEntries) {
    let json = Json::new().text("user", &hold.key.user).text_or_none("held_with", hold.held_with.as_deref());
    let entries = match &hold.held_with {
        Some(held_with) => IndexEntries::default()
            .with(RedisTable::HeldWith, &[held_with, &hold.key.user, &hold.key.channel]),
        None => IndexEntries::default(),
    };
    (json.time_or_none("until", hold.until).end(), entries)
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &PresenceKey,
) -> Result<Option<Versioned<PresenceHold>>, RedisError> {
    let row = pages.row(RedisTable::Holds, &[&key.channel, &key.user]).await?;
    row.map(|row| read(key.clone(), &row)).transpose()
}

pub(super) fn read(key: PresenceKey, row: &StoredRow) -> Result<Versioned<PresenceHold>, RedisError> {
    let (held_with, until) = (row.text_or_none("held_with"), row.time_or_none("until")?);
    Ok(Versioned { version: row.version()?, row: PresenceHold { key, held_with, until } })
}
