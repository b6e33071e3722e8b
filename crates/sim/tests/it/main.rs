//! Short campaigns, planted faults, and recorded failures.

mod campaign;
mod planted;
mod scripts;
