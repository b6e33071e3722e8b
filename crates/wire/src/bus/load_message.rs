//! The messages about load of `proto/tavern.proto`, as in `message`.

use prost::Message;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LoadQuestionRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub step_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LoadAnswerRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    #[prost(uint32, tag = "4")]
    pub shards: u32,
    #[prost(uint64, tag = "5")]
    pub uptime_ms: u64,
    #[prost(bool, tag = "6")]
    pub stopping: bool,
    #[prost(bool, tag = "7")]
    pub store_up: bool,
    #[prost(bool, tag = "8")]
    pub bus_up: bool,
    #[prost(btree_map = "string, float", tag = "9")]
    pub figures: BTreeMap<String, f32>,
    #[prost(uint64, tag = "10")]
    pub step_ms: u64,
    #[prost(uint64, tag = "11")]
    pub end: u64,
    #[prost(message, repeated, tag = "12")]
    pub series: Vec<LoadSeriesRecord>,
    #[prost(message, repeated, tag = "13")]
    pub runs: Vec<NodeRunRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LoadSeriesRecord {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, repeated, tag = "2")]
    pub points: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeRunRecord {
    #[prost(string, tag = "1")]
    pub node: String,
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    #[prost(uint64, tag = "3")]
    pub started_at: u64,
    #[prost(uint64, optional, tag = "4")]
    pub ended_at: Option<u64>,
    #[prost(bool, tag = "5")]
    pub clean: bool,
}
