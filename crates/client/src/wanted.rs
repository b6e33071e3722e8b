//! What an app has asked for and was granted: what a new session must be told so that all is as before.

use crate::shared::Note;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Wanted {
    channels: BTreeMap<String, Place>,
    patterns: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Place {
    subscribed: bool,
    watching: bool,
    /// Present, and with which state.
    joined: Option<Option<Value>>,
}

impl Wanted {
    /// A command with this note has succeeded.
    pub fn note(&mut self, note: &Note) {
        match note {
            Note::Subscribe { channel, watch } => {
                let place = self.channels.entry(channel.clone()).or_default();
                place.subscribed = true;
                place.watching |= watch;
            }
            Note::Unsubscribe { channel } => self.change(channel, |place| {
                (place.subscribed, place.watching) = (false, false);
            }),
            Note::Pattern { pattern, wanted: true } => {
                self.patterns.insert(pattern.clone());
            }
            Note::Pattern { pattern, wanted: false } => {
                self.patterns.remove(pattern);
            }
            Note::Join { channel, state } => {
                let place = self.channels.entry(channel.clone()).or_default();
                let before = place.joined.take().flatten();
                place.joined = Some(state.clone().or(before));
            }
            Note::Update { channel, state } => {
                self.change(channel, |place| place.joined = Some(Some(state.clone())))
            }
            Note::Leave { channel } => self.change(channel, |place| place.joined = None),
            Note::Party { .. } | Note::Nothing => {}
        }
    }

    fn change(&mut self, channel: &str, how: impl FnOnce(&mut Place)) {
        if let Some(place) = self.channels.get_mut(channel) {
            how(place);
            if !place.subscribed && place.joined.is_none() {
                self.channels.remove(channel);
            }
        }
    }

    pub fn is_subscribed(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|place| place.subscribed)
    }

    pub fn is_watching(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|place| place.watching)
    }

    pub fn hears_pattern(&self, channel: &str) -> bool {
        self.patterns
            .iter()
            .any(|pattern| tavern_domain::pattern::matches(pattern.as_bytes(), channel.as_bytes()))
    }

    /// The commands for a new session, in order.
    pub fn commands(&self) -> Vec<(&'static str, Value, Note)> {
        let mut commands = Vec::new();
        for (name, place) in &self.channels {
            if place.subscribed {
                commands.push(subscribe(name, place.watching));
            }
            if let Some(state) = &place.joined {
                let mut members = json!({"channel": name});
                if let Some(state) = state {
                    members["state"] = state.clone();
                }
                commands.push(("join", members, Note::Nothing));
            }
        }
        for pattern in &self.patterns {
            commands.push(("subscribe", json!({"pattern": pattern}), Note::Nothing));
        }
        commands
    }
}

pub(crate) fn subscribe(channel: &str, watch: bool) -> (&'static str, Value, Note) {
    let members =
        if watch { json!({"channel": channel, "presence": true}) } else { json!({"channel": channel}) };
    ("subscribe", members, Note::Subscribe { channel: channel.to_owned(), watch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_is_asked_for_again_and_nothing_else() {
        let mut wanted = Wanted::default();
        let game = || "game#1".to_owned();
        wanted.note(&Note::Subscribe { channel: game(), watch: true });
        wanted.note(&Note::Subscribe { channel: game(), watch: false });
        wanted.note(&Note::Join { channel: game(), state: Some(json!(1)) });
        wanted.note(&Note::Join { channel: game(), state: None });
        wanted.note(&Note::Join { channel: "left#1".into(), state: None });
        wanted.note(&Note::Leave { channel: "left#1".into() });
        wanted.note(&Note::Pattern { pattern: "news#*".into(), wanted: true });
        wanted.note(&Note::Update { channel: "never#1".into(), state: json!(1) });
        let words: Vec<String> =
            wanted.commands().iter().map(|(op, members, _)| format!("{op} {members}")).collect();
        assert_eq!(
            words,
            [
                r#"subscribe {"channel":"game#1","presence":true}"#,
                r#"join {"channel":"game#1","state":1}"#,
                r#"subscribe {"pattern":"news#*"}"#
            ]
        );
        assert!(wanted.hears_pattern("news#today") && !wanted.hears_pattern("game#1"));
        wanted.note(&Note::Unsubscribe { channel: game() });
        assert!(!wanted.is_subscribed("game#1") && !wanted.is_watching("game#1"));
        assert_eq!(wanted.commands().len(), 2);
    }
}
