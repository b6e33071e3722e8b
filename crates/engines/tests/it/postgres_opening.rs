//! Opening a store on Postgres: schemas, versions, addresses, TLS; what is refused is reported and left as it is.

use crate::fixture::*;
use crate::postgres_server;
use crate::table_reader::*;
use std::thread;
use tavern_store::StoreError;

#[test]
fn schemas_share_a_database_and_nothing_else() {
    let (one, two) = (open(&postgres_server::fresh()).unwrap(), open(&postgres_server::fresh()).unwrap());
    one.commit(put("a")).unwrap();
    assert_eq!(version(&two, "a"), 0);
}

#[test]
fn stores_that_open_together_make_the_tables_once() {
    let url = postgres_server::fresh();
    thread::scope(|scope| {
        let opening: Vec<_> = (0..4).map(|_| scope.spawn(|| open(&url).map(drop))).collect();
        opening.into_iter().for_each(|opening| opening.join().unwrap().unwrap());
    });
    let reader = Reader::new(&url);
    assert_eq!(reader.number("SELECT count(*) FROM schema_version WHERE version > 0"), 1);
}

#[test]
fn a_schema_of_another_version_is_refused_and_left_as_it_is() {
    let url = postgres_server::fresh();
    drop(open(&url).unwrap());
    let reader = Reader::new(&url);
    reader.run("UPDATE schema_version SET version = 99; DROP TABLE documents CASCADE");
    match open(&url).map(drop) {
        Err(error @ StoreError::SchemaVersion { found: 99, known: 1 }) => {
            assert!(error.to_string().contains("start the tavern version"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(reader.number("SELECT version FROM schema_version"), 99);
    assert_eq!(
        reader.number(
            "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'documents'"
        ),
        0
    );
}

#[test]
fn a_schema_of_another_program_is_refused() {
    let url = postgres_server::fresh();
    let reader = Reader::new(&url);
    let schema = url.rsplit('=').next().unwrap();
    reader.run(&format!("CREATE SCHEMA {schema}; CREATE TABLE recipes (soup TEXT)"));
    match open(&url).map(drop) {
        Err(StoreError::Corrupt { what, .. }) => assert!(what.contains("another program"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_login_that_owns_its_schema_is_enough() {
    let url = postgres_server::fresh();
    let schema = url.rsplit('=').next().unwrap();
    Reader::new(&url).run(&format!("CREATE ROLE app LOGIN; CREATE SCHEMA {schema} AUTHORIZATION app"));
    let client = open(&url.replacen("postgres@", "app@", 1)).unwrap();
    client.commit(put("a")).unwrap();
}

#[test]
fn an_unreachable_database_is_reported_without_its_secrets() {
    let error = open("postgres://me:hush@127.0.0.1:1/app").map(drop).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{text}");
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn connections_are_encrypted_and_verified_as_asked() {
    let server = postgres_server::shared();
    let socket = server.fresh();
    let schema = socket.split_once('?').unwrap().1;
    let tls = |host: &str, more: &str| {
        open(&format!("postgres://postgres@{host}:{}/postgres?{schema}&{more}", server.port))
    };
    let hidden = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = ";
    let ours = format!("sslrootcert={}/cert.pem", server.folder);
    for (name, mode, encrypted) in [
        ("plain", "sslmode=disable".to_string(), false),
        ("usual", "sslmode=prefer".to_string(), true),
        ("secret", "sslmode=require".to_string(), true),
        ("proven", format!("sslmode=verify-full&{ours}"), true),
    ] {
        let client = tls("localhost", &format!("{mode}&application_name={name}")).unwrap();
        client.commit(put(name)).unwrap();
        let connections = Reader::new(&socket).number(&format!("{hidden}'{name}'"));
        assert_eq!(connections > 0, encrypted, "{name}: {connections}");
    }
    for (host, mode) in [
        ("localhost", "sslmode=verify-full".to_string()),
        ("127.0.0.1", format!("sslmode=verify-full&{ours}")),
    ] {
        let refused = tls(host, &mode).map(drop);
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{host} {mode}: {refused:?}");
    }
}
