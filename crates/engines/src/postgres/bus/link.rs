//! One connection of the bus: it sends the outbox, one transaction after the other, and delivers what arrives.
//! Must hold: a subscription is confirmed after its `LISTEN`; after a reconnect the loss is delivered before any message;
//! notifications are always read, however slow the node is.

use super::super::address::PostgresAddress;
use super::super::connection::{PostgresConnection, Statement};
use super::super::error::PostgresError;
use super::super::tls::PostgresTls;
use super::super::{pooler, schema};
use super::batch;
use super::lane::{EVERYBODY, HeardLanes, LaneChannels, lane_of};
use super::notice::{BusNotice, INLINE_BYTES, NoticeBody, NoticeWriter};
use super::received::{ArrivedNotices, ArrivedPart, Notices, ReceivedNotice, SeenStreams};
use super::ring::{self, Ring};
use crate::remote::{
    BusDelivery, BusLink, OutboxCommand, PING_EVERY, RemoteShared, SILENCE, broken, random, stopped,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tavern_store::{BusLoss, BusPacket};
use tokio::sync::{Notify, mpsc};

/// Bytes of messages in one transaction.
const FLUSH_BYTES: usize = 256 * 1024;
/// Messages delivered together.
const DELIVER_BATCH: usize = 256;
/// Notifications of one transaction. What needs more is one batch of the ring.
const NOTICES: usize = 8;

pub(crate) struct PostgresLink {
    address: PostgresAddress,
    tls: PostgresTls,
    channels: LaneChannels,
    /// The tables exist, and the server is no transaction pooler.
    is_checked: bool,
}

impl PostgresLink {
    pub fn new(address: PostgresAddress, tls: PostgresTls) -> PostgresLink {
        let channels = LaneChannels::new(&address.schema);
        PostgresLink { address, tls, channels, is_checked: false }
    }
}

impl BusLink for PostgresLink {
    const NAME: &'static str = "postgres";
    const REACHES_SERVICES: bool = false;
    type Connection = (PostgresConnection, Arc<Notices>);

    async fn connect(&mut self) -> io::Result<Self::Connection> {
        let notices = Arc::new(Notices::default());
        let connection = PostgresConnection::open_listening(&self.address, &self.tls, notices.clone());
        let connection = connection.await.map_err(io::Error::other)?;
        if !self.is_checked {
            pooler::refuse(&self.address, &self.tls).await.map_err(io::Error::other)?;
            schema::create(&connection, &self.address.schema).await.map_err(io::Error::other)?;
            self.is_checked = true;
        }
        // A message may be lost in a crash of the server, like the ring: nothing waits for the disk. A node that is stopped
        // and does not read loses its connection, because the server would keep a snapshot while it waits.
        let settings = "SET synchronous_commit = off; SET tcp_user_timeout = '15s'";
        connection.client.batch_execute(settings).await.map_err(io::Error::other)?;
        Ok((connection, notices))
    }

    async fn transfer(
        &mut self,
        (connection, notices): Self::Connection,
        shared: &RemoteShared,
        has_lost: bool,
        deliveries: &mpsc::Sender<BusDelivery>,
    ) -> io::Result<()> {
        let transfer = Transfer {
            connection: &connection,
            shared,
            channels: &self.channels,
            stream: random(),
            told: RefCell::default(),
            changed: Notify::new(),
            seen: RefCell::default(),
            is_ring_used: Cell::new(false),
            has_logged_foreign: Cell::new(false),
        };
        tokio::select! {
            sent = transfer.send(has_lost) => sent,
            received = transfer.receive(&notices, deliveries) => received,
            () = stopped(shared) => Ok(()),
        }
    }
}

/// The time of one connection.
struct Transfer<'a> {
    connection: &'a PostgresConnection,
    shared: &'a RemoteShared,
    channels: &'a LaneChannels,
    stream: u64,
    /// Confirmations for the receiver, and the loss after a reconnect.
    told: RefCell<VecDeque<BusDelivery>>,
    /// `told` has something new.
    changed: Notify,
    seen: RefCell<SeenStreams>,
    /// Another node stored a batch since the last look at the ring.
    is_ring_used: Cell<bool>,
    has_logged_foreign: Cell<bool>,
}

/// What one turn of the sender does.
struct SendTurn {
    commands: Vec<OutboxCommand>,
    messages: Vec<BusPacket>,
    /// Something waits for the end of this turn.
    is_awaited: bool,
}

impl Transfer<'_> {
    async fn send(&self, has_lost: bool) -> io::Result<()> {
        let mut heard = HeardLanes::default();
        let mut out = NoticeWriter::new(self.stream);
        let mut ring = Ring::new(self.stream);
        self.listen(&self.channels.begin()).await?;
        within(ring.look(self.connection)).await?;
        if has_lost {
            let loss = NoticeBody::Loss(self.shared.loss_subject.to_string());
            let notice = (vec![self.channels.name(EVERYBODY)], vec![out.notice(EVERYBODY, loss)]);
            within(self.notify(notice)).await?;
        }
        let mut looked = Instant::now();
        loop {
            let is_due = looked.elapsed() >= PING_EVERY;
            let turn = self.next_turn(is_due);
            if turn.commands.is_empty() && turn.messages.is_empty() && !turn.is_awaited && !is_due {
                let rest = PING_EVERY.saturating_sub(looked.elapsed());
                let _ = tokio::time::timeout(rest, self.shared.changed.notified()).await;
                continue;
            }
            let (sql, changed) = heard.apply(self.channels, &turn.commands);
            changed.into_iter().for_each(|(lane, is_heard)| self.seen.borrow_mut().hear(lane, is_heard));
            self.listen(&sql).await?;
            within(self.flush(&turn.messages, &mut out, &mut ring)).await?;
            if is_due {
                within(self.check(&mut out, &mut ring)).await?;
                looked = Instant::now();
            }
            self.shared.note_received();
            let sent = self.shared.outbox().wrote();
            self.shared.counts.sent.fetch_add(sent as u64, Ordering::Relaxed);
            if turn.is_awaited && self.confirm() {
                return Ok(());
            }
        }
    }

    fn next_turn(&self, is_due: bool) -> SendTurn {
        let outbox = &mut *self.shared.outbox();
        let (commands, mut messages, mut bytes) = (outbox.commands(), Vec::new(), 0);
        while bytes < FLUSH_BYTES
            && let Some(message) = outbox.next_message()
        {
            let length = batch::message_bytes(&message);
            if length > batch::MESSAGE_BYTES || message.from.is_outsider() {
                tracing::warn!(bytes = length, "bus message too long");
                outbox.drop_message();
                self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            bytes += length;
            messages.push(message);
        }
        self.shared.note_fullness(outbox);
        let is_last = self.shared.is_stopping() && !outbox.has_messages();
        let is_awaited = outbox.needs_ping() || is_last || is_due;
        if is_awaited {
            outbox.ping_sent(is_last);
        }
        SendTurn { commands, messages, is_awaited }
    }

    async fn listen(&self, sql: &str) -> io::Result<()> {
        match sql {
            "" => Ok(()),
            _ => within(async { Ok(self.connection.client.batch_execute(sql).await?) }).await,
        }
    }

    /// In notifications if they are few, else as a batch of the ring.
    async fn flush(
        &self,
        messages: &[BusPacket],
        out: &mut NoticeWriter,
        ring: &mut Ring,
    ) -> Result<(), PostgresError> {
        if messages.is_empty() {
            return Ok(());
        }
        if let Some(runs) = short_runs(messages) {
            let channels = runs.iter().map(|(lane, _)| self.channels.name(*lane)).collect();
            let texts = runs.into_iter().map(|(lane, bytes)| out.notice(lane, NoticeBody::Batch(bytes)));
            return self.notify((channels, texts.collect())).await;
        }
        let mut lanes: BTreeSet<usize> = messages.iter().map(|message| lane_of(&message.subject)).collect();
        if lanes.len() > NOTICES {
            lanes = BTreeSet::from([EVERYBODY]);
        }
        let (turn, batch) = (ring.turn, ring.next_batch());
        let texts = lanes.iter().map(|&lane| out.notice(lane, NoticeBody::Stored { turn, batch })).collect();
        let mut body = Vec::with_capacity(messages.iter().map(batch::message_bytes).sum());
        messages.iter().for_each(|message| batch::write(message, &mut body));
        let channels = lanes.iter().map(|&lane| self.channels.name(lane)).collect();
        ring.put(self.connection, body, (channels, texts)).await
    }

    /// From time to time: the server must answer. Only what was used since is looked after, so that a bus that is idle asks
    /// for nothing.
    async fn check(&self, out: &mut NoticeWriter, ring: &mut Ring) -> Result<(), PostgresError> {
        if let Some(heads) = out.heads() {
            self.notify((vec![self.channels.name(EVERYBODY)], vec![heads])).await?;
        }
        if self.is_ring_used.take() {
            ring.note_used();
        }
        if ring.is_used() {
            ring.look(self.connection).await
        } else {
            Ok(self.connection.client.batch_execute("").await?)
        }
    }

    async fn notify(&self, (channels, texts): (Vec<String>, Vec<String>)) -> Result<(), PostgresError> {
        let sql =
            "SELECT pg_notify(channel, text) FROM unnest($1::text[], $2::text[]) AS notice (channel, text)";
        self.connection.one(Statement::new(sql).with(channels).with(texts)).await.map(drop)
    }

    /// The turn is over. True: it was the last one.
    fn confirm(&self) -> bool {
        let Some(ping) = self.shared.outbox().pong_received() else { return false };
        let mut told = self.told.borrow_mut();
        if ping.is_reconnect {
            told.push_back(BusDelivery::Lost(BusLoss::Everything));
        }
        if !ping.tickets.is_empty() {
            told.push_back(BusDelivery::Confirmed(ping.tickets, Ok(())));
        }
        self.changed.notify_one();
        ping.is_last
    }

    async fn receive(&self, notices: &Notices, deliveries: &mpsc::Sender<BusDelivery>) -> io::Result<()> {
        // The loss of the earlier connection comes first.
        while self.shared.outbox().is_reconnecting() {
            self.changed.notified().await;
        }
        loop {
            let told = std::mem::take(&mut *self.told.borrow_mut());
            for delivery in told {
                if deliveries.send(delivery).await.is_err() {
                    return Ok(());
                }
            }
            let arrived = tokio::select! {
                arrived = notices.next() => arrived,
                () = self.changed.notified() => continue,
            };
            let mut arrival = ArrivedNotices::default();
            match arrived {
                ReceivedNotice::Closed => return Err(broken("the server closed the connection")),
                ReceivedNotice::Dropped => arrival.lose(),
                ReceivedNotice::Notices(arrived) => {
                    self.shared.note_received();
                    for (channel, text) in arrived {
                        self.take(&channel, &text, &mut arrival);
                        if arrival.is_enough() {
                            self.deliver(std::mem::take(&mut arrival), deliveries).await?;
                        }
                    }
                }
            }
            self.deliver(arrival, deliveries).await?;
        }
    }

    fn take(&self, channel: &str, text: &str, arrival: &mut ArrivedNotices) {
        if BusNotice::is_of(text, self.stream) {
            return;
        }
        let lane = self.channels.lane(channel);
        let Some((lane, notice)) = lane.and_then(|lane| Some((lane, BusNotice::read(text)?))) else {
            if !self.has_logged_foreign.replace(true) {
                tracing::warn!("ignoring bus notification that no node sent");
            }
            return;
        };
        let sight = self.seen.borrow_mut().see(lane, &notice);
        if sight.is_after_hole {
            arrival.lose();
        }
        match notice.body {
            _ if !sight.is_new => {}
            NoticeBody::Batch(bytes) => arrival.add(self.read(&bytes)),
            NoticeBody::Stored { turn, batch } => {
                self.is_ring_used.set(true);
                arrival.add_stored(notice.stream, turn, batch);
            }
            NoticeBody::Loss(subject) if subject == self.shared.loss_subject.as_str() => arrival.lose(),
            NoticeBody::Loss(_) | NoticeBody::Heads(_) => {}
        }
    }

    async fn deliver(
        &self,
        arrival: ArrivedNotices,
        deliveries: &mpsc::Sender<BusDelivery>,
    ) -> io::Result<()> {
        for part in arrival.parts {
            match part {
                ArrivedPart::Messages(messages) => hand_on(messages, deliveries).await,
                ArrivedPart::Lost => drop(deliveries.send(BusDelivery::Lost(BusLoss::Everything)).await),
                ArrivedPart::Stored { stream, turn, batches } => {
                    let found = within(ring::get_all(self.connection, stream, turn, &batches)).await?;
                    if found.len() < batches.len() {
                        // The node was slow, and their table was emptied.
                        let _ = deliveries.send(BusDelivery::Lost(BusLoss::Everything)).await;
                    }
                    for (_, body) in found {
                        hand_on(self.read(&body), deliveries).await;
                    }
                }
            }
        }
        Ok(())
    }

    fn read(&self, bytes: &[u8]) -> Vec<BusPacket> {
        let outbox = self.shared.outbox();
        let mut messages = batch::read(bytes, |subject| outbox.interests.matches(subject));
        messages.retain(|message| message.from.node != self.shared.node);
        messages
    }
}

/// The receiver is dropped only when the bus stops.
async fn hand_on(mut messages: Vec<BusPacket>, deliveries: &mpsc::Sender<BusDelivery>) {
    while !messages.is_empty() {
        let rest = messages.split_off(messages.len().min(DELIVER_BATCH));
        let _ = deliveries.send(BusDelivery::Messages(std::mem::replace(&mut messages, rest))).await;
    }
}

async fn within<T>(asking: impl Future<Output = Result<T, PostgresError>>) -> io::Result<T> {
    let asked = tokio::time::timeout(SILENCE, asking).await;
    asked.map_err(|_| broken("the server is silent"))?.map_err(io::Error::other)
}

/// The messages as batches of one lane each, in their order. None: too many for notifications, or one is too long.
fn short_runs(messages: &[BusPacket]) -> Option<Vec<(usize, Vec<u8>)>> {
    let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
    for message in messages {
        let (lane, bytes) = (lane_of(&message.subject), batch::message_bytes(message));
        let fits = |(last, run): &&mut (usize, Vec<u8>)| *last == lane && run.len() + bytes <= INLINE_BYTES;
        if let Some((_, run)) = runs.last_mut().filter(fits) {
            batch::write(message, run);
        } else if bytes > INLINE_BYTES || runs.len() == NOTICES {
            return None;
        } else {
            let mut run = Vec::with_capacity(bytes);
            batch::write(message, &mut run);
            runs.push((lane, run));
        }
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;
    use tavern_store::{Subject, Writer};

    fn message(rest: &str, bytes: usize) -> BusPacket {
        let subject = Subject::new("p", "game", rest.as_bytes()).unwrap();
        let from = Writer::new("n1", Epoch(7));
        BusPacket { subject, from, n: 1, header: Arc::from([]), payload: vec![0; bytes].into() }
    }

    #[test]
    fn runs_keep_the_order_of_the_messages_over_all_lanes() {
        let names = ["A", "A", "B", "A"];
        let messages: Vec<BusPacket> = names.iter().map(|rest| message(rest, 10)).collect();
        let runs = short_runs(&messages).unwrap();
        assert_eq!(runs.len(), 3);
        let read = |run: &[u8]| batch::read(run, |_| true);
        assert_eq!(runs.iter().flat_map(|(_, run)| read(run)).collect::<Vec<_>>(), messages);
    }

    #[test]
    fn what_does_not_fit_into_notifications_goes_to_the_ring() {
        let full = INLINE_BYTES - batch::message_bytes(&message("A", 0));
        assert_eq!(short_runs(&[message("A", full), message("A", 0)]).map(|runs| runs.len()), Some(2));
        assert_eq!(short_runs(&[message("A", full + 1)]), None);
        let many: Vec<BusPacket> = (0..1000).map(|n| message(&n.to_string(), 0)).collect();
        assert_eq!(short_runs(&many), None);
    }
}
