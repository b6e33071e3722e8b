//! An operator who administers topics and the subscriptions of endpoints while they are in use: deletes topics, moves
//! their publisher, changes the topics and limits of subscriptions, disables, replays, and retries dead letters.
//! Judges the replies. Which topics a subscription then has is a `Memberships`.

use super::endpoint::SimEndpoint;
use super::log::LogJudge;
use super::membership::Memberships;
use super::pending::PendingCommand;
use super::{NAMES, NODES, PULLED, TOPICS, is_member};
use crate::cluster::Cluster;
use crate::rng::Rng;
use crate::workload::{Outcome, number};
use std::collections::{BTreeMap, VecDeque};
use tavern_domain::Time;
use tavern_hub::topics::{
    DeadLetterChoice, ReplayFrom, SubscriptionChange, TopicCaller, TopicCommand, TopicReply,
};

/// The limit of a backlog: a few large events.
const BACKLOG_BYTES: u64 = 65_536;

pub struct SimOperator {
    pending: PendingCommand<OperatorCommand>,
    /// What follows when the pending command is answered.
    rest: VecDeque<OperatorCommand>,
    pub counts: BTreeMap<&'static str, u64>,
}

/// A subscription is its index in `NAMES`; its topics are the bits of a number.
#[derive(Clone, Copy, Debug)]
enum OperatorCommand {
    DeleteTopic { topic: usize },
    Assign { topic: usize, key: Option<usize> },
    Topics { name: usize, topics: usize },
    Limits { name: usize, max_events: u64, max_backlog_bytes: u64 },
    Pull { name: usize, pull: bool },
    Switch { name: usize, on: bool },
    Retry { name: usize },
    Replay { name: usize, from: u64 },
}

impl Default for SimOperator {
    fn default() -> SimOperator {
        SimOperator { pending: PendingCommand::new(2), rest: VecDeque::new(), counts: BTreeMap::new() }
    }
}

impl SimOperator {
    /// `pulled`: the subscription of the puller exists.
    pub fn choose(
        &self,
        cluster: &Cluster,
        rng: &mut Rng,
        log: &LogJudge,
        endpoints: &[SimEndpoint],
        pulled: bool,
    ) -> Option<String> {
        let (node, topic, at) = (rng.below(NODES), rng.below(TOPICS.len()), rng.below(endpoints.len()));
        let name = &endpoints[at].name;
        let last = endpoints[at].last() as usize;
        let stolen = log.publisher(topic).is_some_and(|key| key != format!("key{topic}"));
        let line = match rng.below(100) {
            _ if stolen && rng.chance(30) => format!("assign {topic} {topic}"),
            0..10 => format!("delete_topic {topic}"),
            10..14 => format!("assign {topic} {}", ["-", "0", "1"][rng.below(3)]),
            14..44 => format!(
                "topics {name} {}",
                endpoints[at].topics.iter().map(|topic| 1 << topic).sum::<usize>()
            ),
            44..52 if pulled => format!("topics {PULLED} 3"),
            52..62 => format!("topics {name} {}", rng.below(1 << TOPICS.len())),
            62..70 => format!("limits {name} {} {}", 1 + rng.below(8), [0, BACKLOG_BYTES][rng.below(2)]),
            70..74 => format!("pulling {name} {}", rng.below(2)),
            74..82 => format!("switch {name} {}", rng.below(2)),
            82..94 => format!("retry {name} {}", rng.below(2)),
            _ if last > 0 => format!("rewind {name} {}", 1 + rng.below(last)),
            _ => return None,
        };
        (self.is_idle() && cluster.nodes[node].is_open()).then(|| format!("{line} on {node}"))
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_idle()
    }

    pub fn owns(&self, number: u64) -> bool {
        self.pending.owns(number)
    }

    pub fn perform(
        &mut self,
        cluster: &mut Cluster,
        words: &[&str],
        endpoints: &mut [SimEndpoint],
        memberships: &mut Memberships,
    ) -> Outcome {
        let named = |name: &str| NAMES.iter().position(|known| *known == name).ok_or("no such subscription");
        let (command, node) = match words {
            ["delete_topic", topic, "on", node] => {
                (OperatorCommand::DeleteTopic { topic: number(topic)? }, node)
            }
            ["assign", topic, key, "on", node] => {
                let key = if *key == "-" { None } else { Some(number(key)?) };
                (OperatorCommand::Assign { topic: number(topic)?, key }, node)
            }
            ["topics", name, topics, "on", node] => {
                (OperatorCommand::Topics { name: named(name)?, topics: number(topics)? }, node)
            }
            ["limits", name, max_events, bytes, "on", node] => {
                let (max_events, max_backlog_bytes) = (number(max_events)?, number(bytes)?);
                (OperatorCommand::Limits { name: named(name)?, max_events, max_backlog_bytes }, node)
            }
            ["pulling", name, pull, "on", node] => {
                (OperatorCommand::Pull { name: named(name)?, pull: *pull == "1" }, node)
            }
            ["switch", name, on, "on", node] => {
                (OperatorCommand::Switch { name: named(name)?, on: *on == "1" }, node)
            }
            ["retry", name, repaired, "on", node] => {
                let endpoint = endpoints.iter_mut().find(|endpoint| *endpoint.name == **name);
                endpoint.ok_or("no such endpoint")?.repaired = *repaired == "1";
                (OperatorCommand::Retry { name: named(name)? }, node)
            }
            ["rewind", name, from, "on", node] => {
                (OperatorCommand::Replay { name: named(name)?, from: number(from)? }, node)
            }
            _ => return Err("not an action of the operator".into()),
        };
        // A shrunk script may lack what this depends on.
        if self.is_idle() {
            self.begin(cluster, command, number(node)?, memberships);
        }
        Ok(())
    }

    /// The faults have ended: everything is as it was in the beginning, except for the topics of subscriptions.
    pub fn restore(&mut self, cluster: &mut Cluster, memberships: &mut Memberships) {
        let assign = |topic| OperatorCommand::Assign { topic, key: Some(topic) };
        self.rest.extend((0..TOPICS.len()).map(assign));
        for name in (0..NAMES.len()).filter(|name| NAMES[*name] != PULLED) {
            self.rest.push_back(OperatorCommand::Pull { name, pull: false });
            self.rest.push_back(OperatorCommand::Switch { name, on: true });
        }
        self.go_on(cluster, memberships);
    }

    fn go_on(&mut self, cluster: &mut Cluster, memberships: &mut Memberships) {
        if self.is_idle()
            && let Some(command) = self.rest.pop_front()
        {
            self.begin(cluster, command, 0, memberships);
        }
    }

    fn begin(
        &mut self,
        cluster: &mut Cluster,
        command: OperatorCommand,
        node: usize,
        memberships: &mut Memberships,
    ) {
        match command {
            OperatorCommand::DeleteTopic { topic } => {
                NAMES.iter().for_each(|name| memberships.unsettle(cluster.now, name, topic));
            }
            OperatorCommand::Topics { name, .. } => {
                (0..TOPICS.len()).for_each(|topic| memberships.unsettle(cluster.now, NAMES[name], topic));
            }
            _ => {}
        }
        self.pending.begin(command, node);
        self.send(cluster);
    }

    fn send(&mut self, cluster: &mut Cluster) {
        let Some(command) = self.pending.command() else { return };
        let caller = TopicCaller { id: "operator".into(), admin: true };
        self.pending.send(cluster, caller, topic_command(command));
    }

    pub fn answered(
        &mut self,
        cluster: &mut Cluster,
        number: u64,
        reply: &Result<TopicReply, String>,
        log: &LogJudge,
        memberships: &mut Memberships,
    ) -> Outcome {
        let Some(command) = self.pending.answered(number) else { return Ok(()) };
        let what = match (command, reply) {
            (_, Err(code)) if code == "unavailable" => {
                self.pending.put_off(cluster);
                return Ok(());
            }
            (OperatorCommand::DeleteTopic { topic }, Ok(TopicReply::Done)) => {
                NAMES.iter().for_each(|name| memberships.settle(name, topic, false));
                "topics deleted"
            }
            // An earlier attempt has deleted it, or it never existed.
            (OperatorCommand::DeleteTopic { .. }, Err(code)) if code == "not_found" => "topics not found",
            (OperatorCommand::Assign { .. }, Ok(TopicReply::Assigned { .. })) => "publishers changed",
            (OperatorCommand::Topics { name, topics }, Ok(TopicReply::Put { subscription, .. })) => {
                for (topic, text) in TOPICS.iter().enumerate() {
                    let member = is_member(topics, topic);
                    if subscription.topics.iter().any(|known| **known == **text) != member {
                        return Err(format!("{command:?} was answered {reply:?}"));
                    }
                    memberships.settle(NAMES[name], topic, member);
                }
                "topics of subscriptions changed"
            }
            (OperatorCommand::Limits { .. }, Ok(TopicReply::Put { .. })) => "limits changed",
            (OperatorCommand::Pull { .. }, Ok(TopicReply::Put { .. })) => "kinds of delivery changed",
            // Some of its batches are only copies, which cannot be pulled.
            (OperatorCommand::Pull { pull: true, .. }, Err(code)) if code == "conflict" => {
                "changes of delivery refused"
            }
            (OperatorCommand::Switch { .. }, Ok(TopicReply::Done)) => "subscriptions switched",
            (OperatorCommand::Retry { .. }, Ok(TopicReply::Retried { retried, .. })) => {
                *self.counts.entry("dead letters retried").or_default() += *retried as u64;
                "retries"
            }
            (OperatorCommand::Replay { .. }, Ok(TopicReply::Replayed { .. })) => "replays of endpoints",
            (OperatorCommand::Replay { name, from }, Err(code))
                if code == "bad_request" && log.is_trimmed(NAMES[name], from) =>
            {
                "replays refused"
            }
            (command, reply) => return Err(format!("{command:?} was answered {reply:?}")),
        };
        *self.counts.entry(what).or_default() += 1;
        self.pending.end();
        self.go_on(cluster, memberships);
        Ok(())
    }

    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        self.pending.node_ended(cluster, node);
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.pending.next_wake()
    }

    pub fn wake(&mut self, cluster: &mut Cluster) {
        if self.pending.take_due(cluster.now) {
            self.send(cluster);
        }
    }

    pub fn check_end(&self) -> Outcome {
        self.pending.check_end()
    }
}

fn topic_command(command: OperatorCommand) -> TopicCommand {
    let put = |name: usize, change: SubscriptionChange| TopicCommand::PutSubscription {
        name: NAMES[name].into(),
        change: Box::new(change),
    };
    match command {
        OperatorCommand::DeleteTopic { topic } => TopicCommand::DeleteTopic { topic: TOPICS[topic].into() },
        OperatorCommand::Assign { topic, key } => {
            let publisher = key.map(|key| format!("key{key}").into());
            TopicCommand::AssignTopic { topic: TOPICS[topic].into(), publisher }
        }
        OperatorCommand::Topics { name, topics } => {
            let topics = (0..TOPICS.len()).filter(|topic| is_member(topics, *topic));
            let topics = Some(topics.map(|topic| TOPICS[topic].into()).collect());
            put(name, SubscriptionChange { topics, ..SubscriptionChange::default() })
        }
        OperatorCommand::Limits { name, max_events, max_backlog_bytes } => {
            let (max_events, max_backlog_bytes) = (Some(max_events), Some(max_backlog_bytes));
            put(name, SubscriptionChange { max_events, max_backlog_bytes, ..SubscriptionChange::default() })
        }
        OperatorCommand::Pull { name, pull } => {
            put(name, SubscriptionChange { pull: Some(pull), ..SubscriptionChange::default() })
        }
        OperatorCommand::Switch { name, on } => {
            TopicCommand::SwitchSubscription { name: NAMES[name].into(), on }
        }
        OperatorCommand::Retry { name } => {
            TopicCommand::RetryDeadLetters { name: NAMES[name].into(), choice: DeadLetterChoice::All }
        }
        OperatorCommand::Replay { name, from } => {
            TopicCommand::Replay { name: NAMES[name].into(), from: ReplayFrom::Seq(from) }
        }
    }
}
