//! Reads the tables of the Postgres engine with plain SQL, as another program would.

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
