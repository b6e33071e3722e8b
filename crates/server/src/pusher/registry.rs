//! The apps of this server, and how many sockets they have here. Nothing is served without an app.

use super::connection;
use crate::config::PusherAppConfig;
use crate::gateway::{GatewaySocket, GatewaySources};
use crate::metrics::{MetricKind, MetricSource, Series};
use crate::supervisor::panics;
use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tavern_domain::AddressGroup;
use tavern_pusher::{PusherApp, PusherError, app_kinds};

pub struct PusherServer {
    pub sources: GatewaySources,
    apps: Vec<Arc<PusherApp>>,
    sockets: AtomicU64,
}

impl PusherServer {
    /// None: no app is configured.
    pub fn new(sources: GatewaySources) -> anyhow::Result<Option<Arc<PusherServer>>> {
        let apps = sources.config.pusher_apps.iter().map(|app| read_app(app).map(Arc::new));
        let apps: Vec<Arc<PusherApp>> = apps.collect::<Result<_, _>>()?;
        for app in &apps {
            // The configuration gives these kinds their settings under the same names.
            assert!(app_kinds(&app.id).iter().all(|kind| sources.config.kinds.contains_key(kind)));
        }
        let server = PusherServer { sources, apps, sockets: AtomicU64::new(0) };
        Ok((!server.apps.is_empty()).then(|| Arc::new(server)))
    }

    pub fn app_of_key(&self, key: &str) -> Option<Arc<PusherApp>> {
        self.apps.iter().find(|app| &*app.key == key).cloned()
    }

    pub fn app_of_id(&self, id: &str) -> Option<Arc<PusherApp>> {
        self.apps.iter().find(|app| &*app.id == id).cloned()
    }

    /// Serves a socket until it closes. One that is refused is told why: clients read it from the error.
    pub fn open(
        self: &Arc<PusherServer>,
        app: Result<Arc<PusherApp>, PusherError>,
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
    })
}

impl MetricSource for PusherServer {
    fn gather(&self, all: &mut Vec<Series>) {
        let help = "Open connections of Pusher clients";
        let open = self.sockets.load(Ordering::Relaxed);
        all.push(Series::one("tavern_pusher_connections", MetricKind::Gauge, help, open));
    }
}
