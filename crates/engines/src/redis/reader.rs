//! Reads: rows by name, pages of lists with their rows. Several are under way at once. Must hold: a page is of one moment, and
//! the server sends no more of it than fits.

use super::link::Reply;
use super::script::{PAGE, Request, UNDER};
use super::sheet::{Sheet, padded};
use super::table::{Keys, Table};
use super::value::{Stored, Trouble, number};
use super::way::Way;
use super::writer::Watch;
use super::{
    deadline, document, hold, inbox, key, lease, log, node, presence, roster, rows, session, social,
};
use bytes::Bytes;
use tavern_domain::Time;
use tavern_store::limits;
use tavern_store::page::Page;
use tavern_store::read::{Found, Read};

/// What the server sends at most, with one row more: rows are longer there than here.
pub(super) const SENT_BYTES: usize = 2 * limits::PAGE_BYTES;

/// Where reads are asked.
pub(super) struct Pages<'a> {
    pub way: &'a Way,
    pub keys: &'a Keys,
}

/// A part of a list, as ZRANGEBYLEX takes it.
pub(super) struct Span {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    /// What stands before the name of the row in every member.
    pub front: usize,
}

/// Members with their rows, as they came.
pub(super) struct Listed {
    more: bool,
    parts: Vec<Reply>,
    front: usize,
}

pub(super) async fn read(pages: &Pages<'_>, watch: &Watch, read: &Read) -> Result<Found, Trouble> {
    Ok(match read {
        Read::Time => Found::Time(watch.time(pages).await?),
        Read::KeyByHash(hash) => Found::Key(key::by_hash(pages, hash).await?),
        Read::Keys { after, limit } => Found::Keys(key::page(pages, after.as_deref(), *limit).await?),
        Read::Session(client) => Found::Session(session::get(pages, *client).await?),
        Read::Sessions { node, after, limit } => {
            Found::Sessions(session::page(pages, node.as_deref(), *after, *limit).await?)
        }
        Read::Nodes { after, limit } => Found::Nodes(node::page(pages, after.as_ref(), *limit).await?),
        Read::DueDeadlines { by, after, limit } => {
            Found::Deadlines(deadline::due(pages, *by, after.as_ref(), *limit).await?)
        }
        Read::Document(key) => Found::Document(document::get(pages, key).await?),
        Read::Presence(key) => Found::Presence(presence::get(pages, key).await?),
        Read::Roster { channel, after, limit } => {
            Found::Roster(roster::roster(pages, channel, after.as_deref(), *limit).await?)
        }
        Read::ChannelsOf { user, after, limit } => {
            Found::Presences(roster::of_user(pages, user, after.as_deref(), *limit).await?)
        }
        Read::People { users, viewer } => {
            Found::People(social::people(pages, users, viewer.as_deref()).await?)
        }
        Read::Hold(key) => Found::Hold(hold::get(pages, key).await?),
        Read::Following { user, after, limit } => {
            Found::Edges(social::following(pages, user, after.as_deref(), *limit).await?)
        }
        Read::Followers { user, after, limit } => {
            Found::Edges(social::followers(pages, user, after.as_deref(), *limit).await?)
        }
        Read::PresencesAt { home, after, limit } => {
            Found::Presences(roster::at_home(pages, home, after.as_ref(), *limit).await?)
        }
        Read::StalePresences { before, limit } => {
            Found::StalePresences(roster::strays(pages, *before, *limit).await?)
        }
        Read::Rows { kind, after, limit } => {
            Found::Rows(rows::page(pages, *kind, after.as_ref(), *limit).await?)
        }
        Read::Lease(name) => Found::Lease(lease::get(pages, name).await?),
        Read::Log { topics, after, limit } => Found::Log(log::stretch(pages, topics, *after, *limit).await?),
        Read::Topics { names, after, limit } => {
            Found::Topics(log::topics(pages, names, after.as_deref(), *limit).await?)
        }
        Read::Inbox { user, after, limit } => Found::Inbox(inbox::page(pages, user, *after, *limit).await?),
    })
}

impl Span {
    /// What begins with these names, after one more.
    pub fn under(front: &[&str], after: Option<&[&str]>) -> Span {
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
        // No name has a byte as high as this.
        let to = [b"(", &begin[..], b"\xff"].concat();
        Span { from, to, front: begin.len() }
    }

    /// What is due by then, after what was read last.
    pub fn by<const N: usize>(by: Time, after: Option<[String; N]>) -> Span {
        let from = match after {
            Some(last) => format!("({}", last.join("\0")).into_bytes(),
            None => b"-".to_vec(),
        };
        let to = [b"(", padded(by.0).as_bytes(), b"\xff"].concat();
        Span { from, to, front: padded(0).len() + 1 }
    }
}

impl Pages<'_> {
    /// One row.
    pub async fn row(&self, table: Table, field: &[&str]) -> Result<Option<Stored>, Trouble> {
        let field = field.join("\0");
        let parts = [b"HGET", self.keys.get(table), field.as_bytes()];
        match self.way.ask(&Request::plain(self.keys.slot, &parts)).await? {
            Reply::Nothing => Ok(None),
            reply => Stored::parse(reply.text()?).map(Some),
        }
    }

    /// The rows that a list names behind `front`.
    pub async fn under(
        &self,
        list: Table,
        front: &[&str],
        after: Option<&str>,
        rows: Table,
        limit: u32,
    ) -> Result<Listed, Trouble> {
        let after = after.map(|name| [name]);
        let span = Span::under(front, after.as_ref().map(|after| &after[..]));
        self.span(list, span, Some(rows), limit).await
    }

    pub async fn span(
        &self,
        list: Table,
        span: Span,
        rows: Option<Table>,
        limit: u32,
    ) -> Result<Listed, Trouble> {
        let how = rows.map_or(String::new(), |_| span.front.to_string());
        let front = if rows.is_some() { span.front } else { 0 };
        let Listed { more, parts, .. } = self.pick(list, &span, rows.unwrap_or(list), &how, limit).await?;
        Ok(Listed { more, parts, front })
    }

    /// `how`: as `page.lua` finds a row by a member.
    pub async fn pick(
        &self,
        list: Table,
        span: &Span,
        rows: Table,
        how: &str,
        limit: u32,
    ) -> Result<Listed, Trouble> {
        let mut words = Sheet::default();
        words.word(&span.from);
        words.word(&span.to);
        words.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
        words.number(SENT_BYTES as u64);
        words.text(how);
        let request = PAGE.on(self.keys, &[list, rows], &words);
        let mut parts = self.way.ask(&request).await?.list()?;
        if parts.is_empty() {
            return Err(Trouble::Strange("a page is too short"));
        }
        let more = number(parts.remove(0).text()?)? == 1;
        Ok(Listed { more, parts, front: 0 })
    }
}

impl Pages<'_> {
    /// A row, the store's floor, and a page of what a list has under the row's name, of one moment. The tables: clock, rows,
    /// list, and what it lists.
    pub async fn beneath(
        &self,
        tables: [Table; 4],
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Bytes, u64, Listed), Trouble> {
        let after = after.map(|name| [name]);
        let span = Span::under(&[name], after.as_ref().map(|after| &after[..]));
        let mut words = Sheet::default();
        words.text(name);
        words.word(&span.from);
        words.word(&span.to);
        words.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
        words.number(SENT_BYTES as u64);
        let mut parts = self.way.ask(&UNDER.on(self.keys, &tables, &words)).await?.list()?;
        if parts.len() < 3 {
            return Err(Trouble::Strange("a page is too short"));
        }
        let page = parts.split_off(3);
        let more = number(parts[2].text()?)? == 1;
        Ok((parts[0].text()?.clone(), number(parts[1].text()?)?, Listed { more, parts: page, front: 0 }))
    }
}

impl Listed {
    /// Member and row in turn.
    fn entries(&self) -> impl Iterator<Item = Result<(&[u8], &Bytes), Trouble>> {
        self.parts.chunks(2).map(|pair| match pair {
            [member, row] => {
                let member = member.text()?.get(self.front..).ok_or(Trouble::Strange("a member is short"))?;
                Ok((member, row.text()?))
            }
            _ => Err(Trouble::Strange("a page is too short")),
        })
    }

    /// Rows, each read by its name and what it says.
    pub fn page<T>(
        &self,
        limit: u32,
        bytes: impl Fn(&T) -> usize,
        read: impl Fn(&[u8], &mut Stored) -> Result<T, Trouble>,
    ) -> Result<Page<T>, Trouble> {
        let rows = self.entries().map(|entry| {
            let (member, row) = entry?;
            read(member, &mut Stored::parse(row)?)
        });
        let mut page = Page::fill(limit, bytes, rows)?;
        page.more |= self.more;
        Ok(page)
    }

    /// Members that say everything themselves.
    pub fn members<T>(
        &self,
        limit: u32,
        read: impl Fn(&[u8]) -> Result<T, Trouble>,
    ) -> Result<Page<T>, Trouble> {
        let rows = self.entries().map(|entry| read(entry?.0));
        let mut page = Page::fill(limit, |_| 0, rows)?;
        page.more |= self.more;
        Ok(page)
    }
}
