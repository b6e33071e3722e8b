//! How often the server behind a store may have lost something: it restarted, failed over, or is another one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Reconnects {
    count: AtomicU64,
    instance: Mutex<Option<String>>,
}

impl Reconnects {
    /// A connection was made to this instance of a server. None: the server does not identify itself.
    pub fn note(&self, instance: Option<String>) {
        let mut known = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
        if instance.is_none() || *known != instance {
            self.count.fetch_add(1, Ordering::Relaxed);
            *known = instance;
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_instance_counts_once() {
        let reconnects = Reconnects::default();
        for (instance, count) in [(Some("a"), 1), (Some("a"), 1), (Some("b"), 2), (None, 3), (None, 4)] {
            reconnects.note(instance.map(str::to_owned));
            assert_eq!(reconnects.count(), count, "{instance:?}");
        }
    }
}
