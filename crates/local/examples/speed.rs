//! Measures how fast a folder carries messages between two processes, compared with a unix socket.
//!
//!     cargo run --release -p tavern-local --example speed

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tavern_local::Draft;

const SINGLE: u32 = 50_000;
const BATCHES: u32 = 1_000;
const BATCH: usize = 100;
const ROUNDS: usize = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("listen") => listen(&args.next().ok_or("a folder")?),
        Some("wake") => wake(&args.next().ok_or("a folder")?),
        Some("answer") => answer(&args.next().ok_or("a folder")?),
        Some("socket") => socket(&args.next().ok_or("a path")?),
        _ => measure(),
    }
}

fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().ok_or("a path that is text")?;
    println!("| what | figure |\n|---|---|");
    throughput(path)?;
    bystanders(path)?;
    wake_ups(path)?;
    let (median, p99) = ping_pong(path)?;
    println!("| round trip, folder | median {median:?}, p99 {p99:?} |");
    let (median, p99) = socket_ping_pong(path)?;
    println!("| round trip, unix socket | median {median:?}, p99 {p99:?} |");
    Ok(())
}

fn throughput(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut child = start("listen", path)?;
    let publisher = tavern_local::open(path)?;
    await_listeners(&publisher, "speed")?;
    let payload = [b'x'; 100];
    let began = Instant::now();
    for _ in 0..SINGLE {
        publisher.publish("speed", payload)?;
    }
    println!("| one by one | {:.0} messages/s |", f64::from(SINGLE) / began.elapsed().as_secs_f64());
    let drafts: Vec<Draft<'_>> = (0..BATCH).map(|_| Draft::new(b"speed", &payload)).collect();
    let began = Instant::now();
    for _ in 0..BATCHES {
        publisher.publish_all(&drafts)?;
    }
    let count = f64::from(BATCHES) * BATCH as f64;
    println!("| in lists of {BATCH} | {:.0} messages/s |", count / began.elapsed().as_secs_f64());
    publisher.publish("speed", "end")?;
    println!("| all received | {:?} |", child.wait()?.success());
    Ok(())
}

/// The cost of a message when thousands of subscriptions do not match.
fn bystanders(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let publisher = tavern_local::open(path)?;
    let subscriber = tavern_local::open(path)?;
    subscriber.subscribe(["near"])?;
    for others in [0, 1_000, 10_000] {
        let bystander = tavern_local::open(path)?;
        bystander.subscribe((0..others).map(|n| format!("far{n}")))?;
        bystander.psubscribe((0..others / 10).map(|n| format!("farther{n}*")))?;
        publisher.publish("near", "warm")?;
        let began = Instant::now();
        for _ in 0..5_000 {
            publisher.publish("near", "x")?;
        }
        let each = began.elapsed() / 5_000;
        println!("| one message, {others} channels and {} patterns beside it | {each:?} |", others / 10);
        while subscriber.poll()?.is_some() {}
    }
    Ok(())
}

/// From before the publish to the end of another process's wait, one message at a time so that the other sleeps.
fn wake_ups(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut child = start("wake", path)?;
    let local = tavern_local::open(path)?;
    await_listeners(&local, "wake")?;
    for _ in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(1));
        local.publish("wake", now_ns().to_le_bytes())?;
    }
    local.publish("wake", "end")?;
    child.wait()?;
    Ok(())
}

fn wake(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let local = tavern_local::open(path)?;
    local.subscribe(["wake"])?;
    let mut times = Vec::new();
    loop {
        let message = local.wait(Duration::from_secs(10))?.ok_or("timed out")?;
        let now = now_ns();
        let Ok(stamp) = message.payload().try_into() else { break };
        times.push(Duration::from_nanos(now.saturating_sub(u64::from_le_bytes(stamp))));
    }
    let (median, p99) = summary(times);
    println!("| published and woken | median {median:?}, p99 {p99:?} |");
    Ok(())
}

/// The time on the clock that both processes share.
fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn ping_pong(path: &str) -> Result<(Duration, Duration), Box<dyn std::error::Error>> {
    let mut child = start("answer", path)?;
    let local = tavern_local::open(path)?;
    local.subscribe(["pong"])?;
    await_listeners(&local, "ping")?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        local.publish("ping", "x")?;
        local.wait(Duration::from_secs(5))?.ok_or("no answer")?;
        times.push(began.elapsed());
    }
    local.publish("ping", "end")?;
    child.wait()?;
    Ok(summary(times))
}

fn socket_ping_pong(path: &str) -> Result<(Duration, Duration), Box<dyn std::error::Error>> {
    let path = format!("{path}/limit.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    let mut child = start("socket", &path)?;
    let (mut stream, _) = listener.accept()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        times.push(began.elapsed());
    }
    drop(stream);
    child.wait()?;
    Ok(summary(times))
}

fn summary(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn await_listeners(local: &tavern_local::Local, channel: &str) -> Result<(), tavern_local::Error> {
    while local.numsub([channel])?[0].1 == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn start(part: &str, path: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args([part, path]).stdin(Stdio::null()).spawn()
}

fn listen(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let local = tavern_local::open(path)?;
    local.subscribe(["speed"])?;
    let mut received = 0u64;
    loop {
        let message = local.wait(Duration::from_secs(10))?.ok_or("timed out")?;
        if message.payload() == b"end" {
            break;
        }
        received += 1;
    }
    let all = u64::from(SINGLE) + u64::from(BATCHES) * BATCH as u64;
    if received == all { Ok(()) } else { Err(format!("received {received} of {all}").into()) }
}

fn answer(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let local = tavern_local::open(path)?;
    local.subscribe(["ping"])?;
    while local.wait(Duration::from_secs(10))?.ok_or("timed out")?.payload() != b"end" {
        local.publish("pong", "x")?;
    }
    Ok(())
}

fn socket(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut stream = UnixStream::connect(path)?;
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}
