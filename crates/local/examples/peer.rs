//! A process that uses a folder as it is told on stdin: one command per line, one answer per line. The tests use it as
//! the other side. It has one thread, so that it may fork.
//!
//!     cargo run -p tavern-local --example peer

#[path = "../tests/it/support/protocol.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod protocol;

use protocol::{Queueing, Random, decode, encode, now_ns};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tavern_local::{ChannelNamespace, Draft, Error, Interest, Local, Message, Options};

/// Longer than anything here may take.
const DEADLINE: Duration = Duration::from_secs(20);

type Answer = Result<String, Box<dyn std::error::Error>>;

#[derive(Default)]
struct Peer {
    folder: PathBuf,
    options: Options,
    local: Option<Local>,
    crowd: Vec<Local>,
    /// A second descriptor of the lock file.
    lock: Option<File>,
}

fn main() {
    let mut peer = Peer::default();
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { return };
        let mut words = line.split(' ');
        let command = words.next().unwrap_or_default();
        let arguments: Vec<&str> = words.collect();
        println!("{}", peer.execute(command, &arguments).unwrap_or_else(|error| fault(&*error)));
    }
}

fn fault(error: &(dyn std::error::Error + 'static)) -> String {
    let name = match error.downcast_ref::<Error>() {
        Some(error) => name_of(error),
        None => "Command".into(),
    };
    format!("error {name} {error}")
}

fn name_of(error: &Error) -> String {
    format!("{error:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().into()
}

impl Peer {
    fn execute(&mut self, command: &str, arguments: &[&str]) -> Answer {
        let first = arguments.first().copied();
        match command {
            "open" => return self.open(arguments),
            "close" => self.local.take().ok_or("nothing is open")?.close()?,
            "crowd" => return self.open_crowd(number(first)?),
            "crowd-poll" => return self.poll_crowd(),
            "crowd-end" => self.crowd.clear(),
            "limit" => limit_descriptors(number(first)?)?,
            "chdir" => std::env::set_current_dir(path(first.ok_or("a path")?))?,
            "list" => return list(&path(first.ok_or("a path")?)),
            "remove" => std::fs::remove_file(path(first.ok_or("a path")?))?,
            "hold-write-lock" => self.hold_write_lock()?,
            "release-locks" => drop(File::open(self.folder.join("bus.db-lock"))?),
            "descriptors" => return descriptors(),
            "fork" => return self.fork(),
            "fork-and-stay" => return fork_and_stay(),
            _ => return self.execute_open(command, arguments),
        }
        Ok("ok".into())
    }

    /// The commands that need an open folder.
    fn execute_open(&mut self, command: &str, arguments: &[&str]) -> Answer {
        let local = self.local.as_ref().ok_or("nothing is open")?;
        let first = arguments.first().copied();
        let names = || arguments.iter().map(|word| decode(word));
        let count = match command {
            "subscribe" => local.subscribe(names())?,
            "psubscribe" => local.psubscribe(names())?,
            "unsubscribe" => local.unsubscribe(names())?,
            "punsubscribe" => local.punsubscribe(names())?,
            "unsubscribe-all" => local.unsubscribe_all()?,
            "everything" => local.add_interests([Interest::everything(ChannelNamespace::Public)])?,
            "narrow-on-request" => narrow_on_request(local, arguments)?,
            "publish" => local.publish(names().next().ok_or("a channel")?, decode(arguments[1]))? as usize,
            "numsub" => local.numsub(names())?[0].1 as usize,
            "numpat" => local.numpat()? as usize,
            "sweep" => local.sweep()?,
            "send-numbers" => send_numbers(local, arguments)?,
            "flood" => flood(local, arguments)?,
            "receive" => receive(local, number(first)?)?,
            "churn" => churn(local, number(first)?)?,
            "ping" => race(local, "pong", "ping", arguments, true)?,
            "pong" => race(local, "ping", "pong", arguments, false)?,
            "poll" => return Ok(show(local.poll()?.as_ref())),
            "wait" => return Ok(show(local.wait(Duration::from_millis(number(first)?))?.as_ref())),
            _ => return Err(format!("unknown command {command}").into()),
        };
        Ok(format!("ok {count}"))
    }

    /// `open PATH [key=value]…`
    fn open(&mut self, arguments: &[&str]) -> Answer {
        let (folder, settings) = arguments.split_first().ok_or("a path")?;
        self.folder = path(folder);
        self.options = options(settings)?;
        self.local = Some(Local::open_with(&self.folder, self.options.clone())?);
        Ok("ok".into())
    }

    /// Opens many handles, each subscribed to a channel of its own and to one that all share.
    fn open_crowd(&mut self, many: u64) -> Answer {
        for at in 0..many {
            let local = Local::open_with(&self.folder, self.options.clone())?;
            local.subscribe(["crowd".to_owned(), format!("crowd{at}")])?;
            self.crowd.push(local);
        }
        Ok(format!("ok {}", self.crowd.len()))
    }

    /// How many of those handles have exactly one message.
    fn poll_crowd(&mut self) -> Answer {
        let mut well = 0;
        for local in &self.crowd {
            well += usize::from(local.poll()?.is_some() && local.poll()?.is_none());
        }
        Ok(format!("ok {well}"))
    }

    /// Takes the write lock and keeps it, like a process that was stopped in the middle of a write.
    fn hold_write_lock(&mut self) -> std::io::Result<()> {
        let file = File::options().write(true).open(self.folder.join("bus.db-lock"))?;
        // SAFETY: `flock` is plain numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_len) = (libc::F_WRLCK as libc::c_short, 1);
        // SAFETY: the descriptor is open and `lock` outlives the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &lock) } == -1 {
            return Err(std::io::Error::last_os_error());
        }
        self.lock = Some(file);
        Ok(())
    }

    /// Lets a forked child use its parent's handles, and prints the results.
    fn fork(&mut self) -> Answer {
        std::io::stdout().flush()?;
        // SAFETY: this process has one thread, so nothing is left locked in the child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let outcome = |result: Result<(), Error>| result.err().map_or("fine".into(), |e| name_of(&e));
            let local = self.local.take().expect("it is open");
            let tried = [
                local.publish("c", "from the child").map(drop),
                local.subscribe(["c"]).map(drop),
                local.unsubscribe_all().map(drop),
                local.poll().map(drop),
                local.wait(Duration::ZERO).map(drop),
                local.numsub(["c"]).map(drop),
                local.sweep().map(drop),
                local.stat().map(drop),
                tavern_local::open(&self.folder).map(drop),
                tavern_local::open(self.folder.join("other")).map(drop),
            ];
            local.interrupter().interrupt();
            drop(local);
            println!("{}", tried.map(outcome).join(" "));
            std::process::exit(0);
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        if child < 0 || ended != child || status != 0 {
            return Err(format!("the child {child} ended with {status}").into());
        }
        Ok("ok".into())
    }
}

/// Forks a child that keeps everything open, and prints its process id.
fn fork_and_stay() -> Answer {
    // SAFETY: this process has one thread, so nothing is left locked in the child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            std::thread::sleep(DEADLINE);
        }
    }
    Ok(format!("ok {child}"))
}

fn options(settings: &[&str]) -> Result<Options, Box<dyn std::error::Error>> {
    let mut options = Options::default();
    for setting in settings {
        let (name, value) = setting.split_once('=').ok_or("name=value")?;
        let value: u64 = value.parse()?;
        match name {
            "messages" => options.log_messages = value,
            "bytes" => options.log_bytes = value,
            "age" => options.log_age = Duration::from_millis(value),
            "busy_timeout" => options.busy_timeout = Duration::from_millis(value),
            "echo" => options.echo = value > 0,
            _ => return Err(format!("unknown setting {name}").into()),
        }
    }
    Ok(options)
}

/// `send-numbers CHANNEL COUNT PREFIX SIZE`: publishes numbers, each with a tail that shows whether it is complete.
fn send_numbers(local: &Local, arguments: &[&str]) -> Result<usize, Box<dyn std::error::Error>> {
    let &[channel, count, prefix, size] = arguments else { return Err("four arguments".into()) };
    let (count, size): (usize, usize) = (count.parse()?, size.parse()?);
    for n in 0..count {
        let payload = format!("{prefix}:{n}:{}", char::from(b'a' + (n % 26) as u8).to_string().repeat(size));
        let recipients = local.publish(decode(channel), payload)?;
        println!("sent {n} {recipients}");
    }
    Ok(count)
}

/// `flood MANY COUNT ONE`: publishes COUNT messages to one channel and one to another, in one call. Prints the recipients.
fn flood(local: &Local, arguments: &[&str]) -> Result<usize, Box<dyn std::error::Error>> {
    let &[many, count, one] = arguments else { return Err("three arguments".into()) };
    let (many, one) = (decode(many), decode(one));
    let mut drafts = vec![Draft::new(&many, b"x"); count.parse()?];
    drafts.push(Draft::new(&one, b"x"));
    Ok(local.publish_all(&drafts)?.iter().sum::<u64>() as usize)
}

fn receive(local: &Local, count: u64) -> Result<usize, Box<dyn std::error::Error>> {
    for received in 0..count {
        let message = local.wait(DEADLINE)?;
        if message.is_none() {
            return Err(format!("timed out after {received} of {count}").into());
        }
        println!("{}", show(message.as_ref()));
    }
    Ok(count as usize)
}

/// Subscribes, receives and unsubscribes until it is killed.
fn churn(local: &Local, seed: u64) -> Result<usize, Box<dyn std::error::Error>> {
    let mut random = Random::new(seed);
    println!("churning");
    loop {
        local.subscribe(["churn".to_owned(), format!("churn{}", random.below(8))])?;
        local.psubscribe([format!("c{}*", random.below(4))])?;
        for _ in 0..random.below(4) {
            local.publish("churn", "own message")?;
        }
        while local.poll()?.is_some() {}
        local.unsubscribe_all()?;
        local.punsubscribe_all()?;
    }
}

/// Subscribes to everything, and to `names` instead when asked to narrow. After the payload `end` it prints how often it
/// was asked.
fn narrow_on_request(local: &Local, names: &[&str]) -> Result<usize, Box<dyn std::error::Error>> {
    local.add_interests([Interest::everything(ChannelNamespace::Public)])?;
    println!("subscribed");
    let mut asked = 0;
    loop {
        let message = local.wait(DEADLINE)?;
        if let Some(message) = &message {
            println!("{}", show(Some(message)));
            if message.payload() == b"end" {
                return Ok(asked);
            }
        }
        if local.take_narrow_request() {
            asked += 1;
            local.add_interests(names.iter().map(|name| Interest::channel(decode(name))))?;
            local.remove_interests([Interest::everything(ChannelNamespace::Public)])?;
        }
    }
}

/// `ping|pong ROUNDS SEED SPIN_NS`: publishes and receives in turn, with a random pause so that the other side's sleep is
/// met at every stage. Prints when each publish and each wait returned, and how long the thread had no processor.
fn race(
    local: &Local,
    from: &str,
    to: &str,
    arguments: &[&str],
    begins: bool,
) -> Result<usize, Box<dyn std::error::Error>> {
    let &[rounds, seed, spin_ns] = arguments else { return Err("three arguments".into()) };
    let (rounds, spin_ns): (usize, u64) = (rounds.parse()?, spin_ns.parse()?);
    let mut random = Random::new(seed.parse()?);
    let queueing = Queueing::of_this_thread();
    let mut times = Vec::with_capacity(rounds);
    local.subscribe([from])?;
    println!("ready");
    while local.numsub([to])?[0].1 == 0 {}
    let mut send_numbers = |round: usize| -> Result<u64, Error> {
        let until = Instant::now() + Duration::from_nanos(random.below(spin_ns));
        while Instant::now() < until {}
        local.publish(to, round.to_string())?;
        Ok(now_ns())
    };
    for round in 0..rounds {
        let mut sent = if begins { send_numbers(round)? } else { 0 };
        let before = queueing.total_ns();
        let message = local.wait(DEADLINE)?.ok_or("timed out")?;
        let (received, queued) = (now_ns(), queueing.total_ns() - before);
        if message.payload() != round.to_string().as_bytes() {
            return Err(format!("{} in round {round}", show(Some(&message))).into());
        }
        if !begins {
            sent = send_numbers(round)?;
        }
        times.push((sent, received, queued));
    }
    for (sent, received, queued) in times {
        println!("{sent} {received} {queued}");
    }
    Ok(rounds)
}

fn show(message: Option<&Message>) -> String {
    match message {
        None => "none".into(),
        Some(Message::Gap { lost }) => format!("gap {lost}"),
        Some(message) => {
            let elements = message.elements();
            let kind = String::from_utf8_lossy(elements[0]).into_owned();
            elements[1..].iter().fold(kind, |line, element| format!("{line} {}", encode(element)))
        }
    }
}

fn number(word: Option<&str>) -> Result<u64, Box<dyn std::error::Error>> {
    Ok(word.ok_or("a number")?.parse()?)
}

fn path(word: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(decode(word)).into()
}

fn list(folder: &std::path::Path) -> Answer {
    use std::os::unix::ffi::OsStrExt;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(encode(entry?.file_name().as_bytes()));
    }
    names.sort();
    Ok(format!("ok {}", names.join(" ")).trim_end().into())
}

fn limit_descriptors(max: u64) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: max, rlim_max: max };
    // SAFETY: `limit` outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == -1 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// The descriptors that a child program inherits.
fn descriptors() -> Answer {
    let script = "for each in /proc/$$/fd/*; do readlink $each; done";
    let shell = std::process::Command::new("sh").args(["-c", script]).output()?;
    Ok(format!("ok {}", encode(&shell.stdout)))
}
