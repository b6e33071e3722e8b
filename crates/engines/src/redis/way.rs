//! The way to the servers: which of them keeps a slot, the connections to them, and how these are made again after they were
//! lost. Must hold: what a server says it has not done is asked again, elsewhere or later; what nobody knows is not; who
//! asks waits only briefly for a connection.

use super::door::{Door, Kind};
use super::link::{Link, Reply};
use super::script::Request;
use super::value::{Trouble, text};
use crate::intake::Arrivals;
use crate::remote::{Host, broken};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long reaching a server and logging in may take.
const REACH: Duration = Duration::from_secs(3);
/// How long work waits for a connection that was just lost, or for a cluster that moves things: a restart is bridged.
const BRIDGE: Duration = Duration::from_secs(2);
/// Between two tries: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Way {
    door: Door,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The server in charge of everything, where there is one.
    lead: Option<Host>,
    /// The cluster's map: from, to, who.
    slots: Vec<(u16, u16, Host)>,
    links: HashMap<Host, Arc<Link>>,
    /// Nobody was reached: until then nobody tries, and nobody waits.
    down: Option<(Instant, Duration)>,
    arrivals: Arc<Arrivals>,
}

impl Way {
    pub fn new(door: Door, arrivals: Arc<Arrivals>) -> Way {
        Way { door, state: Mutex::new(State { arrivals, ..State::default() }) }
    }

    /// A connection to whoever keeps this slot, to show that the address is right.
    pub async fn open(&self, slot: u16) -> Result<(), Trouble> {
        self.state.lock().await.connect(&self.door, slot).await.map(drop)
    }

    /// Asks until it is answered or somebody else must decide.
    pub async fn ask(&self, request: &Request) -> Result<Reply, Trouble> {
        self.ask_all(request, &[]).await
    }

    /// The same, followed by `more` on the same connection; when there is more the answer is the list of all answers.
    pub async fn ask_all(&self, request: &Request, more: &[bytes::Bytes]) -> Result<Reply, Trouble> {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let (host, link) = self.link(request.slot).await?;
            let trouble = match send(&link, request, more).await {
                Err(trouble) if trouble.code() == "ASK" => {
                    match self.follow(&trouble, &host, request, more).await {
                        Err(trouble) => trouble,
                        done => return done,
                    }
                }
                Err(trouble) => trouble,
                done => return done,
            };
            if trouble.ends_connection() {
                self.state.lock().await.lose(&host, &link);
            }
            if !trouble.is_passing() || begin.elapsed() > BRIDGE {
                return Err(trouble);
            }
            match trouble.code() {
                "NOSCRIPT" => {
                    let Some(script) = request.script else { return Err(trouble) };
                    link.send(script.load()).answer().await?;
                }
                "MOVED" => self.state.lock().await.learn(&trouble, &host, request.slot)?,
                _ => {
                    self.state.lock().await.slots.clear();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn link(&self, slot: u16) -> Result<(Host, Arc<Link>), Trouble> {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let mut state = self.state.lock().await;
            if state.down.is_some_and(|(until, _)| Instant::now() < until) {
                return Err(Trouble::Down);
            }
            let trouble = match state.connect(&self.door, slot).await {
                Ok(found) => {
                    if state.down.take().is_some() {
                        tracing::info!("Redis is reached again");
                    }
                    return Ok(found);
                }
                Err(trouble) => trouble,
            };
            if state.down.is_some() || begin.elapsed() > BRIDGE {
                let wait = state.down.map_or(FIRST_PAUSE, |(_, wait)| (wait * 2).min(LONGEST_PAUSE));
                state.down = Some((Instant::now() + wait, wait));
                let error = &trouble as &dyn std::error::Error;
                tracing::warn!(error, again_ms = wait.as_millis(), "Redis cannot be reached");
                return Err(trouble);
            }
            drop(state);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A slot that is about to move: this one thing is asked of the server that will have it.
    async fn follow(
        &self,
        trouble: &Trouble,
        asked: &Host,
        request: &Request,
        more: &[bytes::Bytes],
    ) -> Result<Reply, Trouble> {
        let host = redirection(trouble, asked)?;
        let link = self.state.lock().await.link_to(&self.door, &host).await?;
        let asking = link.send((&b"*1\r\n$6\r\nASKING\r\n"[..]).into());
        let outcome = send(&link, request, more).await;
        asking.answer().await?;
        if outcome.as_ref().is_err_and(|trouble| trouble.code() == "NOSCRIPT")
            && let Some(script) = request.script
        {
            link.send(script.load()).answer().await?;
        }
        outcome
    }
}

async fn send(link: &Link, request: &Request, more: &[bytes::Bytes]) -> Result<Reply, Trouble> {
    let first = link.send(request.command.clone());
    let rest: Vec<_> = more.iter().map(|command| link.send(command.clone())).collect();
    let reply = first.answer().await?;
    let mut answers = vec![reply];
    for pending in rest {
        answers.push(pending.answer().await?);
    }
    Ok(if more.is_empty() { answers.remove(0) } else { Reply::List(answers) })
}

/// `MOVED 42 host:port`, and the same with ASK. Without a name it is a port of the server that says so.
fn redirection(trouble: &Trouble, asked: &Host) -> Result<Host, Trouble> {
    let Trouble::Refused(text) = trouble else { return Err(Trouble::Strange("no redirection")) };
    let place = text.split(' ').nth(2).and_then(|place| place.rsplit_once(':'));
    let (name, port) = place.ok_or(Trouble::Strange("a redirection to nowhere"))?;
    let port = port.parse().map_err(|_| Trouble::Strange("a redirection to nowhere"))?;
    let name = if name.is_empty() { &asked.name } else { name };
    Ok(Host { name: name.to_owned(), port })
}

impl State {
    async fn connect(&mut self, door: &Door, slot: u16) -> Result<(Host, Arc<Link>), Trouble> {
        if door.kind == Kind::Cluster {
            if self.slots.is_empty() {
                self.slots = map(self, door).await?;
            }
            let found = self.slots.iter().find(|(from, to, _)| (from..=to).contains(&&slot));
            let Some((_, _, host)) = found.cloned() else {
                self.slots.clear();
                return Err(Trouble::Refused("CLUSTERDOWN nobody keeps a slot of the store".into()));
            };
            let link = self.link_to(door, &host).await;
            if link.is_err() {
                // Its replica may have taken its place.
                self.slots.clear();
            }
            return Ok((host, link?));
        }
        if let Some(host) = self.lead.clone()
            && let Some(link) = self.living(&host)
        {
            return Ok((host, link));
        }
        let mut outcome = Err(Trouble::Down);
        for host in &door.hosts {
            outcome = self.lead(door, host).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn lead(&mut self, door: &Door, host: &Host) -> Result<(Host, Arc<Link>), Trouble> {
        let host = within(door.lead(host)).await?;
        let link = self.link_to(door, &host).await?;
        // Who may not ask for the role does not learn it; a replica will refuse to write.
        if let Ok(role) = link.ask(&[b"ROLE"]).await
            && role.list()?.first().is_some_and(|role| role.text().is_ok_and(|role| role != "master"))
        {
            self.links.remove(&host);
            return Err(Trouble::Refused("READONLY this server is a replica".into()));
        }
        self.lead = Some(host.clone());
        Ok((host, link))
    }

    fn living(&self, host: &Host) -> Option<Arc<Link>> {
        self.links.get(host).filter(|link| !link.is_closed()).cloned()
    }

    async fn link_to(&mut self, door: &Door, host: &Host) -> Result<Arc<Link>, Trouble> {
        if let Some(link) = self.living(host) {
            return Ok(link);
        }
        let (mut socket, mut early) = within(door.log_in(host)).await?;
        self.arrivals.note(within(door.life(&mut socket, &mut early)).await.unwrap_or_default());
        if !early.is_empty() {
            return Err(broken("the server speaks before it is asked").into());
        }
        let link = Arc::new(Link::new(socket));
        self.links.insert(host.clone(), link.clone());
        Ok(link)
    }

    fn lose(&mut self, host: &Host, link: &Arc<Link>) {
        if self.links.get(host).is_some_and(|known| Arc::ptr_eq(known, link)) {
            self.links.remove(host);
            self.slots.clear();
            tracing::warn!("a connection to Redis was lost");
        }
    }

    /// Until the map is read again this slot is where it was said to be.
    fn learn(&mut self, trouble: &Trouble, asked: &Host, slot: u16) -> Result<(), Trouble> {
        let host = redirection(trouble, asked)?;
        self.slots.insert(0, (slot, slot, host));
        Ok(())
    }
}

async fn within<T>(reaching: impl Future<Output = io::Result<T>>) -> Result<T, Trouble> {
    let reached = tokio::time::timeout(REACH, reaching).await;
    Ok(reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
}

/// Asks whoever answers first, those already known before those that the address names.
async fn map(state: &mut State, door: &Door) -> Result<Vec<(u16, u16, Host)>, Trouble> {
    let mut outcome = Err(Trouble::Down);
    let known: Vec<Host> = state.links.keys().cloned().collect();
    for host in known.iter().chain(&door.hosts) {
        let asked = async {
            let link = state.link_to(door, host).await?;
            let map = link.ask(&[b"CLUSTER", b"SLOTS"]).await?.list()?;
            map.into_iter().map(|range| part(range, host)).collect()
        };
        outcome = asked.await;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn part(range: Reply, asked: &Host) -> Result<(u16, u16, Host), Trouble> {
    let mut parts = range.list()?.into_iter();
    let mut next = || parts.next().ok_or(Trouble::Strange("a map without hosts"));
    let slot = |reply: Reply| u16::try_from(reply.number()?).map_err(|_| Trouble::Strange("no slot"));
    let (from, to) = (slot(next()?)?, slot(next()?)?);
    let master = next()?.list()?;
    let [name, port, ..] = &master[..] else { return Err(Trouble::Strange("a map without hosts")) };
    // A server that does not know its own name has the one under which it was asked.
    let name = match name {
        Reply::Text(name) if !name.is_empty() && name != "?" => text(name)?.to_owned(),
        _ => asked.name.clone(),
    };
    let port = u16::try_from(port.number()?).map_err(|_| Trouble::Strange("no port"))?;
    Ok((from, to, Host { name, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_server() {
        let asked = Host { name: "here".into(), port: 1 };
        for (said, name, port) in [
            ("MOVED 42 10.0.0.1:7000", "10.0.0.1", 7000),
            ("ASK 42 ::1:7000", "::1", 7000),
            ("MOVED 42 :7001", "here", 7001),
        ] {
            let host = redirection(&Trouble::Refused(said.into()), &asked).unwrap();
            assert_eq!(host, Host { name: name.into(), port }, "{said}");
        }
        for said in ["MOVED", "MOVED 42", "MOVED 42 there", "MOVED 42 there:x"] {
            assert!(redirection(&Trouble::Refused(said.into()), &asked).is_err(), "{said}");
        }
    }
}
