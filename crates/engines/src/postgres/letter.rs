//! Inboxes: the tables `inbox_messages` and `inboxes`. Must hold: an inbox changes only under the lock of its row.

use super::link::{Link, Step};
use super::value::{Trouble, get as column, number, read_number, read_time, text, time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tavern_store::commit::{Bag, Gone};
use tavern_store::letter::{Letter, Letters};
use tavern_store::limits;
use tavern_store::row::Page;
use tokio_postgres::Row;

/// The inboxes that a batch has locked, and what becomes of them.
#[derive(Default)]
pub(super) struct Inboxes {
    loaded: BTreeMap<Arc<str>, Inbox>,
    removed: BTreeMap<Arc<str>, u64>,
    added: Vec<(Arc<str>, Letter)>,
}

#[derive(Default)]
struct Inbox {
    bag: Bag,
    /// Number and length of each letter, the oldest first.
    letters: VecDeque<(u64, usize)>,
}

pub(super) fn lock(users: &BTreeSet<Arc<str>>) -> Step<'_> {
    let sql = "INSERT INTO inboxes (user_id, last, dropped)
        SELECT user_id, 0, 0 FROM unnest($1::text[]) AS k (user_id)
        ON CONFLICT (user_id) DO UPDATE SET last = 0 WHERE false";
    Step::new(sql).with(users.iter().map(|user| &**user).collect::<Vec<_>>())
}

pub(super) fn load(users: &BTreeSet<Arc<str>>) -> [Step<'_>; 2] {
    let users: Vec<&str> = users.iter().map(|user| &**user).collect();
    [
        Step::new("SELECT user_id, last, dropped FROM inboxes WHERE user_id = ANY ($1)").with(users.clone()),
        Step::new(
            "SELECT user_id, n, length(body)::bigint FROM inbox_messages WHERE user_id = ANY ($1) ORDER BY user_id, n",
        )
        .with(users),
    ]
}

impl Inboxes {
    pub fn load(inboxes: &[Row], letters: &[Row]) -> Result<Inboxes, Trouble> {
        let mut loaded = Inboxes::default();
        for row in inboxes {
            let bag = Bag { last: read_number(row, 1)?, dropped: read_number(row, 2)?, ..Bag::default() };
            loaded.loaded.insert(text(row, 0)?, Inbox { bag, ..Inbox::default() });
        }
        for row in letters {
            let (n, bytes) = (read_number(row, 1)?, read_number(row, 2)? as usize);
            if let Some(inbox) = loaded.loaded.get_mut(column::<&str>(row, 0)?) {
                inbox.letters.push_back((n, bytes));
                inbox.bag.letters += 1;
                inbox.bag.bytes += bytes;
            }
        }
        Ok(loaded)
    }

    pub fn bag(&self, user: &str) -> Bag {
        self.loaded.get(user).unwrap_or_else(|| panic!("the inbox of {user} is not locked")).bag
    }

    pub fn add(&mut self, user: &Arc<str>, letter: &Letter) {
        self.change(user).letters.push_back((letter.n, letter.body.len()));
        self.added.push((user.clone(), letter.clone()));
    }

    pub fn take(&mut self, user: &Arc<str>, through: u64) -> Gone {
        let letters = &mut self.change(user).letters;
        let gone = std::iter::from_fn(|| letters.pop_front_if(|(n, _)| *n <= through)).collect();
        self.forget(user, gone)
    }

    pub fn take_oldest(&mut self, user: &Arc<str>) -> Gone {
        let gone = self.change(user).letters.pop_front().into_iter().collect();
        self.forget(user, gone)
    }

    fn forget(&mut self, user: &Arc<str>, gone: Gone) -> Gone {
        if gone.letters > 0 {
            self.removed.insert(user.clone(), gone.through);
            self.added.retain(|(to, letter)| to != user || letter.n > gone.through);
        }
        gone
    }

    pub fn set(&mut self, user: &Arc<str>, bag: &Bag) {
        self.change(user).bag = *bag;
    }

    fn change(&mut self, user: &Arc<str>) -> &mut Inbox {
        self.loaded.get_mut(user).unwrap_or_else(|| panic!("the inbox of {user} is not locked"))
    }

    /// What is empty, or was reserved for nothing, is no row.
    pub fn changes(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        if self.loaded.is_empty() {
            return steps;
        }
        if !self.removed.is_empty() {
            let sql =
                "DELETE FROM inbox_messages l USING unnest($1::text[], $2::bigint[]) AS k (user_id, through)
                WHERE l.user_id = k.user_id AND l.n <= k.through";
            let users: Vec<&str> = self.removed.keys().map(|user| &**user).collect();
            let through: Vec<i64> = self.removed.values().map(|through| number(*through)).collect();
            steps.push(Step::new(sql).with(users).with(through));
        }
        if !self.added.is_empty() {
            let sql = "INSERT INTO inbox_messages (user_id, n, at, body)
                SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[])";
            steps.push(
                Step::new(sql)
                    .with(self.added.iter().map(|(user, _)| &**user).collect::<Vec<_>>())
                    .with(self.added.iter().map(|(_, letter)| number(letter.n)).collect::<Vec<_>>())
                    .with(self.added.iter().map(|(_, letter)| time(letter.at)).collect::<Vec<_>>())
                    .with(self.added.iter().map(|(_, letter)| &*letter.body).collect::<Vec<_>>()),
            );
        }
        let sql = "UPDATE inboxes i SET last = k.last, dropped = k.dropped
            FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS k (user_id, last, dropped)
            WHERE i.user_id = k.user_id";
        steps.push(
            Step::new(sql)
                .with(self.loaded.keys().map(|user| &**user).collect::<Vec<_>>())
                .with(self.loaded.values().map(|inbox| number(inbox.bag.last)).collect::<Vec<_>>())
                .with(self.loaded.values().map(|inbox| number(inbox.bag.dropped)).collect::<Vec<_>>()),
        );
        let empty = self.loaded.iter().filter(|(_, inbox)| inbox.bag.last == 0).map(|(user, _)| &**user);
        let sql = "DELETE FROM inboxes WHERE user_id = ANY ($1)";
        steps.push(Step::new(sql).with(empty.collect::<Vec<_>>()));
        steps
    }
}

pub(super) async fn letters(link: &Link, user: &str, after: u64, limit: u32) -> Result<Letters, Trouble> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let letters = "SELECT n, at, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY n) - length(body) AS earlier FROM
                (SELECT * FROM inbox_messages WHERE user_id = $1 AND n > $2 ORDER BY n LIMIT $3) AS few) AS counted
        WHERE earlier <= $4 ORDER BY n";
    let steps = vec![
        Step::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        Step::new("SELECT dropped FROM inboxes WHERE user_id = $1").with(user),
        Step::new(letters)
            .with(user)
            .with(number(after))
            .with(i64::from(limit) + 1)
            .with(limits::PAGE_BYTES as i64),
        Step::new("COMMIT"),
    ];
    let found = link.run(steps).await?;
    let dropped = found[1].first().map_or(Ok(0), |row| read_number(row, 0))?;
    let read = |row: &Row| {
        Ok::<_, Trouble>(Letter {
            n: read_number(row, 0)?,
            at: read_time(row, 1)?,
            body: column::<&[u8]>(row, 2)?.into(),
        })
    };
    Ok(Letters { dropped, page: Page::fill(limit, |letter| letter.body.len(), found[2].iter().map(read))? })
}
