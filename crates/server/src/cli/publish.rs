//! `tavern publish`: one message to one channel, as a client or as a service with an API key.

use super::client::Client;
use super::options::ServerOptions;
use super::print_line;
use super::stream::{percent_encode, request};
use crate::auth::Credential;
use anyhow::{Context, bail};
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Read;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The channel, such as game#1
    channel: String,
    /// JSON, or any text, which is sent as a JSON string; - reads it from stdin
    payload: String,
}

/// The largest message that a server can be configured for.
const PAYLOAD_BYTES: u64 = 64 << 20;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = payload(&args.payload)?;
    let receivers = match args.server.credential() {
        Credential::Key(key) => as_service(&args.server, &key, &args.channel, &data)?,
        Credential::Token(_) | Credential::User(_) => as_client(&args.server, &args.channel, &data)?,
    };
    print_line(&receivers.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn as_client(server: &ServerOptions, channel: &str, data: &str) -> anyhow::Result<u64> {
    let mut client = Client::connect(server)?;
    client.hello(None)?;
    let id = client.take_id();
    // Written by hand: the data must arrive as it was given, byte for byte.
    let channel = Value::from(channel);
    client.send(&format!(r#"{{"id":{id},"op":"publish","channel":{channel},"data":{data}}}"#))?;
    let ok = client.answer(Some(id))?;
    client.bye();
    ok["receivers"].as_u64().context("the server did not say how many received it")
}

fn as_service(server: &ServerOptions, key: &str, channel: &str, data: &str) -> anyhow::Result<u64> {
    let path = format!("/v1/channels/{}/messages", percent_encode(channel));
    let (status, body) =
        request(server, "POST", &path, Some(key), format!(r#"{{"data":{data}}}"#).as_bytes())?;
    let answer: Value = serde_json::from_slice(&body)
        .with_context(|| format!("the server answered {status} without JSON; is this a Tavern?"))?;
    if let Some(error) = answer.get("error") {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        bail!("{}: {}", text("code"), text("message"));
    }
    let receivers = answer.get("ok").unwrap_or(&answer).get("receivers").and_then(Value::as_u64);
    receivers.context("the server did not say how many received it")
}

/// The payload as JSON text.
fn payload(given: &str) -> anyhow::Result<String> {
    if given != "-" {
        return Ok(as_json(given));
    }
    let mut text = String::new();
    std::io::stdin().take(PAYLOAD_BYTES + 1).read_to_string(&mut text).context("stdin is not UTF-8 text")?;
    if text.len() as u64 > PAYLOAD_BYTES {
        bail!("the payload is larger than 64 MiB");
    }
    // The newline that every tool puts at the end is not part of what was meant.
    Ok(as_json(text.strip_suffix('\n').unwrap_or(&text)))
}

fn as_json(text: &str) -> String {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(json) => json.get().to_owned(),
        Err(_) => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_json_is_a_string() {
        for (text, json) in [
            (r#"{"a": 1.50}"#, r#"{"a": 1.50}"#),
            ("12345678901234567890123", "12345678901234567890123"),
            ("hello", r#""hello""#),
            ("say \"hi\"\n", r#""say \"hi\"\n""#),
            ("", r#""""#),
            ("null", "null"),
            ("{broken", r#""{broken""#),
        ] {
            assert_eq!(as_json(text), json, "{text}");
        }
    }
}
