//! A Redis Cluster of three masters, and what an operator does with it. Must hold: `new` returns when all of them agree.

use super::{PATIENCE, Server, free_port};
use std::process::Command;
use std::time::{Duration, Instant};

pub struct Cluster {
    pub masters: Vec<Server>,
    /// Where clients reach them.
    ports: Vec<u16>,
}

/// Slots of each of the masters.
const SLOTS: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::with(|_| Vec::new(), None)
    }

    /// Masters that talk to each other and to us over TLS; their plain ports are for administration.
    pub fn with_tls(files: &[String]) -> Cluster {
        let ports: Vec<u16> = SLOTS.iter().map(|_| free_port()).collect();
        let options = |master: usize| {
            let fixed = ["--tls-cluster", "yes", "--tls-auth-clients", "no", "--tls-port"].map(String::from);
            [&fixed[..], &[ports[master].to_string()], files].concat()
        };
        Cluster::with(options, Some(&ports))
    }

    fn with(options: impl Fn(usize) -> Vec<String>, ports: Option<&[u16]>) -> Cluster {
        let gossip: Vec<String> = SLOTS.iter().map(|_| free_port().to_string()).collect();
        let start = |(master, port): (usize, &String)| {
            let more = ["--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "5000"];
            let options = options(master);
            let options: Vec<&str> = more.into_iter().chain(options.iter().map(String::as_str)).collect();
            Server::redis_with(&options)
        };
        let masters: Vec<Server> = gossip.iter().enumerate().map(start).collect();
        let ports = ports.map_or_else(|| masters.iter().map(|master| master.port).collect(), <[u16]>::to_vec);
        let cluster = Cluster { masters, ports };
        for (master, (from, to)) in cluster.masters.iter().zip(SLOTS) {
            master.cli(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        }
        for (port, gossip) in cluster.ports.iter().zip(&gossip).skip(1) {
            cluster.masters[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), gossip]);
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
            (0..count).map(|n| format!("127.0.0.1:{}", self.ports[(first + n) % count])).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Moves a slot while others use it, key by key; `between` runs after each.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize, between: impl Fn()) {
        let (slot, id) = (slot.to_string(), |master: usize| self.masters[master].cli(&["CLUSTER", "MYID"]));
        let (source, target) = (id(from), id(to));
        self.masters[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.masters[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
        let mut moved = 0;
        loop {
            let keys = self.masters[from].cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
            if keys.is_empty() {
                break;
            }
            let port = self.masters[to].port.to_string();
            self.masters[from].cli(&["MIGRATE", "127.0.0.1", &port, &keys, "0", "5000"]);
            moved += 1;
            between();
        }
        assert!(moved > 0, "nothing was in slot {slot} of master {from}");
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
