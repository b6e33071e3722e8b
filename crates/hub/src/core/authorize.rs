//! Authorization: whether a session may do something on a channel. The token decides first, then the app's authorize
//! hook if there is one, else the configuration. Answers of the hook are cached for a short, configured time.
//! Must hold: no answer means no; an answer is used for exactly the user, channel and verb it was given for.

use crate::connection::LinkId;
use crate::core::Core;
use crate::settings::Settings;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::channel::{Channel, Reach};
use tavern_domain::{Identity, Time, Verb, pattern};

/// A query to the app's authorize hook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizeQuery {
    pub user: Option<Arc<str>>,
    pub channel: Arc<str>,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizeAnswer {
    Allow,
    Deny,
    /// Allowed on another channel: a spectator of `game#G` is subscribed to `gametv#G`.
    Instead(Arc<str>),
}

/// The result of an authorization check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    Yes,
    No,
    Instead(Arc<str>),
    /// The hook must be called; the command runs again when it has answered.
    Ask(AuthorizeQuery),
}

/// Answers cached on one shard. Above this the expired ones are evicted, and if that is not enough all of them.
const ANSWERS_MAX: usize = 100_000;
/// The shortest time an answer is kept, so that the command it was asked for can run.
const ANSWER_MIN_MS: u64 = 250;

/// Decides what an identity may do, with the answers of the app's hook as far as they are cached.
#[derive(Debug, Default)]
pub struct Authorizer {
    answers: HashMap<AuthorizeQuery, (AuthorizeAnswer, Time), RandomState>,
    /// Queries that the hook has not answered yet, and the connections that wait for them.
    waiting: HashMap<AuthorizeQuery, Vec<LinkId>, RandomState>,
}

impl Authorizer {
    fn keep(&mut self, now: Time, question: AuthorizeQuery, reply: AuthorizeAnswer, cache_ms: u64) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.retain(|_, (_, until)| *until > now);
            if self.answers.len() >= ANSWERS_MAX {
                self.answers.clear();
            }
        }
        self.answers.insert(question, (reply, now + cache_ms.max(ANSWER_MIN_MS)));
    }

    fn find(&self, now: Time, question: &AuthorizeQuery) -> Option<&AuthorizeAnswer> {
        self.answers.get(question).filter(|(_, until)| now < *until).map(|(reply, _)| reply)
    }

    pub fn forget_old(&mut self, now: Time) {
        self.answers.retain(|_, (_, until)| now < *until);
    }
}

/// Whether an identity may do this on a channel.
pub fn permit(core: &Core, identity: &Identity, verb: Verb, channel: &Channel<'_>) -> Permission {
    decide(core.now, &core.node.settings, &core.authorizer, identity, verb, channel)
}

/// Queues a query for the hook; the connection's command waits for the answer.
pub fn ask(core: &mut Core, question: AuthorizeQuery, link: LinkId) {
    let waiting = core.authorizer.waiting.entry(question.clone()).or_default();
    if waiting.is_empty() {
        core.effects.authorize_queries.push(question);
    }
    waiting.push(link);
}

/// The hook has answered: commands that waited for it may run again.
pub fn answer(core: &mut Core, question: AuthorizeQuery, reply: AuthorizeAnswer) {
    let cache_ms = core.node.settings.authorize.map_or(0, |rules| rules.cache_ms);
    if let Some(waiting) = core.authorizer.waiting.remove(&question) {
        core.effects.ready.extend(waiting);
    }
    core.authorizer.keep(core.now, question, reply, cache_ms);
}

fn decide(
    now: Time,
    settings: &Settings,
    answers: &Authorizer,
    identity: &Identity,
    verb: Verb,
    channel: &Channel<'_>,
) -> Permission {
    if channel.is_reserved() && matches!(verb, Verb::Publish | Verb::Join) {
        return Permission::No;
    }
    // Only the server subscribes to this channel, for the members of the party.
    if is_private(channel.name) {
        return Permission::No;
    }
    if identity.rights.allows(verb, channel.name) {
        return Permission::Yes;
    }
    let name = std::str::from_utf8(channel.name).ok().filter(|_| channel.reach == Reach::Everyone);
    if let (Some(_), Some(name)) = (settings.authorize, name) {
        let question = AuthorizeQuery { user: identity.user.clone(), channel: name.into(), verb };
        return match answers.find(now, &question) {
            Some(AuthorizeAnswer::Allow) => Permission::Yes,
            Some(AuthorizeAnswer::Deny) => Permission::No,
            Some(AuthorizeAnswer::Instead(other)) => Permission::Instead(other.clone()),
            None => Permission::Ask(question),
        };
    }
    if settings.kind(channel.kind).allow.has(verb) { Permission::Yes } else { Permission::No }
}

/// A party's channel: only the server subscribes the members; no right grants access.
pub(crate) fn is_private(channel: &[u8]) -> bool {
    channel.starts_with(b"party#")
}

/// Whether a pattern may be subscribed to. The hook is not called for patterns, only for channels.
pub fn permit_pattern(settings: &Settings, identity: &Identity, asked: &[u8]) -> bool {
    identity.rights.allows_pattern(Verb::Subscribe, asked) || kind_allows(settings, asked)
}

/// The `allow` setting of a kind is a right to `kind#*`.
fn kind_allows(settings: &Settings, asked: &[u8]) -> bool {
    if settings.authorize.is_some() {
        return false;
    }
    let everywhere = settings.other_kinds.allow.has(Verb::Subscribe)
        && settings.kinds.values().all(|rules| rules.allow.has(Verb::Subscribe));
    let literal = pattern::literal_prefix(asked);
    let Some(end) = literal.iter().position(|&b| b == b'#') else {
        return everywhere;
    };
    let kind = std::str::from_utf8(&literal[..end]).unwrap_or_default();
    settings.kind(kind).allow.has(Verb::Subscribe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{AuthorizeRules, KindRules};
    use tavern_domain::rights::Grant;
    use tavern_domain::{Rights, Scopes, Verbs};

    fn identity(pattern: &str, verbs: &[Verb]) -> Identity {
        let grant = Grant { pattern: pattern.as_bytes().into(), verbs: verbs.iter().copied().collect() };
        Identity {
            user: Some("ann".into()),
            name: None,
            rights: Arc::new(Rights { grants: vec![grant] }),
            expires: Time::NEVER,
            issued_s: 0,
            unlimited: false,
            scopes: Scopes::NONE,
            key: None,
        }
    }

    fn ask(settings: &Settings, answers: &Authorizer, who: &Identity, verb: Verb, name: &str) -> Permission {
        decide(Time(1000), settings, answers, who, verb, &Channel::parse(name).unwrap())
    }

    #[test]
    fn token_is_checked_before_the_configuration_and_the_default_is_deny() {
        let mut settings = Settings::default();
        let none = Authorizer::default();
        let ann = identity("game#*", &[Verb::Subscribe]);
        assert_eq!(ask(&settings, &none, &ann, Verb::Subscribe, "game#1"), Permission::Yes);
        assert_eq!(ask(&settings, &none, &ann, Verb::Publish, "game#1"), Permission::No);
        let open = KindRules { allow: Verbs::ALL, ..KindRules::default() };
        settings.kinds.insert("lobby".into(), open);
        assert_eq!(ask(&settings, &none, &ann, Verb::Publish, "lobby#x"), Permission::Yes);
        assert_eq!(ask(&settings, &none, &ann, Verb::Publish, "chat#x"), Permission::No);
        assert!(permit_pattern(&settings, &ann, b"lobby#*"));
        assert!(!permit_pattern(&settings, &ann, b"*"));
    }

    #[test]
    fn clients_cannot_publish_to_kinds_of_the_server() {
        let all = identity("*", &Verb::ALL);
        for name in ["user#ann", "party#1", "tavern#x"] {
            assert_eq!(
                ask(&Settings::default(), &Authorizer::default(), &all, Verb::Publish, name),
                Permission::No
            );
            assert_eq!(
                ask(&Settings::default(), &Authorizer::default(), &all, Verb::Join, name),
                Permission::No
            );
        }
        let settings = Settings::default();
        assert_eq!(ask(&settings, &Authorizer::default(), &all, Verb::Subscribe, "party#1"), Permission::No);
        assert_eq!(
            ask(&settings, &Authorizer::default(), &all, Verb::Subscribe, "user#ann"),
            Permission::Yes
        );
    }

    #[test]
    fn the_app_is_asked_once_and_its_answer_ages() {
        let rules = AuthorizeRules { cache_ms: 500 };
        let settings = Settings { authorize: Some(rules), ..Settings::default() };
        let mut answers = Authorizer::default();
        let ann = identity("none", &[]);
        let Permission::Ask(question) = ask(&settings, &answers, &ann, Verb::Subscribe, "game#G") else {
            panic!("asks")
        };
        answers.keep(Time(600), question.clone(), AuthorizeAnswer::Instead("gametv#G".into()), 500);
        let instead = Permission::Instead("gametv#G".into());
        assert_eq!(ask(&settings, &answers, &ann, Verb::Subscribe, "game#G"), instead);
        let other = ask(&settings, &answers, &ann, Verb::Publish, "game#G");
        assert!(matches!(other, Permission::Ask(_)), "another verb is another question");
        answers.keep(Time(500), question, AuthorizeAnswer::Allow, 500);
        let later = ask(&settings, &answers, &ann, Verb::Subscribe, "game#G");
        assert!(matches!(later, Permission::Ask(_)), "at its end an answer has ended");
    }
}
