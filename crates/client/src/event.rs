//! Events of the connection and of the server, and the streams that deliver them.
//! Must hold: a stream buffers a bounded number of events; one that is read too slowly reports `overflow`.

use crate::Error;
use crate::history::ChannelPosition;
use crate::party_snapshot::PartyEvent;
use crate::presence::{Status, StatusUpdate};
use futures_util::Stream;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// A message of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The channel.
    pub channel: String,
    /// The payload as it came; [`Message::data`] reads it as a type.
    pub data: Value,
    /// The publisher; None: a service or an anonymous client.
    pub user: Option<String>,
    /// The publisher's client.
    pub client: Option<String>,
    /// Its number in the session's mailbox.
    pub seq: Option<u64>,
    /// `base64` when the payload is not UTF-8.
    pub encoding: Option<String>,
    /// Its place in the history of the channel, if that keeps one.
    pub position: Option<ChannelPosition>,
}

impl Message {
    /// The payload as a type of the app.
    ///
    /// ```no_run
    /// # async fn example(mut messages: tavern_client::Messages) -> Result<(), tavern_client::Error> {
    /// #[derive(serde::Deserialize)]
    /// struct Move {
    ///     from: String,
    ///     to: String,
    /// }
    ///
    /// while let Some(message) = messages.next().await {
    ///     let played = message?.data::<Move>()?;
    ///     println!("{} to {}", played.from, played.to);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(&self.data).map_err(Error::unexpected)
    }
}

/// Messages of a channel or a pattern, or the events `from` … `to` of the mailbox, were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The channel that lost messages.
    pub channel: Option<String>,
    /// The pattern that lost messages.
    pub pattern: Option<String>,
    /// The first lost event of the mailbox.
    pub from: Option<u64>,
    /// The last lost event of the mailbox.
    pub to: Option<u64>,
}

/// The end of something that a fresh token does not allow any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// What has ended: `subscribe`, `presence` or `join`.
    pub verb: String,
    /// In this channel.
    pub channel: Option<String>,
    /// For this pattern.
    pub pattern: Option<String>,
}

/// A subscription or presence that a new session could not restore.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FailedRestore {
    /// What was refused: `subscribe` or `join`.
    pub verb: String,
    /// To this channel.
    pub channel: Option<String>,
    /// To this pattern.
    pub pattern: Option<String>,
    /// Why.
    pub error: Error,
}

/// An event and, when it came from the server, the JSON that the server sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The event.
    pub event: Event,
    /// What the server sent.
    pub json: Option<Arc<str>>,
}

/// An event of the connection or of the server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The first session is open.
    Open,
    /// The connection is lost; the client reconnects.
    Reconnecting {
        /// Why it was lost.
        why: String,
    },
    /// The session was resumed; nothing was missed.
    Resumed,
    /// A new session has replaced the old one, with the same subscriptions and presences. Messages in between are lost.
    Reset {
        /// What the new session was refused.
        failed: Vec<FailedRestore>,
    },
    /// Messages or events were lost.
    Gap(Gap),
    /// A fresh token does not allow this any more, and it has ended.
    Revoked(Revoked),
    /// The server is stopping and asks the client to reconnect later.
    Closing {
        /// How long to wait before reconnecting.
        reconnect_after_ms: u64,
    },
    /// Another client took over the session; this one does not reconnect.
    Superseded,
    /// The client has ended, for this reason.
    Closed(Error),
    /// An attempt to connect or to renew the token failed, or the server refused what the client asked for on its own. The
    /// client goes on.
    Error {
        /// Why.
        error: Error,
        /// When the client tries again, if it waits.
        retry_in: Option<Duration>,
    },
    /// A message of a subscribed channel or pattern.
    Message(Message),
    /// The client asked for the messages of a channel that it missed.
    Recovered {
        /// The channel.
        channel: String,
        /// All of them follow. False: some are gone.
        recovered: bool,
    },
    /// The live map of this channel has changed.
    Presence {
        /// The channel.
        channel: String,
    },
    /// The status of a followed user has changed.
    Status(StatusUpdate),
    /// The statuses of all followed users.
    Statuses(Vec<Status>),
    /// A message in the inbox of the user.
    Inbox {
        /// Its number in the inbox.
        message_id: u64,
        /// Its content.
        data: Value,
    },
    /// A message of a member of the party.
    PartyMessage(Message),
    /// What happened to the party, or to an invite of this user.
    Party(PartyEvent),
}

type Taking =
    Pin<Box<dyn Future<Output = (Option<Result<Received, Error>>, broadcast::Receiver<Received>)> + Send>>;

/// The events from its creation on, in order. Ends when the client is dropped.
pub struct Events {
    receiver: Option<broadcast::Receiver<Received>>,
    taking: Option<Taking>,
}

impl Events {
    pub(crate) fn new(receiver: broadcast::Receiver<Received>) -> Events {
        Events { receiver: Some(receiver), taking: None }
    }

    /// The next event; the error `overflow` means that events were not read in time and are lost.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        Some(self.next_received().await?.map(|received| received.event))
    }

    /// The same, with the server's own JSON beside each event.
    pub async fn next_received(&mut self) -> Option<Result<Received, Error>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Received, Error>>> {
        // The common case needs no future.
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
    Error::Overflow(count)
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

    /// The next message; the error `overflow` means that events were not read in time and are lost.
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
    async fn slow_reader_gets_overflow() {
        let (sender, receiver) = broadcast::channel(2);
        let mut events = Events::new(receiver);
        for reconnect_after_ms in 0..5 {
            let _ = sender.send(Received { event: Event::Closing { reconnect_after_ms }, json: None });
        }
        let lost = events.next().await.expect("an item").expect_err("an overflow");
        assert_eq!(
            (lost.code(), lost.message().as_str()),
            ("overflow", "read too slowly: 3 events were dropped")
        );
        assert_eq!(events.next().await, Some(Ok(Event::Closing { reconnect_after_ms: 3 })));
        drop(sender);
        assert!(events.next().await.is_some());
        assert_eq!(events.next().await, None);
    }
}
