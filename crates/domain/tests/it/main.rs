//! The rules through their public functions: scripted scenarios and random histories.

mod delivery;
mod party;
