//! The rules of parties, from outside: scripted scenarios, every refusal in its order, random histories of six users, and every
//! interleaving of two users who invite each other.

mod client_view;
mod interleaving;
mod invariants;
mod limits;
mod presence;
mod random;
mod refusals;
mod script;
mod stories;
mod tickets;
mod world;
