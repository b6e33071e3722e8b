//! The commands about people: `follow`, `unfollow`, `following`, `followers`, `status`, `visibility`. Each begins a
//! request to the store and has its reply when the store has answered.

use super::statuses::reply_for;
use super::visibility::{StoredVisibility, VisibilityDecision};
use crate::core::command::{Caller, CommandResult, CommandStop, refuse};
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Notice, ReplyTo, refusal};
use crate::transaction::{Facts, TransactionEnd, TransactionProgress, Transactions};
use crate::user::is_user;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::presence::{UserUpdate, Visibility};
use tavern_store::social::FollowPage;
use tavern_store::{
    Commit, Expect, Follow, Found, Read, Receipt, Row, RowKey, StoreAnswer, StoreError, Ticket, Work,
};
use tavern_wire::error::Code;
use tavern_wire::json::{PageRequest, status as json};

/// Users in one reply to `following` and `followers`, unless the command asks for fewer, and at most.
const LIST_USERS: u64 = 100;
const LIST_USERS_MAX: u64 = 1000;
/// Users that one `status` may ask for.
const STATUS_USERS: usize = 100;

pub(crate) struct PeopleCommands {
    visibility: Transactions<VisibilityDecision>,
    requests: HashMap<Ticket, (ReplyTo, PeopleRequest), RandomState>,
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
    ) -> CommandResult<()> {
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
        Err(CommandStop::Submitted)
    }

    /// Records that a user follows another, or does not any more.
    pub fn follow(
        &mut self,
        core: &mut Core,
        follower: Arc<str>,
        followee: Arc<str>,
        on: bool,
        claim: ReplyTo,
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
        part: &PageRequest<'_>,
        followers: bool,
    ) -> CommandResult<()> {
        let user = named_user(core, id)?;
        let after = part.after.as_deref().map(Arc::from);
        let limit = part.limit.unwrap_or(LIST_USERS).clamp(1, LIST_USERS_MAX) as u32;
        let (request, read) = match followers {
            true => (PeopleRequest::Followers, Read::Followers { user, after, limit }),
            false => (PeopleRequest::Following, Read::Following { user, after, limit }),
        };
        let claim = core.replies.claim(caller.link.id);
        self.submit(core, claim, request, Work::Read(read));
        Err(CommandStop::Submitted)
    }

    pub fn op_status(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        users: &[Cow<'_, str>],
    ) -> CommandResult<()> {
        let viewer = named_user(core, id)?;
        if users.len() > STATUS_USERS {
            return refuse(Code::TooLarge, format!("status takes at most {STATUS_USERS} users at once"));
        }
        let users = users.iter().map(|user| user_id(user)).collect::<CommandResult<Vec<Arc<str>>>>()?;
        let claim = core.replies.claim(caller.link.id);
        let read = Read::People { users, viewer: Some(viewer.clone()) };
        self.submit(core, claim, PeopleRequest::Statuses { viewer }, Work::Read(read));
        Err(CommandStop::Submitted)
    }

    pub fn op_visibility(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        value: Visibility,
    ) -> CommandResult<()> {
        let user = named_user(core, id)?;
        let claim = core.replies.claim(caller.link.id);
        self.set_visibility(core, user, value, claim);
        Err(CommandStop::Submitted)
    }

    /// Changes who can see a user.
    pub fn set_visibility(&mut self, core: &mut Core, user: Arc<str>, value: Visibility, claim: ReplyTo) {
        let decision = VisibilityDecision { user, value, claim };
        let begun = self.visibility.begin(core, decision, Facts::default());
        debug_assert!(matches!(begun, TransactionProgress::Waits), "it needs the stored visibility first");
    }

    /// Gives a user whose visibility may have been committed although the store did not say so.
    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) -> Option<Arc<str>> {
        if let Some((claim, request)) = self.requests.remove(&ticket) {
            request_answered(core, claim, request, answer);
            return None;
        }
        match self.visibility.answered(core, ticket, answer) {
            TransactionProgress::Ended(decision, ended) => visibility_ended(core, decision, ended),
            TransactionProgress::Waits | TransactionProgress::Paused(_) => None,
        }
    }

    fn submit(&mut self, core: &mut Core, claim: ReplyTo, request: PeopleRequest, work: Work) {
        self.requests.insert(core.submit(Feature::People, work), (claim, request));
    }
}

fn visibility_ended(
    core: &mut Core,
    decision: VisibilityDecision,
    ended: TransactionEnd<Option<StoredVisibility>>,
) -> Option<Arc<str>> {
    let VisibilityDecision { user, claim, .. } = decision;
    match ended {
        TransactionEnd::Failed { answer, unknown } => {
            core.finish(claim, Err(refusal(&answer)));
            return unknown.map(|_| user);
        }
        TransactionEnd::Committed(Some(stored), receipt) => {
            core.finish(claim, Ok(Vec::new()));
            let version = receipt.put.first().copied().unwrap_or(0);
            StoredVisibility { version, ..stored }.tell(core, &user);
        }
        TransactionEnd::Committed(None, _) | TransactionEnd::Done(_) => core.finish(claim, Ok(Vec::new())),
    }
    None
}

fn request_answered(core: &mut Core, claim: ReplyTo, request: PeopleRequest, answer: StoreAnswer) {
    let reply = match (request, answer) {
        (PeopleRequest::Follow { follower, followee, on }, StoreAnswer::Committed(receipt)) => {
            follow_committed(core, follower, followee, on, &receipt);
            Ok(Vec::new())
        }
        // They follow them already.
        (PeopleRequest::Follow { .. }, StoreAnswer::Failed(StoreError::Conflict { .. })) => Ok(Vec::new()),
        (PeopleRequest::Following, StoreAnswer::Read(Found::Edges(page))) => {
            Ok(list_reply(&page, |follow| &follow.followee))
        }
        (PeopleRequest::Followers, StoreAnswer::Read(Found::Edges(page))) => {
            Ok(list_reply(&page, |follow| &follow.follower))
        }
        (PeopleRequest::Statuses { viewer }, StoreAnswer::Read(Found::People(people))) => {
            Ok(reply_for(core, &viewer, &people))
        }
        (_, answer) => Err(refusal(&answer)),
    };
    core.finish(claim, reply);
}

fn follow_committed(core: &mut Core, follower: Arc<str>, followee: Arc<str>, on: bool, receipt: &Receipt) {
    let version = receipt.put.first().or(receipt.deleted.first()).copied().unwrap_or(0);
    let update = UserUpdate::Follows { followee, version, on };
    core.notify(Notice::StatusUpdate { user: follower, update });
}

fn list_reply(page: &FollowPage, name: impl Fn(&Follow) -> &Arc<str>) -> Vec<u8> {
    let names: Vec<&str> = page.rows.iter().map(|edge| &**name(&edge.follow)).collect();
    let mut body = Vec::new();
    json::users(&mut body, &names, names.last().copied().filter(|_| page.more));
    body
}

/// The user of a session.
fn named_user(core: &Core, id: ListenerId) -> CommandResult<Arc<str>> {
    match core.user_of(id) {
        Some(user) => Ok(user),
        None => refuse(
            Code::NotAllowed,
            "this needs a session with a user; say hello with a token that names one",
        ),
    }
}

fn user_id(name: &str) -> CommandResult<Arc<str>> {
    match is_user(name) {
        true => Ok(name.into()),
        false => refuse(Code::BadRequest, "a user id has 1 to 128 bytes and no control characters"),
    }
}
