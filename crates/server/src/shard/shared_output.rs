//! The socket of a gateway's client, which its task shares with the shard: the shard writes the messages of channels, which are the
//! same bytes for every client, without waking the task.
//! Must hold: frames are whole, whoever writes; the shard writes only while the task has nothing under way, so that nothing
//! overtakes what the task has yet to write; what the socket does not take is bounded by one piece and written first.
// Only the Pusher gateway shares sockets.
#![cfg_attr(not(feature = "pusher"), allow(dead_code))]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;
use tokio::sync::Notify;

pub struct SharedOutput {
    socket: TcpStream,
    pending: Mutex<PendingBytes>,
    /// Commands of the task, and replies and events for it, that it has not finished.
    under_way: AtomicUsize,
    /// The socket has refused bytes of the shard: the task writes them.
    stuck: Notify,
}

#[derive(Default)]
struct PendingBytes {
    /// Accepted, and not written yet.
    bytes: Vec<u8>,
    /// The end was written: nothing may follow.
    is_closed: bool,
}

/// What became of bytes of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedWrite {
    Written,
    /// They are kept until the task has written them.
    Kept,
    /// The connection is closed.
    Closed,
}

impl SharedOutput {
    pub fn new(socket: TcpStream) -> SharedOutput {
        SharedOutput {
            socket,
            pending: Mutex::default(),
            under_way: AtomicUsize::new(0),
            stuck: Notify::new(),
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingBytes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that the task has to finish: nothing of the shard may overtake it.
    pub fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    /// The task has finished so many, and has written what followed from them.
    pub fn finish(&self, count: usize) {
        self.under_way.fetch_sub(count, Ordering::SeqCst);
    }

    /// Whether the shard may write.
    pub fn is_free(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0 && self.pending().bytes.is_empty()
    }

    /// Whole frames of the shard. Never waits.
    pub fn write_now(&self, bytes: &[u8]) -> SharedWrite {
        let mut pending = self.pending();
        if pending.is_closed {
            return SharedWrite::Closed;
        }
        let mut written = 0;
        while pending.bytes.is_empty() && written < bytes.len() {
            match self.socket.try_write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return SharedWrite::Closed,
            }
        }
        if written == bytes.len() {
            return SharedWrite::Written;
        }
        pending.bytes.extend_from_slice(&bytes[written..]);
        self.stuck.notify_one();
        SharedWrite::Kept
    }

    /// Whole frames of the task; waits until everything is written.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.pending().bytes.extend_from_slice(bytes);
        while !self.try_flush()? {
            self.socket.writable().await?;
        }
        Ok(())
    }

    /// True: nothing is left to be written.
    fn try_flush(&self) -> io::Result<bool> {
        let mut pending = self.pending();
        let mut written = 0;
        let flushed = loop {
            if written == pending.bytes.len() {
                break Ok(true);
            }
            match self.socket.try_write(&pending.bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        // An idle connection owns no buffer.
        pending.bytes =
            if written == pending.bytes.len() { Vec::new() } else { pending.bytes.split_off(written) };
        flushed
    }

    /// Waits until the task has something to write for the shard.
    pub async fn stuck(&self) {
        self.stuck.notified().await;
    }

    /// Appends what the socket has; `Ok(0)` is the end.
    pub async fn read(&self, input: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            self.socket.readable().await?;
            match self.socket.try_read_buf(input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Nothing follows what is written now.
    pub fn close(&self) {
        self.pending().is_closed = true;
    }

    /// Tells the client that nothing more comes.
    pub fn shut_down(&self) {
        // The client may be gone.
        let _ = socket2::SockRef::from(&self.socket).shutdown(std::net::Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    async fn pair() -> (SharedOutput, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        socket.writable().await.unwrap();
        (SharedOutput::new(socket), client)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_shard_waits_for_what_the_task_has_under_way() {
        runtime().block_on(async {
            let (output, _client) = pair().await;
            assert!(output.is_free());
            output.begin();
            output.begin();
            output.finish(1);
            assert!(!output.is_free());
            output.finish(1);
            assert!(output.is_free());
        });
    }

    #[test]
    fn what_the_socket_refuses_is_written_first_and_in_order() {
        runtime().block_on(async {
            let (output, mut client) = pair().await;
            let (mut sent, mut last) = (Vec::new(), SharedWrite::Written);
            // Until the buffers of the connection are full.
            for number in 0..u32::MAX {
                let piece = number.to_be_bytes().repeat(16 * 1024);
                last = output.write_now(&piece);
                sent.extend(piece);
                if last != SharedWrite::Written {
                    break;
                }
            }
            assert_eq!(last, SharedWrite::Kept);
            assert!(!output.is_free());
            output.stuck().await;
            sent.extend(b"of the task");
            let mut received = vec![0; sent.len()];
            let (written, read) =
                tokio::join!(output.write(b"of the task"), client.read_exact(&mut received));
            written.unwrap();
            read.unwrap();
            assert!(received == sent);
            assert!(output.is_free());
        });
    }

    #[test]
    fn nothing_follows_the_end() {
        runtime().block_on(async {
            let (output, mut client) = pair().await;
            output.close();
            assert_eq!(output.write_now(b"late"), SharedWrite::Closed);
            output.write(b"goodbye").await.unwrap();
            output.shut_down();
            let mut received = String::new();
            client.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "goodbye");
        });
    }
}
