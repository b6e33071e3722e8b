//! The endpoints that deliveries go to: one address, one path for each, a thread for each connection. They accept everything
//! and check every seq. Must hold: a gap in the seqs of an endpoint is always detected; duplicates are counted once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use memchr::memmem;

use super::accept::times;
use super::line::{content_length, leading_number, number_after};

pub struct Endpoints {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    hooks: Vec<Mutex<Hook>>,
    /// Events that came for the first time, of all.
    events: AtomicU64,
    batches: AtomicU64,
    again: AtomicU64,
    faults: Mutex<Vec<String>>,
    /// From the moment that an event names to its arrival, in microseconds.
    latency: Mutex<Histogram<u64>>,
    begun: Instant,
    ends: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Hook {
    last: u64,
}

const CHUNK: usize = 256 * 1024;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
/// Names the moment of publishing in the data of an event.
pub const SENT: &str = r#""sent_us":"#;

impl Endpoints {
    pub fn open(count: usize) -> anyhow::Result<Endpoints> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            hooks: (0..count).map(|_| Mutex::default()).collect(),
            events: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            again: AtomicU64::new(0),
            faults: Mutex::default(),
            latency: Mutex::new(times()?),
            begun: Instant::now(),
            ends: AtomicBool::new(false),
        });
        let of_listener = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_listener.ends.load(Ordering::Relaxed) {
                    return;
                }
                let of_stream = of_listener.clone();
                // Ends with its connection, which ends with the server.
                thread::spawn(move || {
                    if let Err(error) = serve(stream, &of_stream) {
                        of_stream.fault(format!("{error:#}"));
                    }
                });
            }
        });
        Ok(Endpoints { address, shared })
    }

    pub fn url(&self, hook: usize) -> String {
        format!("http://{}/hook/{hook}", self.address)
    }

    /// Events that came, of all endpoints.
    pub fn events(&self) -> u64 {
        self.shared.events.load(Ordering::Relaxed)
    }

    pub fn batches(&self) -> u64 {
        self.shared.batches.load(Ordering::Relaxed)
    }

    /// Batches that had come before.
    pub fn again(&self) -> u64 {
        self.shared.again.load(Ordering::Relaxed)
    }

    /// The last number of each.
    pub fn reached(&self) -> Vec<u64> {
        self.shared.hooks.iter().map(|hook| lock(hook).last).collect()
    }

    /// Microseconds on the clock that `SENT` is measured by.
    pub fn now_us(&self) -> u64 {
        self.shared.begun.elapsed().as_micros() as u64
    }

    pub fn latency_ms(&self, quantile: f64) -> f64 {
        lock(&self.shared.latency).value_at_quantile(quantile) as f64 / 1e3
    }

    /// Waits until so many have come.
    pub fn wait_for(&self, events: u64, patience: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        while self.events() < events {
            self.check()?;
            ensure!(Instant::now() < end, "{} events of {events} came in {patience:?}", self.events());
            thread::sleep(Duration::from_micros(200));
        }
        self.check()
    }

    /// Whether everything was as it must be so far.
    pub fn check(&self) -> anyhow::Result<()> {
        match lock(&self.shared.faults).first() {
            Some(fault) => bail!("an endpoint: {fault}"),
            None => Ok(()),
        }
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // Wakes the listener so that it sees the stop flag.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut stream: TcpStream, shared: &Shared) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; CHUNK];
    let mut held = 0;
    loop {
        let head = memmem::find(&buffer[..held], b"\r\n\r\n").map(|end| end + 4);
        let whole = head.map(|head| {
            let text = std::str::from_utf8(&buffer[..head]).context("a strange head")?;
            anyhow::Ok(head + content_length(text).context("a request without length")?)
        });
        let whole = whole.transpose()?;
        if let (Some(head), Some(whole)) = (head, whole)
            && held >= whole
        {
            let path = std::str::from_utf8(&buffer[..head])?.split(' ').nth(1).unwrap_or_default();
            let hook = path.strip_prefix("/hook/").and_then(|hook| hook.parse().ok());
            shared.take(hook.context("a strange path")?, &buffer[head..whole])?;
            stream.write_all(ANSWER)?;
            buffer.copy_within(whole..held, 0);
            held -= whole;
            continue;
        }
        if whole.unwrap_or(0).max(held + 1) > buffer.len() {
            buffer.resize(whole.unwrap_or(0).max(2 * buffer.len()), 0);
        }
        match stream.read(&mut buffer[held..]) {
            // The server has ended, however it did.
            Ok(0) | Err(_) => return Ok(()),
            Ok(read) => held += read,
        }
    }
}

impl Shared {
    fn fault(&self, fault: String) {
        lock(&self.faults).push(fault);
    }

    fn take(&self, hook: usize, body: &[u8]) -> anyhow::Result<()> {
        let (first, last) = numbers(body)?;
        let mut place = lock(self.hooks.get(hook).context("no such endpoint")?);
        if last <= place.last {
            self.again.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        ensure!(first == place.last + 1, "endpoint {hook} had {} and was sent {first} to {last}", place.last);
        place.last = last;
        drop(place);
        self.events.fetch_add(last + 1 - first, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        if let Some(sent) = number_after(body, SENT.as_bytes()) {
            let waited = (self.begun.elapsed().as_micros() as u64).saturating_sub(sent);
            lock(&self.latency).saturating_record(waited);
        }
        Ok(())
    }
}

/// The first and the last seq of a batch; checks that it contains every event in between.
fn numbers(body: &[u8]) -> anyhow::Result<(u64, u64)> {
    let first = number_after(body, br#""first_seq":"#).context("a batch without first_seq")?;
    let last = number_after(body, br#""last_seq":"#).context("a batch without last_seq")?;
    let name = br#"{"seq":"#;
    let mut next = first;
    for at in memmem::find_iter(body, name) {
        let seq = leading_number(&body[at + name.len()..]);
        ensure!(seq == Some(next), "{seq:?} stands where {next} belongs");
        next += 1;
    }
    ensure!(next == last + 1, "a batch of {first} to {last} ends before {next}");
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_batch_is_looked_at() {
        let check = |seqs: &str| {
            numbers(
                format!(r#"{{"subscription":"a","first_seq":4,"last_seq":6,"events":[{seqs}]}}"#).as_bytes(),
            )
        };
        assert_eq!(check(r#"{"seq":4,"id":"x"},{"seq":5},{"seq":6}"#).unwrap(), (4, 6));
        assert!(check(r#"{"seq":4},{"seq":6}"#).is_err());
        assert!(check(r#"{"seq":4},{"seq":5}"#).is_err());
    }

    #[test]
    fn duplicates_count_once_and_a_gap_is_reported() {
        let endpoints = Endpoints::open(1).unwrap();
        let mut stream = TcpStream::connect(endpoints.address).unwrap();
        let mut post = |seq: u64| {
            let body = format!(r#"{{"first_seq":{seq},"last_seq":{seq},"events":[{{"seq":{seq}}}]}}"#);
            write!(stream, "POST /hook/0 HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            let _ = stream.read(&mut [0; 256]);
        };
        [1, 2, 2].into_iter().for_each(&mut post);
        assert_eq!((endpoints.events(), endpoints.batches(), endpoints.again()), (2, 2, 1));
        endpoints.check().unwrap();
        post(4);
        assert!(
            endpoints.wait_for(3, Duration::from_secs(5)).unwrap_err().to_string().contains("was sent 4")
        );
    }
}
