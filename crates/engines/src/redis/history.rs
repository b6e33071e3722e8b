//! Channel history: the rows `history-messages` by channel and offset, `histories` with their heads, the list
//! `histories-due` by expiry, `history-ids` and `history-bytes`.

use super::connection::RedisReply;
use super::encoder::{Encoder, padded};
use super::error::RedisError;
use super::pages::{Pages, SENT_BYTES};
use super::schema::RedisTable;
use super::script::{HISTORIES, HISTORY};
use super::value::{Json, StoredRow, names, number};
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
use tavern_store::{
    HistoryClear, HistoryList, HistoryMessage, HistoryPage, HistoryPosition, HistorySender, HistorySummary,
    NewHistoryMessage, Page, limits,
};

/// A script's numbers are exact up to here.
const MAX_EXACT: u64 = 9_007_199_254_740_000;

pub(super) fn clear(encoder: &mut Encoder, clear: &HistoryClear) {
    encoder.text("HC");
    encoder.text(&clear.channel);
    match clear.only_at {
        Some(position) => {
            encoder.number(position.epoch);
            encoder.number(position.offset);
        }
        None => {
            encoder.text("");
            encoder.text("");
        }
    }
}

pub(super) fn append(encoder: &mut Encoder, message: &NewHistoryMessage) {
    let sender = message.sender.as_ref();
    let client = sender.map(|sender| sender.client.to_string());
    let json = Json::new()
        .text_or_none("user", sender.and_then(|sender| sender.user.as_deref()))
        .text_or_none("client", client.as_deref())
        .flag("json", message.json)
        .body(&message.body);
    encoder.text("HA");
    encoder.text(&message.channel);
    encoder.number(message.id.is_some().into());
    encoder.text(message.id.as_deref().unwrap_or(""));
    encoder.argument(&json.end());
    encoder.number(message.stored_bytes());
    encoder.number(message.keep.messages.min(MAX_EXACT));
    encoder.number(message.keep.bytes.min(MAX_EXACT));
    encoder.number(message.keep.ttl_ms.min(MAX_EXACT));
}

pub(super) async fn page(
    pages: &Pages<'_>,
    channel: &str,
    after: u64,
    before: u64,
    newest: bool,
    limit: u32,
) -> Result<HistoryPage, RedisError> {
    let mut arguments = Encoder::default();
    arguments.text(channel);
    arguments.number(after.min(MAX_EXACT));
    arguments.number(before.min(MAX_EXACT));
    arguments.number(newest.into());
    arguments.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
    arguments.number(SENT_BYTES as u64);
    let tables = [RedisTable::Histories, RedisTable::HistoryMessages];
    let parts = pages.pool.ask(&HISTORY.on(pages.keys, &tables, &arguments)).await?.list()?;
    let [epoch, offset, more, rows @ ..] = &parts[..] else {
        return Err(RedisError::Unexpected("a short page of a history"));
    };
    let head = HistoryPosition { epoch: epoch.number()?, offset: offset.number()? };
    let rows = rows.chunks(2).map(message);
    let mut page = Page::fill(limit, |message: &HistoryMessage| message.body.len(), rows)?;
    page.more |= more.number()? == 1;
    if newest {
        page.rows.reverse();
    }
    Ok(HistoryPage { head, page })
}

fn message(pair: &[RedisReply]) -> Result<HistoryMessage, RedisError> {
    let [offset, row] = pair else { return Err(RedisError::Unexpected("a short page of a history")) };
    let bytes = row.text()?;
    let row = StoredRow::parse(bytes)?;
    let id = bytes.iter().position(|&byte| byte == 0).map(|zero| &bytes[zero + 1..]);
    let id = id.map(super::value::text).transpose()?.map(Arc::from);
    let sender = match row.text_or_none("client") {
        Some(client) => {
            let client = ClientId::parse(&client).ok_or(RedisError::Unexpected("not a client id"))?;
            Some(HistorySender { user: row.text_or_none("user"), client })
        }
        None => None,
    };
    Ok(HistoryMessage {
        offset: offset.number()?,
        at: row.time("at")?,
        id,
        sender,
        json: row.flag("json"),
        body: row.body()?,
    })
}

pub(super) async fn list(
    pages: &Pages<'_>,
    after: Option<&(Time, Arc<str>)>,
    limit: u32,
) -> Result<HistoryList, RedisError> {
    let mut arguments = Encoder::default();
    match after {
        Some((since, name)) => arguments.text(&format!("({}\0{name}", padded(since.0))),
        None => arguments.text("-"),
    }
    arguments.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
    let tables = [RedisTable::HistoriesDue, RedisTable::Histories, RedisTable::HistoryBytes];
    let parts = pages.pool.ask(&HISTORIES.on(pages.keys, &tables, &arguments)).await?.list()?;
    let [bytes, rows @ ..] = &parts[..] else {
        return Err(RedisError::Unexpected("a short list of histories"));
    };
    let page = Page::fill(limit, |_| 64, rows.chunks(2).map(summary))?;
    Ok(HistoryList { bytes: bytes.number()?, page })
}

fn summary(pair: &[RedisReply]) -> Result<HistorySummary, RedisError> {
    let [member, row] = pair else { return Err(RedisError::Unexpected("a short list of histories")) };
    let [expires_at, channel] = names::<2>(member.text()?)?;
    let row = StoredRow::parse(row.text()?)?;
    Ok(HistorySummary {
        channel: channel.into(),
        head: HistoryPosition { epoch: row.number("epoch")?, offset: row.number("offset")? },
        expires_at: Time(number(expires_at.as_bytes())?),
        bytes: row.number("total")?.saturating_sub(row.number("dropped")?),
    })
}
