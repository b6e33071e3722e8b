//! A store and a reader of its tables, as tests of the Postgres engine ask them.

use std::sync::Arc;
use std::time::Duration;
use tavern_engine::blocking::Client;
use tavern_engine::{Commit, Document, DocumentKey, Found, Read, Row, StoreError, SystemClock};

pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn open(url: &str) -> Result<Client, StoreError> {
    Client::open(url, Arc::new(SystemClock), PATIENCE)
}

/// Asks the database itself, as another program would.
pub struct Reader {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Reader {
    pub fn new(url: &str) -> Reader {
        let (address, schema) = url.split_once("?schema=").unwrap();
        let schema = schema.split('&').next().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) =
            runtime.block_on(tokio_postgres::connect(address, tokio_postgres::NoTls)).unwrap();
        runtime.spawn(connection);
        let reader = Reader { runtime, client };
        reader.run(&format!("SET search_path TO {schema}"));
        reader
    }

    pub fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }
}

pub fn key(name: &str) -> DocumentKey {
    DocumentKey::new("thing", name)
}

pub fn document(name: &str, body: &str) -> Row {
    Row::Document(Document { key: key(name), body: body.as_bytes().into() })
}

pub fn put(name: &str) -> Commit {
    Commit { puts: vec![document(name, "x")], ..Commit::default() }
}

pub fn version(client: &Client, name: &str) -> u64 {
    match client.read(Read::Document(key(name))).unwrap() {
        Found::Document(found) => found.map_or(0, |found| found.version),
        other => panic!("{other:?}"),
    }
}
