//! HTTP for SSE and long-poll: requests on a persistent connection, and commands as single requests, in order.
//! Must hold: every wait has a timeout; every answer has a bound.

use super::stream;
use super::{ANSWER_TIMEOUT, LinkEvent, LinkRequest};
use crate::bounds::MESSAGE_BYTES;
use crate::error::{LinkEnd, OpenError};
use crate::fault;
use crate::frame::{Outgoing, ServerFrame};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming as Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub(super) struct HttpLink {
    opening: LinkRequest,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Drives the connection.
    driver: JoinSet<()>,
}

impl HttpLink {
    pub fn new(opening: &LinkRequest) -> HttpLink {
        HttpLink { opening: opening.clone(), sender: None, driver: JoinSet::new() }
    }

    /// Opens the event stream, of a session to resume or of a new one.
    pub async fn stream(
        &mut self,
        resume: Option<&(String, u64)>,
    ) -> Result<http::Response<Body>, OpenError> {
        let target = self.opening.address.target("/v1/stream", &self.opening.credential.query());
        self.request("GET", &target, Bytes::new(), resume).await
    }

    /// Sends one request; returns before the body of the answer is read. A session to resume is named in headers, because
    /// proxies log URLs.
    async fn request(
        &mut self,
        method: &str,
        target: &str,
        body: Bytes,
        resume: Option<&(String, u64)>,
    ) -> Result<http::Response<Body>, OpenError> {
        let lost = |error: hyper::Error| OpenError::Lost(error.to_string());
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            self.driver.abort_all();
            let stream = stream::connect(&self.opening).await?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
            self.driver.spawn(async move {
                // The pending request reports the error.
                let _ = connection.await;
            });
            self.sender = Some(sender);
        }
        let mut request = http::Request::builder()
            .method(method)
            .uri(target)
            .header("host", self.opening.address.authority());
        if let Some(token) = self.opening.credential.bearer() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some((session, seq)) = resume {
            request = request.header("tavern-session", session).header("last-event-id", seq.to_string());
        }
        if method == "POST" {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| OpenError::blocked(error.to_string()))?;
        let Some(sender) = &mut self.sender else { return Err(OpenError::Lost("not connected".into())) };
        sender.ready().await.map_err(lost)?;
        sender.send_request(request).await.map_err(lost)
    }

    /// Posts JSON and reads the whole answer.
    pub async fn post(
        &mut self,
        path: &str,
        body: String,
        timeout: Duration,
    ) -> Result<ServerFrame, OpenError> {
        let target = self.opening.address.target(path, &self.opening.credential.query());
        let posting = async {
            let answer = self.request("POST", &target, Bytes::from(body), None).await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MESSAGE_BYTES).collect().await;
            let body = body.map_err(|error| OpenError::Lost(error.to_string()))?.to_bytes();
            match ServerFrame::parse(&body) {
                Ok(answer) => Ok(answer),
                Err(_) => Err(super::refusal(status, &body)),
            }
        };
        let posted = tokio::time::timeout(timeout, posting).await;
        let posted =
            posted.unwrap_or_else(|_| Err(OpenError::Lost("the server did not answer in time".into())));
        if posted.is_err() {
            // A late answer would be taken for that of the next request.
            self.sender = None;
        }
        posted
    }
}

/// Sends commands one after the other, so that they keep their order.
pub(super) async fn commands(
    mut connection: HttpLink,
    session: String,
    mut commands: mpsc::Receiver<Outgoing>,
    events: mpsc::Sender<LinkEvent>,
) {
    while let Some(mut command) = commands.recv().await {
        fault::point("command");
        let id = command.members["id"].clone();
        command.members["session"] = Value::String(session.clone());
        let event = match connection.post("/v1/command", command.text(), ANSWER_TIMEOUT).await {
            Ok(mut answer) => {
                answer.value["id"] = id;
                LinkEvent::Frame(answer)
            }
            Err(error) => LinkEvent::End(link_end(error)),
        };
        let over = matches!(event, LinkEvent::End(_));
        if events.send(event).await.is_err() || over {
            return;
        }
    }
}

pub(super) fn link_end(error: OpenError) -> LinkEnd {
    match error {
        OpenError::Refused(error) if error.code() == "unauthenticated" => {
            LinkEnd::coded(super::TOKEN_EXPIRED, error.message())
        }
        OpenError::Refused(error) => LinkEnd::new(error.to_string()),
        OpenError::Blocked(ending) => ending,
        OpenError::Lost(why) | OpenError::NoToken(why) | OpenError::Failed(why) => LinkEnd::new(why),
    }
}
