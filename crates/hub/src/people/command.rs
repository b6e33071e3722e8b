//! The commands about people: `follow`, `unfollow`, `following`, `followers`, `status`, `visibility`. Each waits for the
//! store: it runs once to begin, and again to find its answer.

use super::People;
use super::load::{Task, followee_of};
use crate::core::command::{Caller, Step, Stop, refuse};
use crate::core::listener::ListenerId;
use crate::core::{Claim, Core, Notice, Reply, refusal};
use crate::user::is_user;
use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::presence::{Fact, Rumour, Status, Viewer, Visibility};
use tavern_engine::{
    Answer, Commit, Expect, Follow, Found, Person, Read, Row, RowKey, StoreError, Ticket, User, Work,
};
use tavern_wire::error::Code;
use tavern_wire::json::Part;
use tavern_wire::json::person::{self as json, Doing};

/// Users in one answer to `following` and `followers`, unless it asks for fewer, and at most.
const LIST_USERS: u64 = 100;
const LIST_USERS_MAX: u64 = 1000;
/// Users that one `status` may ask for.
const STATUS_USERS: usize = 100;
/// Changes of mind in a row after which a command gives up.
const TRIES: u8 = 8;

impl People {
    pub(crate) fn op_follow(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        whom: &str,
        on: bool,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = core.take_reply(caller, body) {
            return done;
        }
        let user = People::named(core, id)?;
        let followee = user_name(whom)?;
        if on && user == followee {
            return refuse(Code::BadRequest, "nobody follows himself");
        }
        let most = core.node.settings.following;
        let following = core.users.get(&user).map(|local| &local.following);
        if on && following.is_some_and(|known| known.len() >= most && !known.contains_key(&followee)) {
            return refuse(Code::TooLarge, format!("a user follows at most {most} others"));
        }
        let claim = core.replies.claim(caller.link.id);
        self.follow(core, &user, &followee, on, Some(claim));
        Err(Stop::Wait)
    }

    /// Writes down that somebody follows somebody, or does not any more.
    pub(crate) fn follow(
        &mut self,
        core: &mut Core,
        follower: &Arc<str>,
        followee: &Arc<str>,
        on: bool,
        claim: Option<Claim>,
    ) {
        let now = core.now;
        let key = RowKey::Follow { follower: follower.clone(), followee: followee.clone() };
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        if on {
            let follow = Follow { follower: follower.clone(), followee: followee.clone(), since: now };
            commit.puts.push(Row::Follow(follow));
            // Whoever follows already began when he began.
            commit.expects.push(Expect { key, version: 0 });
        } else {
            commit.deletes.push(key);
        }
        let task = Task::Follow { follower: follower.clone(), followee: followee.clone(), on, claim };
        self.ask_people(core, task, Work::Commit(commit));
    }

    /// `following` and `followers`.
    pub(crate) fn op_list(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        part: &Part<'_>,
        followers: bool,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = core.take_reply(caller, body) {
            return done;
        }
        let user = People::named(core, id)?;
        let after = part.after.as_deref().map(Arc::from);
        let limit = part.limit.unwrap_or(LIST_USERS).clamp(1, LIST_USERS_MAX) as u32;
        let read = match followers {
            true => Read::Followers { user, after, limit },
            false => Read::Following { user, after, limit },
        };
        let claim = core.replies.claim(caller.link.id);
        self.ask_people(core, Task::List { claim, followers }, Work::Read(read));
        Err(Stop::Wait)
    }

    pub(crate) fn op_status(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        users: &[Cow<'_, str>],
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = core.take_reply(caller, body) {
            return done;
        }
        let viewer = People::named(core, id)?;
        if users.len() > STATUS_USERS {
            return refuse(
                Code::TooLarge,
                format!("status tells about at most {STATUS_USERS} users at once"),
            );
        }
        let users = users.iter().map(|user| user_name(user)).collect::<Step<Vec<Arc<str>>>>()?;
        let claim = core.replies.claim(caller.link.id);
        let read = Read::People { users, viewer: Some(viewer.clone()) };
        self.ask_people(core, Task::Statuses { claim, viewer: Some(viewer) }, Work::Read(read));
        Err(Stop::Wait)
    }

    pub(crate) fn op_visibility(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        value: Visibility,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = core.take_reply(caller, body) {
            return done;
        }
        let user = People::named(core, id)?;
        let claim = core.replies.claim(caller.link.id);
        self.show(core, &user, value, claim, 0);
        Err(Stop::Wait)
    }

    /// Changes to whom somebody shows himself: reads what he is first.
    pub(crate) fn show(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        value: Visibility,
        claim: Claim,
        tries: u8,
    ) {
        let read = Read::People { users: vec![user.clone()], viewer: None };
        self.ask_people(core, Task::Show { value, claim, tries }, Work::Read(read));
    }

    fn named(core: &Core, id: ListenerId) -> Step<Arc<str>> {
        core.user_of(id).map_or_else(
            || refuse(Code::NotAllowed, "somebody without a name follows nobody and is followed by nobody"),
            Ok,
        )
    }

    /// The store has answered something about people.
    pub(crate) fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: Answer) {
        let Some(task) = self.under_way.remove(&ticket) else { return };
        match (task, answer) {
            (Task::Load(load), answer) => self.loaded(core, load, answer),
            (Task::Herald(told), answer) => self.heralds_read(core, told, answer),
            (Task::Follow { follower, followee, on, claim }, Answer::Committed(receipt)) => {
                let version = receipt.put.first().or(receipt.deleted.first()).copied().unwrap_or(0);
                self.followed(core, &follower, &followee, version, on);
                finish_if(core, claim, Ok(Vec::new()));
            }
            // He follows him already.
            (Task::Follow { claim, .. }, Answer::Failed(StoreError::Conflict { .. })) => {
                finish_if(core, claim, Ok(Vec::new()));
            }
            (Task::List { claim, followers }, Answer::Read(Found::Edges(page))) => {
                let name = |edge: &tavern_engine::Edge| match followers {
                    true => edge.follow.follower.clone(),
                    false => edge.follow.followee.clone(),
                };
                let names: Vec<Arc<str>> = page.rows.iter().map(name).collect();
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                let mut body = Vec::new();
                json::users(&mut body, &names, names.last().copied().filter(|_| page.more));
                core.finish(claim, Ok(body));
            }
            (Task::Statuses { claim, viewer }, Answer::Read(Found::People(people))) => {
                let body = statuses(core, viewer.as_deref(), &people);
                core.finish(claim, Ok(body));
            }
            (Task::Show { value, claim, tries }, Answer::Read(Found::People(mut people)))
                if !people.is_empty() =>
            {
                self.show_read(core, people.remove(0), value, claim, tries);
            }
            (Task::Shown { person, value, claim, .. }, Answer::Committed(receipt)) => {
                self.shown(core, &person, value, receipt.put.first().copied().unwrap_or(0));
                core.finish(claim, Ok(Vec::new()));
            }
            (Task::Shown { person, value, claim, tries }, Answer::Failed(StoreError::Conflict { .. }))
                if tries < TRIES =>
            {
                self.show(core, &person.user, value, claim, tries + 1);
            }
            (
                Task::List { claim, .. }
                | Task::Statuses { claim, .. }
                | Task::Show { claim, .. }
                | Task::Shown { claim, .. },
                answer,
            ) => core.finish(claim, Err(refusal(&answer))),
            (Task::Follow { claim, .. }, answer) => finish_if(core, claim, Err(refusal(&answer))),
        }
    }

    fn show_read(&mut self, core: &mut Core, person: Person, value: Visibility, claim: Claim, tries: u8) {
        let (version, before) =
            person.known.as_ref().map_or((0, Visibility::default()), |row| (row.version, row.row.visibility));
        if before == value {
            return core.finish(claim, Ok(Vec::new()));
        }
        let user = User { user: person.user.clone(), last_seen: None, visibility: value };
        let commit = Commit {
            writer: Some(core.writer()),
            expects: vec![Expect { key: RowKey::User(person.user.clone()), version }],
            puts: vec![Row::User(user)],
            ..Commit::default()
        };
        let task = Task::Shown { person: Box::new(person), value, claim, tries };
        self.ask_people(core, task, Work::Commit(commit));
    }

    /// It is so: wherever he is he turns his face, and followers hear of it.
    fn shown(&mut self, core: &mut Core, person: &Person, visibility: Visibility, version: u64) {
        let fact = Fact::Shown { version, visibility };
        self.spread_rumour(core, &person.user, Rumour::Fact(fact));
        for row in person.presences.iter().filter(|row| !row.row.anonymous) {
            core.notify(Notice::VisibilityChangedIn { key: row.row.key.clone(), visibility });
        }
    }
}

pub(super) fn user_name(name: &str) -> Step<Arc<str>> {
    match is_user(name) {
        true => Ok(name.into()),
        false => refuse(Code::BadRequest, "a user id has 1 to 128 bytes and no control characters"),
    }
}

fn finish_if(core: &mut Core, claim: Option<Claim>, reply: Reply) {
    if let Some(claim) = claim {
        core.finish(claim, reply);
    }
}

fn statuses(core: &Core, viewer: Option<&str>, people: &[Person]) -> Vec<u8> {
    let now = core.now;
    let activities = &core.node.settings.activities;
    let shown: Vec<(&Person, Option<Arc<str>>, Status)> = people
        .iter()
        .map(|person| {
            let followee = followee_of(now, person);
            let eye = match viewer {
                Some(viewer) if *viewer == *person.user => Viewer::Himself,
                _ => Viewer::Other { mutual: person.mutual },
            };
            let seen = followee.visibility.shows(eye);
            let status = if seen { followee.status(activities) } else { Status::default() };
            (person, followee.name.filter(|_| seen), status)
        })
        .collect();
    let people: Vec<Doing<'_>> = shown
        .iter()
        .map(|(person, name, status)| Doing { user: &person.user, name: name.as_deref(), status })
        .collect();
    let mut body = Vec::new();
    json::statuses(&mut body, &people);
    body
}
