//! `tavern events attempts`: the last attempts to deliver to a subscription, and why they failed. `tavern events test`: one
//! attempt now.

use super::super::options::ServerOptions;
use super::super::table::{columns, plain};
use super::super::{block_on, moment, print_line};
use std::collections::BTreeMap;
use std::process::ExitCode;
use tavern_client::DeliveryAttempt;
use tavern_domain::Time;

/// The part of a response that is shown in the table.
const SHOWN: usize = 60;

#[derive(clap::Args)]
pub struct AttemptsArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
    /// Only attempts that failed
    #[arg(long)]
    failed: bool,
    /// At most this many, the newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// Only the attempt with this number, with the request that was sent
    #[arg(long, value_name = "N", conflicts_with_all = ["failed", "limit"])]
    number: Option<u64>,
    /// JSON instead of a table, with headers and the beginning of the response
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct TestArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
    /// JSON instead of a line
    #[arg(long)]
    json: bool,
}

pub fn list(args: AttemptsArgs) -> anyhow::Result<ExitCode> {
    let AttemptsArgs { server, name, failed, limit, number, json } = args;
    if let Some(number) = number {
        let attempt = block_on(async move {
            Ok(server.api_with_key("subscriptions")?.subscriptions().attempt(&name, number).await?)
        })?;
        print_line(&if json { serde_json::to_string(&attempt)? } else { exchange(&attempt) })?;
        return Ok(ExitCode::SUCCESS);
    }
    let attempts = block_on(async move {
        Ok(server.api_with_key("subscriptions")?.subscriptions().attempts(&name, failed, limit).await?)
    })?;
    let text = if json { serde_json::to_string(&attempts)? } else { table(&attempts, failed) };
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Succeeds if the endpoint accepted the test event.
pub fn test(args: TestArgs) -> anyhow::Result<ExitCode> {
    let TestArgs { server, name, json } = args;
    let attempt =
        block_on(
            async move { Ok(server.api_with_key("subscriptions")?.subscriptions().test(&name).await?) },
        )?;
    let delivered = attempt.outcome == "delivered";
    match json {
        true => print_line(&serde_json::to_string(&attempt)?)?,
        false => {
            print_line(&format!(
                "{} in {} ms: {}",
                plain(&attempt.url),
                attempt.duration_ms,
                result(&attempt)
            ))?;
            if !attempt.body.is_empty() {
                print_line(&plain(&attempt.body))?;
            }
        }
    }
    Ok(if delivered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn result(attempt: &DeliveryAttempt) -> String {
    match (&attempt.error, attempt.status) {
        (Some(error), _) => plain(error),
        (None, Some(status)) => format!("{} {}", plain(&attempt.outcome), status),
        (None, None) => plain(&attempt.outcome),
    }
}

/// The request and the response of one attempt.
fn exchange(attempt: &DeliveryAttempt) -> String {
    let head = |headers: &BTreeMap<String, String>| -> String {
        headers.iter().map(|(name, value)| format!("{name}: {}\n", plain(value))).collect()
    };
    let DeliveryAttempt { request, number, url, duration_ms, .. } = attempt;
    let gone = || format!("({} bytes, which are no longer in the log)", request.bytes);
    let sent = request.body.as_deref().map_or_else(gone, plain);
    format!(
        "attempt {number} at {}, {duration_ms} ms: {}\n\nPOST {}\n{}\n{sent}\n\n{}\n{}\n{}",
        moment::show(Time(attempt.at)),
        result(attempt),
        plain(url),
        head(&request.headers),
        attempt.status.map_or("no response".to_owned(), |status| status.to_string()),
        head(&attempt.headers),
        plain(&attempt.body),
    )
    .trim_end()
    .to_owned()
}

fn table(attempts: &[DeliveryAttempt], failed: bool) -> String {
    if attempts.is_empty() {
        return if failed { "no failed attempts" } else { "no attempts yet" }.to_owned();
    }
    let head = ["NUMBER", "TIME", "BATCH", "SEQS", "MS", "RESULT", "URL", "RESPONSE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for attempt in attempts {
        let body: String = plain(&attempt.body).chars().take(SHOWN).collect();
        rows.push(vec![
            attempt.number.to_string(),
            moment::show(Time(attempt.at)),
            attempt.batch.to_string(),
            format!("{}-{}", attempt.first_seq, attempt.last_seq),
            attempt.duration_ms.to_string(),
            result(attempt),
            plain(&attempt.url),
            body,
        ]);
    }
    columns(&rows)
}
