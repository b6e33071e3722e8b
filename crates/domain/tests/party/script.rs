//! Stories in words, each step a command: `ann invites bob` · `ann cancels bob` · `bob accepts` (the first invite they
//! see) · `bob accepts 2` · `bob declines` · `bob declines saying no` · `ann kicks bob` · `bob leaves` · `ann promotes bob` ·
//! `ann disbands` · `ann sets {}` · `ann goes` · `ann stops` · `bob is ready` · `bob is ready 7` · `bob blocks ann` ·
//! `bob unblocks ann` · `matched 1 3` · `failed 1 3`; of presence: `bob is lost` (the grace period is 15 s) · `bob is down`
//! (with his server) · `bob is absent` · `bob is back` · `bob says bye`, each followed by a check, unless `unchecked` follows; `check bob`;
//! of time: `60s` before a step · `wake`. After a command: `of 3` (party), `seen 5` (if_version), `#a` (rid).
//!
//! The result is the messages and the refusal of the last step, and the parties after it: `1 v2 idle: ann bob`; a lost member
//! is `~bob`, an invitee `+cid`, one who cannot see the invite `-cid`.

use crate::world::{RULES, World, call, server, user};
use tavern_domain::Time;
use tavern_domain::party::{Call, Changes, Command, Letter, Reply, Rules, Standing, Word};

pub fn check(story: &str, expected: &str) {
    check_by(RULES, story, expected);
}

pub fn check_by(rules: Rules, story: &str, expected: &str) {
    assert_eq!(tell(&mut World::new(rules), story), expected, "{story}");
}

pub fn tell(world: &mut World, story: &str) -> String {
    let mut last = String::new();
    for words in story.split(';').map(str::trim) {
        last = step(world, words);
    }
    let parties: Vec<String> = world.parties.values().map(show_party).collect();
    format!("{last} | {}", parties.join(", ")).trim().to_string()
}

fn step(world: &mut World, words: &str) -> String {
    let (time, words) = words.split_once("s: ").unwrap_or(("", words));
    if !time.is_empty() {
        world.now = Time(time.parse::<u64>().unwrap() * 1_000);
    }
    let parts: Vec<&str> = words.split(' ').collect();
    let check = |who: &str| server(Command::Check { user: user(who) });
    let call = match parts[..] {
        ["wake"] => return show(&Reply::Nothing, &world.wake()),
        ["check", who] => check(who),
        [who, "is", "lost" | "down" | "absent" | "back"] | [who, "says", "bye"] => {
            stand(world, who, parts[2]);
            check(who)
        }
        [who, _, state, "unchecked"] => {
            stand(world, who, state);
            return String::new();
        }
        [verdict @ ("matched" | "failed"), party, go_id] => server(Command::Answer {
            party: party.parse().unwrap(),
            go_id: go_id.parse().unwrap(),
            matched: verdict == "matched",
            details: None,
        }),
        _ => read(world, &parts),
    };
    let (reply, changes) = world.act(&call);
    show(&reply, &changes)
}

fn stand(world: &mut World, who: &str, state: &str) {
    let now = world.now;
    match state {
        "lost" | "down" => {
            let (until, node_down) = (now + 15_000, state == "down");
            world.standings.insert(user(who), Standing::Lost { since: now, until, node_down });
        }
        "absent" => {
            world.standings.insert(user(who), Standing::Absent);
        }
        "back" => {
            world.standings.insert(user(who), Standing::Online { name: None });
        }
        "bye" => world.say_bye(who),
        _ => panic!("{state:?} is no standing"),
    }
}

pub fn read(world: &World, parts: &[&str]) -> Call {
    let (parts, rid) = match parts {
        [parts @ .., last] if last.starts_with('#') => (parts, Some(*last)),
        parts => (parts, None),
    };
    let (parts, if_version) = match parts {
        [parts @ .., "seen", version] => (parts, Some(version.parse().unwrap())),
        parts => (parts, None),
    };
    let (parts, party) = match parts {
        [parts @ .., "of", id] => (parts, Some(id.parse().unwrap())),
        parts => (parts, None),
    };
    let who = parts[0];
    let first = || world.guest(who).invites.first().copied().unwrap_or(99);
    let go = || {
        let party = world.guest(who).party.and_then(|id| world.parties[&id].go.as_ref());
        party.map_or(0, |go| go.id)
    };
    let number = |text: &str| text.parse().unwrap();
    let command = match parts[1..] {
        ["gets"] => Command::Get,
        ["invites", target] => Command::Invite { user: user(target) },
        ["cancels", target] => Command::CancelInvite { user: user(target) },
        ["accepts"] => Command::Accept { party_id: first() },
        ["accepts", id] => Command::Accept { party_id: number(id) },
        ["declines"] => Command::Decline { party_id: first(), message: None },
        ["declines", "saying", message] => {
            Command::Decline { party_id: first(), message: Some(message.into()) }
        }
        ["declines", id] => Command::Decline { party_id: number(id), message: None },
        ["kicks", target] => Command::Kick { user: user(target), message: None },
        ["kicks", target, "saying", message] => {
            Command::Kick { user: user(target), message: Some(message.into()) }
        }
        ["leaves"] => Command::Leave { message: None },
        ["leaves", "saying", message] => Command::Leave { message: Some(message.into()) },
        ["promotes", target] => Command::Promote { user: user(target) },
        ["disbands"] => Command::Disband { message: None },
        ["disbands", "saying", message] => Command::Disband { message: Some(message.into()) },
        ["sets", data] => Command::SetData { data: data.into() },
        ["goes"] => Command::Go { params: None },
        ["stops"] => Command::CancelGo,
        ["is", "ready"] => Command::Ready { go_id: go() },
        ["is", "ready", id] => Command::Ready { go_id: number(id) },
        ["blocks", target] => Command::Block { user: user(target) },
        ["unblocks", target] => Command::Unblock { user: user(target) },
        _ => panic!("{parts:?} is no step"),
    };
    Call { party, if_version, rid: rid.map(Into::into), ..call(who, command) }
}

fn show(reply: &Reply, changes: &Changes) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut letters = changes.letters.iter().peekable();
    while let Some(letter) = letters.next() {
        let mut to = letter.to.to_string();
        let same = |next: &&Letter| {
            (next.party_id, next.version, &next.what) == (letter.party_id, letter.version, &letter.what)
        };
        while let Some(next) = letters.next_if(same) {
            to = format!("{to}+{}", next.to);
        }
        told.push(format!("{to}: {} {}{}", name(&letter.what), letter.actor, detail(&letter.what)));
    }
    match reply {
        Reply::Refused { why, retry_after_ms: Some(ms), .. } => told.push(format!("{} {ms}", why.as_str())),
        Reply::Refused { why, .. } => told.push(why.as_str().into()),
        Reply::Gone { go_id } => told.push(format!("go {go_id}")),
        Reply::Invited { .. } | Reply::Nothing | Reply::Party(_) => {}
    }
    if told.is_empty() { "nothing".into() } else { told.join(", ") }
}

fn name(word: &Word) -> &'static str {
    match word {
        Word::Invite { .. } => "invite",
        Word::InviteCancel { .. } => "invite_cancel",
        Word::Invited { .. } => "invited",
        Word::Uninvited { .. } => "uninvited",
        Word::Accept => "accept",
        Word::Decline { .. } => "decline",
        Word::Join => "join",
        Word::Kick { .. } => "kick",
        Word::Leave { .. } => "leave",
        Word::Leader { .. } => "leader",
        Word::Disband { .. } => "disband",
        Word::Data { .. } => "data",
        Word::PartyGo { .. } => "party_go",
        Word::Ready { .. } => "ready",
        Word::PartyMatched { .. } => "party_matched",
        Word::GoFailed { .. } => "go_failed",
        Word::GoCancel { .. } => "go_cancel",
        Word::Offline => "offline",
        Word::Online => "online",
    }
}

fn detail(word: &Word) -> String {
    let said = |message: &Option<std::sync::Arc<str>>| {
        message.as_ref().map_or(String::new(), |text| format!(" saying {text}"))
    };
    match word {
        Word::InviteCancel { reason } | Word::GoCancel { reason, .. } => format!(" {}", reason.as_str()),
        Word::Invited { user, .. } => format!(" {user}"),
        Word::Uninvited { reason } => format!(" {}", reason.as_str()),
        Word::Decline { reason, message } | Word::Disband { reason, message } => {
            format!(" {}{}", reason.as_str(), said(message))
        }
        Word::Kick { message } => said(message),
        Word::Leave { reason, by, message } => {
            let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
            format!(" {}{by}{}", reason.as_str(), said(message))
        }
        Word::Leader { by: Some(by) } => format!(" by {by}"),
        Word::Data { data } => format!(" {data}"),
        Word::PartyGo { go_id, members, .. } => format!(" {go_id} {}", members.join("+")),
        Word::Ready { go_id, queued } => format!(" {go_id}{}", if *queued { " queued" } else { "" }),
        Word::GoFailed { missing, .. } => format!(" missing {}", missing.join("+")),
        _ => String::new(),
    }
}

fn show_party(party: &tavern_domain::party::Party) -> String {
    let mut people = String::new();
    for member in &party.members {
        people = format!("{people} {}{}", if member.away.is_some() { "~" } else { "" }, member.user);
    }
    for pending in &party.pending {
        people = format!("{people} {}{}", if pending.dark { "-" } else { "+" }, pending.user);
    }
    format!("{} v{} {}:{people}", party.id, party.version, party.state().as_str())
}
