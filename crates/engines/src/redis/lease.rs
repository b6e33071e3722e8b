//! Leases: the rows `leases` by name. What stands behind the time of a lease names its holder and is compared as it stands.

use super::reader::Pages;
use super::sheet::{Sheet, Terms};
use super::table::Table;
use super::value::{Json, Trouble};
use std::sync::Arc;
use tavern_domain::Epoch;
use tavern_store::lease::{Lease, TakeLease};
use tavern_store::node::Writer;
use tavern_store::page::Versioned;

pub(super) fn written(lease: &Lease) -> (Vec<u8>, Terms) {
    let front = format!("\"until\":{},", lease.until.0);
    ([front.as_bytes(), &holder(&lease.holder)].concat(), Terms::default())
}

fn holder(writer: &Writer) -> Vec<u8> {
    Json::new().text("node", &writer.node).number("epoch", writer.epoch.0).end()
}

pub(super) fn check(sheet: &mut Sheet, which: usize, take: &TakeLease, writer: &Writer) {
    sheet.text("K");
    sheet.text(&take.name);
    sheet.word(&holder(writer));
    sheet.number(which as u64);
}

pub(super) fn take(sheet: &mut Sheet, take: &TakeLease, writer: &Writer) {
    sheet.text("L");
    sheet.text(&take.name);
    sheet.word(&holder(writer));
    sheet.number(take.lease_ms);
}

pub(super) async fn get(pages: &Pages<'_>, name: &Arc<str>) -> Result<Option<Versioned<Lease>>, Trouble> {
    let Some(row) = pages.row(Table::Leases, &[name]).await? else { return Ok(None) };
    let holder = Writer::new(row.str("node")?, Epoch(row.number("epoch")?));
    let lease = Lease { name: name.clone(), holder, until: row.time("until")? };
    Ok(Some(Versioned { version: row.version()?, row: lease }))
}
