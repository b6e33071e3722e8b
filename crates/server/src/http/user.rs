//! `GET /v1/users/{user}`: where a user is, what they do, and why they count as online; and their inbox. From the store:
//! the same on every node.

use super::api::HttpApi;
use super::body::{HttpResponse, typed};
use super::control::ban_of;
use std::sync::Arc;
use tavern_domain::party::Membership;
use tavern_domain::presence::{ChannelClient, UserChannel, Visibility};
use tavern_domain::{Time, USER_ID_RULES};
use tavern_hub::user::{is_own_channel, is_user};
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{DocumentKey, Found, InboxPage, PresenceRow, Read};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{
    ActivityReport, ChannelPresence, ClientPresence, InboxList, InboxMessageReport, UserDetails, raw,
};
use tavern_wire::record::{MEMBERSHIP, read_membership};

/// Channels of one user that are shown.
const CHANNELS_MAX: usize = 10_000;

pub async fn user(api: &HttpApi, name: &str) -> Result<HttpResponse, Refusal> {
    let user = named(name)?;
    let presences = presences(api, &user).await.map_err(|()| unavailable())?;
    let Ok(Found::Time(now)) = api.store.read(Read::Time).await else { return Err(unavailable()) };
    let known = api.store.read(Read::People { users: vec![user.clone()], viewer: None }).await;
    let Ok(Found::People(known)) = known else { return Err(unavailable()) };
    let known = known.into_iter().next().and_then(|person| person.known).map(|row| row.row);
    let visibility = known.as_ref().map_or(Visibility::Everyone, |user| user.visibility);
    let last_seen = known.and_then(|user| user.last_seen);
    // A user is online while they are present in their own channel.
    let own = presences.iter().find(|presence| is_own_channel(&presence.key.channel));
    let online = own.is_some();
    let leaving = own.is_some_and(|presence| presence.attendance.is_leaving());
    let places: Vec<UserChannel> = presences.iter().map(whereabouts).collect();
    let status = api.node.settings.activities.status(online, leaving, &places, last_seen);
    let activities = status.activities.iter().map(|one| ActivityReport {
        activity: &one.activity,
        channel: &one.channel,
        since: one.since.ms(),
    });
    let membership = membership(api, name).await?;
    Ok(typed(&UserDetails {
        activities: activities.collect(),
        banned: ban_of(api, name).await?.is_some(),
        channels: presences.iter().map(|presence| channel(now, presence)).collect(),
        invites: membership.invites.to_vec(),
        last_seen: status.last_seen.map(Time::ms),
        leaving: status.leaving,
        online: status.online,
        party: membership.party,
        user: name,
        visibility: visibility.as_str(),
        why: why(now, &presences),
    }))
}

/// The id of a user in a path.
pub fn named(name: &str) -> Result<Arc<str>, Refusal> {
    if !is_user(name) {
        return Err(Refusal::new(Code::BadRequest, USER_ID_RULES));
    }
    Ok(name.into())
}

/// Their party, and those that have invited them.
async fn membership(api: &HttpApi, name: &str) -> Result<Membership, Refusal> {
    match api.store.read(Read::Document(DocumentKey::new(MEMBERSHIP, name))).await {
        Ok(Found::Document(Some(found))) => read_membership(&found.row.body)
            .map_err(|_| Refusal::new(Code::Internal, "cannot read this user's party record")),
        Ok(Found::Document(None)) => Ok(Membership::default()),
        _ => Err(unavailable()),
    }
}

/// The messages in their inbox, oldest first. Reading them here acknowledges nothing.
pub async fn inbox(api: &HttpApi, name: &str, after: &str, limit: usize) -> Result<HttpResponse, Refusal> {
    let user = named(name)?;
    let after: u64 = match after {
        "" => 0,
        after => after
            .parse()
            .map_err(|_| Refusal::new(Code::BadRequest, "after must be the number of an inbox message"))?,
    };
    let Ok(Found::Inbox(InboxPage { dropped, page })) =
        api.store.read(Read::Inbox { user, after, limit: limit as u32 }).await
    else {
        return Err(unavailable());
    };
    let next = page.rows.last().filter(|_| page.more).map(|row| row.n);
    let messages = page.rows.iter().map(|row| InboxMessageReport::new(row.n, row.at.ms(), &row.body));
    Ok(typed(&InboxList { dropped_through: dropped, messages: messages.collect(), next }))
}

async fn presences(api: &HttpApi, user: &Arc<str>) -> Result<Vec<PresenceRow>, ()> {
    let mut all: Vec<PresenceRow> = Vec::new();
    loop {
        let after = all.last().map(|presence| presence.key.channel.clone());
        let read = Read::ChannelsOf { user: user.clone(), after, limit: PAGE_ROWS };
        let Ok(Found::Presences(page)) = api.store.read(read).await else { return Err(()) };
        all.extend(page.rows.into_iter().map(|row| row.row).filter(|presence| !presence.anonymous));
        if !page.more || all.len() >= CHANNELS_MAX {
            return Ok(all);
        }
    }
}

fn unavailable() -> Refusal {
    Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
}

fn whereabouts(presence: &PresenceRow) -> UserChannel {
    UserChannel { channel: presence.key.channel.clone(), since: presence.attendance.since() }
}

fn channel(now: Time, presence: &PresenceRow) -> ChannelPresence<'_> {
    let attendance = &presence.attendance;
    ChannelPresence {
        channel: &presence.key.channel,
        clients: attendance.clients().iter().map(client).collect(),
        gone_in_ms: attendance.offline_at().map(|until| until.since(now)),
        leaving: attendance.is_leaving(),
        since: attendance.since().ms(),
    }
}

fn client(client: &ChannelClient) -> ClientPresence<'_> {
    ClientPresence {
        client: client.client.to_string(),
        epoch: client.node.epoch.0,
        kept_until: client.lost.map(|lost| lost.until.ms()),
        lost_at: client.lost.map(|lost| lost.at.ms()),
        node: &client.node.node,
        since: client.since.ms(),
        state: client.state.as_ref().and_then(|state| raw(&state.text)),
    }
}

fn why(now: Time, presences: &[PresenceRow]) -> String {
    if presences.is_empty() {
        return "no client is present, and no grace period is running".to_owned();
    }
    let live: usize = presences.iter().map(|presence| presence.attendance.connected().count()).sum();
    if live > 0 {
        let channels = presences.iter().filter(|presence| !presence.attendance.is_leaving()).count();
        return format!("{live} client presences in {channels} channels; each names its node");
    }
    let until = presences.iter().filter_map(|presence| presence.attendance.offline_at()).max().unwrap_or(now);
    format!("every client is lost; the last grace period ends in {} ms", until.since(now))
}
