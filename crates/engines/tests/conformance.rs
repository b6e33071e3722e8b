//! Runs the conformance suite against each engine, every case as a test of its own, and counts the cases.

#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod database;
mod server;

use server::Server;
#[cfg(feature = "redis")]
use server::cluster::Cluster;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use tavern_domain::Time;
use tavern_engines::sqlite::SqliteStore;
use tavern_engines::{LogBounds, Place};
use tavern_store::conformance::{self, BusWorld, Exclusion, World};
use tavern_store::memory::{Hall, MemoryBus, MemoryStore, NoFaults};
use tavern_store::{Bus, BusInbox, Inbox, Interest, ManualClock, Parcel, Store, Ticket, Work};
use tavern_store::{bus_cases, store_cases};

const START: Time = Time(1_790_000_000_000);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

/// One test per case, and the list of them.
macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        const TESTS: &[&str] = &[$(concat!(stringify!($module), "::", stringify!($name))),*];
        $(#[test] fn $name() { run(concat!(stringify!($module), "::", stringify!($name))); })*
    };
}

/// The tests and the exclusions together are the cases, each once.
fn count(engine: &str, tests: &[&str], excluded: &[Exclusion], cases: Vec<&'static str>) {
    for one in excluded {
        assert!(cases.contains(&one.case) && !one.reason.is_empty(), "{one:?}");
    }
    assert_eq!(tests, cases);
    println!("{engine}: {} of {} cases", tests.len() - excluded.len(), cases.len());
}

macro_rules! store_engine {
    ($engine:ident, $world:expr, $excluded:expr) => {
        mod $engine {
            use super::*;

            const EXCLUDED: &[Exclusion] = $excluded;
            store_cases!(tests);

            fn run(name: &str) {
                let case = conformance::cases().iter().find(|case| case.name == name).unwrap();
                if EXCLUDED.iter().all(|one| one.case != name) {
                    (case.run)(&$world);
                }
            }

            #[test]
            fn every_case_is_run() {
                let cases = conformance::cases().iter().map(|case| case.name).collect();
                count(stringify!($engine), TESTS, EXCLUDED, cases);
            }
        }
    };
}

macro_rules! bus_engine {
    ($engine:ident, $world:expr, $excluded:expr) => {
        mod $engine {
            use super::*;

            const EXCLUDED: &[Exclusion] = $excluded;
            bus_cases!(tests);

            fn run(name: &str) {
                let case = conformance::bus_cases().iter().find(|case| case.name == name).unwrap();
                if EXCLUDED.iter().all(|one| one.case != name) {
                    (case.run)(&$world);
                }
            }

            #[test]
            fn every_case_is_run() {
                let cases = conformance::bus_cases().iter().map(|case| case.name).collect();
                count(stringify!($engine), TESTS, EXCLUDED, cases);
            }
        }
    };
}

store_engine!(memory, Prompt::new(), &[]);
store_engine!(memory_stepped, Stepped::new(), &[]);
store_engine!(sqlite, Folder::new(), &[]);
#[cfg(feature = "postgres")]
store_engine!(postgres, Database::new(), &[]);
#[cfg(feature = "redis")]
store_engine!(redis, Served::new(&REDIS), &[]);
#[cfg(feature = "redis")]
store_engine!(redis_cluster, Clustered::new(), &[]);
bus_engine!(memory_bus, Prompt::new(), &[]);
bus_engine!(memory_bus_stepped, Stepped::new(), &[]);
bus_engine!(local_bus, Folder::new(), &[]);
#[cfg(feature = "nats")]
bus_engine!(nats_bus, Served::new(&NATS), &[]);
#[cfg(feature = "redis")]
bus_engine!(redis_bus, Served::new(&REDIS), &[]);
#[cfg(feature = "redis")]
bus_engine!(redis_cluster_bus, Clustered::new(), &[]);

/// The memory engine in its prompt drive.
struct Prompt {
    clock: Arc<ManualClock>,
    hall: Arc<Hall>,
}

impl Prompt {
    fn new() -> Prompt {
        let clock = clock();
        Prompt { hall: Hall::new(clock.clone()), clock }
    }
}

impl World for Prompt {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store> {
        self.hall.store("node", inbox)
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusWorld for Prompt {
    fn open(&self, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<dyn Bus> {
        self.hall.bus(node, inbox)
    }
}

/// The memory engine in its stepped drive, stepped after every call.
struct Stepped {
    clock: Arc<ManualClock>,
    hall: Arc<Hall>,
    turn: Arc<Mutex<()>>,
}

struct Settled<T> {
    inner: Arc<T>,
    hall: Arc<Hall>,
    /// A hall is stepped by one thread at a time: two would change the order between step and delivery.
    turn: Arc<Mutex<()>>,
}

impl<T> Settled<T> {
    fn new(world: &Stepped, inner: Arc<T>) -> Settled<T> {
        Settled { inner, hall: world.hall.clone(), turn: world.turn.clone() }
    }

    fn settle(&self) {
        let _turn = self.turn.lock().unwrap();
        self.hall.settle();
    }
}

impl Stepped {
    fn new() -> Stepped {
        let clock = clock();
        Stepped { hall: Hall::stepped(clock.clone(), Box::new(NoFaults)), clock, turn: Arc::default() }
    }
}

impl World for Stepped {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store> {
        Arc::new(Settled::new(self, self.hall.store("node", inbox)))
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusWorld for Stepped {
    fn open(&self, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<dyn Bus> {
        Arc::new(Settled::new(self, self.hall.bus(node, inbox)))
    }
}

impl Store for Settled<MemoryStore> {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.inner.submit(work);
        self.settle();
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn keeps_time(&self) -> bool {
        self.inner.keeps_time()
    }

    fn stop(&self) {
        self.inner.stop();
        self.settle();
    }
}

impl Bus for Settled<MemoryBus> {
    fn publish(&self, batch: Vec<Parcel>) {
        self.inner.publish(batch);
        self.settle();
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let holds = self.inner.subscribe(interests, ticket);
        self.settle();
        holds
    }

    fn unsubscribe(&self, interests: Vec<Interest>) {
        self.inner.unsubscribe(interests);
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn stop(&self) {
        self.inner.stop();
    }
}

/// A folder. Each opening has its own threads and connections, like another process.
struct Folder {
    clock: Arc<ManualClock>,
    home: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        Folder { clock: clock(), home: tempfile::tempdir().unwrap() }
    }
}

impl World for Folder {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store> {
        let folder = self.home.path().join("data");
        Arc::new(SqliteStore::open(&folder, self.clock.clone(), inbox).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusWorld for Folder {
    fn open(&self, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<dyn Bus> {
        let folder = self.home.path().join("data");
        let place = Place { node, prefix: "tavern", folder: &folder, bounds: LogBounds::default() };
        tavern_engines::open_bus("local", &place, self.clock.clone(), inbox).unwrap()
    }
}

/// A schema of its own in the database of this binary.
#[cfg(feature = "postgres")]
struct Database {
    clock: Arc<ManualClock>,
    url: String,
}

#[cfg(feature = "postgres")]
impl Database {
    fn new() -> Database {
        Database { clock: clock(), url: database::fresh() }
    }
}

#[cfg(feature = "postgres")]
impl World for Database {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store> {
        let clock = self.clock.clone();
        Arc::new(tavern_engines::postgres::PostgresStore::open_by(&self.url, clock, inbox).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

#[cfg(feature = "nats")]
static NATS: LazyLock<Server> = LazyLock::new(Server::nats);
#[cfg(feature = "redis")]
static REDIS: LazyLock<Server> = LazyLock::new(Server::redis);
#[cfg(feature = "redis")]
static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::new);

/// A prefix of its own on a server that all cases share.
struct Served {
    clock: Arc<ManualClock>,
    server: &'static Server,
    prefix: String,
}

impl Served {
    fn new(server: &'static Server) -> Served {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("case-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Served { clock: clock(), server, prefix }
    }
}

/// A prefix of its own on a cluster that all cases share. Each opening begins with another master.
#[cfg(feature = "redis")]
struct Clustered {
    clock: Arc<ManualClock>,
    prefix: String,
    opened: AtomicUsize,
}

#[cfg(feature = "redis")]
impl Clustered {
    fn new() -> Clustered {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("case-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Clustered { clock: clock(), prefix, opened: AtomicUsize::new(0) }
    }

    fn url(&self) -> String {
        format!("{}/?prefix={}", CLUSTER.url(self.opened.fetch_add(1, Ordering::Relaxed)), self.prefix)
    }
}

#[cfg(feature = "redis")]
impl World for Clustered {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store> {
        let clock = self.clock.clone();
        Arc::new(tavern_engines::redis::RedisStore::open_by(&self.url(), clock, inbox).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

#[cfg(feature = "redis")]
impl BusWorld for Clustered {
    fn open(&self, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<dyn Bus> {
        server::open(&self.url(), &self.prefix, node, inbox).unwrap()
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}

#[cfg(feature = "redis")]
impl World for Served {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store> {
        let url = format!("{}?prefix={}", self.server.url(), self.prefix);
        Arc::new(tavern_engines::redis::RedisStore::open_by(&url, self.clock.clone(), inbox).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusWorld for Served {
    fn open(&self, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<dyn Bus> {
        self.server.open(&self.prefix, node, inbox)
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}
