//! The place of a webhook attempt in the traces of its events: the endpoint gets it as `traceparent`.

use crate::traces::{ActiveSpan, SpanDetails, SpanKind, SpanValue, Tracer};
use http::header::{HeaderName, HeaderValue};
use std::sync::Arc;
use tavern_domain::trace::TraceContext;
use tavern_hub::topics::delivery::{AttemptEntry, AttemptRequest};
use tavern_wire::json::event::trace_of;

/// Events of a batch whose traces are looked at.
const EVENTS: usize = 32;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An attempt, in the trace of its first event that has one.
pub struct AttemptSpan {
    context: Option<TraceContext>,
    /// The other traces that it works for.
    links: Vec<TraceContext>,
    recorded: Option<(Arc<Tracer>, ActiveSpan)>,
}

impl AttemptSpan {
    pub fn begin(tracer: Option<&Arc<Tracer>>, post: &AttemptRequest) -> AttemptSpan {
        let mut links: Vec<TraceContext> = Vec::new();
        for event in post.events.iter().take(EVENTS) {
            let AttemptEntry::Event { entry, .. } = event else { continue };
            if let Some(trace) = trace_of(&entry.body).filter(|trace| !links.contains(trace)) {
                links.push(trace);
            }
        }
        let parent = (!links.is_empty()).then(|| links.remove(0));
        let recorded = tracer.and_then(|tracer| Some((tracer.clone(), tracer.begin(Some(parent?))?)));
        let context = recorded.as_ref().map(|(_, span)| span.context).or(parent);
        AttemptSpan { context, links, recorded }
    }

    /// The header for the endpoint.
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = HeaderValue::try_from(self.context?.traceparent()).ok()?;
        Some((TRACEPARENT, value))
    }

    pub fn end(self, post: &AttemptRequest, url: &str, status: Option<u16>, error: Option<&str>) {
        let Some((tracer, span)) = self.recorded else { return };
        let mut attributes = vec![
            ("http.request.method", SpanValue::from("POST")),
            ("url.full", url.into()),
            ("tavern.subscription", post.subscription.name.as_ref().into()),
            ("tavern.batch", post.batch.into()),
            ("tavern.attempt", u64::from(post.attempt).into()),
            ("tavern.events", (post.events.len() as u64).into()),
        ];
        attributes.extend(status.map(|status| ("http.response.status_code", u64::from(status).into())));
        let details = SpanDetails { attributes, links: self.links, error: error.map(str::to_owned) };
        tracer.end(span, "webhook attempt".to_owned(), SpanKind::Client, details);
    }
}
