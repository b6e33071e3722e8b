//! The subscriptions and presences that the app has and a new session must restore.

use crate::glob;
use crate::shared::OnSuccess;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Desired {
    channels: BTreeMap<String, DesiredChannel>,
    patterns: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct DesiredChannel {
    subscribed: bool,
    watching: bool,
    /// Joined, with this state.
    joined: Option<Option<Value>>,
}

impl Desired {
    /// Records a command that has succeeded.
    pub fn record(&mut self, on_success: &OnSuccess) {
        match on_success {
            OnSuccess::Subscribe { channel, watch } => {
                let channel_state = self.channels.entry(channel.clone()).or_default();
                channel_state.subscribed = true;
                channel_state.watching |= watch;
            }
            OnSuccess::Unsubscribe { channel } => self.change(channel, |channel_state| {
                (channel_state.subscribed, channel_state.watching) = (false, false);
            }),
            OnSuccess::Pattern { pattern, wanted: true } => {
                self.patterns.insert(pattern.clone());
            }
            OnSuccess::Pattern { pattern, wanted: false } => {
                self.patterns.remove(pattern);
            }
            OnSuccess::Join { channel, state } => {
                let channel_state = self.channels.entry(channel.clone()).or_default();
                let before = channel_state.joined.take().flatten();
                channel_state.joined = Some(state.clone().or(before));
            }
            OnSuccess::Update { channel, state } => {
                self.change(channel, |channel_state| channel_state.joined = Some(Some(state.clone())))
            }
            OnSuccess::Leave { channel } => self.change(channel, |channel_state| channel_state.joined = None),
            OnSuccess::Unfollow { .. } | OnSuccess::Party { .. } | OnSuccess::Nothing => {}
        }
    }

    /// Forgets what a fresh token does not allow any more.
    pub fn revoke(&mut self, verb: &str, channel: Option<&str>, pattern: Option<&str>) {
        if let Some(pattern) = pattern {
            self.patterns.remove(pattern);
        }
        let Some(channel) = channel else { return };
        self.change(channel, |channel_state| match verb {
            "join" => channel_state.joined = None,
            "presence" => channel_state.watching = false,
            _ => (channel_state.subscribed, channel_state.watching) = (false, false),
        });
    }

    fn change(&mut self, channel: &str, how: impl FnOnce(&mut DesiredChannel)) {
        if let Some(channel_state) = self.channels.get_mut(channel) {
            how(channel_state);
            if !channel_state.subscribed && channel_state.joined.is_none() {
                self.channels.remove(channel);
            }
        }
    }

    pub fn is_subscribed(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|channel_state| channel_state.subscribed)
    }

    pub fn is_watching(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|channel_state| channel_state.watching)
    }

    pub fn matches_pattern(&self, channel: &str) -> bool {
        self.patterns.iter().any(|pattern| glob::matches(pattern.as_bytes(), channel.as_bytes()))
    }

    /// The commands for a new session, in order.
    pub fn commands(&self) -> Vec<(&'static str, Value, OnSuccess)> {
        let mut commands = Vec::new();
        for (name, channel_state) in &self.channels {
            if channel_state.subscribed {
                commands.push(subscribe(name, channel_state.watching));
            }
            if let Some(state) = &channel_state.joined {
                let mut members = json!({"channel": name});
                if let Some(state) = state {
                    members["state"] = state.clone();
                }
                commands.push(("join", members, OnSuccess::Nothing));
            }
        }
        for pattern in &self.patterns {
            commands.push(("subscribe", json!({"pattern": pattern}), OnSuccess::Nothing));
        }
        commands
    }
}

pub(crate) fn subscribe(channel: &str, watch: bool) -> (&'static str, Value, OnSuccess) {
    let members =
        if watch { json!({"channel": channel, "presence": true}) } else { json!({"channel": channel}) };
    ("subscribe", members, OnSuccess::Subscribe { channel: channel.to_owned(), watch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_subscriptions_and_presences_are_restored() {
        let mut desired = Desired::default();
        let game = || "game#1".to_owned();
        desired.record(&OnSuccess::Subscribe { channel: game(), watch: true });
        desired.record(&OnSuccess::Subscribe { channel: game(), watch: false });
        desired.record(&OnSuccess::Join { channel: game(), state: Some(json!(1)) });
        desired.record(&OnSuccess::Join { channel: game(), state: None });
        desired.record(&OnSuccess::Join { channel: "left#1".into(), state: None });
        desired.record(&OnSuccess::Leave { channel: "left#1".into() });
        desired.record(&OnSuccess::Pattern { pattern: "news#*".into(), wanted: true });
        desired.record(&OnSuccess::Update { channel: "never#1".into(), state: json!(1) });
        let commands: Vec<String> =
            desired.commands().iter().map(|(op, members, _)| format!("{op} {members}")).collect();
        assert_eq!(
            commands,
            [
                r#"subscribe {"channel":"game#1","presence":true}"#,
                r#"join {"channel":"game#1","state":1}"#,
                r#"subscribe {"pattern":"news#*"}"#
            ]
        );
        assert!(desired.matches_pattern("news#today") && !desired.matches_pattern("game#1"));
        let mut fewer = Desired::default();
        fewer.record(&OnSuccess::Subscribe { channel: game(), watch: true });
        fewer.record(&OnSuccess::Join { channel: game(), state: None });
        fewer.record(&OnSuccess::Pattern { pattern: "news#*".into(), wanted: true });
        fewer.revoke("presence", Some("game#1"), None);
        assert!(fewer.is_subscribed("game#1") && !fewer.is_watching("game#1"));
        fewer.revoke("subscribe", None, Some("news#*"));
        fewer.revoke("subscribe", Some("game#1"), None);
        fewer.revoke("join", Some("game#1"), None);
        assert!(fewer.commands().is_empty());
        desired.record(&OnSuccess::Unsubscribe { channel: game() });
        assert!(!desired.is_subscribed("game#1") && !desired.is_watching("game#1"));
        assert_eq!(desired.commands().len(), 2);
    }
}
