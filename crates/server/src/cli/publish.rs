//! `tavern publish`: one message to one channel: of a server, as a client or as a service with an API key, or of a folder.

use super::client::Client;
use super::options::{FolderOptions, ServerOptions};
use super::stream::{ask_api, percent_encode};
use super::{folder, print_line};
use crate::auth::Credential;
use anyhow::{Context, bail};
use serde_json::Value;
use serde_json::value::RawValue;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    folder: FolderOptions,
    /// The channel, such as game#1
    channel: OsString,
    /// JSON, or any text, which is sent to a server as a JSON string and to a folder as it is; - reads it from stdin,
    /// without one newline at its end
    payload: OsString,
}

/// The largest message that a server can be configured for.
const PAYLOAD_BYTES: usize = 64 << 20;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let receivers = match &args.folder.data {
        Some(data) => {
            let payload = payload(&args.payload, tavern_local::MESSAGE_BYTES)?;
            folder::publish(data, args.channel.as_bytes(), &payload)?
        }
        None => to_server(&args)?,
    };
    print_line(&receivers.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn to_server(args: &Args) -> anyhow::Result<u64> {
    let channel = args.channel.to_str().context("the channel is not UTF-8 text")?;
    let payload = payload(&args.payload, PAYLOAD_BYTES)?;
    let data = as_json(std::str::from_utf8(&payload).context("the payload is not UTF-8 text")?);
    match args.server.credential() {
        Credential::Key(key) => as_service(&args.server, &key, channel, &data),
        Credential::Token(_) | Credential::User(_) => as_client(&args.server, channel, &data),
    }
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
    let answer = ask_api(server, "POST", &path, key, format!(r#"{{"data":{data}}}"#).as_bytes())?;
    let receivers = answer.get("ok").unwrap_or(&answer).get("receivers").and_then(Value::as_u64);
    receivers.context("the server did not say how many received it")
}

/// The payload as it was given, or what stdin has.
fn payload(given: &OsStr, most: usize) -> anyhow::Result<Vec<u8>> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    // Room for the newline, and one byte more to notice that it is too much.
    std::io::stdin().take(most as u64 + 2).read_to_end(&mut bytes).context("stdin cannot be read")?;
    // The newline that every tool puts at the end is not part of what was meant.
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.len() > most {
        bail!("the payload is larger than {} MiB", most >> 20);
    }
    Ok(bytes)
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
