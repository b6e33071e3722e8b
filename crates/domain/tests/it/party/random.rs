//! Random histories of six users: commands, disconnects, logouts, jumps of time, timers that fire late or never. The
//! invariants are checked after every commit.

use super::world::{RULES, World, call, server, user};
use proptest::prelude::*;
use tavern_domain::party::{PartyCommand, PartyLimits, PartyRequest, UserPresence};

const USERS: [&str; 6] = ["ann", "bob", "cid", "dan", "eve", "fay"];

#[derive(Clone, Debug)]
enum Step {
    /// The user, the command and its target; the party, the version and the request id that the command names.
    Act {
        who: usize,
        what: u8,
        target: usize,
        named: u8,
        rid: u8,
    },
    Pass {
        ms: u64,
    },
    Wake,
    Stand {
        who: usize,
        how: u8,
        checked: bool,
    },
    Check {
        who: usize,
    },
    Answer {
        party: u64,
        stale: bool,
        matched: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let act = (0..6usize, 0..40u8, 0..6usize, 0..20u8, 0..24u8)
        .prop_map(|(who, what, target, named, rid)| Step::Act { who, what, target, named, rid });
    let pass = prop_oneof![3 => 0..4_000u64, 2 => 4_000..40_000u64, 1 => 40_000..200_000u64];
    let step = prop_oneof![
        24 => act,
        3 => pass.prop_map(|ms| Step::Pass { ms }),
        2 => Just(Step::Wake),
        4 => (0..6usize, 0..4u8, any::<bool>()).prop_map(|(who, how, checked)| Step::Stand { who, how, checked }),
        1 => (0..6usize).prop_map(|who| Step::Check { who }),
        1 => (1..9u64, any::<bool>(), any::<bool>())
            .prop_map(|(party, stale, matched)| Step::Answer { party, stale, matched }),
    ];
    prop::collection::vec(step, 1..120)
}

fn command(world: &World, who: &str, what: u8, target: &str) -> PartyCommand {
    let target = user(target);
    let membership = world.membership(who);
    let own = membership.party.and_then(|id| world.parties.get(&id));
    let first = membership.invites.first().copied().unwrap_or(1 + u64::from(what) % 5);
    let last = membership.invites.last().copied().unwrap_or(first);
    let go_id = own.and_then(|party| party.go.as_ref()).map_or(0, |go| go.id);
    let message = (what.is_multiple_of(2)).then(|| "so".into());
    match what {
        0..=10 => PartyCommand::Invite { user: target },
        11..=16 => PartyCommand::Accept { party_id: first },
        17 | 18 => PartyCommand::Accept { party_id: last },
        19 | 20 => PartyCommand::Decline { party_id: last, message },
        21 | 22 => PartyCommand::CancelInvite { user: target },
        23 | 24 => PartyCommand::Kick { user: target, message },
        25 | 26 => PartyCommand::Leave { message },
        27 => PartyCommand::Promote { user: target },
        28 => PartyCommand::Disband { message },
        29 => PartyCommand::SetData { data: r#"{"a":1}"#.into() },
        30..=32 => PartyCommand::Go { params: None },
        33 => PartyCommand::CancelGo,
        34..=36 => PartyCommand::Ready { go_id },
        37 => PartyCommand::Block { user: target },
        38 => PartyCommand::Unblock { user: target },
        _ => PartyCommand::Get,
    }
}

fn play(world: &mut World, step: &Step) {
    match *step {
        Step::Act { who, what, target, named, rid } => {
            let own = world.membership(USERS[who]).party;
            let version = own.and_then(|id| world.parties.get(&id)).map(|party| party.version);
            let call = PartyRequest {
                party: match named {
                    0 => Some(1),
                    1..=3 => own,
                    _ => None,
                },
                if_version: match named {
                    4 => Some(3),
                    5..=7 => version,
                    _ => None,
                },
                rid: (rid < 4).then(|| format!("r{rid}").into()),
                ..call(USERS[who], command(world, USERS[who], what, USERS[target]))
            };
            world.act(&call);
        }
        Step::Pass { ms } => world.now = world.now + ms,
        Step::Wake => {
            world.wake();
        }
        Step::Stand { who, how, checked } => {
            let now = world.now;
            let presence = match how {
                0 => UserPresence::Lost { since: now, until: now + 15_000, node_down: checked },
                1 => UserPresence::Absent,
                _ => UserPresence::Online { name: None },
            };
            match how {
                3 => world.log_out(USERS[who]),
                _ => drop(world.presences.insert(user(USERS[who]), presence)),
            }
            if checked {
                world.act(&server(PartyCommand::Check { user: user(USERS[who]) }));
            }
        }
        Step::Check { who } => {
            world.act(&server(PartyCommand::Check { user: user(USERS[who]) }));
        }
        Step::Answer { party, stale, matched } => {
            let go_id = world.parties.get(&party).and_then(|party| party.go.as_ref()).map_or(7, |go| go.id);
            let go_id = if stale { go_id - 1 } else { go_id };
            world.act(&server(PartyCommand::Answer { party, go_id, matched, details: None }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_keep_the_invariants(steps in steps(), require_ready: bool, max_members in 2..5u32) {
        let mut world = World::new(PartyLimits { require_ready, max_members, ..RULES });
        for step in &steps {
            play(&mut world, step);
        }
        // After all users have logged out only blocks, declines and stored replies are left.
        for who in USERS {
            world.log_out(who);
            world.act(&server(PartyCommand::Check { user: user(who) }));
            prop_assert_eq!(world.membership(who).party, None);
        }
        world.now = world.now + 60_000;
        world.wake();
        prop_assert!(world.parties.is_empty());
    }
}
