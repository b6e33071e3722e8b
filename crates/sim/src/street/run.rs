//! One run of the street: a seed chooses what happens, every change is judged as it happens, and the end when the faults
//! have ended.

use super::Outcome;
use super::plant::Plant;
use super::world::Street;

#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    /// The same seed gives the same trace.
    pub trace: u64,
    pub heard: usize,
    pub commits: u64,
    pub resumed: usize,
    pub crashes: usize,
    pub naps: usize,
    pub cuts: usize,
    pub stops: usize,
    pub adopted: usize,
    pub refused: usize,
    /// Times that a node was taken for dead and began again.
    pub epochs: usize,
    pub taken_over: usize,
    pub expired: usize,
    pub planted: bool,
    pub violation: Option<String>,
}

/// Runs one seed for so many steps, then lets everything heal.
pub fn run(seed: u64, steps: usize, plant: Plant) -> Report {
    play_out(Street::new(seed, plant), seed, steps)
}

/// Runs one seed and tells everything that happens.
pub fn show(seed: u64, steps: usize) -> Report {
    let mut street = Street::new(seed, Plant::None);
    street.loud = true;
    play_out(street, seed, steps)
}

fn play_out(mut street: Street, seed: u64, steps: usize) -> Report {
    let outcome = play(&mut street, steps);
    Report {
        seed,
        trace: street.trace,
        heard: street.heard,
        commits: street.hall.commits(),
        resumed: street.resumed,
        crashes: street.crashes,
        naps: street.naps,
        cuts: street.cuts,
        stops: street.stops,
        adopted: street.adopted,
        refused: street.refused,
        epochs: street.epochs,
        taken_over: street.truth.taken_over,
        expired: street.truth.expired,
        planted: street.planted,
        violation: outcome.err(),
    }
}

fn play(street: &mut Street, steps: usize) -> Outcome {
    street.advance(1_000)?;
    for step in 0..steps {
        street.act().map_err(|error| format!("step {step} at {}: {error}", street.now.ms()))?;
        street.note(street.now.ms());
    }
    street.heal().map_err(|error| format!("when the faults had ended, at {}: {error}", street.now.ms()))
}
