//! The queue of calls from SQL, as the server that moves them reads it.

use crate::fixture::*;
use crate::postgres_server;
use crate::table_reader::*;
use std::time::Instant;
use tavern_engines::{SqlCall, SqlCalls};

/// How many calls; the ids of all, in the order in which they were read; how many entries of the index were read.
fn drain(url: &str, count: i64) -> (Vec<i64>, i64) {
    let reader = Reader::new(url);
    reader.run(&format!(
        "INSERT INTO sql_calls (xid, id, at, name, data)
            SELECT txid_current(), n, 0, 'chat#1', '1' FROM generate_series(1, {count}) AS n;
        ANALYZE sql_calls"
    ));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids = runtime.block_on(async {
        let (mut calls, mut ids) = (SqlCalls::open(url).await.unwrap(), Vec::new());
        calls.lead(65_536, 65_536).await.unwrap();
        loop {
            let page = calls.page().await.unwrap();
            if page.is_empty() {
                return ids;
            }
            ids.extend(page.iter().map(|call| call.id));
            calls.remove(&page.iter().collect::<Vec<&SqlCall>>(), &[]).await.unwrap();
        }
    });
    drop(runtime);
    // The figures of a connection are complete when it has ended.
    let others =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 'sql_calls'::regclass::oid";
    let begin = Instant::now();
    while reader.number(others) > 0 {
        assert!(begin.elapsed() < PATIENCE, "the connection does not end");
    }
    let read = "SELECT pg_stat_clear_snapshot(), idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'sql_calls_pkey'
        AND schemaname = current_schema()";
    (ids, reader.number(&format!("SELECT idx_tup_read FROM ({read}) AS figures")))
}

#[test]
fn each_call_of_a_backlog_is_read_a_fixed_number_of_times() {
    const COUNT: i64 = 40_000;
    let url = postgres_server::fresh();
    drop(open(&url).unwrap());
    let (ids, read) = drain(&url, COUNT);
    assert_eq!(ids, (1..=COUNT).collect::<Vec<_>>());
    assert!(read > COUNT && read < 8 * COUNT, "{read} entries of the index were read for {COUNT} calls");
}
