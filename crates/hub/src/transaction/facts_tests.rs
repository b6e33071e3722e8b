//! What a decision finds among the loaded rows, and what its commit expects.

use super::*;
use tavern_domain::Time;

fn key(name: &str) -> DocumentKey {
    DocumentKey::new("test", name)
}

fn presence_key(user: &str) -> PresenceKey {
    PresenceKey { channel: "game#1".into(), user: user.into() }
}

fn presence(user: &str, version: u64) -> Versioned<PresenceRow> {
    let (attendance, visibility) = Default::default();
    let row = PresenceRow { key: presence_key(user), anonymous: false, name: None, visibility, attendance };
    Versioned { version, row }
}

fn hold(user: &str, version: u64) -> Versioned<PresenceHold> {
    Versioned { version, row: PresenceHold { key: presence_key(user), held_with: None, until: None } }
}

fn document(name: &str, version: u64) -> Versioned<Document> {
    Versioned { version, row: Document { key: key(name), body: Arc::from(*b"{}") } }
}

/// One of each, and what the store finds.
fn needs() -> [(Need, Found); 6] {
    let ann: Arc<str> = "ann".into();
    let person = UserSnapshot { user: ann.clone(), known: None, presences: vec![], mutual: false };
    [
        (Need::Document(key("a")), Found::Document(Some(document("a", 7)))),
        (Need::Presence(presence_key("ann")), Found::Presence(Some(presence("ann", 8)))),
        (Need::Hold(presence_key("ann")), Found::Hold(Some(hold("ann", 9)))),
        (Need::Person(ann), Found::People(vec![person])),
        (Need::Read(Read::Time), Found::Time(Time(5))),
        (Need::Page(Read::Time), Found::Time(Time(6))),
    ]
}

/// Which of `needs` are loaded.
fn loaded(facts: &Facts) -> [bool; 6] {
    [
        facts.document(&key("a")) == Some(Some(&document("a", 7))),
        facts.presence(&presence_key("ann")) == Some(Some(&presence("ann", 8))),
        facts.hold(&presence_key("ann")) == Some(Some(&hold("ann", 9))),
        facts.person(&"ann".into()).is_some_and(|person| *person.user == *"ann"),
        facts.read(&Read::Time) == Some(&Found::Time(Time(5))),
        facts.page(&Read::Time) == Some(&Found::Time(Time(6))),
    ]
}

#[test]
fn each_row_is_found_under_what_was_needed() {
    assert!(Facts::default().document(&key("a")).is_none());
    for (at, (need, found)) in needs().into_iter().enumerate() {
        let mut facts = Facts::default();
        assert!(facts.add(need, found));
        assert_eq!(loaded(&facts), [0, 1, 2, 3, 4, 5].map(|other| other == at));
        assert!(facts.document(&key("b")).is_none() && facts.presence(&presence_key("bob")).is_none());
        assert!(facts.hold(&presence_key("bob")).is_none() && facts.person(&"bob".into()).is_none());
    }
}

#[test]
fn presence_in_the_own_channel_is_found_by_the_user() {
    let own = |user: &str| PresenceKey { channel: format!("user#{user}").into(), user: user.into() };
    let mut facts = Facts::default();
    assert!(facts.add(Need::Presence(presence_key("ann")), Found::Presence(Some(presence("ann", 8)))));
    assert!(facts.add(Need::Presence(own("bob")), Found::Presence(Some(presence("bob", 9)))));
    assert_eq!(facts.own_presence(&"ann".into()), None, "only another channel was loaded");
    assert_eq!(facts.own_presence(&"bob".into()), Some(Some(&presence("bob", 9))));
    assert_eq!(facts.own_presence(&"cid".into()), None);
    assert!(facts.add(Need::Presence(own("cid")), Found::Presence(None)));
    assert_eq!(facts.own_presence(&"cid".into()), Some(None), "loaded, and not there");
}

#[test]
fn commit_expects_documents_presences_and_holds_but_no_reads() {
    let mut facts = Facts::default();
    needs().into_iter().for_each(|(need, found)| assert!(facts.add(need, found)));
    assert!(facts.add(Need::Hold(presence_key("bob")), Found::Hold(None)));
    let expect = |key, version| Expect { key, version };
    let expected = [
        expect(RowKey::Document(key("a")), 7),
        expect(RowKey::Presence(presence_key("ann")), 8),
        expect(RowKey::Hold(presence_key("ann")), 9),
        expect(RowKey::Hold(presence_key("bob")), 0),
    ];
    assert!(facts.expects().eq(expected));
}

#[test]
fn cached_rows_are_expected_too() {
    let facts = Facts::assuming(presence_key("ann"), Some(presence("ann", 8)));
    assert!(facts.expects().eq([Expect { key: RowKey::Presence(presence_key("ann")), version: 8 }]));
    let mut facts = Facts::default();
    assert!(!facts.are_assumed());
    facts.assume(Need::Hold(presence_key("ann")), Found::Hold(Some(hold("ann", 9))));
    assert!(facts.are_assumed());
    assert!(facts.expects().eq([Expect { key: RowKey::Hold(presence_key("ann")), version: 9 }]));
}

#[test]
fn next_attempt_keeps_only_the_version_that_was_found() {
    let mut facts = Facts::default();
    needs().into_iter().for_each(|(need, found)| assert!(facts.add(need, found)));
    facts.assume(Need::Hold(presence_key("bob")), Found::Hold(None));
    assert!(!facts.is_retry());
    facts.count_resumption();
    let facts = facts.next_attempt(Some((RowKey::Document(key("a")), 3)));
    assert_eq!(facts.conflicting_version(&RowKey::Document(key("a"))), Some(3));
    assert_eq!(facts.conflicting_version(&RowKey::Document(key("b"))), None);
    assert_eq!((loaded(&facts), facts.are_assumed()), ([false; 6], false));
    assert!(facts.expects().next().is_none());
    assert_eq!((facts.is_retry(), facts.resumed()), (true, 1));
    assert_eq!(facts.next_attempt(None).conflicting_version(&RowKey::Document(key("a"))), None);
}

#[test]
fn presence_that_is_usually_new_is_read_and_found_like_any_other() {
    let need = Need::NewPresence(presence_key("ann"));
    assert_eq!(need.read(), Read::Presence(presence_key("ann")));
    let mut facts = Facts::default();
    assert!(facts.add(need, Found::Presence(Some(presence("ann", 8)))));
    assert_eq!(facts.presence(&presence_key("ann")), Some(Some(&presence("ann", 8))));
}

#[test]
fn user_who_is_not_in_the_answer_was_not_loaded() {
    let mut facts = Facts::default();
    assert!(!facts.add(Need::Person("ann".into()), Found::People(vec![])));
}
