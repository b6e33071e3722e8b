//! Response bodies, and responses made of typed values, refusals and texts.

use crate::unread_replies::ConnectionReplies;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;

/// Given to the connection at once. More is taken when this is sent, so that a client that reads is known to read.
const PIECE_BYTES: usize = 16 * 1024;

pub enum ResponseBody {
    Whole(Option<Bytes>),
    /// The same, counted until it is sent.
    Counted(CountedBody),
    Events(super::stream::EventStream),
    Traffic(Box<super::traffic::TrafficStream>),
}

/// The unsent rest of a body.
pub struct CountedBody {
    rest: Bytes,
    begun: bool,
    replies: Arc<ConnectionReplies>,
}

impl CountedBody {
    fn piece(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        if std::mem::replace(&mut self.begun, true) {
            self.replies.note_progress();
        }
        Some(self.rest.split_to(self.rest.len().min(PIECE_BYTES)))
    }
}

impl ResponseBody {
    /// Counts a body of a response of this connection until it is sent. Streams count their pieces themselves.
    pub fn counted(self, replies: &Arc<ConnectionReplies>) -> ResponseBody {
        match self {
            ResponseBody::Whole(Some(bytes)) => {
                let rest = replies.count(bytes);
                ResponseBody::Counted(CountedBody { rest, begun: false, replies: replies.clone() })
            }
            other => other,
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            ResponseBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ResponseBody::Counted(body) => Poll::Ready(body.piece().map(|bytes| Ok(Frame::data(bytes)))),
            ResponseBody::Events(events) => {
                events.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            ResponseBody::Traffic(lines) => {
                lines.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(bytes) => bytes.is_none(),
            ResponseBody::Counted(body) => body.rest.is_empty(),
            ResponseBody::Events(_) | ResponseBody::Traffic(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ResponseBody::Counted(body) => SizeHint::with_exact(body.rest.len() as u64),
            ResponseBody::Events(_) | ResponseBody::Traffic(_) => SizeHint::default(),
        }
    }
}

pub type HttpResponse = Response<ResponseBody>;

pub fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let body: Bytes = body.into();
    let mut response = Response::new(ResponseBody::Whole((!body.is_empty()).then_some(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A browser must not take a value that a user published for a page.
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A typed body of the API.
pub fn typed(body: &impl serde::Serialize) -> HttpResponse {
    json(json::api::encode(body))
}

pub fn json(body: impl Into<Bytes>) -> HttpResponse {
    whole(StatusCode::OK, "application/json", body)
}

/// JSON with the status of the refusal in it, if there is one.
pub fn json_with(code: Option<Code>, body: Vec<u8>) -> HttpResponse {
    let mut answer = json(body);
    if let Some(code) = code {
        *answer.status_mut() = status(code);
    }
    answer
}

pub fn refusal(refusal: &Refusal) -> HttpResponse {
    let mut body = Vec::new();
    json::reply_error(&mut body, None, refusal);
    let mut answer = json_with(Some(refusal.code), body);
    if let Some(ms) = refusal.retry_after_ms {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
    }
    if refusal.code == Code::Unauthenticated {
        let challenge = HeaderValue::from_static("Bearer realm=\"tavern\"");
        answer.headers_mut().insert(http::header::WWW_AUTHENTICATE, challenge);
    }
    answer
}

fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub fn text(status: StatusCode, body: &'static str) -> HttpResponse {
    whole(status, "text/plain; charset=utf-8", body)
}
