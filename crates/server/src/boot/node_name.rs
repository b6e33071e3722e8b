//! The name of this node, which only one server may have: two would fence each other for ever.
//! On a folder, a locked file says whether the name is taken. On a bus its holder is asked, if the store says that it may be
//! alive. Must hold: nothing is written to the store before; a server that was killed is replaced within a second.

use crate::adoption::read_nodes;
use crate::bus_probe::BusProbe;
use crate::clock::NodeClock;
use crate::config::Config;
use crate::random::random_bits;
use crate::store_client::StoreClient;
use anyhow::{Context, bail};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::NodeQuery;
use tokio::time::Instant;

/// How long the holder of the name has to answer, or to end if it is just stopping.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(50);

/// While it exists, no other server on the folder gets the name.
pub struct NodeName(#[expect(dead_code, reason = "its lock is held")] Option<File>);

/// Where this server can be found, for people.
pub fn address_of(config: &Config) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    format!("{} on {host} (process {})", config.listen, std::process::id())
}

/// Refuses a name that another server has.
pub async fn take(config: &Arc<Config>, store: &StoreClient, clock: &NodeClock) -> anyhow::Result<NodeName> {
    let holder = match &*config.bus {
        "memory:" => None,
        "local" => match lock(config).await? {
            Ok(file) => return Ok(NodeName(Some(file))),
            Err(holder) => Some(holder),
        },
        _ if is_leased(config, store, clock).await? => {
            let config = config.clone();
            tokio::task::spawn_blocking(move || ask(&config)).await??
        }
        _ => None,
    };
    match holder {
        None => Ok(NodeName(None)),
        Some(address) => bail!(
            "another server runs with the node name {:?}: {address}. Give this one another name with --node, or stop the other one",
            config.node
        ),
    }
}

/// A server with this name wrote to the store, and has not stopped as far as the store knows.
async fn is_leased(config: &Config, store: &StoreClient, clock: &NodeClock) -> anyhow::Result<bool> {
    let (now, nodes) = read_nodes(store, clock).await.context("cannot read the nodes")?;
    Ok(nodes
        .iter()
        .any(|node| *node.writer.node == *config.node && node.closed_at.is_none() && now < node.lease_until))
}

/// The address of the server that has the name. None: none answers.
fn ask(config: &Config) -> anyhow::Result<Option<String>> {
    let asker = format!("{}-starts-{:032x}", config.node, random_bits());
    let probe = BusProbe::open(config, &asker).context("cannot open the bus")?;
    let NodeQuery { answers, question } = NodeQuery::holder(&config.prefix, &config.node, &asker)?;
    probe.subscribe(vec![answers], ANSWER_WITHIN)?;
    probe.publish(question);
    let end = std::time::Instant::now() + ANSWER_WITHIN;
    while let Some(answer) = probe.message(end.saturating_duration_since(std::time::Instant::now())) {
        if let Some(address) = NodeQuery::address(&answer) {
            return Ok(Some(address.to_string()));
        }
    }
    Ok(None)
}

/// The lock of the name in the data folder, or the address of the server that holds it.
async fn lock(config: &Config) -> anyhow::Result<Result<File, String>> {
    let path = config.data.join(format!("node-{}.lock", config.node));
    let cannot = || format!("cannot lock {}", path.display());
    std::fs::create_dir_all(&config.data).with_context(cannot)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let mut file = options.open(&path).with_context(cannot)?;
    let until = Instant::now() + ANSWER_WITHIN;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(RETRY).await,
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).with_context(cannot)?;
                return Ok(Err(holder));
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
    }
    file.set_len(0).with_context(cannot)?;
    file.rewind().with_context(cannot)?;
    file.write_all(address_of(config).as_bytes()).with_context(cannot)?;
    Ok(Ok(file))
}
