//! One run: a seed chooses what happens, step by step; every promise is checked as it goes and at the end.

use crate::client::Transport;
use crate::world::{CHANNELS, Outcome, SHARDS, Sabotage, World};

#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    /// The same seed gives the same trace.
    pub trace: u64,
    pub heard: usize,
    pub gaps: usize,
    pub resumed: usize,
    pub restarts: usize,
    pub closed_slow: usize,
    pub sabotaged: bool,
    pub violation: Option<String>,
}

/// Runs one seed for so many steps.
pub fn run(seed: u64, steps: usize, sabotage: Sabotage) -> Report {
    let mut world = World::new(seed, sabotage);
    let outcome = play(&mut world, steps);
    Report {
        seed,
        trace: world.trace,
        heard: world.heard,
        gaps: world.gaps,
        resumed: world.resumed,
        restarts: world.restarts,
        closed_slow: world.closed_slow,
        sabotaged: world.sabotaged,
        violation: outcome.err(),
    }
}

fn play(world: &mut World, steps: usize) -> Outcome {
    for step in 0..steps {
        act(world).map_err(|error| format!("step {step}: {error}"))?;
        world.note(world.now.ms());
    }
    settle(world).map_err(|error| format!("at the end: {error}"))
}

fn act(world: &mut World) -> Outcome {
    let who = world.rng.below(world.clients.len());
    let channel = world.rng.below(CHANNELS);
    let dice = world.rng.below(1000);
    if world.clients[who].is_detached() && dice < 400 {
        return come_back(world, who);
    }
    match dice {
        0..450 => world.publish(who, channel),
        450..520 => world.subscribe(who, channel),
        520..540 => unsubscribe(world, who, channel),
        540..560 => {
            world.lose(who);
            Ok(())
        }
        560..590 => {
            world.clients[who].stalled = !world.clients[who].stalled;
            world.write(who)
        }
        590..620 => acknowledge(world, who),
        620..640 => come_back(world, who),
        640..643 => world.restart(),
        643..646 => world.advance(80_000),
        646..700 => {
            let ms = world.rng.below(300) as u64 + 1;
            world.advance(ms)
        }
        700..850 => {
            let most = world.rng.below(4);
            world.deliver_parcels(most)
        }
        _ => world.write(who),
    }
}

/// By WebSocket on any shard, or by a poll.
fn come_back(world: &mut World, who: usize) -> Outcome {
    if world.clients[who].session.is_some() && world.rng.chance(30) {
        return world.poll(who);
    }
    let shard = world.rng.below(SHARDS);
    world.connect(who, shard)
}

fn unsubscribe(world: &mut World, who: usize, channel: usize) -> Outcome {
    if !world.clients[who].greeted {
        return Ok(());
    }
    for target in [format!(r#""channel":"room#{channel}""#), format!(r#""pattern":"room#{channel}*""#)] {
        world.command(who, &format!(r#"{{"id":4,"op":"unsubscribe",{target}}}"#))?;
    }
    world.clients[who].promise.unsubscribed(channel);
    Ok(())
}

fn acknowledge(world: &mut World, who: usize) -> Outcome {
    let seq = world.clients[who].promise.seq;
    if seq == 0 || !world.clients[who].greeted {
        return Ok(());
    }
    world.command(who, &format!(r#"{{"id":5,"op":"ack","seq":{seq}}}"#))
}

/// The faults end: everybody comes back and reads; then nothing that was promised may be missing.
fn settle(world: &mut World) -> Outcome {
    while world.parcels.iter().any(|parcels| !parcels.is_empty()) {
        world.deliver_parcels(8)?;
    }
    for who in 0..world.clients.len() {
        world.clients[who].stalled = false;
        if !matches!(world.clients[who].transport, Transport::Socket(_)) {
            world.connect(who, who % SHARDS)?;
        }
        for _ in 0..400 {
            world.write(who)?;
        }
    }
    let counts = world.counts.clone();
    for (who, client) in world.clients.iter().enumerate() {
        client.promise.complete(&counts).map_err(|error| format!("client {who}: {error}"))?;
    }
    Ok(())
}
