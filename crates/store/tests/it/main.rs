//! The in-memory engine: conformance and injected faults.

mod conformance;
mod faults;
