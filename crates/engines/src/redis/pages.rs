//! Rows by name, and pages of lists with their rows. Must hold: a page is of one moment, and the server sends no more
//! of it than fits.

use super::connection::RedisReply;
use super::encoder::{Encoder, padded};
use super::error::RedisError;
use super::pool::ConnectionPool;
use super::schema::{RedisKeys, RedisTable};
use super::script::{PAGE, ScriptCall, UNDER};
use super::value::{StoredRow, number};
use bytes::Bytes;
use tavern_domain::Time;
use tavern_store::{Page, limits};

/// The maximum that the server sends, plus one row: stored rows are longer than decoded ones.
pub(super) const SENT_BYTES: usize = 2 * limits::PAGE_BYTES;

/// Reads rows and pages of lists.
pub(super) struct Pages<'a> {
    pub pool: &'a ConnectionPool,
    pub keys: &'a RedisKeys,
}

/// A range of a list, as ZRANGEBYLEX takes it.
pub(super) struct Range {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    /// Bytes before the name of the row in every member.
    pub front: usize,
}

/// Members with their rows.
pub(super) struct FoundRows {
    more: bool,
    parts: Vec<RedisReply>,
    front: usize,
}

impl Range {
    /// Members that begin with these names, after one more.
    pub fn under(front: &[&str], after: Option<&[&str]>) -> Range {
        let mut begin: Vec<u8> = Vec::new();
        for name in front {
            begin.extend_from_slice(name.as_bytes());
            begin.push(0);
        }
        let from = match after {
            Some(after) => [b"(", &begin[..], after.join("\0").as_bytes()].concat(),
            None if begin.is_empty() => b"-".to_vec(),
            None => [b"[", &begin[..]].concat(),
        };
        // No UTF-8 text has this byte.
        let to = [b"(", &begin[..], b"\xff"].concat();
        Range { from, to, front: begin.len() }
    }

    /// Members that are due by then, after the last one read.
    pub fn by<const N: usize>(by: Time, after: Option<[String; N]>) -> Range {
        let from = match after {
            Some(last) => format!("({}", last.join("\0")).into_bytes(),
            None => b"-".to_vec(),
        };
        let to = [b"(", padded(by.0).as_bytes(), b"\xff"].concat();
        Range { from, to, front: padded(0).len() + 1 }
    }
}

impl Pages<'_> {
    /// One row.
    pub async fn row(&self, table: RedisTable, field: &[&str]) -> Result<Option<StoredRow>, RedisError> {
        let field = field.join("\0");
        let parts = [b"HGET", self.keys.get(table), field.as_bytes()];
        match self.pool.ask(&ScriptCall::plain(&parts)).await? {
            RedisReply::Nothing => Ok(None),
            reply => StoredRow::parse(reply.text()?).map(Some),
        }
    }

    /// The rows whose names follow `front` in a list.
    pub async fn under(
        &self,
        list: RedisTable,
        front: &[&str],
        after: Option<&str>,
        rows: RedisTable,
        limit: u32,
    ) -> Result<FoundRows, RedisError> {
        let after = after.map(|name| [name]);
        let range = Range::under(front, after.as_ref().map(|after| &after[..]));
        self.range(list, range, Some(rows), limit).await
    }

    pub async fn range(
        &self,
        list: RedisTable,
        range: Range,
        rows: Option<RedisTable>,
        limit: u32,
    ) -> Result<FoundRows, RedisError> {
        let how = rows.map_or(String::new(), |_| range.front.to_string());
        let front = if rows.is_some() { range.front } else { 0 };
        let FoundRows { more, parts, .. } =
            self.pick(list, &range, rows.unwrap_or(list), &how, limit).await?;
        Ok(FoundRows { more, parts, front })
    }

    /// `how`: how `page.lua` finds a row by a member.
    pub async fn pick(
        &self,
        list: RedisTable,
        range: &Range,
        rows: RedisTable,
        how: &str,
        limit: u32,
    ) -> Result<FoundRows, RedisError> {
        let mut arguments = Encoder::default();
        arguments.argument(&range.from);
        arguments.argument(&range.to);
        arguments.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
        arguments.number(SENT_BYTES as u64);
        arguments.text(how);
        let request = PAGE.on(self.keys, &[list, rows], &arguments);
        let mut parts = self.pool.ask(&request).await?.list()?;
        if parts.is_empty() {
            return Err(RedisError::Unexpected("a short page"));
        }
        let more = number(parts.remove(0).text()?)? == 1;
        Ok(FoundRows { more, parts, front: 0 })
    }
}

impl Pages<'_> {
    /// A row, the store's floor, and a page of the list under the row's name, all of one moment. The tables: clock,
    /// rows, list, and the rows it lists.
    pub async fn beneath(
        &self,
        tables: [RedisTable; 4],
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Bytes, u64, FoundRows), RedisError> {
        let after = after.map(|name| [name]);
        let range = Range::under(&[name], after.as_ref().map(|after| &after[..]));
        let mut arguments = Encoder::default();
        arguments.text(name);
        arguments.argument(&range.from);
        arguments.argument(&range.to);
        arguments.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
        arguments.number(SENT_BYTES as u64);
        let mut parts = self.pool.ask(&UNDER.on(self.keys, &tables, &arguments)).await?.list()?;
        if parts.len() < 3 {
            return Err(RedisError::Unexpected("a short page"));
        }
        let page = parts.split_off(3);
        let more = number(parts[2].text()?)? == 1;
        Ok((parts[0].text()?.clone(), number(parts[1].text()?)?, FoundRows { more, parts: page, front: 0 }))
    }
}

impl FoundRows {
    /// Member and row in turn.
    fn entries(&self) -> impl Iterator<Item = Result<(&[u8], &Bytes), RedisError>> {
        self.parts.chunks(2).map(|pair| match pair {
            [member, row] => {
                let member =
                    member.text()?.get(self.front..).ok_or(RedisError::Unexpected("a short member"))?;
                Ok((member, row.text()?))
            }
            _ => Err(RedisError::Unexpected("a short page")),
        })
    }

    /// Rows, each read from its name and its content.
    pub fn page<T>(
        &self,
        limit: u32,
        bytes: impl Fn(&T) -> usize,
        read: impl Fn(&[u8], &mut StoredRow) -> Result<T, RedisError>,
    ) -> Result<Page<T>, RedisError> {
        let rows = self.entries().map(|entry| {
            let (member, row) = entry?;
            read(member, &mut StoredRow::parse(row)?)
        });
        let mut page = Page::fill(limit, bytes, rows)?;
        page.more |= self.more;
        Ok(page)
    }

    /// Members without rows.
    pub fn members<T>(
        &self,
        limit: u32,
        read: impl Fn(&[u8]) -> Result<T, RedisError>,
    ) -> Result<Page<T>, RedisError> {
        let rows = self.entries().map(|entry| read(entry?.0));
        let mut page = Page::fill(limit, |_| 0, rows)?;
        page.more |= self.more;
        Ok(page)
    }
}
