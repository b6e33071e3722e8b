//! The rules of parties, from outside: stories in words, every error in its order, random lives of six users, and every
//! interleaving of two who invite each other.

mod crossing;
mod errors;
mod fold;
mod ledger;
mod limits;
mod presence;
mod random;
mod stories;
mod tickets;
mod words;
mod world;
