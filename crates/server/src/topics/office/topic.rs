//! Topics: who publishes to them, and what this node remembers of it. Must hold: what is remembered is only ever trusted
//! together with the version that the store is asked to expect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::topic::{NAME_BYTES, is_name};
use tavern_store::Versioned;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::Topic;

/// Topics remembered: enough for every busy one.
const SHELF: usize = 10_000;

/// The topics that were published to from here.
#[derive(Default)]
pub struct Shelf(Mutex<HashMap<Arc<str>, Versioned<Topic>>>);

impl Shelf {
    pub fn get(&self, name: &str) -> Option<Versioned<Topic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub fn keep(&self, name: &Arc<str>, topic: Versioned<Topic>) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match shelf.get_mut(name) {
            Some(known) => *known = topic,
            None => {
                if shelf.len() >= SHELF {
                    shelf.clear();
                }
                shelf.insert(name.clone(), topic);
            }
        }
    }

    pub fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

pub fn check_name(name: &str) -> Result<(), Refusal> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!("{name:?} is no topic: 1 to {NAME_BYTES} of a-z, 0-9, `_`, `.` and `-`");
    Err(Refusal::new(Code::BadRequest, message))
}
