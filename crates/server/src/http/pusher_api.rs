//! `/apps/ID/…`: requests of servers that use a Pusher library, signed with the secret of the app.
//! Must hold: nothing is done, and nothing told, before the signature was checked; only what belongs to the app is told.

use super::HttpApi;
use super::body::{HttpResponse, json, whole};
use super::people::carry_out;
use super::publish::{self, BegunPublish};
use super::pusher::no_app;
use super::request::{self, Query, decode, decode_form};
use super::server::HttpConnection;
use crate::pusher::{Occupancy, PusherServer, read_total, rows_of};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::limits::PAGE_ENTRIES;
use tavern_hub::ServiceCommand;
use tavern_pusher::{
    CachedEvent, ChannelAccess, ChannelFacts, InfoFields, OutgoingEvent, PusherApp, PusherChannel,
    SignedRequest, TriggerRequest, parse_batch, parse_trigger, read_message, write_batch_reply,
    write_channel, write_channels, write_error, write_message, write_trigger_reply, write_users,
};
use tavern_store::{Found, Read};
use tavern_wire::bus::control::{ControlAction, Disconnect};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::MessageBody;

/// Ten events of 10 KiB, escaped.
const BODY_BYTES: usize = 256 * 1024;
/// The close code of connections that an app ends: the client does not come back by itself.
const TERMINATED: u16 = 4009;
/// Channels in one answer.
const CHANNELS_LISTED: usize = 10_000;
/// Pages of members in one answer.
const PAGES_MAX: usize = 64;

/// A refusal as Pusher's libraries show it.
struct ApiRefusal {
    status: u16,
    message: Cow<'static, str>,
}

type ApiResult<T> = Result<T, ApiRefusal>;

impl ApiRefusal {
    fn new(status: u16, message: impl Into<Cow<'static, str>>) -> ApiRefusal {
        ApiRefusal { status, message: message.into() }
    }
}

impl From<Refusal> for ApiRefusal {
    fn from(refusal: Refusal) -> ApiRefusal {
        ApiRefusal::new(refusal.code.http_status(), refusal.message)
    }
}

impl From<(u16, String)> for ApiRefusal {
    fn from((status, message): (u16, String)) -> ApiRefusal {
        ApiRefusal::new(status, message)
    }
}

pub async fn answer(connection: &HttpConnection, request: Request<Incoming>) -> HttpResponse {
    match serve(&connection.api, request).await {
        Ok(body) => json(body),
        Err(refused) => {
            let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
            whole(status, "application/json", write_error(&refused.message))
        }
    }
}

async fn serve(api: &HttpApi, request: Request<Incoming>) -> ApiResult<Vec<u8>> {
    let (parts, body) = request.into_parts();
    let Some(pusher) = &api.pusher else { return Err(no_app().into()) };
    let path = decode(parts.uri.path(), false)?;
    let mut segments = path.trim_start_matches("/apps/").splitn(2, '/');
    let (id, rest) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    let Some(occupancy) = pusher.app_of_id(id) else {
        count_failure(api, &parts)?;
        return Err(ApiRefusal::new(404, format!("there is no app with the id {id:?}")));
    };
    let body: Bytes = request::body(body, BODY_BYTES).await?;
    let parameters = decode_form(parts.uri.query().unwrap_or_default())?;
    let signed = SignedRequest {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        decoded_path: &path,
        parameters: &parameters,
        body: &body,
    };
    if let Err(fault) = signed.check(&occupancy.app, api.now().ms() / 1000) {
        count_failure(api, &parts)?;
        return Err(ApiRefusal::new(401, fault.message()));
    }
    let text = std::str::from_utf8(&body).map_err(|_| ApiRefusal::new(400, "the body is not UTF-8"))?;
    let (pusher, app) = (pusher.clone(), occupancy.app.clone());
    let call = AppCall { api, pusher, occupancy, app, query: Query::of(&parts)? };
    let segments: Vec<&str> = rest.split('/').collect();
    match (&parts.method, &segments[..]) {
        (&Method::POST, ["events"]) => call.trigger(parse_trigger(text)?).await,
        (&Method::POST, ["batch_events"]) => call.batch(parse_batch(text)?).await,
        (&Method::GET, ["channels"]) => call.channels().await,
        (&Method::GET, ["channels", name]) => call.channel(name).await,
        (&Method::GET, ["channels", name, "users"]) => call.users(name).await,
        (&Method::POST, ["users", user, "terminate_connections"]) => call.terminate(user).await,
        (method, _) => Err(ApiRefusal::new(404, format!("there is no {method} /apps/{id}/{rest}"))),
    }
}

/// Requests that are not signed count for their address.
fn count_failure(api: &HttpApi, parts: &Parts) -> ApiResult<()> {
    match request::address_of(parts) {
        Some(address) => Ok(api.node.rates.take_hello(api.now(), address)?),
        None => Ok(()),
    }
}

/// A request whose signature is valid.
struct AppCall<'a> {
    api: &'a HttpApi,
    pusher: Arc<PusherServer>,
    occupancy: Arc<Occupancy>,
    app: Arc<PusherApp>,
    query: Query,
}

impl AppCall<'_> {
    async fn trigger(&self, trigger: TriggerRequest<'_>) -> ApiResult<Vec<u8>> {
        self.check_info(trigger.info)?;
        let begun = self.publish(&trigger, &self.channels_of(&trigger)?)?;
        arrived(begun).await?;
        if trigger.info.is_empty() {
            return Ok(write_trigger_reply(None));
        }
        let mut facts = BTreeMap::new();
        for channel in trigger.channels.iter().filter_map(|name| PusherChannel::parse(name)) {
            facts.insert(channel.name.to_owned(), self.facts(&channel, trigger.info, None).await?);
        }
        Ok(write_trigger_reply(Some(&facts)))
    }

    async fn batch(&self, batch: Vec<TriggerRequest<'_>>) -> ApiResult<Vec<u8>> {
        batch.iter().try_for_each(|trigger| self.check_info(trigger.info))?;
        let channels =
            batch.iter().map(|trigger| self.channels_of(trigger)).collect::<ApiResult<Vec<_>>>()?;
        // All are begun before the first is awaited: those of one channel keep their order.
        let begun: Vec<Vec<BegunPublish>> = batch
            .iter()
            .zip(&channels)
            .map(|(trigger, channels)| self.publish(trigger, channels))
            .collect::<Result<_, _>>()?;
        for begun in begun {
            arrived(begun).await?;
        }
        if batch.iter().all(|trigger| trigger.info.is_empty()) {
            return Ok(write_batch_reply(None));
        }
        let mut facts = Vec::with_capacity(batch.len());
        for trigger in &batch {
            let channel = trigger.channels.first().and_then(|name| PusherChannel::parse(name));
            facts.push(match channel {
                Some(channel) if !trigger.info.is_empty() => self.facts(&channel, trigger.info, None).await?,
                _ => ChannelFacts::default(),
            });
        }
        Ok(write_batch_reply(Some(&facts)))
    }

    /// The channels in Tavern of an event: all of them are checked before anything is published.
    fn channels_of(&self, trigger: &TriggerRequest<'_>) -> ApiResult<Vec<String>> {
        let named = |name: &Cow<'_, str>| {
            let channel = PusherChannel::parse(name).and_then(|channel| channel.in_tavern(&self.app));
            channel.ok_or_else(|| not_a_channel(name))
        };
        trigger.channels.iter().map(named).collect()
    }

    /// Gives an event to the shards of its channels.
    fn publish(&self, trigger: &TriggerRequest<'_>, channels: &[String]) -> ApiResult<Vec<BegunPublish>> {
        let new =
            OutgoingEvent { event: &trigger.event, data: &trigger.data, except: trigger.except.as_deref() };
        let data = write_message(&new);
        let begin = |channel: &String| {
            let message = MessageBody { data: &data, retain: false, message_id: None };
            Ok(publish::begin(self.api, None, channel, message, None)?)
        };
        channels.iter().map(begin).collect()
    }

    async fn channels(&self) -> ApiResult<Vec<u8>> {
        let prefix = self.query.one("filter_by_prefix")?.unwrap_or_default();
        let info = self.info()?;
        if info.user_count && !prefix.starts_with("presence-") {
            return Err(ApiRefusal::new(
                400,
                "user_count needs filter_by_prefix=presence-: only those have users",
            ));
        }
        let counts = self.occupied(prefix).await?;
        let mut channels = BTreeMap::new();
        for (name, count) in counts.iter().take(CHANNELS_LISTED) {
            if let Some(channel) = PusherChannel::parse(name) {
                channels.insert(name.clone(), self.facts(&channel, info, Some(*count)).await?);
            }
        }
        Ok(write_channels(&channels))
    }

    async fn channel(&self, name: &str) -> ApiResult<Vec<u8>> {
        let channel = PusherChannel::parse(name).ok_or_else(|| not_a_channel(name))?;
        let info = self.info()?;
        if info.user_count && channel.access != ChannelAccess::Presence {
            return Err(ApiRefusal::new(400, "only presence channels have users"));
        }
        let count = self.count(&channel).await?;
        let mut facts = self.facts(&channel, info, Some(count)).await?;
        let users = match channel.access {
            ChannelAccess::Presence => self.user_count(&channel).await?,
            _ => 0,
        };
        facts.occupied = Some(users > 0 || count > 0);
        Ok(write_channel(&facts))
    }

    async fn users(&self, name: &str) -> ApiResult<Vec<u8>> {
        let channel = PusherChannel::parse(name).ok_or_else(|| not_a_channel(name))?;
        if channel.access != ChannelAccess::Presence {
            return Err(ApiRefusal::new(400, "only presence channels have users"));
        }
        let name: Arc<str> = self.name_of(&channel)?.into();
        let (mut users, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let read = Read::Roster { channel: name.clone(), after, limit: PAGE_ENTRIES as u32 };
            let Ok(Found::Roster(roster)) = self.api.store.read(read).await else {
                return Err(store_is_silent());
            };
            users.extend(roster.page.rows.iter().map(|found| self.app.user_id(&found.row.key.user)));
            after =
                roster.page.rows.last().map(|found| found.row.key.user.clone()).filter(|_| roster.page.more);
            if after.is_none() {
                break;
            }
        }
        Ok(write_users(users.iter().map(String::as_str)))
    }

    /// Closes all connections of a user, on every node.
    async fn terminate(&self, id: &str) -> ApiResult<Vec<u8>> {
        let user = self.app.user(id).ok_or_else(|| ApiRefusal::new(400, "the user id is not allowed"))?;
        let order = Disconnect {
            code: TERMINATED,
            reason: "the app has ended the connections of this user".into(),
            except: Vec::new(),
            allow_resume: false,
            at: self.api.now(),
        };
        let order = ServiceCommand::Control { user: user.into(), action: ControlAction::Disconnect(order) };
        carry_out(self.api, order).await?;
        Ok(write_trigger_reply(None))
    }

    fn name_of(&self, channel: &PusherChannel<'_>) -> ApiResult<String> {
        channel.in_tavern(&self.app).ok_or_else(|| not_a_channel(channel.name))
    }

    fn info(&self) -> ApiResult<InfoFields> {
        let info = InfoFields::parse(self.query.one("info")?)?;
        self.check_info(info)?;
        Ok(info)
    }

    fn check_info(&self, info: InfoFields) -> ApiResult<()> {
        match info.subscription_count && !self.app.subscription_count {
            true => Err(ApiRefusal::new(
                400,
                "subscriptions are not counted: set subscription_count = true in [[pusher.apps]]",
            )),
            false => Ok(()),
        }
    }

    /// The channels with subscriptions on any server, and how many those are; of a server that does not count, one for each.
    async fn occupied(&self, prefix: &str) -> ApiResult<BTreeMap<String, u64>> {
        let rows = rows_of(&self.pusher, &self.occupancy, prefix).await.ok_or_else(store_is_silent)?;
        let mut counts = self.occupancy.channels_here();
        counts.retain(|name, _| name.starts_with(prefix));
        for found in &rows {
            if let Some(name) = PusherChannel::of_occupied(&self.app, &found.row.key.channel) {
                counts.insert(name.to_owned(), self.occupancy.total(name, Some(&found.row)));
            }
        }
        counts.retain(|_, count| *count > 0);
        Ok(counts)
    }

    async fn count(&self, channel: &PusherChannel<'_>) -> ApiResult<u64> {
        let total = read_total(&self.pusher, &self.occupancy, channel.name).await;
        total.map(|total| total.count).ok_or_else(store_is_silent)
    }

    async fn facts(
        &self,
        channel: &PusherChannel<'_>,
        info: InfoFields,
        count: Option<u64>,
    ) -> ApiResult<ChannelFacts> {
        let mut facts = ChannelFacts::default();
        if info.user_count && channel.access == ChannelAccess::Presence {
            facts.user_count = Some(self.user_count(channel).await?);
        }
        if info.subscription_count {
            facts.subscription_count = Some(match count {
                Some(count) => count,
                None => self.count(channel).await?,
            });
        }
        if info.cache && channel.is_cache {
            facts.cache = self.cached(channel).await?;
        }
        Ok(facts)
    }

    async fn user_count(&self, channel: &PusherChannel<'_>) -> ApiResult<u64> {
        let read = Read::Roster { channel: self.name_of(channel)?.into(), after: None, limit: 1 };
        match self.api.store.read(read).await {
            Ok(Found::Roster(roster)) => Ok(roster.users),
            _ => Err(store_is_silent()),
        }
    }

    /// The last event that a server has sent to a cache channel.
    async fn cached(&self, channel: &PusherChannel<'_>) -> ApiResult<Option<CachedEvent>> {
        let name = self.name_of(channel)?;
        let Some(limits) = super::history::limits(self.api, &name)? else { return Ok(None) };
        let read = Read::History {
            channel: name.into(),
            after: 0,
            before: u64::MAX,
            newest: true,
            limit: limits.messages as u32,
        };
        let Ok(Found::History(found)) = self.api.store.read(read).await else {
            return Err(store_is_silent());
        };
        let now = self.api.now();
        let last = found.page.rows.iter().rev().find_map(|message| {
            let raw = std::str::from_utf8(&message.body).ok()?;
            let event = read_message(serde_json::from_str(raw).ok()?);
            let ttl_ms = (message.at.ms() + limits.ttl_ms).saturating_sub(now.ms());
            let is_kept = ttl_ms > 0 && !event.event.starts_with("client-");
            is_kept.then(|| CachedEvent { data: event.data.into_owned(), ttl: ttl_ms / 1000 })
        });
        Ok(last)
    }
}

async fn arrived(begun: Vec<BegunPublish>) -> ApiResult<()> {
    for begun in begun {
        begun.reply().await?;
    }
    Ok(())
}

fn not_a_channel(name: &str) -> ApiRefusal {
    ApiRefusal::new(
        400,
        format!("{name:?} is not a channel: a name has 1 to 200 letters, digits and _-=@,.;"),
    )
}

fn store_is_silent() -> ApiRefusal {
    let refusal = Refusal::new(Code::Unavailable, "the store did not answer; retry");
    refusal.into()
}
