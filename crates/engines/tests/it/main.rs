//! The drivers against real SQLite, Postgres, Redis and NATS.

mod bus_tls;
mod buses;
mod conformance;
mod differential;
mod fixture;
mod local;
mod postgres;
mod postgres_calls;
mod postgres_log;
mod postgres_opening;
mod postgres_server;
mod redis;
mod redis_topologies;
mod server;
mod sqlite;
mod sweep;
mod table_reader;
