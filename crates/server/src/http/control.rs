//! Acting on users: their sessions, bans, and erasing what is stored about them; and how many there are.

use super::api::HttpApi;
use super::body::{HttpResponse, json, typed};
use super::key_holder::RequestBody;
use super::people::{carry_out, order};
use super::rest::page_of;
use http::request::Parts;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_domain::Time;
use tavern_domain::party::{PartyCommand, PartyRequest};
use tavern_hub::ServiceCommand;
use tavern_hub::user::is_user;
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{DocumentKey, FollowRow, Found, Read, Row, RowKey, RowKind};
use tavern_wire::bus::control::{Ban, ControlAction, Disconnect};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{self, BanList, BanReport, parse_ban, parse_channel_body, parse_disconnect};
use tavern_wire::record::{BAN, MEMBERSHIP, read_ban, read_membership};

/// How long the presence of an erased user may take to end.
const PRESENCE_ENDS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

pub async fn stats(api: &HttpApi) -> Result<HttpResponse, Refusal> {
    let report = api.population.report().await.map_err(|_| unavailable())?;
    Ok(typed(&report))
}

pub async fn sessions(api: &HttpApi, user: &str) -> Result<HttpResponse, Refusal> {
    act(api, user, ControlAction::Sessions).await
}

pub async fn disconnect(api: &HttpApi, user: &str, body: RequestBody<'_>) -> Result<HttpResponse, Refusal> {
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let api::DisconnectRequest { code, reason, except, allow_resume } = parse_disconnect(&body)?;
    let order = Disconnect { code, reason, except, allow_resume, at: api.now() };
    act(api, user, ControlAction::Disconnect(order)).await
}

/// Subscribes all sessions of a user, or ends their subscriptions.
pub async fn subscribe(
    api: &HttpApi,
    user: &str,
    on: bool,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let channel = parse_channel_body(&body)?;
    let action = if on { ControlAction::Subscribe(channel) } else { ControlAction::Unsubscribe(channel) };
    act(api, user, action).await
}

pub async fn ban(api: &HttpApi, user: &str, body: RequestBody<'_>) -> Result<HttpResponse, Refusal> {
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let api::BanRequest { until, reason } = parse_ban(&body)?;
    let now = api.now();
    if until.is_some_and(|until| until <= now.ms()) {
        return Err(Refusal::new(Code::BadRequest, "the field `until` is over already"));
    }
    let ban = Ban { until: until.map_or(Time::NEVER, Time), reason, at: now };
    act(api, user, ControlAction::Ban(ban)).await
}

pub async fn unban(api: &HttpApi, user: &str) -> Result<HttpResponse, Refusal> {
    act(api, user, ControlAction::Unban).await
}

pub async fn show_ban(api: &HttpApi, user: &str) -> Result<HttpResponse, Refusal> {
    check_user(user)?;
    let Some(ban) = ban_of(api, user).await? else {
        return Err(Refusal::new(Code::NotFound, "this user is not banned"));
    };
    Ok(typed(&report(user, &ban)))
}

/// The bans of the store, by user, without those that are over: a page may have fewer rows than its limit.
pub async fn bans(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let (after, limit) = page_of(parts)?;
    let after = Some(RowKey::Document(DocumentKey::new(BAN, &after)));
    let read = Read::Rows { kind: RowKind::Document, after, limit: limit as u32 };
    let Ok(Found::Rows(page)) = api.store.read(read).await else { return Err(unavailable()) };
    let documents = page.rows.iter().map_while(|found| match &found.row {
        Row::Document(document) if document.key.kind() == BAN => Some(document),
        _ => None,
    });
    let documents: Vec<_> = documents.collect();
    let more = page.more && documents.len() == page.rows.len();
    let bans: Vec<(&str, Ban)> = documents
        .iter()
        .filter_map(|document| Some((document.key.name(), read_ban(&document.body).ok()?)))
        .filter(|(_, ban)| api.now() < ban.until)
        .collect();
    let next = documents.last().filter(|_| more).map(|last| last.key.name());
    Ok(typed(&BanList { bans: bans.iter().map(|(user, ban)| report(user, ban)).collect(), next }))
}

fn report<'a>(user: &'a str, ban: &'a Ban) -> BanReport<'a> {
    let until = (ban.until != Time::NEVER).then_some(ban.until.ms());
    BanReport { at: ban.at.ms(), reason: &ban.reason, until, user }
}

/// The ban of a user, if it is not over.
pub async fn ban_of(api: &HttpApi, user: &str) -> Result<Option<Ban>, Refusal> {
    let found = api.store.read(Read::Document(DocumentKey::new(BAN, user))).await;
    let Ok(Found::Document(found)) = found else { return Err(unavailable()) };
    Ok(found.and_then(|found| read_ban(&found.row.body).ok()).filter(|ban| api.now() < ban.until))
}

async fn act(api: &HttpApi, user: &str, action: ControlAction) -> Result<HttpResponse, Refusal> {
    order(api, ServiceCommand::Control { user: user.into(), action }).await
}

/// Erases what is stored about a user. Every step can be repeated: when one fails, the request is sent again.
pub async fn erase(api: &HttpApi, user: &str) -> Result<HttpResponse, Refusal> {
    check_user(user)?;
    let user: Arc<str> = user.into();
    leave_parties(api, &user).await?;
    let reason = "the user was erased".into();
    let order = Disconnect { code: 4006, reason, except: Vec::new(), allow_resume: false, at: api.now() };
    let order = ServiceCommand::Control { user: user.clone(), action: ControlAction::Disconnect(order) };
    carry_out(api, order).await?;
    end_presences(api, &user).await?;
    for followers in [false, true] {
        end_follows(api, &user, followers).await?;
    }
    carry_out(api, ServiceCommand::Forget { user }).await.map(json)
}

/// They leave their party and decline every invite.
async fn leave_parties(api: &HttpApi, user: &Arc<str>) -> Result<(), Refusal> {
    let Ok(Found::Document(found)) = api.store.read(Read::Document(DocumentKey::new(MEMBERSHIP, user))).await
    else {
        return Err(unavailable());
    };
    let Some(membership) = found.and_then(|found| read_membership(&found.row.body).ok()) else {
        return Ok(());
    };
    let leave = membership.party.map(|_| PartyCommand::Leave { message: None });
    let decline = |party_id: &u64| PartyCommand::Decline { party_id: *party_id, message: None };
    for command in leave.into_iter().chain(membership.invites.iter().map(decline)) {
        let user = Some(user.clone());
        let call = PartyRequest { user, name: None, party: None, if_version: None, rid: None, command };
        match carry_out(api, ServiceCommand::Party { call: Box::new(call), limited: false }).await {
            Err(refusal) if refusal.code == Code::Unavailable => return Err(refusal),
            // The party or the invite is gone.
            _ => {}
        }
    }
    Ok(())
}

/// Waits until the user is in no channel. What apps hold is released.
async fn end_presences(api: &HttpApi, user: &Arc<str>) -> Result<(), Refusal> {
    let until = Instant::now() + PRESENCE_ENDS;
    loop {
        let read = Read::ChannelsOf { user: user.clone(), after: None, limit: PAGE_ROWS };
        let Ok(Found::Presences(page)) = api.store.read(read).await else { return Err(unavailable()) };
        if page.rows.is_empty() {
            return Ok(());
        }
        for found in page.rows {
            let (channel, user) = (found.row.key.channel, found.row.key.user);
            // The server's own channels end with the sessions and the party.
            let _ = carry_out(api, ServiceCommand::Release { channel, user }).await;
        }
        if Instant::now() >= until {
            let message = "the user is still present in a channel; try again";
            return Err(Refusal::new(Code::Unavailable, message).retry_after(RETRY_AFTER_MS));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Each follow ends by itself, so that those who are online learn of it.
async fn end_follows(api: &HttpApi, user: &Arc<str>, followers: bool) -> Result<(), Refusal> {
    loop {
        let (user, after, limit) = (user.clone(), None, PAGE_ROWS);
        let read = match followers {
            true => Read::Followers { user, after, limit },
            false => Read::Following { user, after, limit },
        };
        let Ok(Found::Edges(page)) = api.store.read(read).await else { return Err(unavailable()) };
        if page.rows.is_empty() {
            return Ok(());
        }
        for FollowRow { follow, .. } in page.rows {
            let (follower, followee) = (follow.follower, follow.followee);
            carry_out(api, ServiceCommand::Follow { follower, followee, on: false }).await?;
        }
    }
}

fn check_user(user: &str) -> Result<(), Refusal> {
    match is_user(user) {
        true => Ok(()),
        false => {
            Err(Refusal::new(Code::BadRequest, "a user id has 1 to 128 bytes and no control characters"))
        }
    }
}

fn unavailable() -> Refusal {
    Refusal::new(Code::Unavailable, "the store does not answer").retry_after(RETRY_AFTER_MS)
}
