//! Replies that the clients of HTTP connections have not read: counted from the moment they are made until their last byte
//! is sent, however a client holds them back (with a closed TCP window, or with one of HTTP/2).
//! Must hold: above a limit the connections that hold the most are ended; so is a connection with waiting replies of which
//! nothing is read for a while.

use crate::byte_budget::ByteBudget;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tavern_wire::error::{Code, Refusal};
use tokio::sync::Notify;

/// Unread replies of a connection without a login above which its requests are refused: a few metrics pages.
const WITHOUT_LOGIN_BYTES: usize = 64 * 1024;

/// The unread replies of all HTTP connections.
pub struct UnreadReplies {
    with_login: Arc<ByteBudget>,
    without_login: Arc<ByteBudget>,
    /// Bytes of one connection with a login above which its requests are refused.
    max_of_connection: usize,
    /// How long a connection with waiting replies may read nothing.
    patience: Duration,
    connections: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    last: u64,
    by_number: HashMap<u64, Weak<ConnectionReplies>>,
}

/// The unread replies of one connection.
pub struct ConnectionReplies {
    number: u64,
    of: Arc<UnreadReplies>,
    /// A request of this connection came with a valid token or API key.
    has_login: AtomicBool,
    with_login: AtomicUsize,
    without_login: AtomicUsize,
    /// Replies, or pieces of streams, that are not sent.
    waiting: AtomicUsize,
    /// Changes with everything that is read.
    progress: AtomicUsize,
    /// It was ended because of a limit.
    ended: AtomicBool,
    /// `must_end` measures the time; it need not be told of more replies.
    watched: AtomicBool,
    changed: Notify,
}

/// The bytes of a reply; no longer counted when it is dropped.
struct CountedReply {
    bytes: Bytes,
    counted: usize,
    has_login: bool,
    of: Arc<ConnectionReplies>,
}

impl UnreadReplies {
    pub fn new(
        with_login: Arc<ByteBudget>,
        without_login: Arc<ByteBudget>,
        max_of_connection: usize,
        patience: Duration,
    ) -> Arc<UnreadReplies> {
        let connections = Mutex::default();
        Arc::new(UnreadReplies { with_login, without_login, max_of_connection, patience, connections })
    }

    pub fn connection(self: &Arc<UnreadReplies>) -> Arc<ConnectionReplies> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.last += 1;
        let number = connections.last;
        let replies = Arc::new(ConnectionReplies {
            number,
            of: self.clone(),
            has_login: AtomicBool::new(false),
            with_login: AtomicUsize::new(0),
            without_login: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            progress: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            changed: Notify::new(),
        });
        connections.by_number.insert(number, Arc::downgrade(&replies));
        replies
    }

    fn budget(&self, has_login: bool) -> &ByteBudget {
        if has_login { &self.with_login } else { &self.without_login }
    }

    /// Ends the connections that hold the most, until a quarter of the limit is free.
    fn relieve(&self, has_login: bool) {
        let budget = self.budget(has_login);
        let mut holders: Vec<(usize, Arc<ConnectionReplies>)> = {
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let open = connections.by_number.values().filter_map(Weak::upgrade);
            open.map(|replies| (replies.counter(has_login).load(SeqCst), replies)).collect()
        };
        holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let ending = holders.iter().filter(|(_, replies)| replies.ended.load(SeqCst));
        let mut left = budget.held().saturating_sub(ending.map(|(bytes, _)| bytes).sum());
        let mut ended = 0;
        for (bytes, replies) in holders.iter().filter(|(bytes, _)| *bytes > 0) {
            if left <= budget.relieved_at() {
                break;
            }
            if !replies.ended.swap(true, SeqCst) {
                replies.changed.notify_one();
                left = left.saturating_sub(*bytes);
                ended += 1;
            }
        }
        budget.log(ended);
    }
}

impl ConnectionReplies {
    /// From now on its replies count as those of a client with a login.
    pub fn note_login(&self) {
        self.has_login.store(true, SeqCst);
    }

    /// Refuses a request of a client that does not read the replies to earlier ones.
    pub fn admit(&self) -> Result<(), Refusal> {
        let has_login = self.has_login.load(SeqCst);
        let max = if has_login { self.of.max_of_connection } else { WITHOUT_LOGIN_BYTES };
        if self.with_login.load(SeqCst) + self.without_login.load(SeqCst) <= max {
            return Ok(());
        }
        let message =
            "too many replies on this connection are unread; read them before sending more requests";
        Err(Refusal::new(Code::RateLimited, message).retry_after(1000))
    }

    /// Counts a reply until its last byte is sent. Empty, if the connection is about to end.
    pub fn count(self: &Arc<ConnectionReplies>, bytes: Bytes) -> Bytes {
        if bytes.is_empty() || self.ended.load(SeqCst) {
            return Bytes::new();
        }
        // Files of the program are shared by all replies and take no memory.
        let counted = if bytes.is_unique() { bytes.len() } else { 0 };
        let has_login = self.has_login.load(SeqCst);
        let budget = self.of.budget(has_login);
        budget.change(0, counted);
        self.counter(has_login).fetch_add(counted, SeqCst);
        self.waiting.fetch_add(1, SeqCst);
        if !self.watched.load(SeqCst) {
            self.changed.notify_one();
        }
        if budget.is_exceeded() {
            self.of.relieve(has_login);
        }
        Bytes::from_owner(CountedReply { bytes, counted, has_login, of: self.clone() })
    }

    /// The client has read something.
    pub fn note_progress(&self) {
        self.progress.fetch_add(1, SeqCst);
    }

    /// Waits until the connection must end: its client reads nothing, or too much is unread on the whole node.
    pub async fn must_end(&self) {
        loop {
            if self.ended.load(SeqCst) {
                return;
            }
            if self.waiting.load(SeqCst) == 0 {
                self.watched.store(false, SeqCst);
                if self.waiting.load(SeqCst) == 0 {
                    self.changed.notified().await;
                }
                continue;
            }
            self.watched.store(true, SeqCst);
            let seen = self.progress.load(SeqCst);
            let is_late = tokio::time::timeout(self.of.patience, self.changed.notified()).await.is_err();
            // Without progress no reply was sent meanwhile, so some have waited all the time.
            if is_late && self.waiting.load(SeqCst) > 0 && self.progress.load(SeqCst) == seen {
                tracing::debug!("HTTP connection ended: its client does not read");
                return;
            }
        }
    }

    fn counter(&self, has_login: bool) -> &AtomicUsize {
        if has_login { &self.with_login } else { &self.without_login }
    }
}

impl Drop for ConnectionReplies {
    fn drop(&mut self) {
        let mut connections = self.of.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.by_number.remove(&self.number);
    }
}

impl AsRef<[u8]> for CountedReply {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedReply {
    fn drop(&mut self) {
        self.of.of.budget(self.has_login).change(self.counted, 0);
        self.of.counter(self.has_login).fetch_sub(self.counted, SeqCst);
        self.of.waiting.fetch_sub(1, SeqCst);
        self.of.note_progress();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn unread_for(max: usize, patience: Duration) -> Arc<UnreadReplies> {
        let budget = || ByteBudget::new("limits.test", max);
        UnreadReplies::new(budget(), budget(), 1 << 20, patience)
    }

    fn unread(max: usize) -> Arc<UnreadReplies> {
        unread_for(max, Duration::from_secs(3600))
    }

    fn reply(bytes: usize) -> Bytes {
        vec![0; bytes].into()
    }

    fn must_end_now(replies: &ConnectionReplies) -> bool {
        pin!(replies.must_end()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_reply_counts_until_its_last_byte_is_dropped() {
        let unread = unread(1_000);
        let connection = unread.connection();
        let mut reply = connection.count(reply(600));
        assert_eq!(unread.without_login.held(), 600);
        connection.note_login();
        let other = connection.count(Bytes::from_static(b"a file"));
        drop(reply.split_to(300));
        assert_eq!((unread.without_login.held(), unread.with_login.held()), (600, 0));
        drop((reply, other));
        assert_eq!(unread.without_login.held(), 0);
        drop(connection);
        assert!(unread.connections.lock().unwrap().by_number.is_empty());
    }

    #[tokio::test]
    async fn above_the_limit_the_connections_that_hold_the_most_end() {
        let unread = unread(1_000);
        let [small, large, larger] = [100, 400, 450].map(|bytes| {
            let connection = unread.connection();
            let held = connection.count(reply(bytes));
            (connection, held)
        });
        let late = small.0.count(reply(60));
        assert_eq!(late.len(), 60);
        assert_eq!(
            [&small, &large, &larger].map(|(connection, _)| must_end_now(connection)),
            [false, false, true]
        );
        assert!(larger.0.count(reply(10)).is_empty(), "nothing is kept for a connection that ends");
    }

    #[test]
    fn a_client_that_does_not_read_is_refused() {
        let unread = unread(1 << 30);
        let connection = unread.connection();
        let held = connection.count(reply(WITHOUT_LOGIN_BYTES + 1));
        assert_eq!(connection.admit().map_err(|refusal| refusal.code), Err(Code::RateLimited));
        connection.note_login();
        assert!(connection.admit().is_ok());
        drop(held);
    }

    #[tokio::test]
    async fn a_connection_of_which_nothing_is_read_ends() {
        let connection = unread_for(1_000, Duration::ZERO).connection();
        assert!(!must_end_now(&connection), "without replies it may be idle");
        drop(connection.count(reply(10)));
        assert!(!must_end_now(&connection), "everything is read");
        let _held = connection.count(reply(10));
        connection.must_end().await;
    }
}
