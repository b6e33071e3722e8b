//! Stored sessions.

use super::fixture::*;
use tavern_domain::SessionKey;

fn session(n: u128, node: &str) -> StoredSession {
    StoredSession {
        // Digits whose text order differs from their bits.
        client: ClientId::from_random(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        secret: SessionKey::from_bits(u128::MAX - n),
        user: Some("alice".into()),
        name: Some("Älice".into()),
        owner: Writer::new(node, Epoch(7)),
        body: Arc::from(*b"\0body\xff"),
        detached_at: Some(Time(5)),
        expires_at: Time(9),
    }
}

fn store(sessions: impl IntoIterator<Item = StoredSession>) -> Commit {
    Commit { puts: sessions.into_iter().map(Row::Session).collect(), ..Commit::default() }
}

fn get(client: &BlockingStore, id: ClientId) -> Option<Versioned<StoredSession>> {
    match client.read(Read::Session(id)) {
        Ok(Found::Session(found)) => found,
        other => panic!("no session but {other:?}"),
    }
}

fn page(
    client: &BlockingStore,
    node: Option<&str>,
    after: Option<ClientId>,
    limit: u32,
) -> Page<Versioned<StoredSession>> {
    match client.read(Read::Sessions { node: node.map(Arc::from), after, limit }) {
        Ok(Found::Sessions(page)) => page,
        other => panic!("no sessions but {other:?}"),
    }
}

fn walk(client: &BlockingStore, node: Option<&str>, limit: u32) -> Vec<String> {
    let mut listed: Vec<ClientId> = Vec::new();
    loop {
        let page = page(client, node, listed.last().copied(), limit);
        assert!(page.rows.len() <= limit as usize);
        listed.extend(page.rows.iter().map(|session| session.row.client));
        if !page.more {
            return listed.iter().map(ClientId::to_string).collect();
        }
    }
}

pub(super) fn a_session_is_read_as_it_was_stored(world: &dyn StoreUnderTest) {
    let client = client(world);
    let full = session(1, "n1");
    let bare = StoredSession {
        user: None,
        name: None,
        detached_at: None,
        expires_at: Time::NEVER,
        body: Arc::from(*b""),
        ..session(2, "n1")
    };
    let receipt = client.commit(store([full.clone(), bare.clone()])).unwrap();
    for (row, version) in [full, bare].into_iter().zip(versions(&receipt.put)) {
        assert_eq!(get(&client, row.client), Some(Versioned { version, row }));
    }
}

pub(super) fn sessions_come_in_pages_by_node_and_all(world: &dyn StoreUnderTest) {
    let client = client(world);
    let sessions: Vec<_> = (0..20).map(|n| session(n, if n % 4 == 0 { "n2" } else { "n1" })).collect();
    client.commit(store(sessions.clone())).unwrap();
    let wanted = |node: Option<&str>| {
        let of_node = |session: &&StoredSession| node.is_none_or(|node| &*session.owner.node == node);
        let mut ids: Vec<_> =
            sessions.iter().filter(of_node).map(|session| session.client.to_string()).collect();
        ids.sort();
        ids
    };
    for node in [None, Some("n1"), Some("n2"), Some("n3")] {
        for limit in [3, 5, 100] {
            assert_eq!(walk(&client, node, limit), wanted(node), "{node:?} by {limit}");
        }
    }
}

pub(super) fn a_page_is_bounded_in_bytes(world: &dyn StoreUnderTest) {
    let client = client(world);
    let body: Arc<[u8]> = vec![7; limits::PAGE_BYTES / 2 - 10].into();
    let sessions = (0..5).map(|n| StoredSession { body: body.clone(), ..session(n, "n1") });
    client.commit(store(sessions)).unwrap();
    let first = page(&client, None, None, 100);
    assert_eq!((first.rows.len(), first.more), (2, true));
    assert_eq!(walk(&client, None, 100).len(), 5);
}

pub(super) fn ownership_moves_once(world: &dyn StoreUnderTest) {
    let client = client(world);
    let version = client.commit(store([session(1, "n1")])).unwrap().put[0].version;
    let key = RowKey::Session(session(1, "n1").client);
    let expects = vec![Expect { key: key.clone(), version }];
    let claim = |node| Commit { expects: expects.clone(), ..store([session(1, node)]) };
    client.commit(claim("n2")).unwrap();
    assert_conflict(client.commit(claim("n3")), (key, version, version + 1));
    assert_eq!(get(&client, session(1, "n1").client).unwrap().row.owner, Writer::new("n2", Epoch(7)));
    assert_eq!(page(&client, Some("n1"), None, 10).rows, []);
}

pub(super) fn a_deleted_session_is_gone(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(store([session(1, "n1"), session(2, "n1")])).unwrap();
    let gone = session(1, "n1").client;
    client.commit(Commit { deletes: vec![RowKey::Session(gone)], ..Commit::default() }).unwrap();
    assert_eq!(get(&client, gone), None);
    assert_eq!(walk(&client, None, 10), [session(2, "n1").client.to_string()]);
}
