//! A service that writes messages to inboxes. It repeats unanswered requests, with the same idempotency key, to any
//! node. Must hold: an acknowledged message is in the store.

use super::store_judge::PeopleJudge;
use super::{NODES, RETRY_MS, USERS};
use crate::cluster::Cluster;
use crate::rng::Rng;
use crate::workload::inbox::MESSAGE_ID;
use crate::workload::{Outcome, number};
use serde_json::Value;
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_hub::ServiceCommand;

#[derive(Default)]
pub struct Service {
    numbers: u64,
    /// Messages that were not answered yet.
    open: BTreeMap<u64, Post>,
    /// Messages that were answered, and their receivers.
    answered: BTreeMap<u64, usize>,
    pub done: u64,
    /// Answers that a message was stored before.
    pub known: u64,
}

#[derive(Clone, Copy, Debug)]
struct Post {
    user: usize,
    node: usize,
    /// When it is sent again; none: it is pending.
    retry_at: Option<Time>,
}

impl Service {
    /// A message for a user, new or repeated, through a node that is open.
    pub fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Option<String> {
        self.numbers += 1;
        let again = rng.chance(20).then(|| self.answered.iter().nth_back(rng.below(3))).flatten();
        let fresh = (rng.below(USERS), self.numbers);
        let (user, number) = again.map_or(fresh, |(number, user)| (*user, *number));
        let node = rng.below(NODES);
        cluster.nodes[node].is_open().then(|| format!("service post {user} {node} {number}"))
    }

    pub fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let ["post", user, node, post] = words else { return Err("not an action of a service".into()) };
        let post_number: u64 = number(post)?;
        let post = Post { user: number(user)?, node: number(node)?, retry_at: None };
        self.open.insert(post_number, post);
        self.send(cluster, post_number);
        Ok(())
    }

    fn send(&mut self, cluster: &mut Cluster, number: u64) {
        let Some(post) = self.open.get_mut(&number) else { return };
        post.retry_at = None;
        let order = ServiceCommand::InboxMessage {
            user: format!("user{}", post.user).into(),
            data: format!(r#"{{"n":{number}}}"#).into(),
            once: Some(format!("key{number}").into()),
        };
        if !cluster.order(post.node, number, order) {
            self.put_off(cluster, number);
        }
    }

    /// To the next node, after a delay.
    fn put_off(&mut self, cluster: &Cluster, number: u64) {
        if let Some(post) = self.open.get_mut(&number) {
            post.node = (post.node + 1) % NODES;
            post.retry_at = Some(cluster.now + RETRY_MS);
        }
    }

    pub fn answered(
        &mut self,
        cluster: &Cluster,
        judge: &PeopleJudge,
        number: u64,
        reply: &Result<Value, String>,
    ) -> Outcome {
        match reply {
            Ok(reply) => {
                let user = self.open.remove(&number).map_or(0, |post| post.user);
                self.answered.insert(number, user);
                self.done += 1;
                self.known += u64::from(reply[MESSAGE_ID].is_null());
                match judge.has_message(number) {
                    true => Ok(()),
                    false => Err(format!("message {number} was answered {reply}, and is not stored")),
                }
            }
            Err(code) if code == "unavailable" => {
                self.put_off(cluster, number);
                Ok(())
            }
            Err(code) => Err(format!("message {number} was refused: {code}")),
        }
    }

    /// Pending requests at a node will not be answered.
    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        let lost = self.open.iter().filter(|(_, post)| post.node == node && post.retry_at.is_none());
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        lost.into_iter().for_each(|number| self.put_off(cluster, number));
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.open.values().filter_map(|post| post.retry_at).min()
    }

    pub fn wake(&mut self, cluster: &mut Cluster) {
        let due = self.open.iter().filter(|(_, post)| post.retry_at.is_some_and(|due| due <= cluster.now));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.send(cluster, number));
    }

    pub fn check_end(&self, judge: &PeopleJudge) -> Outcome {
        if let Some((number, post)) = self.open.first_key_value() {
            return Err(format!("message {number} was never answered: {post:?}"));
        }
        match self.answered.keys().find(|number| !judge.has_message(**number)) {
            Some(number) => Err(format!("message {number} is lost")),
            None => Ok(()),
        }
    }
}
