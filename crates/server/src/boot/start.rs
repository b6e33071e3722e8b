//! The start: ports, store, epoch, shards, bus, then everything that runs beside the shards.

use super::accept::{HttpAcceptor, RedisAcceptor};
use super::assemble::{Parts, Ports};
use super::engine_check;
use super::node_name::{self, NodeName};
use crate::adoption::Adoption;
use crate::bus::BusDispatcher;
use crate::clock::NodeClock;
use crate::config::{Config, ServerMode, dev};
use crate::health::NodeHealth;
use crate::http::ListenerSide;
use crate::key_use;
use crate::liveness::{self, LivenessDriver};
use crate::load::LoadSampler;
use crate::practice::Practice;
use crate::random::SystemRandom;
use crate::revocation;
use crate::shard::worker::ShardStart;
use crate::sql_calls::SqlMover;
use crate::store_client::StoreClient;
use crate::supervisor::{SupervisedTask, Supervisor};
use crate::tls::TlsReloader;
use crate::topics::{delivery, matchmaker};
use crate::traces::{collector_url, export};
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Epoch;
use tavern_engines::LogBounds;
use tavern_engines::SqlCalls;
use tavern_hub::{Node, Shard, ShardEvent};
use tavern_store::{Commit, NodeChange};
use tokio::sync::Notify;

/// How long a start waits for the bans, and how often it looks.
const BANS_WAIT: Duration = Duration::from_secs(30);
const BANS_POLL: Duration = Duration::from_millis(5);

/// A server that listens.
pub struct RunningServer {
    pub parts: Parts,
    pub adoption: Arc<Adoption>,
    pub tasks: Tasks,
    /// Held as long as the server runs.
    pub name: NodeName,
}

pub struct Tasks {
    pub liveness: SupervisedTask,
    pub adoption: SupervisedTask,
    pub delivery: SupervisedTask,
    /// Ends the delivery task after its batches in flight are answered.
    pub stop_delivery: Arc<Notify>,
    pub acceptors: Vec<SupervisedTask>,
    /// Tasks that can be aborted at any time.
    pub others: Vec<SupervisedTask>,
}

pub async fn start(
    mut config: Config,
    health: Arc<NodeHealth>,
    supervisor: &Supervisor,
) -> anyhow::Result<RunningServer> {
    // Ports first: a second server on the same ports must fail before it creates or changes anything.
    let ports = Ports::bind(&mut config)?;
    let tls = match &config.tls {
        Some(files) => Some(TlsReloader::load(files.clone())?),
        None => None,
    };
    if config.mode == ServerMode::Dev {
        dev::provide(&mut config)
            .with_context(|| format!("cannot keep the dev secret in {}", config.data.display()))?;
    }
    let config = Arc::new(config);
    let clock = Arc::new(NodeClock::new(config.clock.confirm_ms));
    let store = open_store(&config, &clock)?;
    store.set_health(health.clone());
    clock.start(&store).await.context("cannot read the store")?;
    let name = node_name::take(&config, &store, &clock).await?;
    let epoch = open_epoch(&config, &store, &clock).await?;
    let (mut parts, seeds) = Parts::assemble(config, clock, store, health, epoch)?;
    parts.node.set_deletion_lag(parts.clock.status().deletion_lag_ms);
    // Until the delivery worker knows which topics have subscriptions, everything is published.
    parts.node.publish_presence(true);
    parts.node.publish_parties(true);
    let adoption = Arc::new(Adoption {
        node: parts.node.clone(),
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        shards: parts.shards.clone(),
        health: parts.health.clone(),
        wake: Arc::default(),
        load: parts.load.clone(),
    });
    open_bus(&parts, &adoption)?;
    start_shards(seeds, supervisor)?;
    know_bans(&parts.node).await?;
    adoption.check(true).await?;
    let tasks = start_tasks(&mut parts, &adoption, ports, tls, supervisor)?;
    Ok(RunningServer { parts, adoption, tasks, name })
}

fn start_tasks(
    parts: &mut Parts,
    adoption: &Arc<Adoption>,
    ports: Ports,
    tls: Option<Arc<TlsReloader>>,
    supervisor: &Supervisor,
) -> anyhow::Result<Tasks> {
    let config = &parts.config.clone();
    let liveness = LivenessDriver {
        node: parts.node.clone(),
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        shards: parts.shards.clone(),
        health: parts.health.clone(),
        wakeups: parts.topics.wakeups.clone(),
    };
    let liveness = supervisor.task("liveness", liveness.run(liveness::rules(config)));
    let heartbeat = Duration::from_millis(config.nodes.heartbeat_ms);
    let adoption = supervisor.task("adoption", adoption.clone().run(heartbeat));
    let stop_delivery = Arc::new(Notify::new());
    let deliver = delivery::keep(parts.topics.clone(), stop_delivery.clone());
    let delivery = supervisor.task("delivery", deliver);
    let sampler = LoadSampler {
        load: parts.load.clone(),
        node: parts.node.clone(),
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        connections: parts.connections.clone(),
        counters: parts.topics.counters.clone(),
        population: parts.population.clone(),
        data: parts.data.clone(),
    };
    let watch_clock = parts.clock.clone().watch(parts.store.clone(), parts.node.clone());
    let mut others = vec![
        supervisor.task("clock", watch_clock),
        supervisor.task("revocation", revocation::watch(parts.store.clone(), parts.node.clone())),
        supervisor.task("load", sampler.run()),
        supervisor.task("load-of-others", parts.load.clone().keep()),
        supervisor.task_once("engine-check", engine_check::warn(config.clone())),
        supervisor.task("population", parts.population.clone().run()),
        supervisor.task(
            "key-use",
            key_use::record(parts.store.clone(), parts.authenticator.clone(), parts.clock.clone()),
        ),
        supervisor.task_once("matchmaker", matchmaker::arrange(parts.topics.clone())),
    ];
    #[cfg(feature = "pusher")]
    if let Some(pusher) = &parts.pusher {
        others.extend(pusher.start(supervisor));
    }
    if SqlCalls::has(&config.store) {
        let mover = SqlMover {
            config: config.clone(),
            node: parts.node.clone(),
            store: parts.store.clone(),
            shards: parts.shards.clone(),
            topics: parts.topics.clone(),
            health: parts.health.clone(),
        };
        others.push(supervisor.task("sql-calls", mover.run()));
    }
    if Practice::is_available(config) {
        let (practice, config) = (parts.practice.clone(), config.clone());
        others.push(supervisor.task("practice", async move { practice.run(&config).await }));
    }
    for (number, set) in parts.key_sets().iter().enumerate() {
        others.push(supervisor.task(&format!("jwks-{number}"), set.clone().watch()));
    }
    if let Some(tls) = &tls {
        others.push(supervisor.task("tls-reload", tls.clone().watch()));
    }
    if !config.metrics.statsd.is_empty() {
        let send = parts.metrics.clone().send_statsd(config.metrics.clone(), config.node.clone());
        others.push(supervisor.task("statsd", send));
    }
    if let (Some(queue), Some(url)) = (parts.spans.take(), &config.otlp_url) {
        let url = collector_url(url).context("otlp_url is not a URL")?;
        others.push(supervisor.task("traces", export(queue, url, config.node.clone())));
    }
    if config.metrics.log_ms > 0 {
        let write = parts.metrics.clone().write_log(config.metrics.log_ms);
        others.push(supervisor.task("metrics-log", write));
    }
    let (api, tls_of) = (parts.api(), || tls.clone());
    let side = if ports.admin.is_some() { ListenerSide::Public } else { ListenerSide::Both };
    let http = HttpAcceptor { api: api.clone(), side, tls: tls_of() };
    let mut acceptors = vec![supervisor.task("http-acceptor", http.run(ports.http))];
    if let Some(port) = ports.admin {
        let admin = HttpAcceptor { api, side: ListenerSide::Admin, tls: tls_of() };
        acceptors.push(supervisor.task("admin-acceptor", admin.run(port)));
    }
    if let Some(port) = ports.redis {
        let redis = RedisAcceptor {
            resp: parts.resp.clone(),
            shards: parts.shards.clone(),
            clock: parts.clock.clone(),
            tls,
        };
        acceptors.push(supervisor.task("redis-acceptor", Arc::new(redis).run(port)));
    }
    Ok(Tasks { liveness, adoption, delivery, stop_delivery, acceptors, others })
}

fn open_store(config: &Config, clock: &Arc<NodeClock>) -> anyhow::Result<Arc<StoreClient>> {
    let client = Arc::new(StoreClient::default());
    let store = tavern_engines::open(&config.store, clock.clone(), client.clone())
        .context("cannot open the store")?;
    if store.has_shared_clock() {
        clock.leave_to_store();
    }
    client.set_store(store);
    Ok(client)
}

async fn open_epoch(config: &Config, store: &StoreClient, clock: &NodeClock) -> anyhow::Result<Epoch> {
    let open = NodeChange::Open { name: config.node.as_str().into(), lease_ms: config.nodes.lease_ms };
    let receipt = store.commit(Commit { node: Some(open), ..Commit::default() }).await?;
    clock.follow(receipt.time);
    Ok(receipt.epoch.unwrap_or(Epoch(0)))
}

/// Connects the node to the bus.
fn open_bus(parts: &Parts, adoption: &Adoption) -> anyhow::Result<()> {
    let config = &parts.config;
    let receiver = Arc::new(BusDispatcher {
        node: parts.node.clone(),
        shards: parts.shards.clone(),
        adoption: adoption.wake.clone(),
        wakeups: parts.topics.wakeups.clone(),
        load: parts.load.clone(),
        #[cfg(feature = "pusher")]
        pusher: parts.pusher.clone(),
        address: node_name::address_of(config),
    });
    let options = tavern_engines::BusOptions {
        node: &config.node,
        prefix: &config.prefix,
        folder: &config.data,
        bounds: LogBounds {
            messages: config.local.log_messages,
            bytes: config.local.log_bytes,
            age_ms: config.local.log_age_ms,
            message_bytes: config.limits.message_bytes,
        },
    };
    let bus = tavern_engines::open_bus(&config.bus, &options, parts.clock.clone(), receiver)
        .context("cannot open the bus")?;
    parts.node.bus_interests.set_bus(bus);
    parts.node.listen();
    Ok(())
}

/// Waits until a shard has read the bans: no client may connect before.
async fn know_bans(node: &Node) -> anyhow::Result<()> {
    let read = async {
        loop {
            match node.blocks.unreadable() {
                Some(unreadable) => return unreadable,
                None => tokio::time::sleep(BANS_POLL).await,
            }
        }
    };
    let unreadable = tokio::time::timeout(BANS_WAIT, read).await;
    match unreadable.context("cannot read the bans: the store does not answer")? {
        0 => {}
        unreadable => tracing::error!(unreadable, "some bans cannot be read, and are ignored"),
    }
    Ok(())
}

fn start_shards(seeds: Vec<ShardStart>, supervisor: &Supervisor) -> anyhow::Result<()> {
    for seed in seeds {
        let name = seed.name();
        let run = move || {
            let random = Box::new(SystemRandom::default());
            let mut hub = Shard::new(seed.node(), seed.index(), random, seed.now());
            if seed.index() == 0 {
                hub.handle(seed.now(), ShardEvent::KeepBans);
            }
            seed.run(hub);
        };
        supervisor.thread(&name, run).with_context(|| format!("cannot start the thread {name}"))?;
    }
    Ok(())
}
