//! A Redis Cluster of three masters, and what an operator does with it. Must hold: `new` returns when all of them agree.

use super::{PATIENCE, Server, free_port};
use std::process::Command;
use std::time::{Duration, Instant};

pub struct Cluster {
    pub masters: Vec<Server>,
}

/// Slots of each of the masters.
const SLOTS: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

impl Cluster {
    pub fn new() -> Cluster {
        let gossip: Vec<String> = SLOTS.iter().map(|_| free_port().to_string()).collect();
        let start = |port: &String| {
            let more = ["--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "5000"];
            Server::redis_with(&more)
        };
        let cluster = Cluster { masters: gossip.iter().map(start).collect() };
        for (master, (from, to)) in cluster.masters.iter().zip(SLOTS) {
            master.cli(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        }
        for (other, gossip) in cluster.masters.iter().zip(&gossip).skip(1) {
            cluster.masters[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), gossip]);
        }
        let until = Instant::now() + PATIENCE;
        let agrees = |master: &Server| {
            let info = master.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        while !cluster.masters.iter().all(agrees) {
            assert!(Instant::now() < until, "the cluster does not come together");
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster
    }

    /// The address, beginning with one of the masters.
    pub fn url(&self, first: usize) -> String {
        let count = self.masters.len();
        let hosts: Vec<String> =
            (0..count).map(|n| format!("127.0.0.1:{}", self.masters[(first + n) % count].port)).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Moves a slot while others use it, key by key; `between` runs after each.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize, between: impl Fn()) {
        let (slot, id) = (slot.to_string(), |master: usize| self.masters[master].cli(&["CLUSTER", "MYID"]));
        let (source, target) = (id(from), id(to));
        self.masters[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.masters[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
        loop {
            let keys = self.masters[from].cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
            if keys.is_empty() {
                break;
            }
            let port = self.masters[to].port.to_string();
            self.masters[from].cli(&["MIGRATE", "127.0.0.1", &port, &keys, "0", "5000"]);
            between();
        }
        for master in [to, from] {
            self.masters[master].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }
}

impl Server {
    /// What an operator asks at the command line.
    pub fn cli(&self, parts: &[&str]) -> String {
        let port = self.port.to_string();
        let done = Command::new("redis-cli").args(["-h", "127.0.0.1", "-p", &port]).args(parts).output();
        let done = done.expect("redis-cli is installed");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }
}
