//! Sends all metrics to a StatsD receiver with Datadog tags, over UDP, every `metrics.statsd_ms`. Counters are sent as
//! deltas, gauges as values. Must hold: a datagram is never longer than `DATAGRAM_BYTES`; sending never blocks; deltas
//! that the socket refused are sent next time.

use super::{MetricKind, MetricSources, Series, SeriesRow};
use crate::config::MetricsConfig;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Fits into a packet of 1,500 bytes, with room for the headers of most tunnels.
const DATAGRAM_BYTES: usize = 1_432;
/// The name is resolved again: its address may change.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(60);
const LOOK_UP: Duration = Duration::from_secs(2);
/// Datagrams between two yields to other tasks.
const TURN: usize = 64;

pub async fn send(metrics: &MetricSources, config: &MetricsConfig, node: &str) {
    let mut sent = Sent::new(&config.statsd_prefix, node);
    let mut socket: Option<(UdpSocket, Instant)> = None;
    let mut known_dead = false;
    loop {
        tokio::time::sleep(Duration::from_millis(config.statsd_ms)).await;
        socket = socket.filter(|(_, since)| since.elapsed() < LOOK_UP_AGAIN);
        if socket.is_none() {
            socket = match dial(&config.statsd).await {
                Ok(socket) => Some((socket, Instant::now())),
                Err(error) => {
                    if !std::mem::replace(&mut known_dead, true) {
                        tracing::warn!(%error, address = config.statsd, "cannot reach metrics.statsd");
                    }
                    continue;
                }
            };
            known_dead = false;
        }
        let Some((socket, _)) = &socket else { continue };
        for (at, datagram) in sent.datagrams(&metrics.gather()).into_iter().enumerate() {
            // Never wait for the receiver: the next round contains what it missed.
            if socket.send(datagram.text.as_bytes()).is_ok() {
                sent.note(datagram);
            }
            if at % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn dial(address: &str) -> std::io::Result<UdpSocket> {
    let looked_up = tokio::time::timeout(LOOK_UP, tokio::net::lookup_host(address)).await;
    let found = looked_up.map_err(|_| std::io::Error::other("name lookup timed out"))??.next();
    let address = found.ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let here: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(here)?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}

/// The values sent so far.
struct Sent {
    prefix: String,
    node: String,
    /// The last value of each counter that was sent. Bounded as the series are.
    values: HashMap<String, f64>,
}

#[derive(Default)]
struct Datagram {
    text: String,
    /// The counters in it with their values.
    counters: Vec<(String, f64)>,
}

impl Sent {
    fn new(prefix: &str, node: &str) -> Sent {
        Sent { prefix: prefix.to_owned(), node: clean(node), values: HashMap::new() }
    }

    /// The datagrams to send now.
    fn datagrams(&self, all: &[Series]) -> Vec<Datagram> {
        let mut datagrams = vec![Datagram::default()];
        for series in all {
            for row in &series.rows {
                let Some((line, counter)) = self.line(series, row) else { continue };
                if line.len() > DATAGRAM_BYTES {
                    continue;
                }
                let full = |last: &Datagram| last.text.len() + 1 + line.len() > DATAGRAM_BYTES;
                if datagrams.last().is_some_and(|last| !last.text.is_empty() && full(last)) {
                    datagrams.push(Datagram::default());
                }
                if let Some(last) = datagrams.last_mut() {
                    if !last.text.is_empty() {
                        last.text.push('\n');
                    }
                    last.text.push_str(&line);
                    last.counters.extend(counter);
                }
            }
        }
        datagrams.retain(|datagram| !datagram.text.is_empty());
        datagrams
    }

    /// One line, and its counter with its value. None: the counter has not changed.
    fn line(&self, series: &Series, row: &SeriesRow) -> Option<(String, Option<(String, f64)>)> {
        let (suffix, value) = (row.suffix, row.value);
        let name = series.name.strip_prefix("tavern_").unwrap_or(series.name);
        let mut tags = format!("node:{}", self.node);
        for (label, of) in row.labels.iter().filter(|(label, _)| *label != "node") {
            tags.push_str(&format!(",{label}:{}", clean(of)));
        }
        let prefix = &self.prefix;
        match series.kind {
            MetricKind::Gauge => Some((format!("{prefix}{name}:{value}|g|#{tags}"), None)),
            MetricKind::Counter | MetricKind::Histogram | MetricKind::Summary => {
                let key = series.named(row);
                let added = value - self.values.get(&key).copied().unwrap_or(0.0);
                let line = || format!("{prefix}{name}{suffix}:{added}|c|#{tags}");
                (added > 0.0).then(|| (line(), Some((key, value))))
            }
        }
    }

    fn note(&mut self, datagram: Datagram) {
        self.values.extend(datagram.counters);
    }
}

/// Replaces the separators of the format.
fn clean(text: &str) -> String {
    text.replace([',', '|', '#', ':', '\n', '\r'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(kind: MetricKind, count: u64) -> Series {
        let mut series = Series::new("tavern_x_total", kind, "X");
        for n in 0..count {
            series.add([("topic", format!("topic-{n}").into())], n + 1);
        }
        series
    }

    #[test]
    fn counters_are_sent_as_deltas_and_gauges_as_values() {
        let mut sent = Sent::new("app.", "n|1");
        let one = |value| [Series::one("tavern_a_total", MetricKind::Counter, "A", value)];
        let text = |sent: &Sent, value| -> Vec<String> {
            sent.datagrams(&one(value)).into_iter().map(|datagram| datagram.text).collect()
        };
        assert_eq!(text(&sent, 5), ["app.a_total:5|c|#node:n_1"]);
        assert_eq!(text(&sent, 7), ["app.a_total:7|c|#node:n_1"], "the datagram was not sent");
        sent.datagrams(&one(7)).into_iter().for_each(|datagram| sent.note(datagram));
        assert_eq!(text(&sent, 7), [""; 0], "the counter has not changed");
        assert_eq!(text(&sent, 9), ["app.a_total:2|c|#node:n_1"]);
        let gauge = [Series::one("tavern_b", MetricKind::Gauge, "B", 0)];
        assert_eq!(sent.datagrams(&gauge)[0].text, "app.b:0|g|#node:n_1");
    }

    #[test]
    fn datagrams_are_bounded_and_contain_every_series_once() {
        let mut sent = Sent::new("tavern.", "n");
        let all = [series(MetricKind::Counter, 1_000), series(MetricKind::Gauge, 10)];
        let datagrams = sent.datagrams(&all);
        let lines: Vec<&str> = datagrams.iter().flat_map(|datagram| datagram.text.lines()).collect();
        assert!(datagrams.len() > 1 && datagrams.iter().all(|one| one.text.len() <= DATAGRAM_BYTES));
        assert_eq!(lines.len(), 1_010);
        assert_eq!(lines[6], "tavern.x_total:7|c|#node:n,topic:topic-6");
        // The socket refuses one of them: its counters, and no others, are sent again.
        let lost = datagrams[0].text.lines().count();
        datagrams.into_iter().skip(1).for_each(|datagram| sent.note(datagram));
        let again = sent.datagrams(&all[..1]);
        assert_eq!(again.iter().map(|datagram| datagram.text.lines().count()).sum::<usize>(), lost);
    }
}
