//! Response bodies, and responses made of typed values, refusals and texts.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;

pub enum ResponseBody {
    Whole(Option<Bytes>),
    Events(super::stream::EventStream),
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
            ResponseBody::Events(events) => {
                events.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ResponseBody::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ResponseBody::Events(_) => SizeHint::default(),
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
