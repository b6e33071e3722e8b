//! One session of a gateway in the hub: commands in, replies and events out.
//! Must hold: the session ends when this is dropped.

use super::GatewaySources;
use crate::shard::Shards;
use crate::shard::input::{GatewayCommand, GatewayOutput, OpenGateway, ShardInput};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tavern_domain::{AddressGroup, ClientId, Identity};
use tavern_hub::LinkId;
use tokio::sync::{mpsc, oneshot};

/// Pieces between the shard and the gateway; beyond this the shard keeps events as references.
const PIECES: usize = 4;

pub struct HubLink {
    shards: Shards,
    shard: usize,
    link: LinkId,
    client: ClientId,
    output: mpsc::Receiver<GatewayOutput>,
    wants_room: Arc<AtomicBool>,
}

impl HubLink {
    /// Opens a session. The reply to its hello is the first output. None: the server is stopping or overloaded.
    pub async fn open(
        sources: &GatewaySources,
        identity: Identity,
        address: Option<AddressGroup>,
        client: ClientId,
    ) -> Option<HubLink> {
        let (shards, shard) = (sources.shards.clone(), sources.shards.next());
        let (sender, output) = mpsc::channel(PIECES);
        let (opened, link) = oneshot::channel();
        let wants_room = Arc::new(AtomicBool::new(false));
        let request =
            OpenGateway { identity, address, client, output: sender, wants_room: wants_room.clone(), opened };
        shards.put(shard, ShardInput::OpenGateway(Box::new(request))).ok()?;
        let link = link.await.ok()?;
        Some(HubLink { shards, shard, link, client, output, wants_room })
    }

    /// Gives the session a command; its reply is among the outputs. False: the shard is overloaded.
    pub fn send(&self, command: GatewayCommand) -> bool {
        self.shards.put(self.shard, ShardInput::GatewayCommand(self.link, self.client, command)).is_ok()
    }

    /// The next output. None: the session has ended.
    pub async fn next(&mut self) -> Option<GatewayOutput> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// For one that waits for several sessions.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<GatewayOutput>> {
        let output = ready!(self.output.poll_recv(context));
        if self.wants_room.swap(false, Ordering::AcqRel) {
            self.shards.force(self.shard, ShardInput::GatewayRoom(self.link, self.client));
        }
        Poll::Ready(output)
    }
}

impl Drop for HubLink {
    fn drop(&mut self) {
        self.shards.force(self.shard, ShardInput::GatewayClosed(self.link, self.client));
    }
}
