//! What a command is answered, and what answers mean for who asked: a rate, and strikes for refusals in a row.

use super::{Caller, Flow, Step, Stop};
use crate::goodbye::Goodbye;
use crate::presence::Outcome;
use crate::session::STRIKES_MAX;
use crate::shard::Shard;
use tavern_domain::Time;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;

impl Shard {
    /// Writes the reply to a command.
    pub(crate) fn reply(
        &mut self,
        caller: &mut Caller,
        id: Option<&str>,
        outcome: Outcome,
        out: &mut Vec<u8>,
    ) -> Flow {
        match outcome {
            Ok(body) => {
                if let Some(session) =
                    caller.listener.and_then(|id| self.listeners.get_mut(id)?.session_mut())
                {
                    session.behave();
                }
                json::reply_ok(out, id, if body.is_empty() { b"{}" } else { &body });
                Flow::Done
            }
            Err(refusal) => {
                json::reply_error(out, id, &refusal);
                self.refused(caller, refusal.code)
            }
        }
    }

    pub(super) fn take_command(&mut self, now: Time, caller: &Caller) -> Step<()> {
        let per_second = self.node.settings.commands_per_second;
        let session = caller.listener.and_then(|id| self.listeners.get_mut(id)?.session_mut());
        let taken = session.map_or(Ok(()), |session| session.take_command(now, per_second));
        taken.map_err(|retry_after_ms| {
            Stop::Refused(Refusal::new(Code::RateLimited, "too many commands").retry_after(retry_after_ms))
        })
    }

    fn refused(&mut self, caller: &mut Caller, code: Code) -> Flow {
        self.stats.refused.add(1);
        self.refused_with = Some(code);
        let session = caller.listener.and_then(|id| self.listeners.get_mut(id)?.session_mut());
        let abuse = match session {
            Some(session) => session.strike(),
            None => {
                caller.strikes = caller.strikes.saturating_add(1);
                caller.strikes >= STRIKES_MAX
            }
        };
        if abuse { Flow::Close(Goodbye::Abuse) } else { Flow::Done }
    }
}
