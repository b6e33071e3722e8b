//! Spans as OTLP writes them (`opentelemetry/proto/trace/v1`), for a collector: the fields that Tavern fills.

use prost::Message;
use tavern_domain::trace::TraceContext;

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// Its trace, and its own id.
    pub context: TraceContext,
    pub parent: Option<u64>,
    pub name: String,
    pub kind: SpanKind,
    /// Nanoseconds since 1970.
    pub began_ns: u64,
    pub ended_ns: u64,
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Other traces that this span works for.
    pub links: Vec<TraceContext>,
    /// Why it failed.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    Text(String),
    Number(i64),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> SpanValue {
        SpanValue::Text(text.to_owned())
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> SpanValue {
        SpanValue::Text(text)
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> SpanValue {
        SpanValue::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// An `ExportTraceServiceRequest`: spans of one process, which these attributes describe.
pub fn export_request(process: &[(&'static str, String)], spans: Vec<FinishedSpan>) -> Vec<u8> {
    let attributes = process.iter().map(|(key, value)| attribute(key, value.as_str().into())).collect();
    let scope = ScopeMessage { name: "tavern".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = spans.into_iter().map(span).collect();
    let resource_spans = ResourceSpansMessage {
        resource: Some(ResourceMessage { attributes }),
        scope_spans: vec![ScopeSpansMessage { scope: Some(scope), spans }],
    };
    ExportMessage { resource_spans: vec![resource_spans] }.encode_to_vec()
}

fn span(span: FinishedSpan) -> SpanMessage {
    let status = span.error.map(|message| StatusMessage { message, code: STATUS_ERROR });
    SpanMessage {
        trace_id: span.context.trace_id.to_be_bytes().to_vec(),
        span_id: span.context.span_id.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name,
        kind: span.kind as i32,
        start_time_unix_nano: span.began_ns,
        end_time_unix_nano: span.ended_ns,
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        links: span.links.iter().map(link).collect(),
        status,
    }
}

fn link(context: &TraceContext) -> LinkMessage {
    LinkMessage {
        trace_id: context.trace_id.to_be_bytes().to_vec(),
        span_id: context.span_id.to_be_bytes().to_vec(),
    }
}

fn attribute(key: &str, value: SpanValue) -> AttributeMessage {
    let value = match value {
        SpanValue::Text(text) => ValueMessage { text: Some(text), number: None },
        SpanValue::Number(number) => ValueMessage { text: None, number: Some(number) },
    };
    AttributeMessage { key: key.to_owned(), value: Some(value) }
}

const STATUS_ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct ExportMessage {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpansMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpansMessage {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpansMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<AttributeMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpansMessage {
    #[prost(message, optional, tag = "1")]
    scope: Option<ScopeMessage>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<AttributeMessage>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<LinkMessage>,
    #[prost(message, optional, tag = "15")]
    status: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct LinkMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeMessage {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<ValueMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueMessage {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}
