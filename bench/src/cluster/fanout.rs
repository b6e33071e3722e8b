//! One publisher and many subscribers: all on one node, or spread over three, and a fourth node without subscribers.
//! Must hold: every message that was acknowledged was delivered to every subscriber, or it is a fault.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{Combination, Shared};
use crate::compare::peer::Running;
use crate::crowd::{Crowd, Received};
use crate::dial::Dialer;
use crate::presence::SETTINGS;
use crate::process;
use crate::target::{Protocol, Target};

#[derive(Clone, Debug)]
pub struct Fanout {
    pub subscribers: usize,
    /// Published messages that not all subscribers have received: enough to keep every node busy.
    pub window: u64,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct FanoutResult {
    pub per_s: f64,
    /// Deliveries for a second of processor time, of all nodes and the bus.
    pub per_cpu_s: f64,
    pub received_without_subscribers: u64,
}

const WARMUP: Duration = Duration::from_millis(700);
const QUIET: Duration = Duration::from_secs(1);
const NODES: usize = 3;
const MESSAGE: &str = r#"{"id":1,"op":"publish","channel":"arena#1","data":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

pub fn alone(program: &Path, fanout: &Fanout) -> anyhow::Result<FanoutResult> {
    let node = Running::tavern(program, None, SETTINGS)?;
    measure(&[&node], None, fanout)
}

pub fn spread(program: &Path, combination: Combination, fanout: &Fanout) -> anyhow::Result<FanoutResult> {
    let shared = combination.start()?;
    let nodes: Vec<Running> =
        (0..=NODES).map(|_| shared.node(program, SETTINGS)).collect::<Result<_, _>>()?;
    let listening: Vec<&Running> = nodes[..NODES].iter().collect();
    let before = received(nodes[NODES].address())?;
    let outcome = measure(&listening, Some(&shared), fanout)?;
    let received_without_subscribers = received(nodes[NODES].address())? - before;
    Ok(FanoutResult { received_without_subscribers, ..outcome })
}

fn measure(nodes: &[&Running], shared: Option<&Shared>, fanout: &Fanout) -> anyhow::Result<FanoutResult> {
    let targets: Vec<Target> = nodes.iter().map(|node| node.target(Protocol::WebSocket)).collect();
    let mut dialers =
        targets.iter().map(|target| Dialer::new(target, None)).collect::<Result<Vec<_>, _>>()?;
    let mut crowd = Crowd::new()?;
    let publisher = crowd.connect(&mut dialers[0], "publisher")?;
    for index in 0..fanout.subscribers {
        let client = crowd.connect(&mut dialers[index % nodes.len()], &format!("listener-{index}"))?;
        crowd.say(client, br#"{"id":1,"op":"subscribe","channel":"arena#1"}"#);
    }
    crowd.settle()?;
    let (mut published, mut delivered) = (0, 0);
    let mut each = vec![0; fanout.subscribers + 1];
    let mut received = Vec::new();
    let mut load = |crowd: &mut Crowd, time: Duration| -> anyhow::Result<(u64, u64)> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let slowest = each[publisher + 1..].iter().min().copied().unwrap_or(0);
            while published < slowest + fanout.window {
                crowd.say(publisher, MESSAGE.as_bytes());
                published += 1;
            }
            crowd.flush(publisher)?;
            crowd.turn(Duration::from_millis(20), &mut received)?;
            for &Received { client, events, .. } in &received {
                each[client] += events;
                delivered += events;
            }
        }
        Ok((published, delivered))
    };
    let (_, warm) = load(&mut crowd, WARMUP)?;
    let cpu = cpu_seconds(nodes, shared)?;
    let begun = Instant::now();
    let (_, all) = load(&mut crowd, Duration::from_secs_f64(fanout.seconds))?;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds(nodes, shared)? - cpu);
    let measured = (all - warm) as f64;
    delivered += crowd.settle()? + crowd.drain(QUIET)?;
    let wanted = published * fanout.subscribers as u64;
    ensure!(delivered == wanted, "{delivered} deliveries of {wanted}");
    Ok(FanoutResult { per_s: measured / seconds, per_cpu_s: measured / cpu, received_without_subscribers: 0 })
}

fn cpu_seconds(nodes: &[&Running], shared: Option<&Shared>) -> anyhow::Result<f64> {
    let mut sum = shared.map_or(Ok(0.0), Shared::bus_cpu_seconds)?;
    for node in nodes {
        sum += process::usage(node.pid())?.cpu_seconds;
    }
    Ok(sum)
}

/// Messages that a node received from others, by its own metric.
fn received(address: SocketAddr) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("tavern_bus_received_total "));
    line.and_then(|count| count.trim().parse().ok()).context("the metrics name no tavern_bus_received_total")
}
