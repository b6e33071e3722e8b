//! All connections of a load and the turn that serves them: one thread, two pollers. Publishers have their own
//! poller, nested in the one of the listeners, so that a thousand ready listeners do not delay a publisher.
//! In a saturated fan-out to many, listeners are read late on purpose, several messages at a time: reading each
//! message as it comes costs the machine as much as sending it, and the figure would be the load's, not the
//! server's.
//! Must hold: no publisher runs further ahead of its listeners than the window; the same rules for every server.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::dial::{Dialer, Line};
use crate::frame::{Publish, delivery_head};
use crate::load::Load;
use crate::publisher::Publisher;
use crate::subscriber::{Shape, Subscriber};

/// Ready listeners that are read before publishers are looked at again.
const CHUNK: usize = 32;
const SCRATCH_BYTES: usize = 256 * 1024;
const TALKERS: Token = Token(usize::MAX - 1);
/// What a publisher waits for.
const TALKING: Interest = Interest::READABLE.add(Interest::WRITABLE);
/// The most publishes that a paced publisher sends at once when it is late.
const CATCH_UP: u64 = 64;

/// Listeners of one channel from which on a saturated load reads late.
const MANY: u64 = 100;
/// Late listeners are read when this many messages, and this many batches, are on their way to each.
const LATE_MESSAGES: u64 = 8;
const LATE_BATCHES: u64 = 2;
/// But never later than this.
const LATEST: Duration = Duration::from_millis(250);
/// How long a late load sleeps when no publisher wakes it.
const NAP: Duration = Duration::from_millis(1);

/// A channel's messages, seen from both ends.
struct Channel {
    shape: Shape,
    fanout: u64,
    published: u64,
    delivered: u64,
    /// One publisher: its numbers must arrive without a gap.
    ordered: bool,
}

impl Channel {
    fn outstanding(&self) -> u64 {
        (self.published * self.fanout).saturating_sub(self.delivered)
    }
}

/// Counts since the load began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub published: u64,
    pub delivered: u64,
    pub answers: u64,
    pub misordered: u64,
    pub short_replies: u64,
}

/// When publishers may send.
#[derive(Clone, Copy, Debug)]
pub enum Tempo {
    Closed,
    Saturated,
    /// Messages a second for each publisher, since this moment; each had sent this many before.
    Paced {
        per_second: f64,
        since: Instant,
    },
}

pub struct Stage {
    pub counts: Counts,
    pub tempo: Tempo,
    pub latency: Histogram<u64>,
    listeners: Poll,
    talkers: Poll,
    ready: Option<(Events, Events)>,
    subscribers: Vec<Subscriber>,
    publishers: Vec<Publisher>,
    channels: Vec<Channel>,
    starved: Vec<usize>,
    scratch: Box<[u8]>,
    clock: Instant,
    depth: usize,
    window: u64,
    /// Deliveries on their way at which late listeners are read. None: they are read at once.
    late: Option<u64>,
    read_at: Instant,
}

impl Stage {
    pub fn new(load: &Load) -> anyhow::Result<Self> {
        let listeners = Poll::new().context("no poller")?;
        let talkers = Poll::new().context("no poller")?;
        listeners.registry().register(&mut SourceFd(&talkers.as_raw_fd()), TALKERS, Interest::READABLE)?;
        let channels = (0..load.channels).map(|index| Channel {
            shape: Shape {
                protocol: load.target.protocol,
                head: delivery_head(load.target.protocol, &load.channel(index), load.payload)
                    .unwrap_or_default(),
                size: load.payload,
            },
            fanout: if load.idle { 0 } else { load.subscribers_of(index) },
            published: 0,
            delivered: 0,
            ordered: (0..load.publishers).filter(|publisher| publisher % load.channels == index).count() <= 1,
        });
        let late = load.rate.is_none() && load.subscribers_of(0) >= MANY;
        let trigger = LATE_MESSAGES.max(LATE_BATCHES * load.depth as u64).min(load.window);
        Ok(Self {
            late: late.then_some(trigger * load.subscribers as u64),
            read_at: Instant::now(),
            counts: Counts::default(),
            tempo: Tempo::Closed,
            latency: Histogram::new_with_bounds(1, 600_000_000_000, 3).context("no histogram")?,
            channels: channels.collect(),
            listeners,
            talkers,
            ready: Some((Events::with_capacity(8192), Events::with_capacity(64))),
            subscribers: Vec::with_capacity(load.subscribers),
            publishers: Vec::with_capacity(load.publishers),
            starved: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            clock: Instant::now(),
            depth: load.depth,
            window: load.window,
        })
    }

    /// Opens the next listener.
    pub fn add_subscriber(&mut self, load: &Load, dialer: &mut Dialer) -> anyhow::Result<()> {
        let index = self.subscribers.len();
        let channel = index % load.channels;
        let name = load.channel(channel);
        let line = dialer.open(&format!("bench-{index}"), (!load.idle).then_some(name.as_str()))?;
        let Line { stream, rest, poll } = line;
        let mut stream = TcpStream::from_std(stream);
        self.listeners.registry().register(&mut stream, Token(index), Interest::READABLE)?;
        self.subscribers.push(Subscriber::new(stream, channel, rest, poll));
        Ok(())
    }

    /// Opens the next publisher.
    pub fn add_publisher(&mut self, load: &Load, dialer: &mut Dialer) -> anyhow::Result<()> {
        let index = self.publishers.len();
        let channel = index % load.channels;
        let protocol = load.publish_to.protocol;
        let line = dialer.open(&format!("bench-publisher-{index}"), None)?;
        let mut stream = TcpStream::from_std(line.stream);
        self.talkers.registry().register(&mut stream, Token(index), TALKING)?;
        let publish =
            Publish::new(&load.publish_to, load.target.protocol, &load.channel(channel), load.payload);
        self.publishers.push(Publisher::new(stream, channel, line.rest, protocol, publish));
        Ok(())
    }

    /// Deliveries that were published and have not arrived.
    pub fn outstanding(&self) -> u64 {
        self.channels.iter().map(Channel::outstanding).sum()
    }

    /// Deliveries that should have come by now less those that came. Negative: more came than were sent.
    pub fn missing(&self) -> i64 {
        self.channels.iter().map(|one| (one.published * one.fanout) as i64 - one.delivered as i64).sum()
    }

    pub fn set_tempo(&mut self, tempo: Tempo) -> anyhow::Result<()> {
        self.tempo = tempo;
        for index in 0..self.publishers.len() {
            self.offer(index)?;
        }
        Ok(())
    }

    /// How long nothing needs to be sent.
    pub fn quiet(&self, now: Instant) -> Duration {
        let Tempo::Paced { per_second, since } = self.tempo else { return Duration::MAX };
        let soonest = self.publishers.iter().map(|one| one.sent).min().unwrap_or(0);
        let due = since + Duration::from_secs_f64((soonest as f64) / per_second);
        due.saturating_duration_since(now)
    }

    /// Waits at most `wait`, then serves every ready connection once.
    pub fn turn(&mut self, wait: Duration) -> anyhow::Result<()> {
        let (mut ready, mut talking) = self.ready.take().context("a turn within a turn")?;
        let result = self.serve(wait, &mut ready, &mut talking);
        self.ready = Some((ready, talking));
        result
    }

    fn serve(&mut self, wait: Duration, ready: &mut Events, talking: &mut Events) -> anyhow::Result<()> {
        if let Some(trigger) = self.late
            && !matches!(self.tempo, Tempo::Closed)
        {
            self.serve_publishers(talking, wait.min(NAP))?;
            if self.outstanding() < trigger && self.read_at.elapsed() < LATEST {
                return Ok(());
            }
            self.read_at = Instant::now();
            return self.serve_subscribers(Duration::ZERO, ready, talking);
        }
        self.serve_subscribers(wait, ready, talking)
    }

    fn serve_subscribers(
        &mut self,
        wait: Duration,
        ready: &mut Events,
        talking: &mut Events,
    ) -> anyhow::Result<()> {
        poll(&mut self.listeners, ready, wait)?;
        self.serve_publishers(talking, Duration::ZERO)?;
        for (position, event) in ready.iter().enumerate() {
            if event.token() != TALKERS {
                self.serve_subscriber(event.token().0)?;
            }
            if position % CHUNK == CHUNK - 1 {
                self.serve_publishers(talking, Duration::ZERO)?;
            }
        }
        self.feed_starved()?;
        if matches!(self.tempo, Tempo::Paced { .. }) {
            for index in 0..self.publishers.len() {
                self.offer(index)?;
            }
        }
        Ok(())
    }

    fn serve_subscriber(&mut self, index: usize) -> anyhow::Result<()> {
        let subscriber = &mut self.subscribers[index];
        let channel = &mut self.channels[subscriber.channel];
        let catch = subscriber.read(&channel.shape, &mut self.scratch)?;
        channel.delivered += catch.messages;
        self.counts.delivered += catch.messages;
        self.counts.answers += catch.answers;
        if let Some(first) = catch.first {
            let now = self.clock.elapsed().as_nanos() as u64;
            self.latency.saturating_record(now.saturating_sub(first.at_ns).max(1));
        }
        if let Some(last) = catch.last
            && channel.ordered
            && last.number != subscriber.received
        {
            self.counts.misordered += 1;
        }
        Ok(())
    }

    fn serve_publishers(&mut self, talking: &mut Events, wait: Duration) -> anyhow::Result<()> {
        if self.publishers.is_empty() {
            return Ok(());
        }
        poll(&mut self.talkers, talking, wait)?;
        for event in talking.iter() {
            let index = event.token().0;
            let publisher = &mut self.publishers[index];
            if event.is_writable() {
                publisher.flush()?;
            }
            if event.is_readable() {
                let expected = self.channels[publisher.channel].fanout;
                self.counts.short_replies += publisher.read(expected, &mut self.scratch)?;
                if publisher.closed {
                    publisher.reconnect().context("a publisher cannot connect again")?;
                    self.talkers.registry().register(&mut publisher.stream, Token(index), TALKING)?;
                }
            }
            self.offer(index)?;
        }
        self.feed_starved()
    }

    fn feed_starved(&mut self) -> anyhow::Result<()> {
        if self.starved.is_empty() {
            return Ok(());
        }
        for index in std::mem::take(&mut self.starved) {
            self.publishers[index].starved = false;
            self.offer(index)?;
        }
        Ok(())
    }

    /// Lets a publisher send if the tempo, its replies and its listeners allow it.
    fn offer(&mut self, index: usize) -> anyhow::Result<()> {
        let publisher = &mut self.publishers[index];
        if publisher.stuck() {
            return Ok(());
        }
        let count = match self.tempo {
            Tempo::Closed => 0,
            Tempo::Saturated if publisher.awaited > 0 => 0,
            Tempo::Saturated => self.depth,
            Tempo::Paced { per_second, since } => {
                let due = (since.elapsed().as_secs_f64() * per_second) as u64 + 1;
                due.saturating_sub(publisher.sent).min(CATCH_UP) as usize
            }
        };
        let count = match publisher.one_by_one {
            true if publisher.awaited > 0 => 0,
            true => count.min(1),
            false => count,
        };
        if count == 0 {
            return Ok(());
        }
        let channel = &mut self.channels[publisher.channel];
        if channel.outstanding() >= self.window * channel.fanout.max(1) {
            if !publisher.starved {
                publisher.starved = true;
                self.starved.push(index);
            }
            return Ok(());
        }
        publisher.send(count, self.clock.elapsed().as_nanos() as u64)?;
        channel.published += count as u64;
        self.counts.published += count as u64;
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for subscriber in &mut self.subscribers {
            subscriber.bye(self.channels[subscriber.channel].shape.protocol);
        }
    }
}

fn poll(poller: &mut Poll, ready: &mut Events, wait: Duration) -> anyhow::Result<()> {
    match poller.poll(ready, Some(wait)) {
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
            ready.clear();
            Ok(())
        }
        other => other.context("the poller failed"),
    }
}
