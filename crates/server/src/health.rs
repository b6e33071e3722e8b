//! Whether this node can serve, as `/readyz`, the metrics and the overview report it.
//! Must hold: once a part has failed or a stop has begun, the node never becomes ready again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tavern_hub::Node;

#[derive(Debug, Default)]
pub struct NodeHealth {
    stopping: AtomicBool,
    /// The store did not accept the last renewal of the node's lease.
    store_down: AtomicBool,
    /// What the store has found in its files that only a backup repairs.
    store_damage: OnceLock<&'static str>,
    failed_part: OnceLock<Arc<str>>,
}

impl NodeHealth {
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns whether the store was up before.
    pub fn set_store_up(&self, up: bool) -> bool {
        !self.store_down.swap(!up, Ordering::Relaxed)
    }

    pub fn is_store_up(&self) -> bool {
        !self.store_down.load(Ordering::Relaxed) && self.store_damage().is_none()
    }

    /// The store is damaged, and stays so until the server is started again. Returns whether that is new.
    pub fn set_store_damaged(&self, what: &'static str) -> bool {
        self.store_damage.set(what).is_ok()
    }

    pub fn store_damage(&self) -> Option<&'static str> {
        self.store_damage.get().copied()
    }

    /// Keeps the first failed part: later failures are usually its consequences.
    pub fn set_failed(&self, part: Arc<str>) {
        let _ = self.failed_part.set(part);
    }

    pub fn failed_part(&self) -> Option<&str> {
        self.failed_part.get().map(|part| &**part)
    }
}

/// Whether other nodes can be reached, as far as is known.
pub fn is_bus_up(node: &Node) -> bool {
    node.bus_interests.bus().is_none_or(|bus| bus.is_connected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failed_part_is_reported() {
        let health = NodeHealth::default();
        assert_eq!(health.failed_part(), None);
        health.set_failed("liveness".into());
        health.set_failed("shard-0".into());
        assert_eq!(health.failed_part(), Some("liveness"));
    }

    #[test]
    fn the_store_goes_down_and_up() {
        let health = NodeHealth::default();
        assert!(health.is_store_up());
        assert!(health.set_store_up(false), "it was up");
        assert!(!health.set_store_up(false) && !health.is_store_up());
        assert!(!health.set_store_up(true) && health.is_store_up());
        assert!(health.set_store_damaged("a page") && !health.set_store_damaged("another page"));
        health.set_store_up(true);
        assert!(!health.is_store_up(), "a renewed lease says nothing about other pages");
    }
}
