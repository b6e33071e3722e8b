//! Creates the parts of the server and connects them. Starts nothing.

use crate::auth::{Authenticator, HelloTokens, JwksCache, Keyring, Verifier};
use crate::authorize::AuthorizeHook;
use crate::byte_budget::ByteBudget;
use crate::clock::NodeClock;
use crate::config::Config;
use crate::connections::{self, Connections};
use crate::gateway::GatewaySources;
use crate::health::NodeHealth;
use crate::http::{HttpApi, IdempotencyKeys, Pings, RecordedReads};
use crate::load::ClusterLoad;
use crate::metrics::{MetricSource, MetricSources, NodeMetrics, ProcessMetrics};
use crate::population::ClusterPopulation;
use crate::practice::Practice;
#[cfg(feature = "pusher")]
use crate::pusher::{AppWebhooks, PusherServer, WebhookView};
use crate::radar::RadarServer;
use crate::refusal_log::RefusalLogs;
use crate::resp::RespServer;
use crate::resp::clients::Clients;
use crate::settings;
use crate::shard::input::ShardQueue;
use crate::shard::worker::{ShardStart, WAKE};
use crate::shard::{ShardContext, ShardLimits, Shards};
use crate::store_client::StoreClient;
use crate::topics::{BatchSender, BodySigner, TopicsApi, Wakeups};
use crate::traces::{SpanQueue, Tracer};
use crate::unread_replies::UnreadReplies;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_domain::Epoch;
use tavern_hub::Node;
use tavern_store::SystemClock;
use tokio::net::TcpListener;

/// The ports that the server listens on.
pub struct Ports {
    pub http: TcpListener,
    /// For operators only.
    pub admin: Option<TcpListener>,
    pub redis: Option<TcpListener>,
}

impl Ports {
    /// Writes the addresses that were bound into the configuration.
    pub fn bind(config: &mut Config) -> anyhow::Result<Ports> {
        let bind = |address: SocketAddr| {
            connections::bind(address).with_context(|| {
                format!("cannot listen on {address}; is another server using it? choose another address with --listen, --resp or admin_listen")
            })
        };
        let ports = Ports {
            http: bind(config.listen)?,
            admin: config.admin_listen.map(bind).transpose()?,
            redis: config.resp.map(bind).transpose()?,
        };
        config.listen = ports.http.local_addr()?;
        if let Some(admin) = &ports.admin {
            config.admin_listen = Some(admin.local_addr()?);
        }
        if let Some(redis) = &ports.redis {
            config.resp = Some(redis.local_addr()?);
        }
        Ok(ports)
    }
}

pub struct Parts {
    pub config: Arc<Config>,
    pub clock: Arc<NodeClock>,
    pub store: Arc<StoreClient>,
    pub health: Arc<NodeHealth>,
    pub node: Arc<Node>,
    pub shards: Shards,
    pub connections: Arc<Connections>,
    unauthenticated: Arc<ByteBudget>,
    unread: Arc<UnreadReplies>,
    pub resp: Arc<RespServer>,
    pub topics: Arc<TopicsApi>,
    pub metrics: Arc<MetricSources>,
    pub population: Arc<ClusterPopulation>,
    pub practice: Arc<Practice>,
    radar: Option<Arc<RadarServer>>,
    #[cfg(feature = "pusher")]
    pub pusher: Option<Arc<PusherServer>>,
    tracer: Option<Arc<Tracer>>,
    /// Spans to be sent.
    pub spans: Option<SpanQueue>,
    pub authenticator: Arc<Authenticator>,
    pub load: Arc<ClusterLoad>,
    /// The data folder of a SQLite store. None: the store is elsewhere.
    pub data: Option<PathBuf>,
    started: Instant,
}

impl Parts {
    pub fn assemble(
        config: Arc<Config>,
        clock: Arc<NodeClock>,
        store: Arc<StoreClient>,
        health: Arc<NodeHealth>,
        epoch: Epoch,
    ) -> anyhow::Result<(Parts, Vec<ShardStart>)> {
        let started = Instant::now();
        let (tracer, spans) = match &config.otlp_url {
            Some(_) => Some(Tracer::new(config.otlp_sample_percent)).unzip(),
            None => (None, None),
        };
        let keyring = Keyring::new(config.admin_key.clone(), store.clone());
        let authenticator =
            Authenticator::new(config.mode, Verifier::new(&config)?, keyring, Arc::new(SystemClock));
        let authenticator = authenticator
            .with_leeway(config.clock.token_leeway_ms)
            .with_longest_life(config.tokens.max_life_ms);
        let authenticator = Arc::new(authenticator);
        let tokens = Box::new(HelloTokens(authenticator.clone()));
        let node = Node::new(settings::of(&config, epoch), tokens);
        authenticator.refuse_blocked(&node);
        let limits = &config.limits;
        let connections = Connections::new(limits.connections, limits.connections_per_address);
        let unauthenticated =
            ByteBudget::new("limits.unauthenticated_total_bytes", limits.unauthenticated_total_bytes);
        // One share for each shard, and one for the connections of the HTTP server.
        let unread_share = limits.unread_replies_total_bytes / (config.threads + 1);
        let unread = UnreadReplies::new(
            ByteBudget::new("limits.unread_replies_total_bytes", unread_share),
            unauthenticated.clone(),
            limits.unread_reply_bytes,
            Duration::from_millis(config.sessions.heartbeat_ms.saturating_mul(2)),
        );
        let (shards, polls) = make_queues(&config)?;
        #[cfg(feature = "pusher")]
        let pusher_apps = crate::pusher::read_apps(&config)?;
        #[cfg(feature = "pusher")]
        let webhooks = AppWebhooks::new(&pusher_apps, &config.pusher_apps);
        #[cfg(feature = "pusher")]
        if !webhooks.is_empty() {
            node.observe_presence(Box::new(WebhookView(webhooks.clone())));
        }
        #[cfg(feature = "pusher")]
        let signer: Option<Arc<dyn BodySigner>> = Some(Arc::new(WebhookView(webhooks.clone())));
        #[cfg(not(feature = "pusher"))]
        let signer: Option<Arc<dyn BodySigner>> = None;
        let topic_shards = Arc::new(shards.clone());
        let topics = Arc::new(TopicsApi {
            config: config.clone(),
            node: node.clone(),
            clock: clock.clone(),
            store: store.clone(),
            health: health.clone(),
            shards: topic_shards.clone(),
            wakeups: Arc::new(Wakeups::new(node.clone(), topic_shards)),
            counters: Arc::default(),
            sender: Arc::new(
                BatchSender::new(&config, tracer.clone(), signer)
                    .context("cannot prepare the webhook sender")?,
            ),
        });
        store.set_shards(Arc::new(shards.clone()));
        if let Some(tracer) = &tracer {
            store.set_tracer(tracer.clone());
        }
        let resp = Arc::new(RespServer {
            config: config.clone(),
            authenticator: authenticator.clone(),
            clients: Clients::default(),
            connections: connections.clone(),
            shards: Arc::new(shards.clone()),
            runtime: tokio::runtime::Handle::current(),
            started,
        });
        let context = Arc::new(ShardContext {
            node: node.clone(),
            shards: shards.clone(),
            clock: clock.clone(),
            store: store.clone(),
            resp: resp.clone(),
            authorize: authorize_hook(&config)?,
            wakeups: topics.wakeups.clone(),
            counters: topics.counters.clone(),
            unauthenticated: unauthenticated.clone(),
            started,
            tracer: tracer.clone(),
            limits: ShardLimits {
                json_frame_bytes: limits.json_frame_bytes,
                partial_bytes: limits.partial_total_bytes / config.threads,
                unread_bytes: limits.unread_reply_bytes,
                unread_total_bytes: unread_share,
                heartbeat_ms: config.sessions.heartbeat_ms as u32,
                http_header_ms: limits.http_header_ms as u32,
            },
        });
        // Each shard creates its own state on its thread; this is what is sent there.
        let seeds = polls.into_iter().enumerate();
        let seeds = seeds.map(|(index, poll)| ShardStart::new(index, context.clone(), poll));
        let data = config.store.starts_with("sqlite:").then(|| config.data.clone());
        let numbers = NodeMetrics {
            node: node.clone(),
            health: health.clone(),
            connections: connections.clone(),
            data: data.clone(),
        };
        let gateways = GatewaySources {
            config: config.clone(),
            node: node.clone(),
            shards: shards.clone(),
            clock: clock.clone(),
            authenticator: authenticator.clone(),
            unauthenticated: unauthenticated.clone(),
        };
        #[cfg(feature = "pusher")]
        let pusher = PusherServer::new(gateways.clone(), topics.clone(), pusher_apps, webhooks);
        let radar = config.radar.enabled.then(|| RadarServer::new(gateways));
        let population = ClusterPopulation::new(node.clone(), store.clone(), connections.clone());
        let mut sources: Vec<Arc<dyn MetricSource>> =
            vec![Arc::new(numbers), Arc::new(ProcessMetrics), store.clone(), clock.clone()];
        sources.push(population.clone());
        sources.push(topics.counters.clone());
        sources.push(topics.sender.clone());
        if let Some(radar) = &radar {
            sources.push(radar.clone());
        }
        #[cfg(feature = "pusher")]
        if let Some(pusher) = &pusher {
            sources.push(pusher.clone());
        }
        if let Some(tracer) = &tracer {
            sources.push(tracer.clone());
        }
        let metrics = MetricSources::new(sources);
        let load = ClusterLoad::new(node.clone(), health.clone(), clock.clone(), started);
        let parts = Parts {
            config,
            clock,
            store,
            health,
            node,
            shards,
            connections,
            unauthenticated,
            unread,
            resp,
            topics,
            metrics,
            population,
            practice: Arc::default(),
            radar,
            #[cfg(feature = "pusher")]
            pusher,
            tracer,
            spans,
            authenticator,
            load,
            data,
            started,
        };
        Ok((parts, seeds.collect::<Result<_, _>>()?))
    }

    /// The token keys that are read from addresses.
    pub fn key_sets(&self) -> &[Arc<JwksCache>] {
        self.authenticator.verifier().key_sets()
    }

    pub fn api(&self) -> Arc<HttpApi> {
        Arc::new(HttpApi {
            config: self.config.clone(),
            node: self.node.clone(),
            shards: self.shards.clone(),
            clock: self.clock.clone(),
            store: self.store.clone(),
            authenticator: self.authenticator.clone(),
            topics: self.topics.clone(),
            health: self.health.clone(),
            connections: self.connections.clone(),
            unauthenticated: self.unauthenticated.clone(),
            unread: self.unread.clone(),
            metrics: self.metrics.clone(),
            population: self.population.clone(),
            load: self.load.clone(),
            started: self.started,
            idempotency: IdempotencyKeys::new(self.config.limits.idempotency_bytes),
            pings: Pings::default(),
            recorded_reads: RecordedReads::default(),
            practice: self.practice.clone(),
            radar: self.radar.clone(),
            #[cfg(feature = "pusher")]
            pusher: self.pusher.clone(),
            tracer: self.tracer.clone(),
            refusals: RefusalLogs::default(),
            runtime: tokio::runtime::Handle::current(),
        })
    }
}

fn make_queues(config: &Config) -> anyhow::Result<(Shards, Vec<mio::Poll>)> {
    let (mut queues, mut polls) = (Vec::new(), Vec::new());
    for _ in 0..config.threads {
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        queues.push(Arc::new(ShardQueue::new(waker, config.limits.shard_queue)));
        polls.push(poll);
    }
    Ok((Shards::new(queues), polls))
}

fn authorize_hook(config: &Config) -> anyhow::Result<Option<Arc<AuthorizeHook>>> {
    let Some(url) = &config.authorize.url else { return Ok(None) };
    let url = url.parse().context("authorize.url is not a URL")?;
    Ok(Some(Arc::new(AuthorizeHook::new(url, tokio::runtime::Handle::current()))))
}
