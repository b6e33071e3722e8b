//! The apps of this server, and how many sockets they have here. Nothing is served without an app.

use super::occupancy::Occupancy;
use super::webhooks::{self, AppWebhooks, WebhookQueue};
use super::{announcing, connection};
use crate::config::{Config, PusherAppConfig};
use crate::gateway::{GatewaySocket, GatewaySources};
use crate::metrics::{MetricKind, MetricSource, Series};
use crate::random::random_bits;
use crate::supervisor::{SupervisedTask, Supervisor, panics};
use crate::topics::TopicsApi;
use anyhow::Context;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_domain::{AddressGroup, ClientId};
use tavern_pusher::{PusherApp, PusherError, app_kinds};
use tavern_store::Append;
use tavern_wire::bus::control::PusherCount;
use tokio::sync::mpsc;

pub struct PusherServer {
    pub sources: GatewaySources,
    pub topics: Arc<TopicsApi>,
    pub webhooks: WebhookQueue,
    apps: Vec<Arc<Occupancy>>,
    sockets: AtomicU64,
    configured: Arc<AppWebhooks>,
    /// What the task that commits webhook events takes.
    waiting: Mutex<Option<mpsc::Receiver<Append>>>,
}

/// The apps of the configuration, in its order.
pub fn read_apps(config: &Config) -> anyhow::Result<Vec<Arc<PusherApp>>> {
    config.pusher_apps.iter().map(|table| read_app(&table.app).map(Arc::new)).collect()
}

impl PusherServer {
    /// None: no app is configured.
    pub fn new(
        sources: GatewaySources,
        topics: Arc<TopicsApi>,
        apps: Vec<Arc<PusherApp>>,
        configured: Arc<AppWebhooks>,
    ) -> Option<Arc<PusherServer>> {
        for app in &apps {
            // The configuration gives these kinds their settings under the same names.
            assert!(app_kinds(&app.id).iter().all(|kind| sources.config.kinds.contains_key(kind)));
        }
        if apps.is_empty() {
            return None;
        }
        let occupancy = |app: Arc<PusherApp>| {
            let [plain, cache, _] = app_kinds(&app.id).map(|kind| sources.config.kind(&kind).grace_ms);
            let grace = Duration::from_millis(plain.max(cache));
            Occupancy::new(app, ClientId::from_random(random_bits()), grace)
        };
        let apps = apps.into_iter().map(occupancy).collect();
        let (webhooks, waiting) = WebhookQueue::new(configured.clone(), topics.clone());
        let waiting = Mutex::new(Some(waiting));
        let sockets = AtomicU64::new(0);
        Some(Arc::new(PusherServer { sources, topics, webhooks, apps, sockets, configured, waiting }))
    }

    /// The tasks beside the sockets.
    pub fn start(self: &Arc<PusherServer>, supervisor: &Supervisor) -> Vec<SupervisedTask> {
        let arrange = webhooks::arrange(self.configured.clone(), self.topics.clone());
        let mut tasks = vec![supervisor.task_once("pusher-webhooks", arrange)];
        if let Some(waiting) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tasks.push(supervisor.task("pusher-events", webhooks::commit(waiting, self.topics.clone())));
        }
        for occupancy in &self.apps {
            let keep = announcing::keep(self.clone(), occupancy.clone());
            tasks.push(supervisor.task(&format!("pusher-app-{}", occupancy.app.id), keep));
        }
        tasks
    }

    pub fn app_of_key(&self, key: &str) -> Option<Arc<Occupancy>> {
        self.apps.iter().find(|known| &*known.app.key == key).cloned()
    }

    pub fn app_of_id(&self, id: &str) -> Option<Arc<Occupancy>> {
        self.apps.iter().find(|known| &*known.app.id == id).cloned()
    }

    /// Another server tells how many subscriptions a channel has.
    pub fn counted(&self, count: &PusherCount) {
        if let Some(app) = self.app_of_id(&count.app) {
            app.tell(&count.channel, count.version, count.count);
        }
    }

    /// Serves a socket until it closes. One that is refused is told why: clients read it from the error.
    pub fn open(
        self: &Arc<PusherServer>,
        app: Result<Arc<Occupancy>, PusherError>,
        address: Option<AddressGroup>,
        socket: GatewaySocket,
    ) {
        let server = self.clone();
        tokio::spawn(async move {
            match app {
                Err(error) => connection::refuse(socket, &error).await,
                Ok(app) => {
                    server.sockets.fetch_add(1, Ordering::Relaxed);
                    let _ = panics::contain(connection::serve(server.clone(), app, address, socket)).await;
                    server.sockets.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
    }
}

fn read_app(config: &PusherAppConfig) -> anyhow::Result<PusherApp> {
    let mut secrets: Vec<Box<str>> = Vec::new();
    if !config.secret_file.as_os_str().is_empty() {
        let text = std::fs::read_to_string(&config.secret_file).with_context(|| {
            format!("cannot read {}, the secret_file of app {}", config.secret_file.display(), config.id)
        })?;
        secrets.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Box::from));
    }
    let written = [&config.secret, &config.former_secret];
    secrets.extend(written.into_iter().flatten().map(|secret| Box::from(secret.expose())));
    anyhow::ensure!(!secrets.is_empty(), "the secret_file of the Pusher app {} is empty", config.id);
    Ok(PusherApp {
        id: config.id.as_str().into(),
        key: config.key.as_str().into(),
        secrets,
        client_events: config.client_events,
        user_authentication: config.user_authentication,
        subscription_count: config.subscription_count,
    })
}

impl MetricSource for PusherServer {
    fn gather(&self, all: &mut Vec<Series>) {
        let help = "Open connections of Pusher clients";
        let open = self.sockets.load(Ordering::Relaxed);
        all.push(Series::one("tavern_pusher_connections", MetricKind::Gauge, help, open));
    }
}
