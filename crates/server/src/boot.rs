//! Puts the server together and takes it apart again: store, node, shards, doors. The only place that names engines
//! by address. Must hold: when `ready` is said, everything listens; a clean stop leaves every session
//! with another node or in the store.

use crate::auth::{self, Keyring, Verifier};
use crate::bus::Ear;
use crate::clock::HouseClock;
use crate::config::{Config, LogFormat, Mode};
use crate::desk::Desk;
use crate::door::{self, Counts, Seat};
use crate::estate;
use crate::events::{Postman, courier, keeper};
use crate::hook::Hook;
use crate::http::{self, Edge};
use crate::metrics;
use crate::resp::Peer;
use crate::services::{Parts, Services, TokenGate};
use crate::settings;
use crate::shard::conn::{Conn, Speaks};
use crate::shard::inbox::Inbox;
use crate::shard::mail::{Arrival, Mail};
use crate::shard::worker::{BELL, Seed};
use crate::vigil;
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tavern_domain::{Epoch, Identity, Scopes, Time};
use tavern_engines::LogBounds;
use tavern_hub::handover::stored;
use tavern_hub::{LinkId, Node, Shard};
use tavern_store::{Commit, NodeChange, Row, Writer};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Runs the server until it is told to stop.
pub fn run(config: Config) -> anyhow::Result<()> {
    start_log(&config);
    raise_descriptor_limit();
    keep_pages_small();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(config.threads).max(1))
        .thread_name("side")
        .enable_all()
        .build()
        .context("the side threads could not be started")?;
    runtime.block_on(serve(config))
}

async fn serve(mut config: Config) -> anyhow::Result<()> {
    let mut told = Told::listen()?;
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
        Some(files) => Some(crate::tls::Reloading::load(files.clone())?),
        None => None,
    };
    let config = Arc::new(config);
    let clock = Arc::new(HouseClock::new());
    let desk = open_store(&config, &clock)?;
    let writer = open_epoch(&config, &desk, &clock).await?;
    let (services, workers) = assemble(config.clone(), desk.clone(), clock, writer.epoch)?;
    // Until the courier knows whether somebody listens, everything is told.
    services.node.tell_presence(true);
    services.node.tell_parties(true);
    open_bus(&services)?;
    let threads = start_shards(workers)?;
    estate::look(&services, true).await?;
    if let Some(tls) = &tls {
        tokio::spawn(tls.clone().watch());
    }
    let renewal = tokio::spawn(vigil::keep(services.clone()));
    let heir = tokio::spawn(estate::keep(services.clone()));
    let postman = Arc::new(Postman::new(&config).context("webhooks cannot be sent")?);
    let no_more_posts = Arc::new(tokio::sync::Notify::new());
    let keeper = tokio::spawn(keeper::keep(services.clone()));
    let samples = tokio::spawn(crate::history::keep(services.clone()));
    let courier = tokio::spawn(courier::keep(services.clone(), postman, no_more_posts.clone()));
    tokio::spawn(crate::events::matchmaker::arrange(services.clone()));
    let teller = tokio::spawn(metrics::tell(services.clone()));
    let mut doors = vec![tokio::spawn(accept_web(services.clone(), tls.clone(), web))];
    if let Some(redis) = redis {
        doors.push(tokio::spawn(accept_redis(services.clone(), tls, redis)));
    }
    announce(&config);
    told.wait().await;
    tracing::info!("stopping");
    services.stopping.store(true, Ordering::Relaxed);
    let patience = Duration::from_millis(config.sessions.drain_ms);
    // It may live under another epoch than it began with.
    let writer = Writer { epoch: services.node.epoch(), ..writer };
    services.left.notify_one();
    heir.await?;
    no_more_posts.notify_one();
    courier.await?;
    keeper.abort();
    teller.abort();
    samples.abort();
    let stop = stop(&services, &desk, &writer, renewal.abort_handle());
    let stopped = tokio::time::timeout(patience, stop).await;
    doors.iter().for_each(|door| door.abort());
    renewal.abort();
    match stopped {
        Ok(outcome) => outcome?,
        Err(_) => tracing::error!("the stop took longer than sessions.drain_ms; some sessions are lost"),
    }
    last_words(&services).await;
    tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join()))).await?;
    if let Some(bus) = services.node.carrier.bus().cloned() {
        tokio::task::spawn_blocking(move || bus.stop()).await?;
    }
    if let Some(store) = desk.store().cloned() {
        tokio::task::spawn_blocking(move || store.stop()).await?;
    }
    tracing::info!("stopped");
    Ok(())
}

fn busy_port(address: SocketAddr) -> String {
    format!("cannot listen on {address}; is another server there? choose another with --listen or --resp")
}

fn open_store(config: &Config, clock: &Arc<HouseClock>) -> anyhow::Result<Arc<Desk>> {
    let desk = Arc::new(Desk::default());
    let store = tavern_engines::open(&config.store, clock.clone(), desk.clone())
        .context("the store cannot be opened")?;
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
        .context("the bus cannot be opened")?;
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
        hook,
    });
    desk.set_shards(inboxes.clone());
    // Each shard makes its own state inside its thread; here only what can travel.
    let workers = polls.into_iter().zip(inboxes).enumerate();
    let workers = workers.map(|(index, (poll, inbox))| Seed::new(index, services.clone(), inbox, poll));
    Ok((services.clone(), workers.collect()))
}

/// A shard that fails takes the server down: half a server would keep its sessions waiting for ever.
struct WholeOrNothing;

impl Drop for WholeOrNothing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a shard failed; the server ends so that it can be started again");
            std::process::abort();
        }
    }
}

fn start_shards(workers: Vec<Seed>) -> anyhow::Result<Vec<std::thread::JoinHandle<()>>> {
    let start = |worker: Seed| {
        let name = format!("shard-{}", worker.index());
        let run = move || {
            let _whole = WholeOrNothing;
            let node = worker.node();
            let hub = Shard::new(node, worker.index(), Box::new(auth::SystemDice::default()), worker.now());
            worker.run(hub);
        };
        std::thread::Builder::new().name(name).spawn(run).context("a shard could not be started")
    };
    workers.into_iter().map(start).collect()
}

async fn accept_web(
    services: Arc<Services>,
    tls: Option<Arc<crate::tls::Reloading>>,
    listener: tokio::net::TcpListener,
) {
    let counts = services.doors.clone();
    let proxies = services.config.trusted_proxies.clone();
    let edge = Edge { services, tls };
    door::accept(listener, counts, proxies, |socket, peer, seat| {
        tokio::spawn(http::serve(edge.clone(), socket, peer, seat));
    })
    .await;
}

async fn accept_redis(
    services: Arc<Services>,
    tls: Option<Arc<crate::tls::Reloading>>,
    listener: tokio::net::TcpListener,
) {
    let counts = services.doors.clone();
    door::accept(listener, counts, Vec::new(), |socket, peer, seat| match &tls {
        None => welcome_redis(&services, socket, None, peer, seat),
        Some(tls) => {
            let (services, acceptor) = (services.clone(), tls.acceptor());
            tokio::spawn(async move {
                let handshake = acceptor.accept(socket);
                if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(10), handshake).await {
                    let (socket, tls) = stream.into_inner();
                    welcome_redis(&services, socket, Some(Box::new(tls)), peer, seat);
                }
            });
        }
    })
    .await;
}

/// A Redis connection goes straight to a shard. In dev mode it may do everything; else it has to log in.
fn welcome_redis(
    services: &Services,
    socket: TcpStream,
    tls: Option<Box<rustls::ServerConnection>>,
    peer: SocketAddr,
    seat: Seat,
) {
    let local = socket.local_addr().unwrap_or(peer);
    let Ok(socket) = socket.into_std() else { return };
    let socket = mio::net::TcpStream::from_std(socket);
    let shard = services.next_shard();
    let info = services.clients.register(shard, LinkId(0), peer, local, services.now());
    let client = info.id;
    let identity = (services.config.mode == Mode::Dev).then(|| Identity {
        user: None,
        name: None,
        rights: auth::all_rights(),
        expires: Time::NEVER,
        unlimited: true,
        scopes: Scopes::ALL,
        key: None,
    });
    let speaks = Speaks::Redis(Box::new(Peer::new(LinkId(0), identity, info)));
    let conn = Conn::new(socket, tls, speaks, seat);
    let arrival = Arrival { conn, input: Vec::new(), commands: Vec::new(), hello: None };
    if services.inboxes[shard].put(Mail::Arrival(Box::new(arrival))).is_err() {
        services.clients.leave(client);
        tracing::warn!(shard, "a connection was refused: the shard has too much to do");
    }
}

fn announce(config: &Config) {
    if config.mode == Mode::Dev {
        match crate::cli::dev::greeting(config) {
            Ok(text) => println!("{text}"),
            Err(error) => tracing::warn!(%error, "no greeting"),
        }
    }
    tracing::info!(node = %config.node, http = %config.listen, redis = ?config.resp, shards = config.threads, "ready");
}

/// SIGTERM and SIGINT, heard from before the first door opens.
struct Told {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Told {
    fn listen() -> anyhow::Result<Told> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Told { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Answers that the shards gave to HTTP are still on their way to the sockets.
async fn last_words(services: &Services) {
    for _ in 0..30 {
        if services.doors.open() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sessions go to living nodes and their clients are told; what nobody took goes to the store; the node says goodbye.
async fn stop(
    services: &Services,
    desk: &Desk,
    writer: &Writer,
    renewal: tokio::task::AbortHandle,
) -> anyhow::Result<()> {
    for inbox in &services.inboxes {
        let (reply, frozen) = oneshot::channel();
        inbox.force(Mail::Freeze(reply));
        frozen.await.context("a shard ended before it was told")?;
    }
    let drain_ms = services.config.sessions.drain_ms;
    let patience = Duration::from_millis(drain_ms / 3 * 2);
    if tokio::time::timeout(patience, hand_over(services, drain_ms)).await.is_err() {
        tracing::warn!("some sessions found no other node in time; they go to the store");
    }
    let mut packed = Vec::new();
    for inbox in &services.inboxes {
        let (reply, sessions) = oneshot::channel();
        inbox.force(Mail::Stop(reply));
        packed.extend(sessions.await.context("a shard ended before it was told")?);
    }
    tracing::info!(sessions = packed.len(), "sessions go to the store");
    for part in packed.chunks_mut(500) {
        let puts = part.iter_mut().map(|session| {
            session.body.window_ms = session.body.window_ms.max(drain_ms);
            session.expires_at = session.expires_at + drain_ms;
            Row::Session(stored(session, writer))
        });
        let commit = Commit { writer: Some(writer.clone()), puts: puts.collect(), ..Commit::default() };
        desk.commit(commit).await?;
    }
    // Whoever renewed the lease of a node that has said goodbye would take it for dead.
    renewal.abort();
    let stop = NodeChange::Stop { node: writer.clone() };
    desk.commit(Commit { writer: Some(writer.clone()), node: Some(stop), ..Commit::default() }).await?;
    services.node.say_left();
    Ok(())
}

/// Offers the sessions to the nodes that live, and waits until they have them.
async fn hand_over(services: &Services, drain_ms: u64) -> anyhow::Result<()> {
    let living = estate::meet(services).await?;
    if !living.is_empty() {
        tracing::info!(nodes = living.len(), "sessions go to other nodes");
    }
    for inbox in &services.inboxes {
        inbox.force(Mail::Leave(living.clone().into(), drain_ms));
    }
    loop {
        let mut leaving = 0;
        for inbox in &services.inboxes {
            let (reply, count) = oneshot::channel();
            inbox.force(Mail::Leaving(reply));
            leaving += count.await.context("a shard ended before it was told")?;
        }
        if leaving == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn start_log(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log_level)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second server in one process keeps the first one's log.
    let _ = match config.log {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_target(false).try_init(),
    };
}

/// A waiting connection touches little of its buffers; in huge pages it would own all of them.
fn keep_pages_small() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay on");
    }
}

/// As many descriptors as the system allows: each connection is one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(limit = ?limit.current, "the limit of open files stays");
    }
}
