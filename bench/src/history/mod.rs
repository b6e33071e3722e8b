//! The cost of channel history: messages stored per second, the fan-out of stored messages, and many subscribers that recover
//! at once; beside Redis Streams and Centrifugo where they are installed.
//! Must hold: a refused or missing message is a fault.

mod fanout;
mod peers;
mod publish;
mod recover;

use std::path::PathBuf;

use crate::cases::{Case, Extent, Options, Section};
use crate::figure::Figure;
use peers::StoredPublishes;
use publish::Publishing;

/// Measure what channel history costs on this machine.
#[derive(Debug, clap::Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    options: Options,
    /// The program of Centrifugo; without it there is no comparison with it
    #[arg(long, value_name = "PROGRAM")]
    centrifugo: Option<PathBuf>,
}

const SECTION: Section = Section {
    name: "history",
    heading: "## Channel history",
    explained: "One server; messages of 256 bytes, 16 publishers with a channel each, 100 messages kept in each channel. \
        *Pipelined*: WebSocket, 16 publishes in flight on each connection, one reply each. *Lists*: HTTP requests of 50 messages, \
        one at a time on each connection. A message counts when it is answered, and with Tavern on SQLite it is then on disk \
        (`synchronous=FULL`). Redis Streams: `XADD` with `MAXLEN ~ 100` by `redis-benchmark` in pipelines of 16, without \
        persistence and with `appendfsync always`. Centrifugo keeps the history in its memory, or in a Redis without persistence; \
        its lists are requests of `/api/batch`. *Fan-out*: one WebSocket publisher, 1,000 subscribers, saturated. *Recovery*: \
        1,000 subscribers of one channel name the same position at once, and each gets 100 messages.",
};

/// What the cases need to know.
struct HistoryExtent {
    extent: Extent,
    centrifugo: Option<PathBuf>,
}

const CASES: &[Case<HistoryExtent>] = &[
    ("publish-sqlite", |on| publish_figures(on, "on SQLite; durable", None, true)),
    ("publish-memory", |on| publish_figures(on, "in memory", Some("memory:"), true)),
    ("publish-without", |on| publish_figures(on, "without history", None, false)),
    ("streams", stream_figures),
    ("centrifugo", centrifugo_figures),
    ("fanout", fanout_figures),
    ("recover", recover_figures),
];

/// Durable messages of a history per second, in lists or pipelined.
const PUBLISHES_AIM: f64 = 60_000.0;
/// A delivery with history, compared with one without.
const FANOUT_AIM: f64 = 1.5;

pub fn run(args: HistoryArgs) -> anyhow::Result<()> {
    let HistoryArgs { options, centrifugo } = args;
    options.run(&SECTION, CASES, |extent| HistoryExtent { extent, centrifugo })
}

impl HistoryExtent {
    fn seconds(&self) -> f64 {
        if self.extent.quick { 2.0 } else { 5.0 }
    }

    /// As many samples as rounds are wanted.
    fn rounds<T>(&self, measure: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
        (0..self.extent.rounds).map(|_| measure()).collect()
    }
}

fn publish_figures(
    on: &HistoryExtent,
    place: &str,
    store: Option<&str>,
    has_history: bool,
) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for lists in [false, true] {
        let publishing = Publishing { lists, has_history, seconds: on.seconds() };
        let samples = on.rounds(|| publish::run(&on.extent.tavern, store, &publishing))?;
        let how = if lists { "lists of 50" } else { "pipelined" };
        let aim = (has_history && store.is_none() && lists).then_some(PUBLISHES_AIM);
        figures.extend(stored_figures(&format!("publish {place}, {how}"), &samples, aim));
    }
    Ok(figures)
}

fn stream_figures(on: &HistoryExtent) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for durable in [false, true] {
        let count = if durable { 20_000 } else { 400_000 };
        let samples = on.rounds(|| peers::streams(durable, count))?;
        let how = if durable { "`appendfsync always`" } else { "no persistence" };
        figures.extend(stored_figures(&format!("Redis Streams, {how}"), &samples, None));
    }
    Ok(figures)
}

fn centrifugo_figures(on: &HistoryExtent) -> anyhow::Result<Vec<Figure>> {
    let Some(program) = &on.centrifugo else { return Ok(Vec::new()) };
    let mut figures = Vec::new();
    for redis in [false, true] {
        let samples = on.rounds(|| peers::centrifugo(program, redis, on.seconds()))?;
        let place = if redis { "in Redis" } else { "in its memory" };
        figures.extend(stored_figures(&format!("Centrifugo, {place}, lists of 50"), &samples, None));
    }
    Ok(figures)
}

fn stored_figures(case: &str, samples: &[StoredPublishes], aim: Option<f64>) -> Vec<Figure> {
    for sample in samples {
        let StoredPublishes { per_s, cpu_per_million } = sample;
        eprintln!("{case}: {per_s:.0} messages/s, {cpu_per_million:.2} cpu s per million");
    }
    let all = |pick: fn(&StoredPublishes) -> f64| samples.iter().map(pick).collect::<Vec<f64>>();
    let rate = Figure::new(case, "messages/s", all(|sample| sample.per_s));
    vec![
        match aim {
            Some(aim) => rate.at_least(aim),
            None => rate,
        },
        Figure::new(case, "server cpu, s per million", all(|sample| sample.cpu_per_million)),
    ]
}

fn fanout_figures(on: &HistoryExtent) -> anyhow::Result<Vec<Figure>> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..on.extent.rounds {
        without.push(fanout::run(&on.extent.tavern, false, on.seconds())?);
        with.push(fanout::run(&on.extent.tavern, true, on.seconds())?);
    }
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    eprintln!("fan-out: cpu per million {with:.3?} with history, {without:.3?} without");
    let case = "fan-out to 1,000 subscribers";
    Ok(vec![
        Figure::new(case, "server cpu with history, s per million", with),
        Figure::new(case, "server cpu without history, s per million", without),
        Figure::new(case, "ratio", ratios).at_most(FANOUT_AIM),
    ])
}

fn recover_figures(on: &HistoryExtent) -> anyhow::Result<Vec<Figure>> {
    let samples = on.rounds(|| recover::run(&on.extent.tavern, 1_000, 100))?;
    let case = "recovery of 1,000 subscribers of one channel, 100 messages each";
    let all = |pick: fn(&recover::Recovered) -> f64| samples.iter().map(pick).collect::<Vec<f64>>();
    for sample in &samples {
        eprintln!("{case}: {:.0} ms, {} reads of the store", sample.ms, sample.reads);
    }
    Ok(vec![
        Figure::new(case, "until the last message arrived, ms", all(|sample| sample.ms)),
        Figure::new(case, "server cpu, ms", all(|sample| sample.cpu_ms)),
        Figure::new(case, "reads of the store", all(|sample| sample.reads)).at_most(1.0),
    ])
}
