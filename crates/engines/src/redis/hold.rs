//! What apps say about users: the rows `holds` by channel and user, the lists `hold-ids` and, by carrier,
//! `carried`.

use super::reader::Pages;
use super::sheet::Terms;
use super::table::Table;
use super::value::{Json, Stored, Trouble};
use tavern_store::page::Versioned;
use tavern_store::presence::{Hold, PresenceKey};

pub(super) fn written(hold: &Hold) -> (Vec<u8>, Terms) {
    let json = Json::new().text("user", &hold.key.user).text_or_none("carrier", hold.carrier.as_deref());
    let terms = match &hold.carrier {
        Some(carrier) => Terms::default().with(Table::Carried, &[carrier, &hold.key.user, &hold.key.channel]),
        None => Terms::default(),
    };
    (json.time_or_none("until", hold.until).end(), terms)
}

pub(super) async fn get(pages: &Pages<'_>, key: &PresenceKey) -> Result<Option<Versioned<Hold>>, Trouble> {
    let row = pages.row(Table::Holds, &[&key.channel, &key.user]).await?;
    row.map(|row| read(key.clone(), &row)).transpose()
}

pub(super) fn read(key: PresenceKey, row: &Stored) -> Result<Versioned<Hold>, Trouble> {
    let (carrier, until) = (row.text_or_none("carrier"), row.time_or_none("until")?);
    Ok(Versioned { version: row.version()?, row: Hold { key, carrier, until } })
}
