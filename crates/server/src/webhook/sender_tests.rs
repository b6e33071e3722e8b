//! The sender against endpoints that hang, send garbage and close early.

use super::super::endpoint::{Authority, EndpointStep, TestEndpoint, ok, status};
use super::super::resolve::ResolvedAddresses;
use super::*;
use crate::config::Cidr;
use std::net::IpAddr;
use std::sync::Mutex;
use tavern_domain::delivery::EndpointReply;

/// Answers in turn; the last answer stays.
struct Script(Mutex<Vec<Vec<IpAddr>>>);

impl Script {
    fn new(answers: &[&[&str]]) -> Arc<Script> {
        let parsed = |answer: &&[&str]| answer.iter().map(|text| text.parse().expect("an address")).collect();
        Arc::new(Script(Mutex::new(answers.iter().rev().map(parsed).collect())))
    }
}

impl Resolver for Script {
    fn look_up<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
        let mut answers = self.0.lock().expect("not poisoned");
        let answer = if answers.len() > 1 { answers.pop() } else { answers.last().cloned() };
        Box::pin(async move { Ok(answer.unwrap_or_default()) })
    }
}

fn open() -> SenderSettings {
    SenderSettings {
        policy: Policy { allow_http: true, allow_private: true, ..Policy::default() },
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(10),
        ..SenderSettings::default()
    }
}

/// Short timeouts, for endpoints that use all of them.
fn short_timeouts() -> SenderSettings {
    SenderSettings {
        connect_timeout: Duration::from_millis(200),
        request_timeout: Duration::from_millis(400),
        ..open()
    }
}

fn sender(settings: SenderSettings) -> WebhookSender {
    WebhookSender::new(settings).expect("a sender")
}

fn post(target: WebhookTarget) -> WebhookRequest {
    WebhookRequest { target, headers: Vec::new(), body: Bytes::from_static(b"{\"events\":[]}") }
}

async fn plain(
    script: impl Fn(usize, usize) -> Vec<EndpointStep> + Send + Sync + 'static,
) -> (TestEndpoint, WebhookRequest) {
    let endpoint = TestEndpoint::scripted("127.0.0.1", script).await;
    let post = post(endpoint.target("http", "127.0.0.1"));
    (endpoint, post)
}

#[tokio::test]
async fn posts_share_a_connection() {
    let (endpoint, post) = plain(|_, _| ok("{}")).await;
    let sender = sender(open());
    for _ in 0..100 {
        let answer = sender.post(&post).await;
        assert_eq!(
            (answer.reply.outcome, answer.status),
            (DeliveryOutcome::Delivered, Some(200)),
            "{}",
            answer.detail
        );
    }
    assert_eq!((endpoint.connections(), endpoint.requests()), (1, 100));
}

#[tokio::test]
async fn posts_share_one_http2_connection() {
    let authority = Authority::new();
    let endpoint = TestEndpoint::sealed(&authority, &["h2", "http/1.1"], usize::MAX).await;
    let sender = Arc::new(sender(SenderSettings {
        authorities: vec![authority.certificate()],
        resolver: Script::new(&[&["127.0.0.1"]]),
        ..open()
    }));
    let by_name = post(endpoint.target("https", "hook.example"));
    let first = sender.post(&by_name).await;
    assert_eq!(first.reply.outcome, DeliveryOutcome::Delivered, "{}", first.detail);
    let mut posting = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (sender, post) = (sender.clone(), by_name.clone());
        posting.spawn(async move { sender.post(&post).await.reply.outcome });
    }
    assert!(posting.join_all().await.into_iter().all(|outcome| outcome == DeliveryOutcome::Delivered));
    assert_eq!((endpoint.connections(), endpoint.requests()), (1, 51));
    assert!(endpoint.seen().iter().all(|version| version == "h2"));
}

#[tokio::test]
async fn http1_is_used_over_tls_if_the_endpoint_has_no_http2() {
    let authority = Authority::new();
    let endpoint = TestEndpoint::sealed(&authority, &["http/1.1"], usize::MAX).await;
    let sender = sender(SenderSettings { authorities: vec![authority.certificate()], ..open() });
    let post = post(endpoint.target("https", "127.0.0.1"));
    for _ in 0..5 {
        let answer = sender.post(&post).await;
        assert_eq!(answer.reply.outcome, DeliveryOutcome::Delivered, "{}", answer.detail);
    }
    assert_eq!((endpoint.connections(), endpoint.seen()), (1, vec!["h1".to_owned(); 5]));
}

#[tokio::test]
async fn certificates_must_be_trusted_and_match_the_name() {
    let authority = Authority::new();
    let endpoint = TestEndpoint::sealed(&authority, &["h2"], usize::MAX).await;
    let resolver = || Script::new(&[&["127.0.0.1"]]);
    let mismatched = sender(SenderSettings { resolver: resolver(), ..open() });
    let answer = mismatched.post(&post(endpoint.target("https", "hook.example"))).await;
    assert_eq!((answer.reply.outcome, answer.status), (DeliveryOutcome::Failed, None));
    assert!(answer.detail == "TLS: certificate not trusted: unknown issuer", "{}", answer.detail);
    let settings =
        SenderSettings { authorities: vec![authority.certificate()], resolver: resolver(), ..open() };
    let answer = sender(settings).post(&post(endpoint.target("https", "other.example"))).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Failed);
    assert!(answer.detail == "TLS: certificate not valid for this host name", "{}", answer.detail);
    assert_eq!(endpoint.requests(), 0);
}

#[tokio::test]
async fn statuses_are_returned() {
    for (line, expected) in [
        ("204 No Content", DeliveryOutcome::Delivered.into()),
        ("410 Gone", DeliveryOutcome::Gone.into()),
        ("413 Payload Too Large", DeliveryOutcome::TooLarge.into()),
        ("429 Slow\r\nretry-after: 7", EndpointReply::throttled(Some(7_000))),
        (
            "503 Later\r\nretry-after: Fri, 31 Dec 9999 23:59:59 GMT",
            EndpointReply::throttled(Some(3_600_000)),
        ),
        ("404 Not Found", DeliveryOutcome::Refused.into()),
        ("500 Oh", DeliveryOutcome::Failed.into()),
        ("302 Found\r\nlocation: /other", DeliveryOutcome::Failed.into()),
        ("103 Early\r\n\r\nHTTP/1.1 202 Accepted", DeliveryOutcome::Delivered.into()),
    ] {
        let (endpoint, post) = plain(move |_, _| status(line)).await;
        let answer = sender(open()).post(&post).await;
        assert_eq!(answer.reply, expected, "{line}: {}", answer.detail);
        assert_eq!(endpoint.requests(), 1, "{line}");
    }
    let (_endpoint, post) = plain(|_, _| ok(r#"{"failed":["e2","e3"]}"#)).await;
    let answer = sender(open()).post(&post).await;
    assert_eq!(answer.reply, EndpointReply::partly(vec!["e2".into(), "e3".into()]));
    assert_eq!(answer.detail, "200 OK, 2 events failed");
}

#[tokio::test]
async fn hanging_endpoint_times_out() {
    let (endpoint, post) = plain(|_, _| vec![EndpointStep::Hang]).await;
    let answer = sender(short_timeouts()).post(&post).await;
    assert_eq!((answer.reply.outcome, answer.status), (DeliveryOutcome::Failed, None));
    assert_eq!(answer.detail, "timeout after 400 ms");
    assert!(answer.took < Duration::from_secs(2), "{:?}", answer.took);
    // The endpoint sees the connection close.
    for _ in 0..200 {
        if endpoint.counts.ended.load(std::sync::atomic::Ordering::SeqCst) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the connection is still there");
}

#[tokio::test]
async fn hanging_handshake_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let text = format!("https://{}/", listener.local_addr().expect("an address"));
    let target = WebhookTarget::parse(&text, &open().policy).expect("a target");
    let settings = SenderSettings { request_timeout: Duration::from_secs(10), ..short_timeouts() };
    let answer = sender(settings).post(&post(target)).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Failed);
    assert!(answer.detail.contains("handshake"), "{}", answer.detail);
}

#[tokio::test]
async fn slow_body_times_out() {
    let began = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{body}");
    for (body, expected) in [
        ("fine", DeliveryOutcome::Delivered),
        ("", DeliveryOutcome::Failed),
        (r#"{"failed":["e1""#, DeliveryOutcome::Failed),
    ] {
        let said = began(body);
        let (_endpoint, post) =
            plain(move |_, _| vec![EndpointStep::Say(said.clone()), EndpointStep::Hang]).await;
        let answer = sender(short_timeouts()).post(&post).await;
        assert_eq!((answer.reply.outcome, answer.status), (expected, Some(200)), "{body}: {}", answer.detail);
        assert!(answer.took < Duration::from_secs(2), "{:?}", answer.took);
    }
    // A body in pieces is not a slow one.
    let pieces = |text: &str| EndpointStep::Say(text.to_owned());
    let script = vec![
        pieces("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        pieces("a\r\n{\"failed\":\r\n"),
        EndpointStep::Wait(Duration::from_millis(20)),
        pieces("7\r\n[\"e1\"]}\r\n0\r\n\r\n"),
    ];
    let (_endpoint, post) = plain(move |_, _| script.clone()).await;
    let answer = sender(open()).post(&post).await;
    assert_eq!(answer.reply, EndpointReply::partly(vec!["e1".into()]), "{}", answer.detail);
}

#[tokio::test]
async fn large_answers_are_truncated() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let (_endpoint, post) = plain(move |_, _| {
        vec![EndpointStep::Say(head.clone()), EndpointStep::Repeat("4\r\nword\r\n", usize::MAX)]
    })
    .await;
    let answer = sender(open()).post(&post).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Delivered, "{}", answer.detail);
    assert!(answer.took < Duration::from_secs(5), "{:?}", answer.took);
}

#[tokio::test]
async fn oversized_head_is_a_failure() {
    for (field, times) in [("x-a: 0123456789abcdef\r\n", usize::MAX), ("a: b\r\n", 500)] {
        let script = vec![
            EndpointStep::Say("HTTP/1.1 200 OK\r\n".into()),
            EndpointStep::Repeat(field, times),
            EndpointStep::Say("content-length: 0\r\n\r\n".into()),
        ];
        let (endpoint, post) = plain(move |_, _| script.clone()).await;
        let answer = sender(open()).post(&post).await;
        assert_eq!(
            (answer.reply.outcome, answer.status),
            (DeliveryOutcome::Failed, None),
            "{}",
            answer.detail
        );
        assert_eq!(endpoint.requests(), 1);
    }
}

#[tokio::test]
async fn non_http_answer_is_a_failure_without_retry() {
    let (endpoint, post) =
        plain(|_, _| vec![EndpointStep::Say("SSH-2.0-x\r\n\r\n".into()), EndpointStep::Close]).await;
    let sender = sender(open());
    let answer = sender.post(&post).await;
    assert_eq!((answer.reply.outcome, answer.status), (DeliveryOutcome::Failed, None), "{}", answer.detail);
    assert_eq!(endpoint.requests(), 1);
    let (endpoint, post) = plain(|_, _| vec![EndpointStep::Close]).await;
    let answer = sender.post(&post).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Failed, "{}", answer.detail);
    assert_eq!(endpoint.requests(), 1, "a new connection is not retried");
}

#[tokio::test]
async fn posts_on_stale_connections_are_retried() {
    // Each connection answers once, then accepts one more post without an answer.
    let (endpoint, post) =
        plain(|_, number| if number == 0 { ok("") } else { vec![EndpointStep::Close] }).await;
    let sender = sender(open());
    for _ in 0..20 {
        let answer = sender.post(&post).await;
        assert_eq!(answer.reply.outcome, DeliveryOutcome::Delivered, "{}", answer.detail);
    }
    assert_eq!((endpoint.connections(), endpoint.requests()), (20, 39), "each was lost once and sent again");
    // Each connection closes right after its first answer, without `connection: close`.
    let (_endpoint, post) = plain(|_, _| [ok(""), vec![EndpointStep::Close]].concat()).await;
    for _ in 0..20 {
        let answer = sender.post(&post).await;
        assert_eq!(answer.reply.outcome, DeliveryOutcome::Delivered, "{}", answer.detail);
    }
}

#[tokio::test]
async fn posts_after_goaway_are_retried() {
    let authority = Authority::new();
    let endpoint = TestEndpoint::sealed(&authority, &["h2"], 3).await;
    let sender = Arc::new(sender(SenderSettings { authorities: vec![authority.certificate()], ..open() }));
    let post = post(endpoint.target("https", "127.0.0.1"));
    for _ in 0..10 {
        let mut posting = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let (sender, post) = (sender.clone(), post.clone());
            posting.spawn(async move { sender.post(&post).await });
        }
        for answer in posting.join_all().await {
            assert_eq!(answer.reply.outcome, DeliveryOutcome::Delivered, "{}", answer.detail);
        }
    }
    assert!(endpoint.connections() > 5, "{}", endpoint.connections());
}

#[tokio::test]
async fn forbidden_addresses_are_not_dialled() {
    let (endpoint, open_post) = plain(|_, _| ok("")).await;
    let closed = || Policy { allow_http: true, ..Policy::default() };
    let answer = sender(SenderSettings { policy: closed(), ..open() }).post(&open_post).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Failed);
    assert_eq!(answer.detail, "127.0.0.1 is not allowed: it is this machine");
    for addresses in [&["127.0.0.1"][..], &["10.0.0.1", "::1"], &["::ffff:127.0.0.1"], &[]] {
        let settings = SenderSettings { policy: closed(), resolver: Script::new(&[addresses]), ..open() };
        let answer = sender(settings).post(&post(endpoint.target("http", "hook.example"))).await;
        assert_eq!(answer.reply.outcome, DeliveryOutcome::Failed);
        let expected = if addresses.is_empty() { "no address" } else { "has no allowed address" };
        assert!(answer.detail.contains(expected), "{}", answer.detail);
    }
    let plain_forbidden = SenderSettings { policy: Policy::default(), ..open() };
    let answer = sender(plain_forbidden).post(&open_post).await;
    assert_eq!(answer.detail, "http:// is not allowed");
    assert_eq!(endpoint.connections(), 0);
}

/// Allows one loopback address, in place of a public one.
fn as_if_public(address: &str, resolver: Arc<Script>) -> SenderSettings {
    let allowed = vec![Cidr::parse(address).expect("a range")];
    SenderSettings { policy: Policy { allow_http: true, allowed, ..Policy::default() }, resolver, ..open() }
}

#[tokio::test]
async fn rebound_name_is_refused() {
    let close_after = |_, _| [ok(""), vec![EndpointStep::Close]].concat();
    let endpoint = TestEndpoint::scripted("0.0.0.0", close_after).await;
    let resolver = Script::new(&[&["127.0.0.2"], &["127.0.0.2"], &["127.0.0.1"]]);
    let sender = sender(as_if_public("127.0.0.2", resolver));
    let post = post(endpoint.target("http", "hook.example"));
    for expected in [
        DeliveryOutcome::Delivered,
        DeliveryOutcome::Delivered,
        DeliveryOutcome::Failed,
        DeliveryOutcome::Failed,
    ] {
        let answer = sender.post(&post).await;
        assert_eq!(answer.reply.outcome, expected, "{}", answer.detail);
    }
    assert_eq!(endpoint.connections(), 2);
}

#[tokio::test]
async fn first_allowed_address_that_answers_is_used() {
    let endpoint = TestEndpoint::scripted("127.0.0.2", |_, _| ok("")).await;
    let post = post(endpoint.target("http", "hook.example"));
    // The second refuses connections, and the first and last would be forbidden.
    let names = Script::new(&[&["127.0.0.1", "127.0.0.3", "127.0.0.2", "10.0.0.1"]]);
    let answer = sender(as_if_public("127.0.0.2/31", names)).post(&post).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Delivered, "{}", answer.detail);
    let names = Script::new(&[&["127.0.0.3"]]);
    let answer = sender(as_if_public("127.0.0.2/31", names)).post(&post).await;
    assert_eq!(answer.reply.outcome, DeliveryOutcome::Failed);
    assert!(answer.detail == "connection refused", "{}", answer.detail);
}

#[tokio::test]
async fn framing_headers_are_not_sent() {
    let (endpoint, mut post) = plain(|_, _| ok("")).await;
    let field = |name: &'static str, value: &'static str| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    post.headers = vec![
        field("tavern-attempt", "2"),
        field("content-length", "1"),
        field("transfer-encoding", "chunked"),
        field("host", "other"),
        field("connection", "close"),
        field("content-type", "application/vnd.x+json"),
    ];
    let sender = sender(open());
    assert_eq!(sender.post(&post).await.reply.outcome, DeliveryOutcome::Delivered);
    assert_eq!(sender.post(&post).await.reply.outcome, DeliveryOutcome::Delivered);
    assert_eq!((endpoint.connections(), endpoint.requests()), (1, 2));
    let head = endpoint.seen()[1].to_ascii_lowercase();
    let mut lines: Vec<&str> = head.lines().filter(|line| !line.is_empty()).collect();
    lines[1..].sort_unstable();
    let host = format!("host: 127.0.0.1:{}", endpoint.address.port());
    let agent = format!("user-agent: tavern/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        lines,
        [
            "post /hook?a=1 http/1.1",
            "content-length: 13",
            "content-type: application/vnd.x+json",
            &host,
            "tavern-attempt: 2",
            &agent,
        ]
    );
}

/// CPU time of a post on the sending side. The endpoint runs on another thread.
/// `cargo test --release -p tavern --lib posts_keep_few_connections -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn posts_keep_few_connections() {
    const POSTS: usize = 2_000;
    const AT_ONCE: usize = 4;
    let elsewhere = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let elsewhere = elsewhere.expect("a runtime");
    let endpoint = || elsewhere.block_on(plain(|_, _| ok("{}")));
    let endpoints: Vec<(TestEndpoint, WebhookRequest)> = (0..10).map(|_| endpoint()).collect();
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let sender = Arc::new(sender(open()));
    let busy = cpu_time();
    here.block_on(async {
        let mut posting = tokio::task::JoinSet::new();
        for (_, post) in endpoints.iter().cycle().take(10 * AT_ONCE) {
            let (sender, post) = (sender.clone(), post.clone());
            posting.spawn(async move {
                for _ in 0..POSTS / AT_ONCE {
                    assert_eq!(sender.post(&post).await.reply.outcome, DeliveryOutcome::Delivered);
                }
            });
        }
        posting.join_all().await
    });
    println!("{:?} of CPU a post", (cpu_time() - busy) / (10 * POSTS as u32));
    let connections: Vec<usize> = endpoints.iter().map(|(endpoint, _)| endpoint.connections()).collect();
    assert!(connections.iter().all(|count| *count <= 2 * AT_ONCE), "{connections:?}");
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|used| used.parse().ok()).expect("nanoseconds"))
}
