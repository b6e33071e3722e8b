//! What the nodes of the cluster have to do, and had to do in the last day: each node keeps its own figures at falling
//! resolution (`history`), asks the others for theirs (`cluster`), and remembers which nodes started and ended (`node_log`).

mod cluster;
mod figures;
mod history;
mod node_log;
mod report;
mod sampler;

pub use cluster::ClusterLoad;
pub use sampler::LoadSampler;
