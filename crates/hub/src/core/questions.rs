//! Store requests whose answer is for one caller, who waits for it: nothing of it is kept here.

use super::{CommandReply, Core, Feature, ReplyTo};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tavern_store::{StoreAnswer, Ticket, Work};

/// Makes the reply to the caller.
type ReplyMaker = Box<dyn FnOnce(&Core, StoreAnswer) -> CommandReply>;

#[derive(Default)]
pub(crate) struct Questions {
    asked: HashMap<Ticket, (ReplyTo, ReplyMaker), RandomState>,
}

impl Core {
    /// Asks the store for one caller.
    pub(crate) fn ask_store(
        &mut self,
        work: Work,
        to: ReplyTo,
        reply: impl FnOnce(&Core, StoreAnswer) -> CommandReply + 'static,
    ) {
        let ticket = self.submit(Feature::None, work);
        self.questions.asked.insert(ticket, (to, Box::new(reply)));
    }

    /// The store has answered a request of no feature.
    pub(crate) fn question_answered(&mut self, ticket: Ticket, answer: StoreAnswer) {
        if let Some((to, reply)) = self.questions.asked.remove(&ticket) {
            let reply = reply(self, answer);
            self.finish(to, reply);
        }
    }
}
