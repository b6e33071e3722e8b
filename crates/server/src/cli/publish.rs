//! `tavern publish`: publishes one message to a channel of a server (as a user or with an API key) or of a folder.

use super::options::{FolderOptions, ServerOptions};
use super::{block_on, folder, print_line};
use anyhow::{Context, bail};
use serde_json::value::{RawValue, to_raw_value};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use tavern_client::Auth;

#[derive(clap::Args)]
pub struct PublishArgs {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    folder: FolderOptions,
    /// The channel, such as game#1
    channel: OsString,
    /// JSON, or any text; a server gets text as a JSON string, a folder gets it unchanged. With - it is read from
    /// stdin, without a final newline
    payload: OsString,
    /// Publish the payload as text, even if it is JSON or looks like it
    #[arg(long, conflicts_with = "data")]
    text: bool,
}

/// The largest message that a server can be configured for.
const PAYLOAD_BYTES: usize = 64 << 20;

pub fn run(args: PublishArgs) -> anyhow::Result<ExitCode> {
    let receivers = match &args.folder.data {
        Some(data) => {
            let payload = payload(&args.payload, tavern_local::MESSAGE_BYTES)?;
            folder::publish(data, args.channel.as_bytes(), &payload)?
        }
        None => block_on(to_server(args))?,
    };
    print_line(&receivers.to_string())?;
    Ok(ExitCode::SUCCESS)
}

async fn to_server(args: PublishArgs) -> anyhow::Result<u64> {
    let channel = args.channel.to_str().context("the channel is not UTF-8 text")?;
    let payload = payload(&args.payload, PAYLOAD_BYTES)?;
    let payload = std::str::from_utf8(&payload).context("the payload is not UTF-8 text")?;
    let data = if args.text { to_raw_value(payload)? } else { as_json(payload)? };
    if let Auth::Key(_) = args.server.auth() {
        return Ok(args.server.api()?.channels().publish(channel, data).await?);
    }
    let client = args.server.client()?.connect().await?;
    let receivers = client.channel(channel).publish(data).await?;
    client.close().await;
    Ok(receivers)
}

/// The payload from the argument or from stdin.
fn payload(given: &OsStr, max: usize) -> anyhow::Result<Vec<u8>> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    // Room for the newline, and one more byte to detect a payload that is too large.
    std::io::stdin().take(max as u64 + 2).read_to_end(&mut bytes).context("cannot read stdin")?;
    // The newline that most tools add at the end is not part of the payload.
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.len() > max {
        bail!("the payload is larger than {} MiB", max >> 20);
    }
    Ok(bytes)
}

/// JSON stays as it is, byte for byte; any other text becomes a JSON string. Text that begins like JSON is refused: it was
/// meant to be JSON, and subscribers would get a string.
fn as_json(text: &str) -> anyhow::Result<Box<RawValue>> {
    match serde_json::from_str(text) {
        Ok(json) => Ok(json),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => {
            bail!(
                "the payload begins like JSON and is not: {error}; correct it, or use --text to send it as text"
            )
        }
        Err(_) => Ok(to_raw_value(text)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_text_becomes_a_json_string() {
        for (text, json) in [
            (r#"{"a": 1.50}"#, r#"{"a": 1.50}"#),
            ("12345678901234567890123", "12345678901234567890123"),
            ("hello", r#""hello""#),
            ("say \"hi\"\n", r#""say \"hi\"\n""#),
            ("", r#""""#),
            ("null", "null"),
            ("12 apples", r#""12 apples""#),
        ] {
            assert_eq!(as_json(text).unwrap().get(), json, "{text}");
        }
    }

    #[test]
    fn broken_json_is_refused() {
        for text in ["{broken", r#"{"a": 1"#, " [1,", r#""half"#, "{'a': 1}"] {
            let refused = as_json(text).unwrap_err().to_string();
            assert!(refused.contains("--text"), "{text}: {refused}");
        }
    }
}
