//! Brings the occupancy of one app into the store, and numbers of subscriptions to all servers. A number that changed is
//! sent to them on the bus; numbers are also compared with the store, because a server that died told nobody.
//! Must hold: a failure is retried; a server that is declared dead and goes on announces its channels again.

use super::occupancy::{Announcement, Occupancy};
use super::registry::PusherServer;
use super::webhooks::WebhookQueue;
use crate::shard::input::{HttpServiceCommand, ShardInput};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Epoch;
use tavern_hub::{NodeAttendance, ServiceCommand};
use tavern_pusher::{ChannelAccess, PusherChannel, WebhookEvent, WebhookKind};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Found, PresenceKey, PresenceRow, Read, Versioned};
use tavern_wire::bus::control::PusherCount;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// Announcements under way.
const IN_FLIGHT: usize = 64;
/// How long one may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How often the epoch is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often numbers are compared with the store.
const COMPARE: u32 = 10;

/// An announcement after its commit, or after it failed.
struct EndedAnnouncement {
    announcement: Announcement,
    done: bool,
    /// What subscribers are told.
    total: Option<ChannelTotal>,
}

/// The subscriptions of a channel on all servers, and the version of the row that shows them.
#[derive(Clone, Copy)]
pub struct ChannelTotal {
    pub version: u64,
    pub count: u64,
}

struct Announcer {
    server: Arc<PusherServer>,
    occupancy: Arc<Occupancy>,
    under_way: JoinSet<EndedAnnouncement>,
    epoch: Epoch,
}

pub async fn keep(server: Arc<PusherServer>, occupancy: Arc<Occupancy>) {
    let epoch = server.sources.node.epoch();
    let mut announcer = Announcer { server, occupancy, under_way: JoinSet::new(), epoch };
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looked: u32 = 0;
    loop {
        let due = announcer.start();
        let due = due.unwrap_or_else(|| Instant::now() + LOOK);
        let occupancy = announcer.occupancy.clone();
        tokio::select! {
            Some(ended) = announcer.under_way.join_next() => {
                announcer.ended(ended.expect("an announcement panicked")).await;
            }
            () = occupancy.changed() => {}
            () = sleep_until(due), if due > Instant::now() => {}
            _ = looks.tick() => {
                looked = looked.wrapping_add(1);
                announcer.look(looked).await;
            }
        }
    }
}

impl Announcer {
    /// Starts what is due; returns when the next is.
    fn start(&mut self) -> Option<Instant> {
        let room = IN_FLIGHT.saturating_sub(self.under_way.len());
        let (announcements, due) = self.occupancy.due(self.epoch, room);
        for announcement in announcements {
            let (server, occupancy) = (self.server.clone(), self.occupancy.clone());
            self.under_way.spawn(async move {
                let done = announce(&server, &occupancy, &announcement).await;
                let counts = done && announcement.count.is_some() && is_told(&occupancy, &announcement.name);
                let total =
                    if counts { read_total(&server, &occupancy, &announcement.name).await } else { None };
                EndedAnnouncement { announcement, done, total }
            });
        }
        // With no room, the next one that ends makes some.
        due.filter(|_| self.under_way.len() < IN_FLIGHT)
    }

    async fn ended(&mut self, ended: EndedAnnouncement) {
        let EndedAnnouncement { announcement, done, total } = ended;
        self.occupancy.announced(&announcement, done);
        let Some(total) = total else { return };
        self.tell(&announcement.name, total).await;
        let ChannelTotal { version, count } = total;
        let app = (&*self.occupancy.app.id).into();
        let told = PusherCount { app, channel: announcement.name, version, count };
        self.server.sources.node.share_pusher_count(&told);
    }

    /// A number that this server is responsible for: its sockets and the webhooks are told.
    async fn tell(&self, name: &str, total: ChannelTotal) {
        if self.occupancy.tell(name, total.version, total.count) {
            post_count(&self.server.webhooks, &self.occupancy, name, total.count).await;
        }
    }

    async fn look(&mut self, looked: u32) {
        let epoch = self.server.sources.node.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.occupancy.announce_all();
        }
        if self.occupancy.app.subscription_count && looked.is_multiple_of(COMPARE) {
            self.compare().await;
        }
    }

    /// Tells numbers that changed without a message: a server has died.
    async fn compare(&self) {
        let here = self.occupancy.channels_here();
        if here.is_empty() {
            return;
        }
        let node = &self.server.sources.node;
        // One server tells the webhooks.
        let is_first = node.other_nodes().iter().all(|other| **other > *self.server.sources.config.node);
        let Some(rows) = rows_of(&self.server, &self.occupancy, "").await else { return };
        for Versioned { version, row } in rows {
            let Some(name) = PusherChannel::of_occupied(&self.occupancy.app, &row.key.channel) else {
                continue;
            };
            if !here.contains_key(name) || !is_told(&self.occupancy, name) {
                continue;
            }
            let count = self.occupancy.total(name, Some(&row));
            if is_first {
                self.tell(name, ChannelTotal { version, count }).await;
            } else {
                self.occupancy.tell(name, version, count);
            }
        }
    }
}

/// Members of presence channels are counted by themselves.
fn is_told(occupancy: &Occupancy, name: &str) -> bool {
    let channel = PusherChannel::parse(name);
    occupancy.app.subscription_count && channel.is_some_and(|found| found.access != ChannelAccess::Presence)
}

async fn post_count(webhooks: &WebhookQueue, occupancy: &Occupancy, name: &str, total: u64) {
    let event = WebhookEvent {
        subscription_count: Some(total),
        ..WebhookEvent::new(WebhookKind::SubscriptionCount, name)
    };
    webhooks.put(&occupancy.app, &event).await;
}

/// False: it must be repeated.
async fn announce(server: &PusherServer, occupancy: &Occupancy, announcement: &Announcement) -> bool {
    let attend = NodeAttendance {
        key: key_of(occupancy, &announcement.name),
        client: occupancy.client,
        is_here: announcement.count.is_some(),
        state: announcement.count.map(|count| count.to_string().into()),
    };
    let (answer, waiting) = oneshot::channel();
    let order = HttpServiceCommand { order: ServiceCommand::Attend(attend), answer };
    // One shard brings all changes of a channel into the store, in order.
    let mut hasher = DefaultHasher::new();
    announcement.name.hash(&mut hasher);
    let shards = &server.sources.shards;
    let shard = (hasher.finish() % shards.len() as u64) as usize;
    if shards.put(shard, ShardInput::Order(Box::new(order))).is_err() {
        return false;
    }
    match timeout(ANSWER, waiting).await {
        Ok(Ok(Ok(_))) => true,
        Ok(Ok(Err(refusal))) => {
            tracing::debug!(channel = %announcement.name, %refusal, "cannot announce a channel; retrying");
            false
        }
        _ => false,
    }
}

fn key_of(occupancy: &Occupancy, name: &str) -> PresenceKey {
    let (app, channel) = (&occupancy.app, occupancy.app.occupied_channel(name));
    PresenceKey { channel: channel.into(), user: app.counter().into() }
}

/// None: the store did not answer.
pub async fn read_total(server: &PusherServer, occupancy: &Occupancy, name: &str) -> Option<ChannelTotal> {
    match server.topics.store.read(Read::Presence(key_of(occupancy, name))).await {
        Ok(Found::Presence(found)) => {
            let version = found.as_ref().map_or(0, |found| found.version);
            let count = occupancy.total(name, found.as_ref().map(|found| &found.row));
            Some(ChannelTotal { version, count })
        }
        _ => None,
    }
}

/// The rows of the app's channels whose names begin with a prefix. None: the store did not answer.
pub async fn rows_of(
    server: &PusherServer,
    occupancy: &Occupancy,
    prefix: &str,
) -> Option<Vec<Versioned<PresenceRow>>> {
    let user: Arc<str> = occupancy.app.counter().into();
    let begin = occupancy.app.occupied_channel(prefix);
    // The text before all that have this prefix: names have no character as low as this one.
    let mut after: Option<Arc<str>> = Some(format!("{}\u{1}", &begin[..begin.len() - 1]).into());
    if prefix.is_empty() {
        after = Some(begin.clone().into());
    }
    let mut rows = Vec::new();
    while after.is_some() {
        let read = Read::ChannelsOf { user: user.clone(), after, limit: PAGE_ROWS };
        let Ok(Found::Presences(page)) = server.topics.store.read(read).await else { return None };
        let last = page.rows.last().map(|found| found.row.key.channel.clone());
        let is_past = last.as_deref().is_none_or(|last| !last.starts_with(&begin) && *last > *begin);
        rows.extend(page.rows.into_iter().filter(|found| found.row.key.channel.starts_with(&begin)));
        after = last.filter(|_| page.more && !is_past && rows.len() < CHANNELS_MAX);
    }
    Some(rows)
}

/// Channels that are read at once.
const CHANNELS_MAX: usize = 100_000;
