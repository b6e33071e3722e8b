//! One WebSocket publisher and 1,000 subscribers of its channel, as fast as the server takes messages.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::publish::settings;
use crate::compare::peer::Running;
use crate::load::{Length, Load};
use crate::run::{self, Silent};
use crate::target::Protocol;

const SUBSCRIBERS: usize = 1_000;

/// Processor seconds of the server per million deliveries.
pub fn run(program: &Path, has_history: bool, seconds: f64) -> anyhow::Result<f64> {
    // The kind of the channels of a load.
    let server = Running::tavern(program, None, &settings("bench", has_history))?;
    let load = Load {
        subscribers: SUBSCRIBERS,
        length: Length::Time(Duration::from_secs_f64(seconds)),
        pid: Some(server.pid()),
        ..Load::new(server.target(Protocol::WebSocket))
    };
    let result = run::run(&load, &mut Silent)?;
    ensure!(
        result.lost == 0 && result.misordered == 0,
        "{} lost, {} misordered",
        result.lost,
        result.misordered
    );
    Ok(result.server.context("the server was not measured")?.cpu_per_million)
}
