//! What the store keeps of one subscription, read together. Must hold: the marks are as new as the progress, or newer: a
//! change of topics writes both, and what is read by older marks than the progress would be misnumbered.

use super::ledger::{self, Kept};
use crate::topics::TopicsApi;
use std::sync::Arc;
use tavern_domain::delivery::DeliveryProgress;
use tavern_domain::topic::SubscriptionMarks;
use tavern_hub::topics::TopicCaller;
use tavern_store::Versioned;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{DELIVERY, MARKS, SUBSCRIPTION, SubscriptionSettings, read_marks, read_progress};

const NAME_BYTES: usize = 64;

pub struct Queue {
    pub subscription: Kept<SubscriptionSettings>,
    pub delivery: Kept<DeliveryProgress>,
    pub marks: Kept<Arc<SubscriptionMarks>>,
}

impl Queue {
    /// Somebody's own, or any for an admin.
    pub async fn open(api: &TopicsApi, caller: &TopicCaller, name: &str) -> Result<Queue, Refusal> {
        let queue = Queue::find(api, name).await?;
        let queue = queue.ok_or_else(|| {
            let message =
                format!("there is no subscription {name:?}; make it with PUT /v1/subscriptions/{name}");
            Refusal::new(Code::NotFound, message)
        })?;
        allow(caller, &queue.subscription.row)?;
        Ok(queue)
    }

    pub async fn find(api: &TopicsApi, name: &str) -> Result<Option<Queue>, Refusal> {
        check_name(name)?;
        let delivery = ledger::document(api, DELIVERY, name).await?;
        let (marks, subscription) = tokio::join!(
            ledger::document(api, MARKS, name),
            ledger::record::<SubscriptionSettings>(api, SUBSCRIPTION, name)
        );
        let delivery = ledger::found(delivery, read_progress)?;
        let marks = ledger::found(marks?, |bytes| read_marks(bytes).map(Arc::new))?;
        match (subscription?, delivery, marks) {
            (Some(subscription), Some(delivery), Some(marks)) => {
                Ok(Some(Queue { subscription, delivery, marks }))
            }
            // Removed or made at this moment.
            _ => Ok(None),
        }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.subscription.row.name
    }
}

pub fn allow(caller: &TopicCaller, subscription: &SubscriptionSettings) -> Result<(), Refusal> {
    if caller.may(&subscription.owner) {
        return Ok(());
    }
    let message =
        "this subscription belongs to another key; choose another name, or use that key or an admin's";
    Err(Refusal::new(Code::NotAllowed, message))
}

pub fn check_name(name: &str) -> Result<(), Refusal> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(letter) {
        return Ok(());
    }
    let message = format!(
        "{name:?} is no name of a subscription: 1 to {NAME_BYTES} of a-z, A-Z, 0-9, `_`, `.` and `-`"
    );
    Err(Refusal::new(Code::BadRequest, message))
}

/// The version of a document that may not be there.
pub fn version<T>(found: Option<&Versioned<T>>) -> u64 {
    found.map_or(0, |found| found.version)
}
