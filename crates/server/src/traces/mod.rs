//! Distributed traces: spans of requests, publishes, commands, commits and webhook attempts, sent to an OTLP collector.
//! Must hold: without `otlp_url` there is no tracer, and nothing is measured or kept; recording a span never waits; what
//! does not fit into the queue is dropped and counted.

mod commits;
mod exporter;
mod request;

pub use commits::CommitSpans;
pub use exporter::{collector_url, export};
pub use request::{RequestSpan, current, within};
pub use tavern_wire::otlp::{FinishedSpan, SpanKind, SpanValue};

use crate::metrics::{MetricKind, MetricSource, Series};
use crate::random::random_bits;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tavern_domain::trace::TraceContext;
use tokio::sync::mpsc;

/// Spans that wait to be sent.
const QUEUE: usize = 8_192;

/// Records spans.
pub struct Tracer {
    queue: mpsc::Sender<FinishedSpan>,
    /// How many of a hundred traces that begin here are recorded.
    percent: u64,
    pub commits: CommitSpans,
    counts: Arc<TraceCounts>,
}

/// What became of the spans.
#[derive(Default)]
pub struct TraceCounts {
    pub exported: AtomicU64,
    /// The queue was full.
    pub dropped: AtomicU64,
    /// The collector refused them or did not answer.
    pub failed: AtomicU64,
}

/// A span that has begun.
#[derive(Clone, Copy, Debug)]
pub struct ActiveSpan {
    /// Its trace, and its own id: the parent of spans below it.
    pub context: TraceContext,
    parent: Option<u64>,
    began_ns: u64,
}

/// What is known of a span when it ends.
#[derive(Default)]
pub struct SpanDetails {
    pub attributes: Vec<(&'static str, SpanValue)>,
    pub links: Vec<TraceContext>,
    pub error: Option<String>,
}

/// The spans that a tracer has recorded, for `export`.
pub struct SpanQueue {
    spans: mpsc::Receiver<FinishedSpan>,
    counts: Arc<TraceCounts>,
}

impl Tracer {
    pub fn new(percent: u64) -> (Arc<Tracer>, SpanQueue) {
        let (queue, spans) = mpsc::channel(QUEUE);
        let counts = Arc::<TraceCounts>::default();
        let queued = SpanQueue { spans, counts: counts.clone() };
        (Arc::new(Tracer { queue, percent, commits: CommitSpans::default(), counts }), queued)
    }

    /// Begins a span in the trace that a request names, or in a new one. None: it is not sampled.
    pub fn begin(&self, parent: Option<TraceContext>) -> Option<ActiveSpan> {
        match parent {
            Some(parent) => parent.sampled.then(|| self.child(parent)),
            None if !self.is_sampled() => None,
            None => {
                let context = TraceContext {
                    trace_id: random_bits() | 1,
                    span_id: random_bits() as u64 | 1,
                    sampled: true,
                };
                Some(ActiveSpan { context, parent: None, began_ns: now_ns() })
            }
        }
    }

    /// Begins a span below another.
    pub fn child(&self, parent: TraceContext) -> ActiveSpan {
        let context = TraceContext { span_id: random_bits() as u64 | 1, ..parent };
        ActiveSpan { context, parent: Some(parent.span_id), began_ns: now_ns() }
    }

    pub fn end(&self, span: ActiveSpan, name: String, kind: SpanKind, details: SpanDetails) {
        let SpanDetails { attributes, links, error } = details;
        let ActiveSpan { context, parent, began_ns } = span;
        let ended_ns = now_ns().max(began_ns);
        let finished =
            FinishedSpan { context, parent, name, kind, began_ns, ended_ns, attributes, links, error };
        if self.queue.try_send(finished).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Evenly spread, without a call to the random source for each command.
    fn is_sampled(&self) -> bool {
        thread_local! {
            static SEEN: Cell<u64> = const { Cell::new(0) };
        }
        let seen = SEEN.get();
        SEEN.set(seen.wrapping_add(1));
        // Multiplied by a number that is coprime to 100, so that the sampled ones do not come in runs.
        (seen.wrapping_mul(37) % 100) < self.percent
    }
}

impl MetricSource for Tracer {
    fn gather(&self, all: &mut Vec<Series>) {
        let help =
            "Spans of traces: sent to the collector, refused by it, or dropped because the queue was full";
        let mut series = Series::new("tavern_trace_spans_total", MetricKind::Counter, help);
        let counts = &self.counts;
        for (outcome, counter) in
            [("exported", &counts.exported), ("failed", &counts.failed), ("dropped", &counts.dropped)]
        {
            series.add([("outcome", outcome.into())], counter.load(Ordering::Relaxed));
        }
        all.push(series);
    }
}

/// Wall-clock time, by which collectors order the spans of several processes.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(tracer: &Tracer, span: ActiveSpan) {
        tracer.end(span, "x".to_owned(), SpanKind::Internal, SpanDetails::default());
    }

    #[test]
    fn a_request_decides_whether_its_trace_is_recorded() {
        let (tracer, mut queue) = Tracer::new(0);
        assert!(tracer.begin(None).is_none(), "no trace begins here");
        let parent = TraceContext { trace_id: 7, span_id: 8, sampled: true };
        assert!(tracer.begin(Some(TraceContext { sampled: false, ..parent })).is_none());
        let span = tracer.begin(Some(parent)).unwrap();
        end(&tracer, span);
        let sent = queue.spans.try_recv().unwrap();
        assert_eq!((sent.context.trace_id, sent.parent), (7, Some(8)));
        assert_ne!(sent.context.span_id, 8);
    }

    #[test]
    fn the_configured_share_of_traces_is_recorded() {
        for percent in [0, 1, 25, 100] {
            let (tracer, _queue) = Tracer::new(percent);
            let recorded = (0..1_000).filter(|_| tracer.begin(None).is_some()).count();
            assert_eq!(recorded as u64, percent * 10);
        }
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let (tracer, _queue) = Tracer::new(100);
        let span = tracer.begin(None).unwrap();
        (0..QUEUE + 3).for_each(|_| end(&tracer, span));
        assert_eq!(tracer.counts.dropped.load(Ordering::Relaxed), 3);
    }
}
