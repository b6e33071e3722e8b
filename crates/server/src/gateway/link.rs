//! One session of a gateway in the hub: commands in, replies and events out.
//! Must hold: the session ends when this is dropped.

use super::GatewaySources;
use crate::shard::Shards;
use crate::shard::input::{DirectOutput, GatewayCommand, GatewayOutput, OpenGateway, ShardInput};
use crate::shard::shared_output::SharedOutput;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tavern_domain::{AddressGroup, ClientId, Identity};
use tavern_hub::{GatewayProtocol, LinkId};
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
    /// The client's socket, if the shard writes to it too.
    shared: Option<Arc<SharedOutput>>,
    /// Commands, replies and events that are under way there.
    taken: AtomicUsize,
}

impl HubLink {
    /// Opens a session. The reply to its hello is the first output. None: the server is stopping or overloaded.
    pub async fn open(
        sources: &GatewaySources,
        protocol: GatewayProtocol,
        identity: Identity,
        address: Option<AddressGroup>,
        client: ClientId,
        direct: Option<DirectOutput>,
    ) -> Option<HubLink> {
        let (shards, shard) = (sources.shards.clone(), sources.shards.next());
        let (sender, output) = mpsc::channel(PIECES);
        let (opened, link) = oneshot::channel();
        let wants_room = Arc::new(AtomicBool::new(false));
        let shared = direct.as_ref().map(|direct| direct.socket.clone());
        let room = wants_room.clone();
        let request = OpenGateway {
            protocol,
            identity,
            address,
            client,
            output: sender,
            wants_room: room,
            direct,
            opened,
        };
        shards.put(shard, ShardInput::OpenGateway(Box::new(request))).ok()?;
        let link = link.await.ok()?;
        let taken = AtomicUsize::new(0);
        Some(HubLink { shards, shard, link, client, output, wants_room, shared, taken })
    }

    /// Gives the session a command; its reply is among the outputs. False: the shard is overloaded.
    pub fn send(&self, command: GatewayCommand) -> bool {
        if let Some(shared) = &self.shared {
            shared.begin();
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        self.shards.put(self.shard, ShardInput::GatewayCommand(self.link, self.client, command)).is_ok()
    }

    /// The next output. None: the session has ended.
    pub async fn next(&mut self) -> Option<GatewayOutput> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// For one that waits for several sessions.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<GatewayOutput>> {
        let output = ready!(self.output.poll_recv(context));
        if output.is_some() {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        self.tell_room();
        Poll::Ready(output)
    }

    /// What followed from everything that was taken is written: the shard may write to the socket again.
    pub fn finish(&self) {
        if let Some(shared) = &self.shared {
            shared.finish(self.taken.swap(0, Ordering::Relaxed));
            self.tell_room();
        }
    }

    fn tell_room(&self) {
        if self.wants_room.swap(false, Ordering::SeqCst) {
            self.shards.force(self.shard, ShardInput::GatewayRoom(self.link, self.client));
        }
    }
}

impl Drop for HubLink {
    fn drop(&mut self) {
        self.shards.force(self.shard, ShardInput::GatewayClosed(self.link, self.client));
    }
}
