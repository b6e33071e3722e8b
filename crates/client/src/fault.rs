//! What a panic says, and the places where a test makes a task panic.

use std::any::Any;

/// The message of a panic.
pub(crate) fn cause(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(not(test))]
pub(crate) fn point(_place: &'static str) {}

#[cfg(test)]
pub(crate) use armed::{arm, point};

#[cfg(test)]
mod armed {
    use std::cell::Cell;

    thread_local! {
        // The tests run a client on their own thread.
        static ARMED: Cell<&'static str> = const { Cell::new("") };
    }

    /// The task that gets to this place panics.
    pub(crate) fn arm(place: &'static str) {
        ARMED.set(place);
    }

    pub(crate) fn point(place: &'static str) {
        assert!(ARMED.get() != place, "injected into {place}");
    }
}
