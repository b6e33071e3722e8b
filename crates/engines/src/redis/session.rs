//! Stored sessions: the rows `sessions` by client, the lists `session-ids` and `session-owners`. The secret stands there as
//! digits: the node that adopts the session must know it. Whoever may read the server's data may resume what waits there.

use super::reader::Pages;
use super::sheet::Terms;
use super::table::Table;
use super::value::{Json, Stored, Trouble, names};
use tavern_domain::{ClientId, Epoch, SessionKey};
use tavern_store::node::Writer;
use tavern_store::page::{Page, Versioned};
use tavern_store::session::StoredSession;

pub(super) fn written(session: &StoredSession) -> (Vec<u8>, Terms) {
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
    (json.end(), Terms::default().with(Table::SessionOwners, &owner))
}

pub(super) async fn get(
    pages: &Pages<'_>,
    client: ClientId,
) -> Result<Option<Versioned<StoredSession>>, Trouble> {
    let row = pages.row(Table::Sessions, &[&client.to_string()]).await?;
    row.map(|row| read(client, &row)).transpose()
}

pub(super) async fn page(
    pages: &Pages<'_>,
    node: Option<&str>,
    after: Option<ClientId>,
    limit: u32,
) -> Result<Page<Versioned<StoredSession>>, Trouble> {
    let after = after.map(|client| client.to_string());
    let found = match node {
        None => pages.under(Table::SessionIds, &[], after.as_deref(), Table::Sessions, limit).await?,
        Some(node) => {
            pages.under(Table::SessionOwners, &[node], after.as_deref(), Table::Sessions, limit).await?
        }
    };
    found.page(
        limit,
        |session: &Versioned<StoredSession>| session.row.body.len(),
        |field, row| {
            let client = ClientId::parse(names::<1>(field)?[0]).ok_or(Trouble::Strange("no client id"))?;
            read(client, row)
        },
    )
}

fn read(client: ClientId, row: &Stored) -> Result<Versioned<StoredSession>, Trouble> {
    let secret = u128::from_str_radix(row.str("secret")?, 16);
    let session = StoredSession {
        client,
        secret: SessionKey::from_bits(secret.map_err(|_| Trouble::Strange("no secret"))?),
        user: row.text_or_none("user"),
        name: row.text_or_none("name"),
        owner: Writer::new(row.str("node")?, Epoch(row.number("epoch")?)),
        body: row.body()?,
        detached_at: row.time_or_none("detached_at")?,
        expires_at: row.time("expires_at")?,
    };
    Ok(Versioned { version: row.version()?, row: session })
}
