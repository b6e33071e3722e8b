//! The Redis connections of this node, for `CLIENT LIST` and `CLIENT KILL` across shards: the fields that those
//! commands show, not the connections themselves.
//! Must hold: ids start at 1 and are never reused; a command on the hot path costs one relaxed store here.

use crate::resp::command;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_domain::Time;
use tavern_hub::LinkId;
use tavern_wire::resp::Proto;

#[derive(Default)]
pub struct Clients {
    known: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    last_id: AtomicU64,
}

/// The public fields of one connection.
#[derive(Debug)]
pub struct ClientInfo {
    pub id: u64,
    pub addr: SocketAddr,
    pub laddr: SocketAddr,
    since: Time,
    /// The shard in the upper half, the link in the lower.
    place: AtomicU64,
    /// The time of its last command, and its code in the low 16 bits.
    last: AtomicU64,
    /// Subscriptions to channels, patterns, shard channels.
    counts: [AtomicU32; 3],
    /// Commands queued since `MULTI`, -1 outside.
    multi: AtomicI32,
    db: AtomicU8,
    marks: AtomicU8,
    texts: Mutex<Texts>,
}

/// Labels that a client has set, and its user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    pub name: Option<Box<str>>,
    pub lib_name: Option<Box<str>>,
    pub lib_ver: Option<Box<str>>,
    pub user: Option<Arc<str>>,
}

const RESP3: u8 = 1;
pub const NO_EVICT: u8 = 2;
pub const NO_TOUCH: u8 = 4;

/// The name of clients whose token or key names no user.
pub const DEFAULT_USER: &str = "default";

impl Clients {
    pub fn register(
        &self,
        shard: usize,
        link: LinkId,
        addr: SocketAddr,
        laddr: SocketAddr,
        now: Time,
    ) -> Arc<ClientInfo> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(ClientInfo::new(id, addr, laddr, now));
        client.moved(shard, link);
        self.lock().insert(id, client.clone());
        client
    }

    pub fn leave(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// All of them, by id.
    pub fn list(&self) -> Vec<Arc<ClientInfo>> {
        self.lock().values().cloned().collect()
    }

    pub fn find(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.lock().get(&id).cloned()
    }

    /// Connections since the start.
    pub fn ever(&self) -> u64 {
        self.last_id.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientInfo>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientInfo {
    fn new(id: u64, addr: SocketAddr, laddr: SocketAddr, since: Time) -> ClientInfo {
        ClientInfo {
            id,
            addr,
            laddr,
            since,
            place: AtomicU64::new(0),
            last: AtomicU64::new(since.ms() << 16),
            counts: [const { AtomicU32::new(0) }; 3],
            multi: AtomicI32::new(-1),
            db: AtomicU8::new(0),
            marks: AtomicU8::new(0),
            texts: Mutex::default(),
        }
    }

    /// The connection has moved to this shard.
    pub fn moved(&self, shard: usize, link: LinkId) {
        self.place.store((shard as u64) << 32 | u64::from(link.0), Ordering::Relaxed);
    }

    pub fn place(&self) -> (usize, LinkId) {
        let place = self.place.load(Ordering::Relaxed);
        ((place >> 32) as usize, LinkId(place as u32))
    }

    /// Records the time and code of a command.
    pub fn touch(&self, now: Time, code: u16) {
        self.last.store(now.ms() << 16 | u64::from(code), Ordering::Relaxed);
    }

    pub fn set_counts(&self, counts: [u32; 3]) {
        for (shown, count) in self.counts.iter().zip(counts) {
            shown.store(count, Ordering::Relaxed);
        }
    }

    pub fn set_multi(&self, queued: i32) {
        self.multi.store(queued, Ordering::Relaxed);
    }

    pub fn set_db(&self, db: u8) {
        self.db.store(db, Ordering::Relaxed);
    }

    pub fn set_proto(&self, proto: Proto) {
        self.mark(RESP3, proto == Proto::Resp3);
    }

    /// Sets or clears one of the marks. Only the connection's own shard does that.
    pub fn mark(&self, mark: u8, on: bool) {
        let marks = self.marks.load(Ordering::Relaxed);
        self.marks.store(if on { marks | mark } else { marks & !mark }, Ordering::Relaxed);
    }

    pub fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_subscribed(&self) -> bool {
        self.counts.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    pub fn age_seconds(&self, now: Time) -> u64 {
        now.since(self.since) / 1000
    }

    /// The user's name as `CLIENT LIST` shows it.
    pub fn user(&self) -> String {
        let texts = self.texts();
        let user = texts.user.as_deref().unwrap_or(DEFAULT_USER);
        // A space would begin the next field of the line.
        user.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect()
    }

    /// The line of `CLIENT LIST`. Buffer sizes are not known here and shown as 0.
    pub fn write_line(&self, now: Time, line: &mut String) {
        let last = self.last.load(Ordering::Relaxed);
        let marks = self.marks.load(Ordering::Relaxed);
        let [sub, psub, ssub] = [0, 1, 2].map(|space: usize| self.counts[space].load(Ordering::Relaxed));
        let multi = self.multi.load(Ordering::Relaxed);
        let idle = now.since(Time(last >> 16)) / 1000;
        let (_, link) = self.place();
        let mut flags = String::new();
        let all = [
            ('P', self.is_subscribed()),
            ('x', multi >= 0),
            ('e', marks & NO_EVICT != 0),
            ('T', marks & NO_TOUCH != 0),
        ];
        flags.extend(all.into_iter().filter(|(_, on)| *on).map(|(flag, _)| flag));
        if flags.is_empty() {
            flags.push('N');
        }
        let user = self.user();
        let texts = self.texts().clone();
        let text = |text: Option<Box<str>>| text.unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={idle} flags={flags} db={} sub={sub} psub={psub} \
             ssub={ssub} multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=0 events=r cmd={} user={user} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.laddr,
            link.0,
            text(texts.name),
            self.age_seconds(now),
            self.db.load(Ordering::Relaxed),
            command::name_of(last as u16),
            if marks & RESP3 != 0 { 3 } else { 2 },
            text(texts.lib_name),
            text(texts.lib_ver),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn a_line_has_the_fields_of_redis_in_their_order() {
        let client = ClientInfo::new(7, address(50000), address(7401), Time(10_000));
        client.moved(3, LinkId(9));
        client.set_counts([2, 1, 0]);
        client.set_proto(Proto::Resp3);
        client.mark(NO_EVICT, true);
        client.texts().name = Some("worker".into());
        client.texts().lib_name = Some("lib".into());
        client.texts().user = Some("ann lee".into());
        client.touch(Time(12_500), command::code_of("client|list").unwrap());
        let mut line = String::new();
        client.write_line(Time(15_000), &mut line);
        assert_eq!(
            line,
            "id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:7401 fd=9 name=worker age=5 idle=2 flags=Pe db=0 sub=2 psub=1 \
             ssub=0 multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 \
             events=r cmd=client|list user=ann_lee redir=-1 resp=3 lib-name=lib lib-ver=\n"
        );
        assert_eq!(client.place(), (3, LinkId(9)));
    }

    #[test]
    fn a_new_client_has_no_command() {
        let client = ClientInfo::new(1, address(1), address(2), Time(0));
        let mut line = String::new();
        client.write_line(Time(0), &mut line);
        assert!(
            line.contains(" flags=N ")
                && line.contains(" cmd=NULL user=default ")
                && line.contains(" resp=2 ")
        );
    }

    #[test]
    fn ids_are_not_used_again() {
        let clients = Clients::default();
        let first = clients.register(0, LinkId(0), address(1), address(2), Time(0));
        clients.leave(first.id);
        let second = clients.register(0, LinkId(0), address(1), address(2), Time(0));
        assert_eq!((first.id, second.id, clients.list().len(), clients.ever()), (1, 2, 1, 2));
        assert!(clients.find(1).is_none() && clients.find(2).is_some());
    }
}
