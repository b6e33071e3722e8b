//! Drives the node's liveness: passes time and the store's answers to the hub's `Liveness`, submits its work to the
//! store, forwards its tasks to the shards and logs its events. The rules are in `tavern_hub::liveness`.

use crate::clock::NodeClock;
use crate::config::Config;
use crate::health::NodeHealth;
use crate::shard::Shards;
use crate::shard::input::ShardInput;
use crate::store_client::StoreClient;
use crate::topics::Wakeups;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_hub::{Liveness, LivenessEvent, LivenessRules, LivenessTask, Node, ShardEvent};
use tavern_store::{StoreAnswer, Ticket};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub struct LivenessDriver {
    pub node: Arc<Node>,
    pub store: Arc<StoreClient>,
    pub clock: Arc<NodeClock>,
    pub shards: Shards,
    pub health: Arc<NodeHealth>,
    /// Woken for deliveries whose worker did not renew its deadline.
    pub wakeups: Arc<Wakeups>,
}

/// Pending requests to the store. Bounded: few are sent at a time, and each has a timeout.
type PendingRequests = JoinSet<(Ticket, Option<StoreAnswer>)>;

impl LivenessDriver {
    /// Returns only if another server has replaced this one: then the process must end.
    pub async fn run(self, rules: LivenessRules) {
        // Monotonic: a wall clock that is set back would stop the renewals.
        let began = Instant::now();
        let now = || Time(began.elapsed().as_millis() as u64);
        let mut liveness = Liveness::new(self.node.clone(), rules, now());
        let mut arrivals = self.arrivals();
        let mut requests = PendingRequests::new();
        loop {
            let Some(renewed) = self.carry_out(&mut liveness, &mut requests) else { return };
            if renewed && self.arrivals() != arrivals {
                arrivals = self.arrivals();
                if self.store.store().is_some_and(|store| store.may_lose_writes()) {
                    tracing::warn!(
                        "store reconnected and may have lost its last changes; starting a new epoch"
                    );
                    liveness.replace_epoch(now());
                    self.carry_out(&mut liveness, &mut requests);
                } else {
                    tracing::info!("store reconnected; verifying local sessions");
                    self.give(LivenessTask::Announce);
                }
            }
            let wait = Duration::from_millis(liveness.next_wake().since(now()));
            tokio::select! {
                Some(request) = requests.join_next() => {
                    let (ticket, answer) = request.expect("a request to the store panicked");
                    if let Some(answer) = answer {
                        liveness.answered(now(), ticket, answer);
                    }
                }
                () = tokio::time::sleep(wait) => liveness.wake(now()),
            }
        }
    }

    /// Counts connections to the store. After a new one the store may have lost its last changes (failover).
    fn arrivals(&self) -> u64 {
        self.store.store().map_or(0, |store| store.reconnects())
    }

    /// True: the store has accepted the lease. None: another server has the name of this node.
    fn carry_out(&self, liveness: &mut Liveness, requests: &mut PendingRequests) -> Option<bool> {
        for (ticket, work) in liveness.effects.work.drain(..) {
            let (store, clock) = (self.store.clone(), self.clock.clone());
            requests.spawn(async move {
                let answer = store.answer_to(work).await;
                if let Some(StoreAnswer::Committed(receipt)) = &answer {
                    clock.follow(receipt.time);
                }
                (ticket, answer)
            });
        }
        for task in liveness.effects.tasks.drain(..) {
            self.give(task);
        }
        let (mut renewed, mut is_replaced) = (false, false);
        for event in liveness.effects.events.drain(..) {
            renewed |= matches!(event, LivenessEvent::Renewed);
            is_replaced |= matches!(event, LivenessEvent::Replaced(_));
            self.log(&event);
        }
        (!is_replaced).then_some(renewed)
    }

    fn give(&self, task: LivenessTask) {
        match task {
            LivenessTask::Overdue(deadline) if &*deadline.kind == tavern_hub::topics::delivery::DELIVERY => {
                self.wakeups.overdue(deadline);
            }
            // These are for every shard, the others for any one.
            LivenessTask::Compare | LivenessTask::Announce => {
                self.shards.force_all(|| ShardInput::Hub(ShardEvent::Liveness(task.clone())));
            }
            task => self.shards.force(0, ShardInput::Hub(ShardEvent::Liveness(task))),
        }
    }

    /// While the store does not accept the lease, the server is not ready.
    fn log(&self, event: &LivenessEvent) {
        match event {
            LivenessEvent::Renewed => {
                if !self.health.set_store_up(true) {
                    tracing::info!("lease renewed after a failure");
                }
            }
            LivenessEvent::NotRenewed(error) => {
                let known = !self.health.set_store_up(false);
                match error {
                    _ if known => {}
                    Some(error) => tracing::error!(%error, "lease not renewed"),
                    None => tracing::error!(error = "the store did not answer", "lease not renewed"),
                }
            }
            LivenessEvent::Fenced => {
                tracing::warn!("fenced by another node; starting a new epoch");
            }
            LivenessEvent::Replaced(successor) => {
                tracing::error!(
                    %successor,
                    "another server runs with the name of this node; stopping: give each server a name of its own with --node"
                );
            }
            LivenessEvent::NotOpened(error) => {
                tracing::error!(%error, "cannot open a new epoch; retrying");
            }
            LivenessEvent::LeaseEnded(node) => {
                tracing::warn!(%node, "node lease expired; its clients are lost");
            }
            LivenessEvent::StalePresence(key) => {
                tracing::info!(channel = %key.channel, user = %key.user, "removing stale presence: its node is not alive");
            }
            LivenessEvent::CheckPostponed(error) => {
                tracing::debug!(%error, "checking other nodes failed; retrying at the next heartbeat")
            }
        }
    }
}

pub fn rules(config: &Config) -> LivenessRules {
    LivenessRules {
        heartbeat_ms: config.nodes.heartbeat_ms,
        lease_ms: config.nodes.lease_ms,
        drain_ms: config.sessions.drain_ms,
        sweep_ms: config.presence.sweep_ms,
        sweep_age_ms: config.presence.sweep_age_ms,
    }
}
