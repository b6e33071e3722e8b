//! What a client tells: turns of its connection and events of the server; and the streams by which apps hear it.
//! Must hold: a stream holds a bounded number of events, and one that is read too slowly says so.

use crate::Error;
use crate::presence::{Status, StatusUpdate};
use futures_util::Stream;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Events that wait for the slowest reader.
pub(crate) const KEPT: usize = 16_384;

/// A message of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub channel: String,
    pub data: Value,
    /// Who published it; None: a service, or somebody without a name.
    pub user: Option<String>,
    pub client: Option<String>,
    pub seq: Option<u64>,
    /// `base64` when `data` is that of bytes which are no text.
    pub encoding: Option<String>,
}

/// Something was lost: of a channel, of a pattern, or the events from … to of the mailbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    pub channel: Option<String>,
    pub pattern: Option<String>,
    pub from: Option<u64>,
    pub to: Option<u64>,
}

/// An event and, when it came from the server, the JSON that the server sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub event: Event,
    pub json: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The first session is there.
    Open,
    /// The link is lost; the client is on its way back.
    Reconnecting {
        why: String,
    },
    /// The session is back, nothing was missed.
    Resumed,
    /// Another session was begun, with all that the old one wanted. What was said between is lost.
    Reset,
    Gap(Gap),
    /// The server stops, and said when to come back.
    Closing {
        reconnect_after_ms: u64,
    },
    /// Another transport took the session over; this client does not come back.
    Superseded,
    /// The end.
    Closed(Error),
    /// Something the client did by itself was refused.
    Refused(Error),
    Message(Message),
    /// The live map of this channel has changed.
    Presence {
        channel: String,
    },
    /// A user whom one follows does something else.
    Status(StatusUpdate),
    /// The statuses of everybody whom one follows.
    Statuses(Vec<Status>),
    Letter {
        letter: u64,
        data: Value,
    },
    /// What a member of the party says.
    Said(Message),
    /// A letter about parties, as it came: `{cmd, party_id, version, …}`.
    Party(Value),
}

type Taking =
    Pin<Box<dyn Future<Output = (Option<Result<Received, Error>>, broadcast::Receiver<Received>)> + Send>>;

/// Events from the moment it was made, in order. Ends when the client is dropped.
pub struct Events {
    receiver: Option<broadcast::Receiver<Received>>,
    taking: Option<Taking>,
}

impl Events {
    pub(crate) fn new(receiver: broadcast::Receiver<Received>) -> Events {
        Events { receiver: Some(receiver), taking: None }
    }

    /// The next event; an error `overflow` in the place of those that were not read in time.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        Some(self.next_received().await?.map(|received| received.event))
    }

    /// The same, with the server's own JSON beside each event.
    pub async fn next_received(&mut self) -> Option<Result<Received, Error>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Received, Error>>> {
        // Most often something is there, and no future has to be made.
        if self.taking.is_none()
            && let Some(receiver) = &mut self.receiver
        {
            match receiver.try_recv() {
                Ok(received) => return Poll::Ready(Some(Ok(received))),
                Err(TryRecvError::Lagged(count)) => return Poll::Ready(Some(Err(overflow(count)))),
                Err(TryRecvError::Closed) => return Poll::Ready(None),
                Err(TryRecvError::Empty) => {}
            }
        }
        let taking = match (&mut self.taking, self.receiver.take()) {
            (Some(taking), _) => taking,
            (empty, Some(receiver)) => empty.insert(Box::pin(take(receiver))),
            (None, None) => return Poll::Ready(None),
        };
        let Poll::Ready((event, receiver)) = taking.as_mut().poll(context) else { return Poll::Pending };
        self.taking = None;
        self.receiver = Some(receiver);
        Poll::Ready(event)
    }
}

async fn take(
    mut receiver: broadcast::Receiver<Received>,
) -> (Option<Result<Received, Error>>, broadcast::Receiver<Received>) {
    let event = match receiver.recv().await {
        Ok(event) => Some(Ok(event)),
        Err(RecvError::Lagged(count)) => Some(Err(overflow(count))),
        Err(RecvError::Closed) => None,
    };
    (event, receiver)
}

fn overflow(count: u64) -> Error {
    Error::new("overflow", format!("read too slowly: {count} events are gone"))
}

impl Stream for Events {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context).map(|item| item.map(|received| received.map(|received| received.event)))
    }
}

type Chosen = Box<dyn Fn(&Message) -> bool + Send + Sync>;

/// The messages of a channel or a pattern. Ends when the client does.
pub struct Messages {
    events: Events,
    chosen: Chosen,
}

impl Messages {
    pub(crate) fn new(events: Events, chosen: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Messages {
        Messages { events, chosen: Box::new(chosen) }
    }

    pub async fn next(&mut self) -> Option<Result<Message, Error>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        loop {
            let event = self.events.poll(context).map(|item| item.map(|item| item.map(|item| item.event)));
            return match event {
                Poll::Ready(Some(Ok(Event::Message(message)))) if (self.chosen)(&message) => {
                    Poll::Ready(Some(Ok(message)))
                }
                Poll::Ready(Some(Ok(Event::Closed(_))) | None) => Poll::Ready(None),
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

impl Stream for Messages {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_that_is_read_too_slowly_says_so() {
        let (sender, receiver) = broadcast::channel(2);
        let mut events = Events::new(receiver);
        for reconnect_after_ms in 0..5 {
            let _ = sender.send(Received { event: Event::Closing { reconnect_after_ms }, json: None });
        }
        let lost = events.next().await.expect("an item").expect_err("an overflow");
        assert_eq!(
            (lost.code.as_str(), lost.message.as_str()),
            ("overflow", "read too slowly: 3 events are gone")
        );
        assert_eq!(events.next().await, Some(Ok(Event::Closing { reconnect_after_ms: 3 })));
        drop(sender);
        assert!(events.next().await.is_some());
        assert_eq!(events.next().await, None);
    }
}
