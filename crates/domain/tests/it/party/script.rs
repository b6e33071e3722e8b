//! Scripted scenarios. Each step is a command: `ann invites bob` · `ann cancels bob` · `bob accepts` (the first invite they
//! see) · `bob accepts 2` · `bob declines` · `bob declines saying no` · `ann kicks bob` · `bob leaves` · `ann promotes bob` ·
//! `ann disbands` · `ann sets {}` · `ann goes` · `ann stops` · `bob is ready` · `bob is ready 7` · `bob blocks ann` ·
//! `bob unblocks ann` · `matched 1 3` · `failed 1 3`; of presence: `bob is lost` (the grace period is 15 s) · `bob is down`
//! (with their server) · `bob is absent` · `bob is back` · `bob logs out`, each followed by a check, unless `unchecked`
//! follows; `check bob`; of time: `60s` before a step · `wake`. After a command: `of 3` (party), `seen 5` (if_version), `#a` (rid).
//!
//! The result is the messages and the refusal of the last step, and the parties after it: `1 v2 idle: ann bob`; a lost member
//! is `~bob`, an invitee `+cid`, one who cannot see the invite `-cid`.

use super::world::{RULES, World, call, server, user};
use tavern_domain::Time;
use tavern_domain::party::{
    PartyChanges, PartyCommand, PartyEvent, PartyEventKind, PartyLimits, PartyReply, PartyRequest,
    UserPresence,
};

pub fn check(story: &str, expected: &str) {
    check_by(RULES, story, expected);
}

pub fn check_by(rules: PartyLimits, story: &str, expected: &str) {
    assert_eq!(run_story(&mut World::new(rules), story), expected, "{story}");
}

pub fn run_story(world: &mut World, story: &str) -> String {
    let mut last = String::new();
    for text in story.split(';').map(str::trim) {
        last = step(world, text);
    }
    let parties: Vec<String> = world.parties.values().map(show_party).collect();
    format!("{last} | {}", parties.join(", ")).trim().to_string()
}

fn step(world: &mut World, text: &str) -> String {
    let (time, text) = text.split_once("s: ").unwrap_or(("", text));
    if !time.is_empty() {
        world.now = Time(time.parse::<u64>().unwrap() * 1_000);
    }
    let parts: Vec<&str> = text.split(' ').collect();
    let check = |who: &str| server(PartyCommand::Check { user: user(who) });
    let call = match parts[..] {
        ["wake"] => return show(&PartyReply::Nothing, &world.wake()),
        ["check", who] => check(who),
        [who, "is", "lost" | "down" | "absent" | "back"] | [who, "logs", "out"] => {
            set_presence(world, who, parts[2]);
            check(who)
        }
        [who, _, state, "unchecked"] => {
            set_presence(world, who, state);
            return String::new();
        }
        [verdict @ ("matched" | "failed"), party, go_id] => server(PartyCommand::Answer {
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

fn set_presence(world: &mut World, who: &str, state: &str) {
    let now = world.now;
    match state {
        "lost" | "down" => {
            let (until, node_down) = (now + 15_000, state == "down");
            world.presences.insert(user(who), UserPresence::Lost { since: now, until, node_down });
        }
        "absent" => {
            world.presences.insert(user(who), UserPresence::Absent);
        }
        "back" => {
            world.presences.insert(user(who), UserPresence::Online { name: None });
        }
        "out" => world.log_out(who),
        _ => panic!("{state:?} is not a presence"),
    }
}

pub fn read(world: &World, parts: &[&str]) -> PartyRequest {
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
    let first = || world.membership(who).invites.first().copied().unwrap_or(99);
    let go = || {
        let party = world.membership(who).party.and_then(|id| world.parties[&id].go.as_ref());
        party.map_or(0, |go| go.id)
    };
    let number = |text: &str| text.parse().unwrap();
    let command = match parts[1..] {
        ["gets"] => PartyCommand::Get,
        ["invites", target] => PartyCommand::Invite { user: user(target) },
        ["cancels", target] => PartyCommand::CancelInvite { user: user(target) },
        ["accepts"] => PartyCommand::Accept { party_id: first() },
        ["accepts", id] => PartyCommand::Accept { party_id: number(id) },
        ["declines"] => PartyCommand::Decline { party_id: first(), message: None },
        ["declines", "saying", message] => {
            PartyCommand::Decline { party_id: first(), message: Some(message.into()) }
        }
        ["declines", id] => PartyCommand::Decline { party_id: number(id), message: None },
        ["kicks", target] => PartyCommand::Kick { user: user(target), message: None },
        ["kicks", target, "saying", message] => {
            PartyCommand::Kick { user: user(target), message: Some(message.into()) }
        }
        ["leaves"] => PartyCommand::Leave { message: None },
        ["leaves", "saying", message] => PartyCommand::Leave { message: Some(message.into()) },
        ["promotes", target] => PartyCommand::Promote { user: user(target) },
        ["disbands"] => PartyCommand::Disband { message: None },
        ["disbands", "saying", message] => PartyCommand::Disband { message: Some(message.into()) },
        ["sets", data] => PartyCommand::SetData { data: data.into() },
        ["goes"] => PartyCommand::Go { params: None },
        ["stops"] => PartyCommand::CancelGo,
        ["is", "ready"] => PartyCommand::Ready { go_id: go() },
        ["is", "ready", id] => PartyCommand::Ready { go_id: number(id) },
        ["blocks", target] => PartyCommand::Block { user: user(target) },
        ["unblocks", target] => PartyCommand::Unblock { user: user(target) },
        _ => panic!("{parts:?} is no step"),
    };
    PartyRequest { party, if_version, rid: rid.map(Into::into), ..call(who, command) }
}

fn show(reply: &PartyReply, changes: &PartyChanges) -> String {
    let mut results: Vec<String> = Vec::new();
    let mut events = changes.events.iter().peekable();
    while let Some(event) = events.next() {
        let mut to = event.to.to_string();
        let same = |next: &&PartyEvent| {
            (next.party_id, next.version, &next.kind) == (event.party_id, event.version, &event.kind)
        };
        while let Some(next) = events.next_if(same) {
            to = format!("{to}+{}", next.to);
        }
        results.push(format!("{to}: {} {}{}", name(&event.kind), event.actor, detail(&event.kind)));
    }
    match reply {
        PartyReply::Refused { why, retry_after_ms: Some(ms), .. } => {
            results.push(format!("{} {ms}", why.as_str()))
        }
        PartyReply::Refused { why, .. } => results.push(why.as_str().into()),
        PartyReply::Gone { go_id } => results.push(format!("go {go_id}")),
        PartyReply::Invited { .. } | PartyReply::Nothing | PartyReply::Party(_) => {}
    }
    if results.is_empty() { "nothing".into() } else { results.join(", ") }
}

fn name(kind: &PartyEventKind) -> &'static str {
    match kind {
        PartyEventKind::Invite { .. } => "invite",
        PartyEventKind::InviteCancel { .. } => "invite_cancel",
        PartyEventKind::Invited { .. } => "invited",
        PartyEventKind::Uninvited { .. } => "uninvited",
        PartyEventKind::Accept => "accept",
        PartyEventKind::Decline { .. } => "decline",
        PartyEventKind::Join => "join",
        PartyEventKind::Kick { .. } => "kick",
        PartyEventKind::Leave { .. } => "leave",
        PartyEventKind::Leader { .. } => "leader",
        PartyEventKind::Disband { .. } => "disband",
        PartyEventKind::Data { .. } => "data",
        PartyEventKind::PartyGo { .. } => "party_go",
        PartyEventKind::Ready { .. } => "ready",
        PartyEventKind::PartyMatched { .. } => "party_matched",
        PartyEventKind::GoFailed { .. } => "go_failed",
        PartyEventKind::GoCancel { .. } => "go_cancel",
        PartyEventKind::Offline => "offline",
        PartyEventKind::Online => "online",
    }
}

fn detail(kind: &PartyEventKind) -> String {
    let quoted = |message: &Option<std::sync::Arc<str>>| {
        message.as_ref().map_or(String::new(), |text| format!(" saying {text}"))
    };
    match kind {
        PartyEventKind::InviteCancel { reason } | PartyEventKind::GoCancel { reason, .. } => {
            format!(" {}", reason.as_str())
        }
        PartyEventKind::Invited { user, .. } => format!(" {user}"),
        PartyEventKind::Uninvited { reason } => format!(" {}", reason.as_str()),
        PartyEventKind::Decline { reason, message } | PartyEventKind::Disband { reason, message } => {
            format!(" {}{}", reason.as_str(), quoted(message))
        }
        PartyEventKind::Kick { message } => quoted(message),
        PartyEventKind::Leave { reason, by, message } => {
            let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
            format!(" {}{by}{}", reason.as_str(), quoted(message))
        }
        PartyEventKind::Leader { by: Some(by) } => format!(" by {by}"),
        PartyEventKind::Data { data } => format!(" {data}"),
        PartyEventKind::PartyGo { go_id, members, .. } => format!(" {go_id} {}", members.join("+")),
        PartyEventKind::Ready { go_id, queued } => {
            format!(" {go_id}{}", if *queued { " queued" } else { "" })
        }
        PartyEventKind::GoFailed { missing, .. } => format!(" missing {}", missing.join("+")),
        _ => String::new(),
    }
}

fn show_party(party: &tavern_domain::party::Party) -> String {
    let mut people = String::new();
    for member in &party.members {
        people = format!("{people} {}{}", if member.away.is_some() { "~" } else { "" }, member.user);
    }
    for pending in &party.pending {
        people = format!("{people} {}{}", if pending.hidden { "-" } else { "+" }, pending.user);
    }
    format!("{} v{} {}:{people}", party.id, party.version, party.state().as_str())
}
