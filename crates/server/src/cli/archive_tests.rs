//! Tests of the export format.

use super::*;

#[test]
fn rows_are_read_as_they_were_written() {
    let home = NodeEpoch { node: "a".into(), epoch: Epoch(1_794_771_279_710_000) };
    let client = |n: u128, lost| ChannelClient {
        client: ClientId::from_random(n),
        node: home.clone(),
        state: Some(ClientState { text: "{\"x\":1 }".into(), digest: state_digest("{\"x\":1 }") }),
        since: Time(5),
        lost,
    };
    let lost = Some(LostClient { at: Time(6), until: Time::NEVER });
    let departed = Some(LastDeparture { reason: OfflineReason::NodeDown, seen: Time(4) });
    let rows = [
        Row::Key(ApiKey {
            id: "k".into(),
            name: "shop \n".into(),
            hash: [7; 32],
            scopes: Scopes::ALL,
            created_at: Time(1),
            expires_at: Some(Time(3)),
            last_used_at: None,
            revoked_at: Some(Time(2)),
        }),
        Row::User(UserRow { user: "änn".into(), last_seen: Some(Time(9)), visibility: Visibility::Nobody }),
        Row::Follow(Follow { follower: "a".into(), followee: "b".into(), since: Time(3) }),
        Row::Hold(PresenceHold {
            key: PresenceKey::new("g#1", "u"),
            held_with: Some("g#2".into()),
            until: None,
        }),
        Row::Document(Document { key: DocumentKey::new("party", "4/2"), body: Arc::from(&b"\0\xff"[..]) }),
        Row::Session(StoredSession {
            client: ClientId::from_random(3),
            secret: SessionKey::from_random(99 << 64, 0, 1),
            user: None,
            name: Some("n".into()),
            owner: Writer::new("a", Epoch(3)),
            body: Arc::from(&b"body"[..]),
            detached_at: None,
            expires_at: Time::NEVER,
        }),
        Row::Presence(PresenceRow {
            key: PresenceKey::new("g#1", "u"),
            anonymous: true,
            name: None,
            visibility: Visibility::FollowersIFollow,
            attendance: Attendance::restore(vec![client(1, None), client(2, lost)], Time(5), departed),
        }),
    ];
    for row in rows {
        let text = serde_json::to_string(&ArchiveLine::of_row(&row).unwrap()).unwrap();
        assert!(!text.contains('\n'));
        match serde_json::from_str::<ArchiveLine>(&text).unwrap().put().unwrap() {
            Some(ImportedItem::Row(read)) => assert_eq!(read, row, "{text}"),
            other => panic!("{other:?}"),
        }
    }
    for id in [None, Some("order-1".into())] {
        let body = Arc::from(&b"{\"type\":\"x\"}"[..]);
        let entry = LogEntry { position: 9, topic: "t".into(), count: 4, at: Time(3), id, body };
        let text = serde_json::to_string(&ArchiveLine::of_event(&entry)).unwrap();
        match serde_json::from_str::<ArchiveLine>(&text).unwrap().put().unwrap() {
            Some(ImportedItem::Event(read)) => assert_eq!(read, entry, "{text}"),
            other => panic!("{other:?}"),
        }
    }
    let (body, client) = (Arc::from(&b"\0\xff"[..]), ClientId::from_random(7));
    let sender = Some(HistorySender { user: Some("ann".into()), client });
    let (id, json) = (Some("uann\n1".into()), false);
    let message = HistoryMessage { offset: 4, at: Time(3), id, sender, json, body };
    match ArchiveLine::of_history("chat#1", Time(9), &message).put().unwrap() {
        Some(ImportedItem::History(read)) => {
            assert_eq!((&read.id, &read.sender, &read.body), (&message.id, &message.sender, &message.body));
            assert_eq!((&*read.channel, read.keep.ttl_ms), ("chat#1", 9));
        }
        other => panic!("{other:?}"),
    }
    let deadline = Deadline::new(Time(7), "grace", "x");
    match ArchiveLine::of_deadline(&deadline).put().unwrap() {
        Some(ImportedItem::Deadline(read)) => assert_eq!(read, deadline),
        other => panic!("{other:?}"),
    }
}

#[test]
fn foreign_lines_are_refused() {
    for text in ["{}", "{\"key\":{}}", "{\"rocket\":{}}", "[]", "{\"deadline\":{\"kind\":\"x\"}}"] {
        assert!(serde_json::from_str::<ArchiveLine>(text).is_err(), "{text}");
    }
    let wrong = "{\"document\":{\"kind\":\"No Word\",\"name\":\"n\",\"body\":\"\"}}";
    assert!(serde_json::from_str::<ArchiveLine>(wrong).unwrap().put().is_err());
}
