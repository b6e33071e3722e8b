//! Commits of traced commands that the store has not answered yet. Must hold: without a traced commit an answer costs one
//! load; the number of them is bounded.

use super::{ActiveSpan, SpanDetails, SpanKind, Tracer};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tavern_domain::trace::TraceContext;
use tavern_store::{StoreAnswer, Ticket};

/// Traced commits in progress. Others are not recorded.
const MAX: usize = 4_096;

#[derive(Default)]
pub struct CommitSpans {
    count: AtomicUsize,
    spans: Mutex<HashMap<Ticket, ActiveSpan>>,
}

impl Tracer {
    /// A command of this trace commits.
    pub fn commit_begins(&self, ticket: Ticket, parent: TraceContext) {
        let mut spans = self.commits.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < MAX {
            spans.insert(ticket, self.child(parent));
            self.commits.count.store(spans.len(), Ordering::Release);
        }
    }

    /// The store has answered.
    pub fn commits_end(&self, answers: &[(Ticket, StoreAnswer)]) {
        if self.commits.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut spans = self.commits.spans.lock().unwrap_or_else(PoisonError::into_inner);
        for (ticket, answer) in answers {
            let Some(span) = spans.remove(ticket) else { continue };
            let error = match answer {
                StoreAnswer::Failed(error) => Some(error.to_string()),
                StoreAnswer::Committed(_) | StoreAnswer::Read(_) => None,
            };
            let details = SpanDetails { error, ..SpanDetails::default() };
            self.end(span, "commit".to_owned(), SpanKind::Client, details);
        }
        self.commits.count.store(spans.len(), Ordering::Release);
    }
}
