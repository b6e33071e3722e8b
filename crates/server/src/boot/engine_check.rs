//! Warns at start about settings of the servers behind store and bus that `tavern doctor` reports too, and about a data
//! folder that others may read. Nothing is refused: the operator may have reasons.

use crate::config::{Config, ServerMode};
use std::sync::Arc;
use tavern_engines::{CheckHealth, CheckResult};

pub async fn warn(config: Arc<Config>) {
    if let Some(mode) = config.shared_data_mode().filter(|_| config.mode == ServerMode::Serve) {
        let (folder, mode) = (config.data.display().to_string(), format!("{mode:o}"));
        tracing::warn!(folder, mode, "the data folder is open to other users; run chmod 700");
    }
    // Each engine waits for its server in its own way; none of them on the runtime.
    let checked = tokio::task::spawn_blocking(move || {
        let store = tavern_engines::store_facts(&config.store).map(|found| found.facts);
        let bus = tavern_engines::bus_facts(&config.bus);
        log("store", &config, store.unwrap_or_default());
        log("bus", &config, bus.unwrap_or_default());
    });
    if let Err(error) = checked.await {
        tracing::warn!(%error, "cannot check the settings of the engines");
    }
}

fn log(engine: &str, config: &Config, facts: Vec<CheckResult>) {
    for fact in facts.into_iter().filter(|fact| fact.health != CheckHealth::Good) {
        let (setting, detail) = (fact.about, fact.text);
        // On a developer's machine nothing needs to survive a crash.
        if config.mode == ServerMode::Dev {
            tracing::debug!(engine, setting, detail, "unsafe engine setting");
        } else {
            tracing::warn!(engine, setting, detail, "unsafe engine setting");
        }
    }
}
