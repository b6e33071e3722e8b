//! API keys.

use super::fixture::*;
use tavern_domain::{Scope, Scopes};

fn api_key(id: &str, hash: u8) -> ApiKey {
    ApiKey {
        id: id.into(),
        name: format!("key {id} é").into(),
        hash: [hash; 32],
        scopes: [Scope::Publish, Scope::Admin].into_iter().collect(),
        created_at: Time(1_700_000_000_000),
        revoked_at: None,
        expires_at: Some(Time(77)),
        last_used_at: None,
    }
}

fn create(key: ApiKey) -> Commit {
    let expects = vec![Expect { key: RowKey::Key(key.id.clone()), version: 0 }];
    Commit { expects, puts: vec![Row::Key(key)], ..Commit::default() }
}

fn by_hash(client: &BlockingStore, hash: u8) -> Option<Versioned<ApiKey>> {
    match client.read(Read::KeyByHash([hash; 32])) {
        Ok(Found::Key(found)) => found,
        other => panic!("no key but {other:?}"),
    }
}

fn page(client: &BlockingStore, after: Option<&str>, limit: u32) -> Page<Versioned<ApiKey>> {
    match client.read(Read::Keys { after: after.map(Arc::from), limit }) {
        Ok(Found::Keys(page)) => page,
        other => panic!("no keys but {other:?}"),
    }
}

pub(super) fn a_key_is_found_by_its_hash(world: &dyn StoreUnderTest) {
    let client = client(world);
    let none = ApiKey { scopes: Scopes::NONE, ..api_key("k2", 2) };
    let version = client.commit(create(api_key("k1", 1))).unwrap().put[0].version;
    client.commit(create(none.clone())).unwrap();
    assert_eq!(by_hash(&client, 1), Some(Versioned { version, row: api_key("k1", 1) }));
    assert_eq!(by_hash(&client, 2).unwrap().row, none);
    assert_eq!(by_hash(&client, 3), None);
    assert!(matches!(client.commit(create(api_key("k1", 9))), Err(StoreError::Conflict { .. })));
}

pub(super) fn keys_come_in_pages(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (hash, id) in ["c", "a", "d", "b"].into_iter().enumerate() {
        client.commit(create(api_key(id, hash as u8))).unwrap();
    }
    let ids = |page: &Page<Versioned<ApiKey>>| page.rows.iter().map(|key| &*key.row.id).collect::<String>();
    let first = page(&client, None, 3);
    assert_eq!((ids(&first).as_str(), first.more), ("abc", true));
    let second = page(&client, Some("c"), 3);
    assert_eq!((ids(&second).as_str(), second.more), ("d", false));
    assert_eq!(page(&client, Some("d"), 3).rows, []);
}

pub(super) fn a_revoked_key_has_its_time(world: &dyn StoreUnderTest) {
    let client = client(world);
    let version = client.commit(create(api_key("k1", 1))).unwrap().put[0].version;
    let revoked = ApiKey { revoked_at: Some(Time(9)), last_used_at: Some(Time(8)), ..api_key("k1", 1) };
    let expects = vec![Expect { key: RowKey::Key("k1".into()), version }];
    client.commit(Commit { expects, puts: vec![Row::Key(revoked.clone())], ..Commit::default() }).unwrap();
    assert_eq!(by_hash(&client, 1), Some(Versioned { version: version + 1, row: revoked }));
}

pub(super) fn a_deleted_key_is_gone(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(create(api_key("k1", 1))).unwrap();
    client.commit(Commit { deletes: vec![RowKey::Key("k1".into())], ..Commit::default() }).unwrap();
    assert_eq!(by_hash(&client, 1), None);
    assert_eq!(page(&client, None, 10).rows, []);
}
