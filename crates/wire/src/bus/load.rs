//! What a node tells another about its load: its last figures, a series of each figure over a range of time, and which nodes
//! started and ended. Figures are named, so that a later release can add some.

use super::envelope;
use super::load_message::{LoadAnswerRecord, LoadQuestionRecord, LoadSeriesRecord, NodeRunRecord};
use super::message::EnvelopeKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a node may tell; the rest is not read.
const SERIES_MAX: usize = 64;
const POINTS_MAX: usize = 512;
const RUNS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadQuestion {
    /// Chosen by the node that asks.
    pub number: u64,
    /// The step of the series that it wants; 0: none.
    pub step_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAnswer {
    pub number: u64,
    pub load: NodeLoad,
    /// The series that was asked for.
    pub series: LoadSeries,
    pub runs: Vec<NodeRun>,
}

/// A node as it sees itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLoad {
    pub version: Arc<str>,
    pub epoch: u64,
    pub shards: u32,
    pub uptime_ms: u64,
    pub stopping: bool,
    pub store_up: bool,
    pub bus_up: bool,
    /// The last figures; one that is not known is left out.
    pub figures: BTreeMap<Arc<str>, f32>,
}

/// Figures at equal steps. A point that is not known is not a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadSeries {
    pub step_ms: u64,
    /// The last point is at `end` steps since 1970.
    pub end: u64,
    pub lines: BTreeMap<Arc<str>, Vec<f32>>,
}

/// One lifetime of a node: the time in which it had an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRun {
    pub node: Arc<str>,
    pub epoch: u64,
    /// In milliseconds since 1970.
    pub started_at: u64,
    pub ended_at: Option<u64>,
    /// It ended with a clean stop.
    pub clean: bool,
}

pub fn encode_question(question: LoadQuestion) -> Vec<u8> {
    let LoadQuestion { number, step_ms } = question;
    envelope(EnvelopeKind::LoadQuestion(LoadQuestionRecord { number, step_ms }))
}

pub(super) fn read_question(record: LoadQuestionRecord) -> LoadQuestion {
    LoadQuestion { number: record.number, step_ms: record.step_ms }
}

pub fn encode_answer(answer: &LoadAnswer) -> Vec<u8> {
    let LoadAnswer { number, load, series, runs } = answer;
    let line = |(name, points): (&Arc<str>, &Vec<f32>)| LoadSeriesRecord {
        name: name.to_string(),
        points: points.clone(),
    };
    let run = |run: &NodeRun| NodeRunRecord {
        node: run.node.to_string(),
        epoch: run.epoch,
        started_at: run.started_at,
        ended_at: run.ended_at,
        clean: run.clean,
    };
    envelope(EnvelopeKind::LoadAnswer(LoadAnswerRecord {
        number: *number,
        version: load.version.to_string(),
        epoch: load.epoch,
        shards: load.shards,
        uptime_ms: load.uptime_ms,
        stopping: load.stopping,
        store_up: load.store_up,
        bus_up: load.bus_up,
        figures: load.figures.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
        step_ms: series.step_ms,
        end: series.end,
        series: series.lines.iter().map(line).collect(),
        runs: runs.iter().take(RUNS_MAX).map(run).collect(),
    }))
}

pub(super) fn read_answer(record: LoadAnswerRecord) -> LoadAnswer {
    let line = |line: LoadSeriesRecord| {
        let mut points = line.points;
        points.truncate(POINTS_MAX);
        (Arc::from(line.name), points)
    };
    let run = |run: NodeRunRecord| NodeRun {
        node: run.node.into(),
        epoch: run.epoch,
        started_at: run.started_at,
        ended_at: run.ended_at,
        clean: run.clean,
    };
    let figures = record.figures.into_iter().take(SERIES_MAX);
    LoadAnswer {
        number: record.number,
        load: NodeLoad {
            version: record.version.into(),
            epoch: record.epoch,
            shards: record.shards,
            uptime_ms: record.uptime_ms,
            stopping: record.stopping,
            store_up: record.store_up,
            bus_up: record.bus_up,
            figures: figures.map(|(name, value)| (name.into(), value)).collect(),
        },
        series: LoadSeries {
            step_ms: record.step_ms,
            end: record.end,
            lines: record.series.into_iter().take(SERIES_MAX).map(line).collect(),
        },
        runs: record.runs.into_iter().take(RUNS_MAX).map(run).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;

    #[test]
    fn a_question_is_read_back_as_it_was_written() {
        let question = LoadQuestion { number: u64::MAX, step_ms: 2000 };
        match BusMessage::decode(&encode_question(question)) {
            Some(BusMessage::LoadQuestion(read)) => assert_eq!(read, question),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_read_back_as_it_was_written_and_is_bounded() {
        let run = NodeRun { node: "a".into(), epoch: 3, started_at: 1, ended_at: Some(9), clean: true };
        let mut answer = LoadAnswer {
            number: 7,
            load: NodeLoad {
                version: "1.2.3".into(),
                epoch: 4,
                shards: 2,
                uptime_ms: 5,
                stopping: true,
                store_up: true,
                bus_up: false,
                figures: [("sessions".into(), 2.5)].into(),
            },
            series: LoadSeries { step_ms: 2000, end: 99, lines: [("x".into(), vec![0.0, 1.5])].into() },
            runs: vec![run.clone(), NodeRun { ended_at: None, ..run.clone() }],
        };
        let read = |answer: &LoadAnswer| match BusMessage::decode(&encode_answer(answer)) {
            Some(BusMessage::LoadAnswer(read)) => *read,
            other => panic!("{other:?}"),
        };
        assert_eq!(read(&answer), answer);
        answer.series.lines = (0..100).map(|n| (format!("{n}").into(), vec![0.0; 1000])).collect();
        answer.runs = vec![run; 1000];
        let bounded = read(&answer);
        let points: Vec<usize> = bounded.series.lines.values().map(Vec::len).collect();
        assert_eq!((points, bounded.runs.len()), (vec![POINTS_MAX; SERIES_MAX], RUNS_MAX));
    }
}
