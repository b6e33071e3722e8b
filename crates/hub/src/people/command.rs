//! The commands about people: `follow`, `unfollow`, `following`, `followers`, `status`, `visibility`. Each starts a
//! request to the store and is answered when the store has answered.

use super::follow::FollowDecision;
use super::statuses::reply_for;
use super::visibility::{StoredVisibility, VisibilityDecision};
use crate::core::command::{Caller, CommandEnd, CommandResult, refuse};
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, ReplyTo, refusal};
use crate::transaction::{Facts, TransactionEnd, TransactionProgress, Transactions};
use crate::user::is_user;
use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::USER_ID_RULES;
use tavern_domain::presence::Visibility;
use tavern_store::social::FollowPage;
use tavern_store::{Found, Read, RowKey, StoreAnswer, Ticket, Work};
use tavern_wire::error::Code;
use tavern_wire::json::{PageRequest, status as json};

/// Users in one reply to `following` and `followers`, unless the command names a limit.
const LIST_USERS: u64 = 100;
/// Users that one `status` may ask for.
const STATUS_USERS: usize = 100;

pub(crate) struct PeopleCommands {
    follows: Transactions<FollowDecision>,
    visibility: Transactions<VisibilityDecision>,
}

impl Default for PeopleCommands {
    fn default() -> PeopleCommands {
        PeopleCommands {
            follows: Transactions::new(Feature::People),
            visibility: Transactions::new(Feature::People),
        }
    }
}

/// A commit with an unknown outcome: what must be read to resolve it.
pub(crate) enum UnknownOutcome {
    /// Whom this user follows.
    Follow(Arc<str>),
    /// The visibility of this user.
    Visibility(Arc<str>),
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
    ) -> CommandResult<CommandEnd> {
        let user = named_user(core, id)?;
        let followee = user_id(whom)?;
        if on && user == followee {
            return refuse(Code::BadRequest, "users cannot follow themselves");
        }
        let max = core.node.settings.following;
        let following = core.users.get(&user).map(|local| &local.following);
        if on && following.is_some_and(|known| known.len() >= max && !known.contains_key(&followee)) {
            return refuse(Code::TooLarge, format!("a user may follow at most {max} others"));
        }
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        self.follow(core, user, followee, on, claim);
        Ok(CommandEnd::stored())
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
        let decision = FollowDecision { follower, followee, on, claim };
        let begun = self.follows.begin(core, decision, Facts::default());
        debug_assert!(matches!(begun, TransactionProgress::Waits), "it commits first");
    }

    /// `following` and `followers`.
    pub fn op_list(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        part: &PageRequest<'_>,
        followers: bool,
    ) -> CommandResult<CommandEnd> {
        let user = named_user(core, id)?;
        let after = part.after.as_deref().map(Arc::from);
        let limit = part.limit.unwrap_or(LIST_USERS) as u32;
        let read = match followers {
            true => Read::Followers { user, after, limit },
            false => Read::Following { user, after, limit },
        };
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        core.ask_store(Work::Read(read), claim, move |_, answer| match answer {
            StoreAnswer::Read(Found::Edges(page)) => Ok(list_reply(&page, followers)),
            answer => Err(refusal(&answer)),
        });
        Ok(CommandEnd::stored())
    }

    pub fn op_status(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        users: &[Cow<'_, str>],
    ) -> CommandResult<CommandEnd> {
        let viewer = named_user(core, id)?;
        if users.len() > STATUS_USERS {
            return refuse(Code::TooLarge, format!("`status` accepts at most {STATUS_USERS} users"));
        }
        let users = users.iter().map(|user| user_id(user)).collect::<CommandResult<Vec<Arc<str>>>>()?;
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        let read = Read::People { users, viewer: Some(viewer.clone()) };
        core.ask_store(Work::Read(read), claim, move |core, answer| match answer {
            StoreAnswer::Read(Found::People(people)) => Ok(reply_for(core, &viewer, &people)),
            answer => Err(refusal(&answer)),
        });
        Ok(CommandEnd::stored())
    }

    pub fn op_visibility(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        value: Visibility,
    ) -> CommandResult<CommandEnd> {
        let user = named_user(core, id)?;
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        self.set_visibility(core, user, value, claim);
        Ok(CommandEnd::stored())
    }

    /// Changes who can see a user.
    pub fn set_visibility(&mut self, core: &mut Core, user: Arc<str>, value: Visibility, claim: ReplyTo) {
        let decision = VisibilityDecision { user, value, claim };
        let begun = self.visibility.begin(core, decision, Facts::default());
        debug_assert!(matches!(begun, TransactionProgress::Waits), "it needs the stored visibility first");
    }

    pub fn answered(
        &mut self,
        core: &mut Core,
        ticket: Ticket,
        answer: StoreAnswer,
    ) -> Option<UnknownOutcome> {
        if self.follows.owns(ticket) {
            let TransactionProgress::Ended(decision, ended) = self.follows.answered(core, ticket, answer)
            else {
                return None;
            };
            return decision.ended(core, ended).map(UnknownOutcome::Follow);
        }
        let TransactionProgress::Ended(decision, ended) = self.visibility.answered(core, ticket, answer)
        else {
            return None;
        };
        visibility_ended(core, decision, ended).map(UnknownOutcome::Visibility)
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
            let version = receipt.version(&RowKey::User(user.clone())).unwrap_or(0);
            StoredVisibility { version, ..stored }.publish(core, &user);
        }
        TransactionEnd::Committed(None, _) | TransactionEnd::Done(_) => core.finish(claim, Ok(Vec::new())),
    }
    None
}

fn list_reply(page: &FollowPage, followers: bool) -> Vec<u8> {
    let rows = page.rows.iter().map(|edge| &edge.follow);
    let names: Vec<&str> = match followers {
        true => rows.map(|follow| &*follow.follower).collect(),
        false => rows.map(|follow| &*follow.followee).collect(),
    };
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
            "this needs a session with a user; send hello with a token that names one",
        ),
    }
}

fn user_id(name: &str) -> CommandResult<Arc<str>> {
    match is_user(name) {
        true => Ok(name.into()),
        false => refuse(Code::BadRequest, USER_ID_RULES),
    }
}
