//! Drives the node's vigil: gives it time and the store's answers, carries its work to the store and its orders to the
//! shards, and says in the log what it noticed. The rules are in `tavern_hub::vigil`.

use crate::services::Services;
use crate::shard::mail::Mail;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_hub::vigil::Rules;
use tavern_hub::{Chore, Notice, Vigil};
use tavern_store::{Answer, Ticket};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub async fn keep(services: Arc<Services>) {
    // A wall clock that is set back would stop the heart; this one never goes back.
    let began = Instant::now();
    let now = || Time(began.elapsed().as_millis() as u64);
    let mut vigil = Vigil::new(services.node.clone(), rules(&services), now());
    let mut reached = arrivals(&services);
    // Bounded: the vigil asks little at a time, and the desk gives up on what is not answered.
    let mut asked: JoinSet<(Ticket, Option<Answer>)> = JoinSet::new();
    loop {
        let renewed = carry_out(&services, &mut vigil, &mut asked);
        if renewed && arrivals(&services) != reached {
            reached = arrivals(&services);
            if services.desk.store().is_some_and(|store| store.forgets()) {
                tracing::warn!("the store may have lost its last changes: this node begins a new epoch");
                vigil.begin_anew(now());
                carry_out(&services, &mut vigil, &mut asked);
            } else {
                tracing::info!("the store was reached anew: those who are here are compared with it");
                give(&services, Chore::Announce);
            }
        }
        let wait = Duration::from_millis(vigil.next_wake().since(now()));
        tokio::select! {
            Some(asked) = asked.join_next() => {
                let (ticket, answer) = asked.expect("a question to the store panicked");
                if let Some(answer) = answer {
                    vigil.answered(now(), ticket, answer);
                }
            }
            () = tokio::time::sleep(wait) => vigil.wake(now()),
        }
    }
}

fn rules(services: &Services) -> Rules {
    let config = &services.config;
    Rules {
        heartbeat_ms: config.nodes.heartbeat_ms,
        lease_ms: config.nodes.lease_ms,
        drain_ms: config.sessions.drain_ms,
        sweep_ms: config.presence.sweep_ms,
        sweep_age_ms: config.presence.sweep_age_ms,
    }
}

/// How often the store was reached. When it was reached anew, it may have forgotten what it said last.
fn arrivals(services: &Services) -> u64 {
    services.desk.store().map_or(0, |store| store.arrivals())
}

/// True: the store has taken the lease.
fn carry_out(
    services: &Arc<Services>,
    vigil: &mut Vigil,
    asked: &mut JoinSet<(Ticket, Option<Answer>)>,
) -> bool {
    for (ticket, work) in vigil.duties.work.drain(..) {
        let services = services.clone();
        asked.spawn(async move {
            let began = services.clock.moment();
            let answer = services.desk.answer_to(work).await;
            if let Some(Answer::Committed(receipt)) = &answer {
                services.clock.heard(began, receipt.time);
            }
            (ticket, answer)
        });
    }
    for order in vigil.duties.orders.drain(..) {
        give(services, order);
    }
    let mut renewed = false;
    for notice in vigil.duties.notices.drain(..) {
        renewed |= matches!(notice, Notice::Renewed);
        tell(services, &notice);
    }
    renewed
}

fn give(services: &Services, order: Chore) {
    let everybody = |mail: fn() -> Mail| services.inboxes.iter().for_each(|inbox| inbox.force(mail()));
    match order {
        Chore::TakeOver(taken) => services.inboxes[0].force(Mail::TakeOver(taken)),
        Chore::Overdue(deadline) if &*deadline.kind == tavern_hub::events::DELIVERY => {
            services.bell.overdue(deadline);
        }
        Chore::Overdue(deadline) => services.inboxes[0].force(Mail::Overdue(deadline)),
        Chore::Sweep(astray) => services.inboxes[0].force(Mail::Sweep(astray)),
        Chore::Look => everybody(|| Mail::Look),
        Chore::Announce => everybody(|| Mail::Announce),
    }
}

/// While the store does not take the lease, the server is not ready.
fn tell(services: &Services, notice: &Notice) {
    match notice {
        Notice::Renewed => {
            if !services.health.set_store_up(true) {
                tracing::info!("the store answers again");
            }
        }
        Notice::NotRenewed(error) => {
            let known = !services.health.set_store_up(false);
            match error {
                _ if known => {}
                Some(error) => tracing::error!(%error, "the node's lease could not be renewed"),
                None => tracing::error!("the node's lease could not be renewed: the store does not answer"),
            }
        }
        Notice::Fenced => {
            tracing::warn!(
                "this node was taken for dead: it begins a new epoch. Does another server use its name?"
            );
        }
        Notice::NotOpened(error) => {
            tracing::error!(%error, "no new epoch could be opened; it is tried again");
        }
        Notice::Ended(node) => {
            tracing::warn!(%node, "the lease of a node has ended: its clients are lost");
        }
        Notice::Astray(key) => {
            tracing::info!(channel = %key.channel, user = %key.user, "no living node vouches for this presence: it is removed");
        }
        Notice::PutOff(error) => tracing::debug!(%error, "the look at other nodes is put off"),
    }
}
