//! `tavern doctor`: checks and measures what a server depends on. Changes nothing except one document of its own, which
//! it removes again. Every finding that is not ok says what to do.

mod bus;
mod machine;
mod store;

use super::options::ConfigOptions;
use super::table::{self, Colour, paint};
use super::{describe, print_line};
use crate::config::ServerMode;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::process::ExitCode;
use tavern_engines::{CheckHealth, CheckResult};

#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Check what `tavern dev` would use
    #[arg(long)]
    dev: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: ConfigOptions,
}

struct Finding {
    health: CheckHealth,
    subject: Cow<'static, str>,
    detail: String,
}

pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let mode = if args.dev { ServerMode::Dev } else { ServerMode::Serve };
    let loaded = args.options.load(mode, true)?;
    let mut findings = Vec::new();
    for error in &loaded.errors {
        findings.push(bad("configuration", error.to_string()));
    }
    let config = &loaded.config;
    findings.extend(config.warnings().iter().map(|warning| doubtful("configuration", warning.as_str())));
    if loaded.errors.is_empty() {
        findings.push(ok("configuration", format!("valid, node {}", config.node)));
    }
    machine::tokens(config, &mut findings);
    let nodes = store::check(config, &mut findings);
    bus::check(config, nodes.as_deref(), &mut findings);
    machine::permissions(config, &mut findings);
    machine::disk(&config.data, &mut findings);
    machine::descriptors(config, &mut findings);
    // Without a valid configuration the addresses are guesses.
    if loaded.errors.is_empty() {
        machine::ports(config, &mut findings);
    }
    machine::tls(config, &mut findings);
    machine::exposure(config, &mut findings);
    let healthy = findings.iter().all(|finding| finding.health != CheckHealth::Bad);
    if args.json {
        print_json(&findings, healthy)?
    } else {
        print_table(&findings)?
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn label(health: CheckHealth) -> &'static str {
    match health {
        CheckHealth::Good => "ok",
        CheckHealth::Warning => "warn",
        CheckHealth::Bad => "fail",
    }
}

fn print_table(findings: &[Finding]) -> anyhow::Result<()> {
    let colour = table::wants_colour();
    let row = |finding: &Finding| {
        let shade = match finding.health {
            CheckHealth::Good => Colour::Green,
            CheckHealth::Warning => Colour::Yellow,
            CheckHealth::Bad => Colour::Red,
        };
        let label = paint(label(finding.health), shade, colour);
        vec![label, finding.subject.to_string(), table::plain(&finding.detail)]
    };
    let rows: Vec<Vec<String>> = findings.iter().map(row).collect();
    print_line(table::columns(&rows).trim_end())
}

fn print_json(findings: &[Finding], healthy: bool) -> anyhow::Result<()> {
    let value = |finding: &Finding| json!({"health": label(finding.health), "subject": finding.subject, "detail": finding.detail});
    let findings: Vec<Value> = findings.iter().map(value).collect();
    print_line(&json!({"healthy": healthy, "findings": findings}).to_string())
}

fn ok(subject: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Finding {
    Finding { health: CheckHealth::Good, subject: subject.into(), detail: detail.into() }
}

fn doubtful(subject: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Finding {
    Finding { health: CheckHealth::Warning, subject: subject.into(), detail: detail.into() }
}

fn bad(subject: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Finding {
    Finding { health: CheckHealth::Bad, subject: subject.into(), detail: detail.into() }
}

/// What an engine reports about its server.
fn from_engine(of: &str, fact: CheckResult) -> Finding {
    Finding { health: fact.health, subject: format!("{of} {}", fact.about).into(), detail: fact.text }
}

/// Why an engine cannot be used, and what to do about it. `key` is its configuration key.
fn failure(key: &'static str, error: impl Into<anyhow::Error>) -> Finding {
    let text = describe(&error.into());
    let lower = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let advice = if has(&[
        "password",
        "wrongpass",
        "noauth",
        "authorization violation",
        "role \"",
        "authentication",
    ]) {
        format!("the server refuses the login: check the user and password in `{key}`")
    } else if has(&["noperm", "permission"]) {
        "the login lacks a permission: see docs/deploy/security.md for the required ones".to_owned()
    } else if has(&["certificate", "tls", "ssl"]) {
        format!("check the certificate, and the TLS options in `{key}`")
    } else if has(&[
        "refused",
        "connecting to server",
        "timed out",
        "in time",
        "unreachable",
        "lookup",
        "not known",
    ]) {
        format!(
            "no answer: is the server running, are host and port in `{key}` right, does a firewall block it?"
        )
    } else if has(&["schema version"]) {
        // The error itself says what to do.
        return bad(key, text);
    } else {
        format!("check `{key}`")
    };
    bad(key, format!("{text}; {advice}"))
}
