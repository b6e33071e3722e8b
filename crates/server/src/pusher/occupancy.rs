//! Which channels of an app have subscriptions, on all servers. A server is present in `pusher-ID-occupied#CHANNEL` while the
//! channel has a socket here, as a client of the app's counter; its state is the number of subscriptions. So the channel has a
//! member as long as any server has a subscription, and a server that dies leaves after the grace period of that kind.
//! This file is what sockets and requests see; `announcing` brings it into the store.
//! Must hold: one announcement of a channel is under way at a time; the last one has the number that is right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tavern_domain::{ClientId, Epoch};
use tavern_pusher::{ChannelAccess, PusherApp, PusherChannel};
use tavern_store::PresenceRow;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// A channel counts as vacated this long after its last subscription: a page that is loaded again is back by then.
pub const LINGER: Duration = Duration::from_secs(3);
/// Numbers of a channel are announced this often at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The backoff after the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// The channels of one app with sockets on this server.
pub struct Occupancy {
    pub app: Arc<PusherApp>,
    /// This server's client.
    pub client: ClientId,
    /// How long members of this app's presence channels stay without a connection.
    grace: Duration,
    open: Mutex<OpenChannels>,
    changed: Notify,
}

#[derive(Default)]
struct OpenChannels {
    channels: HashMap<Arc<str>, OpenChannel>,
    /// When each channel must be looked at.
    due: BTreeSet<(Instant, Arc<str>)>,
    sockets: u64,
}

#[derive(Default)]
struct OpenChannel {
    sockets: HashMap<u64, Arc<SocketCounts>>,
    due: Option<Instant>,
    /// Without sockets: when it is left.
    leaves_at: Option<Instant>,
    announced: Option<Announced>,
    is_busy: bool,
    /// Sockets that wait until the channel is announced.
    waiting: Vec<oneshot::Sender<()>>,
    /// The number of all servers, and the version of the row it was read from.
    total: (u64, u64),
}

#[derive(Clone, Copy)]
struct Announced {
    epoch: Epoch,
    count: u64,
    at: Instant,
}

/// What is to be announced about a channel. None: this server leaves it.
pub struct Announcement {
    pub name: Arc<str>,
    pub count: Option<u64>,
    pub epoch: Epoch,
}

/// New numbers of subscriptions for one socket, by channel: the last one of each.
#[derive(Default)]
pub struct SocketCounts {
    pending: Mutex<BTreeMap<Arc<str>, u64>>,
    changed: Notify,
}

impl SocketCounts {
    fn put(&self, name: &Arc<str>, count: u64) {
        lock(&self.pending).insert(name.clone(), count);
        self.changed.notify_one();
    }

    /// Waits for new numbers.
    pub async fn next(&self) -> BTreeMap<Arc<str>, u64> {
        loop {
            let pending = std::mem::take(&mut *lock(&self.pending));
            if !pending.is_empty() {
                return pending;
            }
            self.changed.notified().await;
        }
    }
}

/// A subscription that counts, until it is dropped.
pub struct Seat {
    occupancy: Arc<Occupancy>,
    name: Arc<str>,
    number: u64,
    is_left: bool,
}

impl Seat {
    /// The client has unsubscribed: it does not come back.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.occupancy.leave(&self.name, self.number, self.is_left);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Occupancy {
    pub fn new(app: Arc<PusherApp>, client: ClientId, grace: Duration) -> Arc<Occupancy> {
        Arc::new(Occupancy { app, client, grace, open: Mutex::default(), changed: Notify::new() })
    }

    /// A socket subscribes. The receiver hears when the channel is announced, if it was not yet.
    pub fn enter(
        self: &Arc<Occupancy>,
        name: &str,
        counts: &Arc<SocketCounts>,
    ) -> (Seat, Option<oneshot::Receiver<()>>) {
        let mut open = lock(&self.open);
        let (name, now): (Arc<str>, _) = (name.into(), Instant::now());
        open.sockets += 1;
        let number = open.sockets;
        let channel = open.channels.entry(name.clone()).or_default();
        channel.sockets.insert(number, counts.clone());
        channel.leaves_at = None;
        let waiting = channel.announced.is_none().then(|| {
            let (announced, waiting) = oneshot::channel();
            channel.waiting.push(announced);
            waiting
        });
        if waiting.is_some() || self.app.subscription_count {
            open.set_due(&name, now);
            self.changed.notify_one();
        }
        drop(open);
        (Seat { occupancy: self.clone(), name, number, is_left: false }, waiting)
    }

    fn leave(&self, name: &Arc<str>, number: u64, is_left: bool) {
        let mut open = lock(&self.open);
        let Some(channel) = open.channels.get_mut(name) else { return };
        channel.sockets.remove(&number);
        let now = Instant::now();
        if channel.sockets.is_empty() {
            // The members of a lost connection go first.
            let is_presence =
                PusherChannel::parse(name).is_some_and(|found| found.access == ChannelAccess::Presence);
            let grace = if is_presence && !is_left { self.grace } else { Duration::ZERO };
            channel.leaves_at = Some(now + LINGER + grace);
        } else if !self.app.subscription_count {
            return;
        }
        open.set_due(name, now);
        self.changed.notify_one();
    }

    /// What is due, at most so many; and when the next is.
    pub fn due(&self, epoch: Epoch, room: usize) -> (Vec<Announcement>, Option<Instant>) {
        let mut open = lock(&self.open);
        let (now, mut announcements) = (Instant::now(), Vec::new());
        while announcements.len() < room
            && open.due.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, name)) = open.due.pop_first()
        {
            let Some(channel) = open.channels.get_mut(&name) else { continue };
            channel.due = None;
            match channel.step(now, epoch, self.app.subscription_count) {
                ChannelStep::Nothing => {}
                ChannelStep::Wait(until) => open.set_due(&name, until),
                ChannelStep::Forget => drop(open.channels.remove(&name)),
                ChannelStep::Announce(count) => announcements.push(Announcement { name, count, epoch }),
            }
        }
        (announcements, open.due.first().map(|(due, _)| *due))
    }

    /// An announcement has ended.
    pub fn announced(&self, announcement: &Announcement, done: bool) {
        let mut open = lock(&self.open);
        let now = Instant::now();
        let Announcement { name, count, epoch } = announcement;
        let Some(channel) = open.channels.get_mut(name) else { return };
        channel.is_busy = false;
        let due = match (done, count) {
            (false, _) => now + RETRY,
            (true, count) => {
                channel.announced = count.map(|count| Announced { epoch: *epoch, count, at: now });
                if count.is_some() {
                    for waiting in channel.waiting.drain(..) {
                        let _ = waiting.send(());
                    }
                }
                now
            }
        };
        open.set_due(name, due);
        self.changed.notify_one();
    }

    /// This server continues under a new epoch: all channels are announced again.
    pub fn announce_all(&self) {
        let mut open = lock(&self.open);
        let (names, now): (Vec<Arc<str>>, _) = (open.channels.keys().cloned().collect(), Instant::now());
        names.iter().for_each(|name| open.set_due(name, now));
        self.changed.notify_one();
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The number of all servers, as it was read from a row of this version. False: it was known.
    pub fn tell(&self, name: &str, version: u64, total: u64) -> bool {
        let mut open = lock(&self.open);
        let Some((name, _)) = open.channels.get_key_value(name) else { return false };
        let name = name.clone();
        let Some(channel) = open.channels.get_mut(&name) else { return false };
        let (known_total, known_version) = channel.total;
        if version < known_version || total == known_total {
            return false;
        }
        channel.total = (total, version);
        channel.sockets.values().for_each(|socket| socket.put(&name, total));
        true
    }

    /// The subscriptions of a channel on this server.
    pub fn count_here(&self, name: &str) -> u64 {
        lock(&self.open).channels.get(name).map_or(0, |channel| channel.sockets.len() as u64)
    }

    /// The channels with subscriptions on this server.
    pub fn channels_here(&self) -> BTreeMap<String, u64> {
        let open = lock(&self.open);
        let channels = open.channels.iter().filter(|(_, channel)| !channel.sockets.is_empty());
        channels.map(|(name, channel)| (name.to_string(), channel.sockets.len() as u64)).collect()
    }

    /// The subscriptions on all servers: those that the row shows of the others, and those here.
    pub fn total(&self, name: &str, row: Option<&PresenceRow>) -> u64 {
        let others = row.into_iter().flat_map(|row| row.attendance.connected());
        let others = others.filter(|other| other.client != self.client);
        // A server that does not count shows only that it has some.
        let count = |text: &str| text.parse::<u64>().unwrap_or(1);
        let others: u64 =
            others.map(|other| other.state.as_ref().map_or(1, |state| count(&state.text))).sum();
        others + self.count_here(name)
    }
}

enum ChannelStep {
    Nothing,
    Wait(Instant),
    Announce(Option<u64>),
    Forget,
}

impl OpenChannel {
    fn step(&mut self, now: Instant, epoch: Epoch, counts: bool) -> ChannelStep {
        let count = self.sockets.len() as u64;
        let step = match (self.is_busy, self.announced, self.leaves_at) {
            (true, ..) => ChannelStep::Nothing,
            (_, None, None) => ChannelStep::Announce(Some(count)),
            (_, None, Some(_)) => ChannelStep::Forget,
            (_, Some(_), Some(leaves_at)) if now >= leaves_at => ChannelStep::Announce(None),
            (_, Some(known), leaves_at) if known.epoch == epoch && (!counts || known.count == count) => {
                leaves_at.map_or(ChannelStep::Nothing, ChannelStep::Wait)
            }
            (_, Some(known), _) if known.epoch == epoch && now < known.at + COUNT_EVERY => {
                ChannelStep::Wait(known.at + COUNT_EVERY)
            }
            (_, Some(_), _) => ChannelStep::Announce(Some(count)),
        };
        self.is_busy |= matches!(step, ChannelStep::Announce(_));
        step
    }
}

impl OpenChannels {
    fn set_due(&mut self, name: &Arc<str>, due: Instant) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        if let Some(before) = channel.due.filter(|before| *before > due) {
            self.due.remove(&(before, name.clone()));
        } else if channel.due.is_some() {
            return;
        }
        channel.due = Some(due);
        self.due.insert((due, name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch(1);

    /// What is announced, how long it waits, or that the channel is forgotten.
    fn step(channel: &mut OpenChannel, at: Instant, epoch: Epoch, counts: bool) -> String {
        let shown = match channel.step(at, epoch, counts) {
            ChannelStep::Nothing => "nothing".to_owned(),
            ChannelStep::Wait(until) => format!("wait {}", (until - at).as_millis()),
            ChannelStep::Announce(Some(count)) => format!("announce {count}"),
            ChannelStep::Announce(None) => "leave".to_owned(),
            ChannelStep::Forget => "forget".to_owned(),
        };
        channel.is_busy = false;
        shown
    }

    fn channel(sockets: u64, announced: Option<u64>, at: Instant) -> OpenChannel {
        let announced = announced.map(|count| Announced { epoch: EPOCH, count, at });
        let sockets = (0..sockets).map(|number| (number, Arc::default())).collect();
        OpenChannel { sockets, announced, ..OpenChannel::default() }
    }

    #[test]
    fn a_channel_is_announced_once_and_numbers_every_second() {
        let begin = Instant::now();
        let later = begin + Duration::from_millis(400);
        for (sockets, announced, counts, expected) in [
            (1, None, false, "announce 1"),
            (5, Some(1), false, "nothing"),
            (5, Some(1), true, "wait 600"),
            (5, Some(5), true, "nothing"),
        ] {
            assert_eq!(step(&mut channel(sockets, announced, begin), later, EPOCH, counts), expected);
        }
        assert_eq!(step(&mut channel(5, Some(1), begin), begin + COUNT_EVERY, EPOCH, true), "announce 5");
    }

    #[test]
    fn a_new_epoch_announces_again() {
        let begin = Instant::now();
        assert_eq!(step(&mut channel(2, Some(2), begin), begin, Epoch(2), false), "announce 2");
    }

    #[test]
    fn a_channel_without_sockets_is_left_later() {
        let begin = Instant::now();
        let leaving = |announced| OpenChannel {
            leaves_at: Some(begin + LINGER),
            ..channel(0, announced, begin - COUNT_EVERY)
        };
        assert_eq!(step(&mut leaving(Some(1)), begin, EPOCH, false), "wait 3000");
        assert_eq!(step(&mut leaving(Some(1)), begin, EPOCH, true), "announce 0");
        assert_eq!(step(&mut leaving(Some(0)), begin, EPOCH, true), "wait 3000");
        assert_eq!(step(&mut leaving(Some(1)), begin + LINGER, EPOCH, false), "leave");
        assert_eq!(step(&mut leaving(None), begin, EPOCH, false), "forget");
        // One announcement at a time.
        let mut busy = OpenChannel { is_busy: true, ..leaving(Some(1)) };
        assert!(matches!(busy.step(begin + LINGER, EPOCH, false), ChannelStep::Nothing));
    }

    #[test]
    fn a_socket_is_told_the_last_number() {
        let app = PusherApp {
            id: "1".into(),
            key: "k".into(),
            secrets: vec!["s".into()],
            client_events: false,
            user_authentication: false,
            subscription_count: true,
        };
        let occupancy = Occupancy::new(Arc::new(app), ClientId::from_random(1), Duration::ZERO);
        let counts = Arc::default();
        let (seat, _) = occupancy.enter("room", &counts);
        assert!(occupancy.tell("room", 5, 2) && !occupancy.tell("room", 5, 2));
        assert!(!occupancy.tell("room", 4, 9), "an older one");
        assert!(!occupancy.tell("other", 9, 9));
        assert!(occupancy.tell("room", 6, 3));
        assert_eq!(
            lock(&counts.pending).iter().map(|(name, count)| (&**name, *count)).collect::<Vec<_>>(),
            [("room", 3)]
        );
        assert_eq!(occupancy.count_here("room"), 1);
        seat.leave();
        assert_eq!((occupancy.count_here("room"), occupancy.channels_here().len()), (0, 0));
    }
}
