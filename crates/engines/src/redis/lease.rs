//! Leases: the rows `leases` by name. The JSON after the time of a lease names its holder and is compared as text.

use super::encoder::{Encoder, IndexEntries};
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::Json;
use std::sync::Arc;
use tavern_domain::Epoch;
use tavern_store::{Lease, TakeLease, Versioned, Writer};

pub(super) fn encode(lease: &Lease) -> (Vec<u8>, IndexEntries) {
    let front = format!("\"until\":{},", lease.until.0);
    ([front.as_bytes(), &holder(&lease.holder)].concat(), IndexEntries::default())
}

fn holder(writer: &Writer) -> Vec<u8> {
    Json::new().text("node", &writer.node).number("epoch", writer.epoch.0).end()
}

pub(super) fn check(encoder: &mut Encoder, which: usize, take: &TakeLease, writer: &Writer) {
    encoder.text("K");
    encoder.text(&take.name);
    encoder.argument(&holder(writer));
    encoder.number(which as u64);
}

pub(super) fn take(encoder: &mut Encoder, take: &TakeLease, writer: &Writer) {
    encoder.text("L");
    encoder.text(&take.name);
    encoder.argument(&holder(writer));
    encoder.number(take.lease_ms);
}

pub(super) async fn get(pages: &Pages<'_>, name: &Arc<str>) -> Result<Option<Versioned<Lease>>, RedisError> {
    let Some(row) = pages.row(RedisTable::Leases, &[name]).await? else { return Ok(None) };
    let holder = Writer::new(row.str("node")?, Epoch(row.number("epoch")?));
    let lease = Lease { name: name.clone(), holder, until: row.time("until")? };
    Ok(Some(Versioned { version: row.version()?, row: lease }))
}
