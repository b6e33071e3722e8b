//! The start: ports, store, epoch, shards, bus, then everything that runs beside the shards.

use super::accept::{accept_http, accept_redis};
use crate::auth::{self, Keyring, Verifier};
use crate::bus::Ear;
use crate::clock::HouseClock;
use crate::config::Config;
use crate::desk::Desk;
use crate::door::{self, Counts};
use crate::estate;
use crate::events::{Postman, courier, keeper, matchmaker};
use crate::health::Health;
use crate::history;
use crate::hook::Hook;
use crate::metrics;
use crate::services::{Parts, Services, TokenGate};
use crate::settings;
use crate::shard::inbox::Inbox;
use crate::shard::worker::{BELL, Seed};
use crate::supervisor::{Supervisor, Task};
use crate::tls::Reloading;
use crate::vigil;
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use tavern_domain::Epoch;
use tavern_engines::LogBounds;
use tavern_hub::{Node, Shard};
use tavern_store::{Commit, NodeChange, Writer};
use tokio::sync::Notify;

/// A server that listens.
pub struct Running {
    pub services: Arc<Services>,
    pub stop_delivery: Arc<Notify>,
    pub liveness: Task,
    pub adoption: Task,
    pub delivery: Task,
    pub acceptors: Vec<Task>,
    /// Tasks with nothing to finish.
    pub others: Vec<Task>,
}

impl Running {
    pub fn config(&self) -> &Config {
        &self.services.config
    }
}

pub async fn start(
    mut config: Config,
    health: Arc<Health>,
    supervisor: &Supervisor,
) -> anyhow::Result<Running> {
    // Both ports first: a second server on them should fail before it touches the store.
    let web = door::bind(config.listen).with_context(|| busy_port(config.listen))?;
    let redis = match config.resp {
        Some(address) => Some(door::bind(address).with_context(|| busy_port(address))?),
        None => None,
    };
    config.listen = web.local_addr()?;
    if let Some(redis) = &redis {
        config.resp = Some(redis.local_addr()?);
    }
    let tls = match &config.tls {
        Some(files) => Some(Reloading::load(files.clone())?),
        None => None,
    };
    let config = Arc::new(config);
    let clock = Arc::new(HouseClock::new());
    let desk = open_store(&config, &clock)?;
    let writer = open_epoch(&config, &desk, &clock).await?;
    let (services, seeds) = assemble(config.clone(), desk, clock, health, writer.epoch)?;
    // Until the delivery worker knows whether somebody listens, everything is told.
    services.node.tell_presence(true);
    services.node.tell_parties(true);
    open_bus(&services)?;
    start_shards(seeds, supervisor)?;
    estate::look(&services, true).await?;
    let mut others = Vec::new();
    if let Some(tls) = &tls {
        others.push(supervisor.task("tls-reload", tls.clone().watch()));
    }
    let liveness = supervisor.task("liveness", vigil::keep(services.clone()));
    let adoption = supervisor.task("adoption", estate::keep(services.clone()));
    others.push(supervisor.task("retention", keeper::keep(services.clone())));
    others.push(supervisor.task("samples", history::keep(services.clone())));
    let postman = Arc::new(Postman::new(&config).context("cannot prepare the webhook sender")?);
    let stop_delivery = Arc::new(Notify::new());
    let deliver = courier::keep(services.clone(), postman, stop_delivery.clone());
    let delivery = supervisor.task("delivery", deliver);
    others.push(supervisor.task_once("matchmaker", matchmaker::arrange(services.clone())));
    if !config.metrics.statsd.is_empty() {
        others.push(supervisor.task("statsd", metrics::send_statsd(services.clone())));
    }
    if config.metrics.log_ms > 0 {
        others.push(supervisor.task("metrics-log", metrics::log(services.clone())));
    }
    let accept = accept_http(services.clone(), tls.clone(), web);
    let mut acceptors = vec![supervisor.task("http-acceptor", accept)];
    if let Some(redis) = redis {
        acceptors.push(supervisor.task("redis-acceptor", accept_redis(services.clone(), tls, redis)));
    }
    Ok(Running { services, stop_delivery, liveness, adoption, delivery, acceptors, others })
}

fn busy_port(address: SocketAddr) -> String {
    format!("cannot listen on {address}; is another server there? choose another with --listen or --resp")
}

fn open_store(config: &Config, clock: &Arc<HouseClock>) -> anyhow::Result<Arc<Desk>> {
    let desk = Arc::new(Desk::default());
    let store =
        tavern_engines::open(&config.store, clock.clone(), desk.clone()).context("cannot open the store")?;
    if store.keeps_time() {
        clock.leave_to_store();
    }
    desk.set_store(store);
    Ok(desk)
}

/// From here on the node hears the others, and they hear it.
fn open_bus(services: &Services) -> anyhow::Result<()> {
    let config = &services.config;
    let ear = Ear::new(
        services.node.clone(),
        services.inboxes.clone(),
        services.left.clone(),
        services.bell.clone(),
    );
    let place = tavern_engines::Place {
        node: &config.node,
        prefix: &config.prefix,
        folder: &config.data,
        bounds: LogBounds {
            messages: config.local.messages,
            bytes: config.local.bytes,
            age_ms: config.local.age_ms,
            message_bytes: config.limits.message_bytes,
        },
    };
    let bus = tavern_engines::open_bus(&config.bus, &place, services.clock.clone(), ear)
        .context("cannot open the bus")?;
    services.node.carrier.set_bus(bus);
    services.node.listen();
    Ok(())
}

async fn open_epoch(config: &Config, desk: &Desk, clock: &HouseClock) -> anyhow::Result<Writer> {
    let name: Arc<str> = config.node.as_str().into();
    let open = NodeChange::Open { name: name.clone(), lease_ms: config.nodes.lease_ms };
    let asked = clock.moment();
    let receipt = desk.commit(Commit { node: Some(open), ..Commit::default() }).await?;
    clock.heard(asked, receipt.time);
    let epoch = receipt.epoch.unwrap_or(Epoch(0));
    Ok(Writer { node: name, epoch })
}

fn assemble(
    config: Arc<Config>,
    desk: Arc<Desk>,
    clock: Arc<HouseClock>,
    health: Arc<Health>,
    epoch: Epoch,
) -> anyhow::Result<(Arc<Services>, Vec<Seed>)> {
    let verifier = Verifier::new(&config)?;
    let keyring = Keyring::new(config.admin_key.clone(), desk.clone());
    let gate = Arc::new(auth::Gate::new(config.mode, verifier, keyring));
    let node = Node::new(settings::of(&config, epoch), Box::new(TokenGate(gate.clone())));
    let mut polls = Vec::new();
    let mut inboxes = Vec::new();
    for _ in 0..config.threads {
        let poll = mio::Poll::new()?;
        let bell = mio::Waker::new(poll.registry(), BELL)?;
        inboxes.push(Arc::new(Inbox::new(bell, config.limits.inbox_parcels)));
        polls.push(poll);
    }
    let hook = match &config.authorize.url {
        Some(url) => Some(Hook::new(url.parse().context("authorize.url is no address")?)),
        None => None,
    };
    let services = Services::new(Parts {
        doors: Counts::new(config.limits.connections, config.limits.connections_per_address),
        runtime: tokio::runtime::Handle::current(),
        config,
        node: node.clone(),
        inboxes: inboxes.clone(),
        gate,
        desk: desk.clone(),
        clock,
        health,
        hook,
    });
    desk.set_shards(inboxes.clone());
    // Each shard makes its own state inside its thread; here only what can travel.
    let seeds = polls.into_iter().zip(inboxes).enumerate();
    let seeds = seeds.map(|(index, (poll, inbox))| Seed::new(index, services.clone(), inbox, poll));
    Ok((services.clone(), seeds.collect()))
}

fn start_shards(seeds: Vec<Seed>, supervisor: &Supervisor) -> anyhow::Result<()> {
    for seed in seeds {
        let name = seed.name();
        let run = move || {
            let hub =
                Shard::new(seed.node(), seed.index(), Box::new(auth::SystemDice::default()), seed.now());
            seed.run(hub);
        };
        supervisor.thread(&name, run).with_context(|| format!("cannot start the thread {name}"))?;
    }
    Ok(())
}
