//! The trace of the HTTP request that is being handled. Must hold: it is known to everything that the handler awaits, and
//! to nothing that outlives it.

use super::{ActiveSpan, SpanDetails, SpanKind, SpanValue, Tracer};
use http::{HeaderMap, Method, StatusCode};
use std::sync::Arc;
use tavern_domain::trace::TraceContext;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// The trace of the request that this code works for.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|trace| *trace).ok()
}

/// Runs a handler with the trace of its request, if it has one.
pub async fn within<T>(trace: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    match trace {
        Some(trace) => CURRENT.scope(trace, work).await,
        None => work.await,
    }
}

/// The trace that a request names in its header.
fn named(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get("traceparent")?.to_str().ok()?)
}

/// A request in a trace.
pub struct RequestSpan {
    /// The parent of everything that the request does.
    pub context: TraceContext,
    recorded: Option<(Arc<Tracer>, ActiveSpan, Method, &'static str)>,
}

impl RequestSpan {
    /// None: the request names no trace, and none is recorded. A request that names one is in it in any case, so that
    /// the endpoints of its events are too.
    pub fn begin(
        tracer: Option<&Arc<Tracer>>,
        method: &Method,
        route: &'static str,
        headers: &HeaderMap,
    ) -> Option<RequestSpan> {
        let parent = named(headers);
        let recorded = tracer.and_then(|tracer| {
            let span = tracer.begin(parent)?;
            Some((tracer.clone(), span, method.clone(), route))
        });
        let context = recorded.as_ref().map(|(_, span, ..)| span.context).or(parent)?;
        Some(RequestSpan { context, recorded })
    }

    pub fn end(self, status: StatusCode) {
        let Some((tracer, span, method, route)) = self.recorded else { return };
        let error = status.is_server_error().then(|| status.to_string());
        let attributes = vec![
            ("http.request.method", SpanValue::from(method.as_str())),
            ("http.route", route.into()),
            ("http.response.status_code", u64::from(status.as_u16()).into()),
        ];
        let details = SpanDetails { attributes, error, ..SpanDetails::default() };
        tracer.end(span, format!("{method} {route}"), SpanKind::Server, details);
    }
}
