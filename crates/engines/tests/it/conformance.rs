//! Runs the conformance suite against each driver, every case as a test of its own.

use crate::server::Server;
use crate::server::cluster::Cluster;
use crate::{postgres_server, server};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use tavern_domain::Time;
use tavern_engines::sqlite::SqliteStore;
use tavern_engines::{BusOptions, LogBounds};
use tavern_store::conformance::{BusUnderTest, StoreUnderTest};
use tavern_store::{AnswerReceiver, Bus, BusReceiver, ManualClock, Store, test_bus, test_store};

const START: Time = Time(1_790_000_000_000);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

test_store!(sqlite, Folder::new(), &[]);
test_store!(postgres, Database::new(), &[]);
test_store!(redis, Served::new(&REDIS), &[]);
test_store!(redis_cluster, Clustered::new(), &[]);
test_bus!(local_bus, Folder::new(), &[]);
test_bus!(nats_bus, Served::new(&NATS), &[]);
test_bus!(redis_bus, Served::new(&REDIS), &[]);
test_bus!(redis_cluster_bus, Clustered::new(), &[]);
test_bus!(postgres_bus, Database::new(), &[]);

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

impl StoreUnderTest for Folder {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store> {
        let folder = self.home.path().join("data");
        Arc::new(SqliteStore::open(&folder, self.clock.clone(), receiver).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusUnderTest for Folder {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        let folder = self.home.path().join("data");
        let options = BusOptions { node, prefix: "tavern", folder: &folder, bounds: LogBounds::default() };
        tavern_engines::open_bus("local", &options, self.clock.clone(), receiver).unwrap()
    }
}

/// A schema of its own in the database of this binary.
struct Database {
    clock: Arc<ManualClock>,
    url: String,
}

impl Database {
    fn new() -> Database {
        Database { clock: clock(), url: postgres_server::fresh() }
    }
}

impl StoreUnderTest for Database {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store> {
        let clock = self.clock.clone();
        Arc::new(tavern_engines::postgres::PostgresStore::open_by(&self.url, clock, receiver).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusUnderTest for Database {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        server::open(&self.url, "tavern", node, receiver).unwrap()
    }
}

static NATS: LazyLock<Server> = LazyLock::new(Server::nats);
static REDIS: LazyLock<Server> = LazyLock::new(Server::redis);
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
struct Clustered {
    clock: Arc<ManualClock>,
    prefix: String,
    opened: AtomicUsize,
}

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

impl StoreUnderTest for Clustered {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store> {
        let clock = self.clock.clone();
        Arc::new(tavern_engines::redis::RedisStore::open_by(&self.url(), clock, receiver).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusUnderTest for Clustered {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        server::open(&self.url(), &self.prefix, node, receiver).unwrap()
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl StoreUnderTest for Served {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store> {
        let url = format!("{}?prefix={}", self.server.url(), self.prefix);
        Arc::new(tavern_engines::redis::RedisStore::open_by(&url, self.clock.clone(), receiver).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusUnderTest for Served {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        self.server.open(&self.prefix, node, receiver)
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}
