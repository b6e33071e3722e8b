//! The deterministic simulator: the production hub in a world whose time, chance and sockets come from one seed.
//! Not shipped. `tavern-sim --seed N` replays a run.
#![forbid(unsafe_code)]

pub mod client;
mod hear;
pub mod promise;
pub mod rng;
pub mod run;
pub mod street;
pub mod world;
