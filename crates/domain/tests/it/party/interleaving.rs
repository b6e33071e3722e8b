//! Two users at the same time: every interleaving of two scripts. A command is decided on facts that were read earlier, and
//! committed only if they have not changed meanwhile; else it is retried.

use super::world::{RULES, World, call};
use std::collections::BTreeSet;
use tavern_domain::party::{PartyChanges, PartyCommand, PartyNeed, PartyReply, PartyRequest};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Invite,
    Accept,
    Decline,
    Cancel,
    Leave,
}

#[derive(Clone)]
struct Under {
    call: PartyRequest,
    reply: PartyReply,
    changes: PartyChanges,
    read: BTreeSet<PartyNeed>,
    seen: World,
}

#[derive(Clone)]
struct Side {
    who: &'static str,
    other: &'static str,
    script: Vec<Act>,
    done: usize,
    under: Option<Under>,
    replies: Vec<PartyReply>,
}

impl Side {
    fn new(who: &'static str, other: &'static str, script: &[Act]) -> Side {
        Side { who, other, script: script.to_vec(), done: 0, under: None, replies: Vec::new() }
    }

    fn command(&self, world: &World, act: Act) -> PartyCommand {
        // The party of the other's invite, as far as this user knows; else one that never existed.
        let party_id = world.membership(self.who).invites.first().copied().unwrap_or(99);
        match act {
            Act::Invite => PartyCommand::Invite { user: self.other.into() },
            Act::Cancel => PartyCommand::CancelInvite { user: self.other.into() },
            Act::Accept => PartyCommand::Accept { party_id },
            Act::Decline => PartyCommand::Decline { party_id, message: None },
            Act::Leave => PartyCommand::Leave { message: None },
        }
    }

    /// One step: a command is decided, or committed if its facts have not changed.
    fn step(&mut self, world: &mut World, ids: &mut u64) {
        match self.under.take() {
            None => {
                *ids += 1;
                world.next_id = *ids;
                let call = call(self.who, self.command(world, self.script[self.done]));
                let (reply, changes, read) = world.decide(&call);
                self.under = Some(Under { call, reply, changes, read, seen: world.clone() });
            }
            Some(under) => {
                let same = |need: &PartyNeed| match need {
                    PartyNeed::Party(id) => world.parties.get(id) == under.seen.parties.get(id),
                    PartyNeed::Membership(who) => world.membership(who) == under.seen.membership(who),
                    PartyNeed::Presence(who) => world.presence(who) == under.seen.presence(who),
                    PartyNeed::Id => true,
                };
                if under.read.iter().all(same) {
                    world.commit(&under.call, &under.reply, &under.changes);
                    self.replies.push(under.reply);
                    self.done += 1;
                } else {
                    // The command stays the same: the client has sent it.
                    *ids += 1;
                    world.next_id = *ids;
                    let (reply, changes, read) = world.decide(&under.call);
                    self.under = Some(Under { reply, changes, read, seen: world.clone(), ..under });
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.done == self.script.len()
    }
}

/// Every interleaving of two scripts. `patient` users accept only after the other's first command was answered.
fn explore(
    world: &World,
    sides: &[Side; 2],
    ids: u64,
    patient: bool,
    end: &dyn Fn(&World, &[Side; 2]),
) -> usize {
    if sides.iter().all(Side::is_done) {
        end(world, sides);
        return 1;
    }
    let mut ends = 0;
    for at in 0..2 {
        let waits = patient
            && !sides[at].is_done()
            && sides[at].script[sides[at].done] != Act::Invite
            && sides[1 - at].done == 0;
        if sides[at].is_done() || waits {
            continue;
        }
        let (mut world, mut sides, mut ids) = (world.clone(), sides.clone(), ids);
        sides[at].step(&mut world, &mut ids);
        ends += explore(&world, &sides, ids, patient, end);
    }
    ends
}

#[test]
fn two_users_who_invite_each_other_end_in_exactly_one_party() {
    let script = [Act::Invite, Act::Accept];
    let sides = [Side::new("ann", "bob", &script), Side::new("bob", "ann", &script)];
    let together = |world: &World, sides: &[Side; 2]| {
        assert_eq!(world.parties.len(), 1);
        let party = world.parties.values().next().unwrap();
        assert_eq!((party.members.len(), party.pending.len()), (2, 0), "{party:?}");
        let accepted = |reply: &&PartyReply| matches!(reply, PartyReply::Party(Some(_)));
        let replies = sides.iter().flat_map(|side| &side.replies);
        assert_eq!(replies.clone().filter(accepted).count(), 1, "the first accept wins");
        for reply in replies {
            if let PartyReply::Refused { party: shown, .. } = reply {
                assert_eq!(shown.as_deref(), Some(party), "the other one is shown the two of them");
            }
        }
    };
    let ends = explore(&World::new(RULES), &sides, 0, true, &together);
    assert!(ends > 10, "{ends} interleavings");
}

#[test]
fn every_interleaving_of_two_users_keeps_the_invariants() {
    let acts = [Act::Invite, Act::Accept, Act::Decline, Act::Cancel, Act::Leave];
    let mut ends = 0;
    for (second, fourth) in acts.iter().flat_map(|second| acts.iter().map(move |fourth| (*second, *fourth))) {
        for third in [None, Some(Act::Leave)] {
            let ann: Vec<Act> = [Some(Act::Invite), Some(second), third].into_iter().flatten().collect();
            let sides = [Side::new("ann", "bob", &ann), Side::new("bob", "ann", &[Act::Invite, fourth])];
            ends += explore(&World::new(RULES), &sides, 0, false, &|world, _| {
                let ours = world.parties.values().filter(|party| party.members.len() == 2).count();
                assert!(ours == 0 || world.parties.len() == 1, "two users in one party have no other party");
            });
        }
    }
    assert!(ends > 10_000, "{ends} interleavings");
}
