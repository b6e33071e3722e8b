//! What an engine brings to the suite, and what a case is.

use crate::bus::{Bus, BusReceiver};
use crate::clock::ManualClock;
use crate::store::{AnswerReceiver, Store};
use std::sync::Arc;

/// A fresh store for one case. Opening it again gives another handle to the same data, as another process would have.
pub trait StoreUnderTest: Sync {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store>;
    fn clock(&self) -> &ManualClock;
}

/// A fresh bus for one case.
pub trait BusUnderTest: Sync {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus>;

    /// The prefix of every subject of the case. Worlds that share a server have different ones.
    fn prefix(&self) -> &str {
        "tavern"
    }
}

#[derive(Clone, Copy)]
pub struct StoreCase {
    pub name: &'static str,
    pub run: fn(&dyn StoreUnderTest),
}

#[derive(Clone, Copy)]
pub struct BusCase {
    pub name: &'static str,
    pub run: fn(&dyn BusUnderTest),
}

/// A case that an engine does not run.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    pub case: &'static str,
    pub reason: &'static str,
}

/// Checks that every case is run or excluded with a reason. The tests that the macros generate are the cases.
pub fn assert_complete(engine: &str, tests: &[&str], excluded: &[Exclusion], cases: &[&str]) {
    for one in excluded {
        assert!(cases.contains(&one.case) && !one.reason.is_empty(), "{one:?}");
    }
    assert_eq!(tests, cases);
    println!("{engine}: {} of {} cases", tests.len() - excluded.len(), cases.len());
}
