//! Stored sessions: the rows `sessions` by client, the lists `session-ids` and `session-owners`. The secret is stored in plain
//! text: the node that adopts the session needs it. A reader of the server's data can resume the sessions there.

use super::encoder::IndexEntries;
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::{Json, StoredRow, names};
use tavern_domain::{ClientId, Epoch, SessionKey};
use tavern_store::{Page, StoredSession, Versioned, Writer};

pub(super) fn encode(session: &StoredSession) -> (Vec<u8>, IndexEntries) {
    let json = Json::new()
        .text("secret", &format!("{:032x}", session.secret.bits()))
        .text_or_none("user", session.user.as_deref())
        .text_or_none("name", session.name.as_deref())
        .text("node", &session.owner.node)
        .number("epoch", session.owner.epoch.0)
        .time_or_none("detached_at", session.detached_at)
        .number("expires_at", session.expires_at.0)
        .body(&session.body);
    let owner = [&*session.owner.node, &session.client.to_string()];
    (json.end(), IndexEntries::default().with(RedisTable::SessionOwners, &owner))
}

pub(super) async fn get(
    pages: &Pages<'_>,
    client: ClientId,
) -> Result<Option<Versioned<StoredSession>>, RedisError> {
    let row = pages.row(RedisTable::Sessions, &[&client.to_string()]).await?;
    row.map(|row| read(client, &row)).transpose()
}

pub(super) async fn page(
    pages: &Pages<'_>,
    node: Option<&str>,
    after: Option<ClientId>,
    limit: u32,
) -> Result<Page<Versioned<StoredSession>>, RedisError> {
    let after = after.map(|client| client.to_string());
    let found = match node {
        None => {
            pages.under(RedisTable::SessionIds, &[], after.as_deref(), RedisTable::Sessions, limit).await?
        }
        Some(node) => {
            pages
                .under(RedisTable::SessionOwners, &[node], after.as_deref(), RedisTable::Sessions, limit)
                .await?
        }
    };
    found.page(
        limit,
        |session: &Versioned<StoredSession>| session.row.body.len(),
        |field, row| {
            let client =
                ClientId::parse(names::<1>(field)?[0]).ok_or(RedisError::Unexpected("not a client id"))?;
            read(client, row)
        },
    )
}

fn read(client: ClientId, row: &StoredRow) -> Result<Versioned<StoredSession>, RedisError> {
    let secret = u128::from_str_radix(row.str("secret")?, 16);
    let session = StoredSession {
        client,
        secret: SessionKey::from_bits(secret.map_err(|_| RedisError::Unexpected("not a secret"))?),
        user: row.text_or_none("user"),
        name: row.text_or_none("name"),
        owner: Writer::new(row.str("node")?, Epoch(row.number("epoch")?)),
        body: row.body()?,
        detached_at: row.time_or_none("detached_at")?,
        expires_at: row.time("expires_at")?,
    };
    Ok(Versioned { version: row.version()?, row: session })
}
