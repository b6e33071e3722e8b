//! The commands about people: `follow`, `unfollow`, `following`, `followers`, `status`, `visibility`. Each begins a
//! request to the store and has its reply when the store has answered.

use super::statuses::reply_for;
use super::visibility::{StoredVisibility, VisibilityDecision};
use crate::core::command::{Caller, Step, Stop, refuse};
use crate::core::listener::ListenerId;
use crate::core::{Claim, Core, Feature, Notice, refusal};
use crate::transaction::{Ended, Facts, Progress, Transactions};
use crate::user::is_user;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::presence::{Rumour, Visibility};
use tavern_engine::social::Edges;
use tavern_engine::{
    Answer, Commit, Expect, Follow, Found, Read, Receipt, Row, RowKey, StoreError, Ticket, Work,
};
use tavern_wire::error::Code;
use tavern_wire::json::{Part, person as json};

/// Users in one reply to `following` and `followers`, unless the command asks for fewer, and at most.
const LIST_USERS: u64 = 100;
const LIST_USERS_MAX: u64 = 1000;
/// Users that one `status` may ask for.
const STATUS_USERS: usize = 100;

pub(crate) struct PeopleCommands {
    visibility: Transactions<VisibilityDecision>,
    requests: HashMap<Ticket, (Claim, PeopleRequest), RandomState>,
}

/// What was asked of the store for a command.
enum PeopleRequest {
    Follow { follower: Arc<str>, followee: Arc<str>, on: bool },
    Following,
    Followers,
    Statuses { viewer: Arc<str> },
}

impl Default for PeopleCommands {
    fn default() -> PeopleCommands {
        PeopleCommands { visibility: Transactions::new(Feature::People), requests: HashMap::default() }
    }
}

impl PeopleCommands {
    /// `follow` and `unfollow`.
    pub fn op_follow(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        whom: &str,
        on: bool,
    ) -> Step<()> {
        let user = named_user(core, id)?;
        let followee = user_id(whom)?;
        if on && user == followee {
            return refuse(Code::BadRequest, "users cannot follow themselves");
        }
        let most = core.node.settings.following;
        let following = core.users.get(&user).map(|local| &local.following);
        if on && following.is_some_and(|known| known.len() >= most && !known.contains_key(&followee)) {
            return refuse(Code::TooLarge, format!("a user follows at most {most} others"));
        }
        let claim = core.replies.claim(caller.link.id);
        self.follow(core, user, followee, on, claim);
        Err(Stop::Wait)
    }

    /// Records that a user follows another, or does not any more.
    pub fn follow(
        &mut self,
        core: &mut Core,
        follower: Arc<str>,
        followee: Arc<str>,
        on: bool,
        claim: Claim,
    ) {
        let key = RowKey::Follow { follower: follower.clone(), followee: followee.clone() };
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        if on {
            let follow = Follow { follower: follower.clone(), followee: followee.clone(), since: core.now };
            commit.puts.push(Row::Follow(follow));
            // A follow that exists keeps the time it began.
            commit.expects.push(Expect { key, version: 0 });
        } else {
            commit.deletes.push(key);
        }
        self.submit(core, claim, PeopleRequest::Follow { follower, followee, on }, Work::Commit(commit));
    }

    /// `following` and `followers`.
    pub fn op_list(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        part: &Part<'_>,
        followers: bool,
    ) -> Step<()> {
        let user = named_user(core, id)?;
        let after = part.after.as_deref().map(Arc::from);
        let limit = part.limit.unwrap_or(LIST_USERS).clamp(1, LIST_USERS_MAX) as u32;
        let (request, read) = match followers {
            true => (PeopleRequest::Followers, Read::Followers { user, after, limit }),
            false => (PeopleRequest::Following, Read::Following { user, after, limit }),
        };
        let claim = core.replies.claim(caller.link.id);
        self.submit(core, claim, request, Work::Read(read));
        Err(Stop::Wait)
    }

    pub fn op_status(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        users: &[Cow<'_, str>],
    ) -> Step<()> {
        let viewer = named_user(core, id)?;
        if users.len() > STATUS_USERS {
            return refuse(Code::TooLarge, format!("status takes at most {STATUS_USERS} users at once"));
        }
        let users = users.iter().map(|user| user_id(user)).collect::<Step<Vec<Arc<str>>>>()?;
        let claim = core.replies.claim(caller.link.id);
        let read = Read::People { users, viewer: Some(viewer.clone()) };
        self.submit(core, claim, PeopleRequest::Statuses { viewer }, Work::Read(read));
        Err(Stop::Wait)
    }

    pub fn op_visibility(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        value: Visibility,
    ) -> Step<()> {
        let user = named_user(core, id)?;
        let claim = core.replies.claim(caller.link.id);
        self.set_visibility(core, user, value, claim);
        Err(Stop::Wait)
    }

    /// Changes who can see a user.
    pub fn set_visibility(&mut self, core: &mut Core, user: Arc<str>, value: Visibility, claim: Claim) {
        let decision = VisibilityDecision { user, value, claim };
        let begun = self.visibility.begin(core, decision, Facts::default());
        debug_assert!(matches!(begun, Progress::Waits), "it needs the stored visibility first");
    }

    /// Gives a user whose visibility may have been committed although the store did not say so.
    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: Answer) -> Option<Arc<str>> {
        if let Some((claim, request)) = self.requests.remove(&ticket) {
            request_answered(core, claim, request, answer);
            return None;
        }
        match self.visibility.answered(core, ticket, answer) {
            Progress::Ended(decision, ended) => visibility_ended(core, decision, ended),
            Progress::Waits | Progress::Paused(_) => None,
        }
    }

    fn submit(&mut self, core: &mut Core, claim: Claim, request: PeopleRequest, work: Work) {
        self.requests.insert(core.submit(Feature::People, work), (claim, request));
    }
}

fn visibility_ended(
    core: &mut Core,
    decision: VisibilityDecision,
    ended: Ended<Option<StoredVisibility>>,
) -> Option<Arc<str>> {
    let VisibilityDecision { user, claim, .. } = decision;
    match ended {
        Ended::Failed { answer, unknown } => {
            core.finish(claim, Err(refusal(&answer)));
            return unknown.map(|_| user);
        }
        Ended::Committed(Some(stored), receipt) => {
            core.finish(claim, Ok(Vec::new()));
            let version = receipt.put.first().copied().unwrap_or(0);
            StoredVisibility { version, ..stored }.tell(core, &user);
        }
        Ended::Committed(None, _) | Ended::Done(_) => core.finish(claim, Ok(Vec::new())),
    }
    None
}

fn request_answered(core: &mut Core, claim: Claim, request: PeopleRequest, answer: Answer) {
    let reply = match (request, answer) {
        (PeopleRequest::Follow { follower, followee, on }, Answer::Committed(receipt)) => {
            follow_committed(core, follower, followee, on, &receipt);
            Ok(Vec::new())
        }
        // They follow them already.
        (PeopleRequest::Follow { .. }, Answer::Failed(StoreError::Conflict { .. })) => Ok(Vec::new()),
        (PeopleRequest::Following, Answer::Read(Found::Edges(page))) => {
            Ok(list_reply(&page, |follow| &follow.followee))
        }
        (PeopleRequest::Followers, Answer::Read(Found::Edges(page))) => {
            Ok(list_reply(&page, |follow| &follow.follower))
        }
        (PeopleRequest::Statuses { viewer }, Answer::Read(Found::People(people))) => {
            Ok(reply_for(core, &viewer, &people))
        }
        (_, answer) => Err(refusal(&answer)),
    };
    core.finish(claim, reply);
}

fn follow_committed(core: &mut Core, follower: Arc<str>, followee: Arc<str>, on: bool, receipt: &Receipt) {
    let version = receipt.put.first().or(receipt.deleted.first()).copied().unwrap_or(0);
    let update = Rumour::Follows { followee, version, on };
    core.notify(Notice::StatusUpdate { user: follower, update });
}

fn list_reply(page: &Edges, name: impl Fn(&Follow) -> &Arc<str>) -> Vec<u8> {
    let names: Vec<&str> = page.rows.iter().map(|edge| &**name(&edge.follow)).collect();
    let mut body = Vec::new();
    json::users(&mut body, &names, names.last().copied().filter(|_| page.more));
    body
}

/// The user of a session.
fn named_user(core: &Core, id: ListenerId) -> Step<Arc<str>> {
    match core.user_of(id) {
        Some(user) => Ok(user),
        None => refuse(
            Code::NotAllowed,
            "this needs a session with a user; say hello with a token that names one",
        ),
    }
}

fn user_id(name: &str) -> Step<Arc<str>> {
    match is_user(name) {
        true => Ok(name.into()),
        false => refuse(Code::BadRequest, "a user id has 1 to 128 bytes and no control characters"),
    }
}
