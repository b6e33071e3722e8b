//! `tavern events` as a process.

use bytes::Bytes;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use tavern::webhook::{
    Policy, SenderSettings, SigningKeys, SigningSecret, WebhookAnswer, WebhookRequest, WebhookSender,
    WebhookTarget, sign,
};
use tavern_domain::delivery::{DeliveryOutcome, EndpointReply};

const BODY: &str = r#"{"subscription":"deploys","first_seq":1,"last_seq":2,"events":[
    {"seq":1,"id":"e1","topic":"builds","type":"create","url":null,"time":1,"data":{"a":1}},
    {"seq":2,"id":"e2","topic":"builds","type":"delete","url":null,"time":1,"data":null}]}"#;

struct Receiver {
    child: Child,
    url: String,
}

impl Receiver {
    fn start(args: &[&str]) -> Receiver {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
        command.args(["events", "receive", "--port", "0"]).args(args).env_remove("WEBHOOK_SECRET");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").expect(&line).to_owned();
        Receiver { child, url }
    }

    /// Posts to it, signed with this secret a while ago.
    fn post(&self, secret: &SigningSecret, age_s: u64) -> WebhookAnswer {
        let policy = Policy { allow_http: true, allow_private: true, ..Policy::default() };
        let target = WebhookTarget::parse(&self.url, &policy).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let headers = sign(&SigningKeys::from(secret.clone()), "b_7", now - age_s, BODY.as_bytes()).to_vec();
        let post = WebhookRequest { target, headers, body: Bytes::from_static(BODY.as_bytes()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sender = WebhookSender::new(SenderSettings { policy, ..SenderSettings::default() }).unwrap();
            sender.post(&post).await
        })
    }

    /// Its lines, when it has ended by itself.
    fn end(mut self) -> Vec<String> {
        assert!(self.child.wait().unwrap().success());
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn receiver_prints_batches_and_checks_signatures() {
    let secret = SigningSecret::generate();
    let receiver = Receiver::start(&["--secret", &secret.expose(), "--count", "3"]);
    assert_eq!(receiver.post(&secret, 0).reply.outcome, DeliveryOutcome::Delivered);
    let wrong = receiver.post(&SigningSecret::generate(), 0);
    assert_eq!((wrong.reply.outcome, wrong.status), (DeliveryOutcome::Refused, Some(401)));
    assert_eq!(receiver.post(&secret, 400).status, Some(401));
    let lines = receiver.end();
    assert_eq!(lines.len(), 9, "{lines:#?}");
    for (at, parts) in [
        (0, &["b_7", "deploys", "seq 1-2", "2 events", "signature ok", "-> 200"][..]),
        (1, &["1  builds  create  e1", r#"{"a":1}"#]),
        (2, &["2  builds  delete  e2"]),
        (3, &["BAD SIGNATURE: no signature matches the secret", "-> 401"]),
        (6, &["BAD SIGNATURE: the message is 40", "s old", "-> 401"]),
    ] {
        for part in parts {
            assert!(lines[at].contains(part), "{part} in {}", lines[at]);
        }
    }
}

#[test]
fn receiver_answers_as_configured() {
    let secret = SigningSecret::generate();
    for (args, expected) in [
        (&["--status", "410"][..], DeliveryOutcome::Gone.into()),
        (&["--status", "503"], EndpointReply::throttled(None)),
        (&["--fail", "e2", "e9"], EndpointReply::partly(vec!["e2".into()])),
        (&["--fail", "e9,e8"], DeliveryOutcome::Delivered.into()),
        (&["--status", "500", "--fail", "e1"], DeliveryOutcome::Failed.into()),
    ] {
        let receiver = Receiver::start(&[args, &["--count", "1"]].concat());
        assert_eq!(receiver.post(&secret, 0).reply, expected, "{args:?}");
        assert!(
            !receiver.end()[0].contains("signature"),
            "without a secret nothing is printed about signatures"
        );
    }
    let slow = Receiver::start(&["--delay-ms", "150", "--count", "1"]);
    assert!(slow.post(&secret, 0).took.as_millis() >= 150);
}

#[test]
fn invalid_secret_is_refused_without_being_shown() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
    let output = command.args(["events", "receive", "--port", "0", "--secret", "whsec_c2hvcnQ="]).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "error: a webhook secret must have 24 to 64 bytes, this one has 5\n");
}
