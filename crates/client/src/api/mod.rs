//! The server API over HTTP, for services that hold an API key: publish, read presence and users, administer topics and
//! subscriptions, run party commands. It has no session and no events; for those use [`Client`](crate::Client).
//! Must hold: every request has a timeout and every answer a bound.

mod channels;
mod control;
mod keys;
mod parties;
mod subscriptions;
mod topics;
mod users;

pub use channels::{PublishRefusal, Published};
pub use control::{
    BanSummary, ClusterNumbers, ConnectionNumbers, DisconnectOptions, NodeNumbers, ReachedSessions,
    ServerStats, SessionSummary, SessionsOfUser,
};
pub use keys::{CreatedKey, KeySummary};
pub use parties::TicketResult;
pub use subscriptions::{
    DeadLetter, DeliveryAttempt, Pulled, ReplayFrom, Replayed, SentRequest, Subscription, SubscriptionPut,
    SubscriptionSettings,
};
pub use topics::{EventsPublished, NewEvent, Topic};
pub use users::{UserChannel, UserClient, UserPage, UserReport, UserSummary};

use crate::address::{ServerUrl, encode};
use crate::auth::{self, Auth, remaining};
use crate::shared::lock;
use crate::{Error, tls};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The largest answer that is read: a full batch of pulled events, with some margin.
const ANSWER_BYTES: usize = 20 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take to answer, in addition to the wait that a request asks for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Rows of one page.
const PAGE: &str = "100";

/// The server API. Clones share their connections.
///
/// ```no_run
/// # async fn example() -> Result<(), tavern_client::Error> {
/// use tavern_client::{Api, Auth};
///
/// let api = Api::new("http://127.0.0.1:7400", Auth::Key("tvk_…".into()))?;
/// let receivers = api.channels().publish("game#1", serde_json::json!({"move": "e4"})).await?;
/// let there = api.channels().presence("game#1").await?;
/// println!("{receivers} received it, {} are there", there.count);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Api {
    shared: Arc<ApiShared>,
}

/// Channels of the server API: [`Api::channels`].
#[derive(Clone, Copy)]
pub struct ApiChannels<'a> {
    api: &'a Api,
}

/// Users of the server API: [`Api::users`].
#[derive(Clone, Copy)]
pub struct ApiUsers<'a> {
    api: &'a Api,
}

/// Topics of the server API: [`Api::topics`].
#[derive(Clone, Copy)]
pub struct ApiTopics<'a> {
    api: &'a Api,
}

/// Subscriptions of the server API: [`Api::subscriptions`].
#[derive(Clone, Copy)]
pub struct ApiSubscriptions<'a> {
    api: &'a Api,
}

/// Parties of the server API: [`Api::parties`].
#[derive(Clone, Copy)]
pub struct ApiParties<'a> {
    api: &'a Api,
}

/// API keys of the server API: [`Api::keys`].
#[derive(Clone, Copy)]
pub struct ApiKeys<'a> {
    api: &'a Api,
}

struct ApiShared {
    address: ServerUrl,
    auth: Auth,
    /// The last token of a source.
    token: Mutex<Option<String>>,
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// One request.
struct ApiRequest<'a> {
    method: &'static str,
    /// Path segments below `/v1`, not encoded.
    path: &'a [&'a str],
    query: Vec<(&'a str, String)>,
    body: Option<String>,
    /// How long the server was asked to wait before it answers.
    wait: Duration,
}

impl<'a> ApiRequest<'a> {
    fn new(method: &'static str, path: &'a [&'a str]) -> ApiRequest<'a> {
        ApiRequest { method, path, query: Vec::new(), body: None, wait: Duration::ZERO }
    }

    fn body(mut self, body: &impl Serialize) -> Result<ApiRequest<'a>, Error> {
        let body = serde_json::to_string(body).map_err(Error::unsendable)?;
        self.body = Some(body);
        Ok(self)
    }

    fn query(mut self, name: &'a str, value: impl ToString) -> ApiRequest<'a> {
        self.query.push((name, value.to_string()));
        self
    }
}

impl Api {
    /// Checks the address and the credential; connects with the first request.
    pub fn new(url: &str, auth: Auth) -> Result<Api, Error> {
        Api::open(url, auth, None)
    }

    /// The same with your own TLS configuration, such as that of [`trust_pem`](crate::trust_pem).
    pub fn with_tls(url: &str, auth: Auth, tls: Arc<ClientConfig>) -> Result<Api, Error> {
        Api::open(url, auth, Some(tls))
    }

    fn open(url: &str, auth: Auth, tls: Option<Arc<ClientConfig>>) -> Result<Api, Error> {
        let address = ServerUrl::parse(url)?;
        let tls = tls::configured(tls, address.secure)?;
        auth::check(Some(&auth))?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut tls = ClientConfig::clone(&tls);
        // This client uses HTTP/1.1 only.
        tls.alpn_protocols.clear();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = HttpClient::builder(TokioExecutor::new()).build(connector);
        Ok(Api { shared: Arc::new(ApiShared { address, auth, token: Mutex::default(), http }) })
    }

    /// Channels: publish, presence, history.
    pub fn channels(&self) -> ApiChannels<'_> {
        ApiChannels { api: self }
    }

    /// Users: who they are, whom they follow, their inbox and sessions, bans.
    pub fn users(&self) -> ApiUsers<'_> {
        ApiUsers { api: self }
    }

    /// Topics: publish durable events.
    pub fn topics(&self) -> ApiTopics<'_> {
        ApiTopics { api: self }
    }

    /// Subscriptions to topics: settings, health, pulling events.
    pub fn subscriptions(&self) -> ApiSubscriptions<'_> {
        ApiSubscriptions { api: self }
    }

    /// Parties.
    pub fn parties(&self) -> ApiParties<'_> {
        ApiParties { api: self }
    }

    /// API keys. Scope `admin`.
    pub fn keys(&self) -> ApiKeys<'_> {
        ApiKeys { api: self }
    }

    /// Asks whether the server is ready. Returns its text; a server that is not ready is the error `not_ready`.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) {
    /// match api.ready().await {
    ///     Ok(text) => println!("{text}"),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<String, Error> {
        let (status, body) = self.send("GET", "/readyz", None, Duration::ZERO).await?;
        let text = String::from_utf8_lossy(&body).trim_end().to_owned();
        match status {
            200 => Ok(text),
            _ => Err(Error::NotReady(format!("answered {status}: {text}"))),
        }
    }

    async fn call<T: DeserializeOwned>(&self, request: ApiRequest<'_>) -> Result<T, Error> {
        let body = self.call_bytes(request).await?;
        serde_json::from_slice(&body).map_err(Error::unexpected)
    }

    /// All pages of a list whose rows are under `name`.
    async fn list<T: DeserializeOwned>(&self, path: &[&str], name: &str) -> Result<Vec<T>, Error> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let mut request = ApiRequest::new("GET", path).query("limit", PAGE);
            if let Some(after) = after {
                request = request.query("after", after);
            }
            let mut page: Value = self.call(request).await?;
            let page_rows: Vec<T> = serde_json::from_value(page[name].take()).map_err(Error::unexpected)?;
            rows.extend(page_rows);
            match page["next"].take() {
                Value::Null => return Ok(rows),
                Value::String(next) => after = Some(next),
                next => after = Some(next.to_string()),
            }
        }
    }

    async fn call_bytes(&self, request: ApiRequest<'_>) -> Result<Bytes, Error> {
        let path: String = request.path.iter().map(|segment| format!("/{}", encode(segment))).collect();
        let mut query = request.query;
        if let Auth::User(user) = &self.shared.auth {
            query.push(("user", user.clone()));
        }
        let target = self.shared.address.target(&format!("/v1{path}"), &query);
        let body = request.body.map(|body| ("application/json", body));
        let (status, body) = self.send(request.method, &target, body, request.wait).await?;
        checked(status, body)
    }

    /// Sends one request and reads the whole answer.
    async fn send(
        &self,
        method: &str,
        target: &str,
        body: Option<(&'static str, String)>,
        wait: Duration,
    ) -> Result<(u16, Bytes), Error> {
        let ServerUrl { secure, .. } = &self.shared.address;
        let authority = self.shared.address.authority();
        let scheme = if *secure { "https" } else { "http" };
        let mut request =
            http::Request::builder().method(method).uri(format!("{scheme}://{authority}{target}"));
        request = request.header(HOST, &authority);
        if let Some(bearer) = self.bearer().await? {
            request = request.header(AUTHORIZATION, format!("Bearer {bearer}"));
        }
        let (kind, body) = body.unwrap_or(("application/json", String::new()));
        if method != "GET" {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| Error::Invalid(error.to_string()))?;
        let asking = async {
            let answer = self.shared.http.request(request).await;
            let answer = answer.map_err(|error| unreachable(&authority, &error))?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
            let body =
                body.map_err(|error| Error::Unreachable(format!("the answer ended early: {error}")))?;
            Ok((status, body.to_bytes()))
        };
        let late = || Error::Timeout(format!("no answer from {authority} in time"));
        tokio::time::timeout(ANSWER_TIMEOUT + wait, asking).await.unwrap_or_else(|_| Err(late()))
    }

    async fn bearer(&self) -> Result<Option<String>, Error> {
        match &self.shared.auth {
            Auth::User(_) => Ok(None),
            Auth::Key(text) | Auth::Token(text) => Ok(Some(text.clone())),
            Auth::Source(source) => {
                let known = lock(&self.shared.token).clone();
                if let Some(token) = known.filter(|token| remaining(token).is_none_or(|left| !left.is_zero()))
                {
                    return Ok(Some(token));
                }
                let token = source().await.map_err(Error::NoToken)?;
                *lock(&self.shared.token) = Some(token.clone());
                Ok(Some(token))
            }
        }
    }
}

/// The body of an answer, or the refusal in it.
fn checked(status: u16, body: Bytes) -> Result<Bytes, Error> {
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(match answer.get("error") {
        Some(error) if error.is_object() => Error::from_wire(Some(error)),
        _ => Error::UnexpectedAnswer(format!("answered {status}; is this a Tavern server?")),
    })
}

fn unreachable(authority: &str, error: &hyper_util::client::legacy::Error) -> Error {
    if let Some(why) = tls::explain(error, authority) {
        return Error::Unreachable(why);
    }
    // Only the last cause says what happened: "connection refused", "invalid certificate".
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Error::Unreachable(format!("cannot connect to {authority}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_errors_with_their_code() {
        let refused = |status, body: &'static str| {
            checked(status, Bytes::from_static(body.as_bytes())).expect_err(body)
        };
        assert_eq!(refused(404, r#"{"error":{"code":"not_found","message":"no"}}"#).code(), "not_found");
        assert_eq!(refused(502, "<html>").code(), "unexpected_answer");
        assert!(checked(202, Bytes::new()).is_ok());
    }

    #[tokio::test]
    async fn missing_server_is_unreachable() {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("an address")
            .port();
        let api =
            Api::new(&format!("http://127.0.0.1:{port}"), Auth::User("ann".into())).expect("an address");
        assert_eq!(api.ready().await.expect_err("no server listens").code(), "unreachable");
    }
}
