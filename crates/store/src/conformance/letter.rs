//! Letters: numbered, kept until they are freed, bounded, with what was dropped told.

use super::*;
use crate::letter::{Freed, Letters, NewLetter};

const MOST: usize = 1000;

fn letter(user: &str, body: &str) -> NewLetter {
    NewLetter { user: user.into(), body: body.as_bytes().into(), most_letters: MOST, most_bytes: MOST }
}

fn post(letters: Vec<NewLetter>) -> Commit {
    Commit { letters, ..Commit::default() }
}

fn free(user: &str, through: u64, unread: bool) -> Commit {
    Commit { freed: vec![Freed { user: user.into(), through, unread }], ..Commit::default() }
}

fn inbox(client: &Client, user: &str, after: u64, limit: u32) -> Letters {
    match client.read(Read::Letters { user: user.into(), after, limit }) {
        Ok(Found::Letters(letters)) => letters,
        other => panic!("no letters but {other:?}"),
    }
}

fn bodies(letters: &Letters) -> Vec<String> {
    letters.page.rows.iter().map(|letter| String::from_utf8_lossy(&letter.body).into_owned()).collect()
}

pub(super) fn letters_are_numbered_in_each_inbox(world: &dyn World) {
    let client = client(world);
    let receipt =
        client.commit(post(vec![letter("ann", "1"), letter("bob", "x"), letter("ann", "2")])).unwrap();
    let first = receipt.letters[0];
    assert_eq!(receipt.letters, [first, first, first + 1]);
    world.clock().advance(7);
    assert_eq!(client.commit(post(vec![letter("ann", "3")])).unwrap().letters, [first + 2]);
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["1".into(), "2".into(), "3".into()], 0));
    assert_eq!((ann.page.rows[0].at, ann.page.rows[2].at), (receipt.time, receipt.time + 7));
    assert_eq!(bodies(&inbox(&client, "ann", first, 10)), ["2", "3"]);
    let page = inbox(&client, "ann", 0, 2);
    assert_eq!((page.page.rows.len(), page.page.more), (2, true));
    assert_eq!(inbox(&client, "nobody", 0, 10).page.rows, []);
}

pub(super) fn a_letter_is_posted_with_its_cause(world: &dyn World) {
    let client = client(world);
    let refused = Commit { expects: vec![expect("party", 7)], ..post(vec![letter("ann", "no")]) };
    assert_conflict(client.commit(refused), (RowKey::Document(key("party")), 7, 0));
    assert_eq!(bodies(&inbox(&client, "ann", 0, 10)), Vec::<String>::new());
    let both = Commit {
        expects: vec![expect("party", 0)],
        puts: vec![row("party", "1")],
        ..post(vec![letter("ann", "yes")])
    };
    client.commit(both).unwrap();
    assert_eq!(
        (text(&client, "party").as_deref(), bodies(&inbox(&client, "ann", 0, 10))),
        (Some("1"), vec!["yes".into()])
    );
}

pub(super) fn freed_letters_are_gone_and_numbers_go_on(world: &dyn World) {
    let client = client(world);
    let numbers = client.commit(post(vec![letter("ann", "1"), letter("ann", "2")])).unwrap().letters;
    client.commit(free("ann", numbers[0], false)).unwrap();
    assert_eq!(bodies(&inbox(&client, "ann", 0, 10)), ["2"]);
    client.commit(free("ann", numbers[1], false)).unwrap();
    client.commit(free("ann", numbers[1], false)).expect("freeing again changes nothing");
    // The clock stands still and goes back: an empty inbox still begins above what it had.
    world.clock().set(Time(1_000));
    let next = client.commit(post(vec![letter("ann", "3")])).unwrap().letters[0];
    assert!(next > numbers[1], "{next} after {}", numbers[1]);
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, 0);
}

pub(super) fn a_full_inbox_drops_the_oldest_and_says_so(world: &dyn World) {
    let client = client(world);
    let two = |body: &str| NewLetter { most_letters: 2, ..letter("ann", body) };
    let numbers = client.commit(post(vec![two("1"), two("2"), two("3")])).unwrap().letters;
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["2".into(), "3".into()], numbers[0]));
    let small = NewLetter { most_bytes: 5, ..letter("ann", "1234") };
    client.commit(post(vec![small])).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["3".into(), "1234".into()], numbers[1]));
    // The newest stays, however large; reading past what was dropped forgets it.
    let large = NewLetter { most_bytes: 5, ..letter("ann", "123456789") };
    let last = client.commit(post(vec![large])).unwrap().letters[0];
    assert_eq!(bodies(&inbox(&client, "ann", 0, 10)), ["123456789"]);
    client.commit(free("ann", numbers[0], false)).unwrap();
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, last - 1, "what he has not read past stays told");
    client.commit(free("ann", last, false)).unwrap();
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, 0);
}

pub(super) fn letters_kept_too_long_are_told_as_dropped(world: &dyn World) {
    let client = client(world);
    let numbers = client.commit(post(vec![letter("ann", "1"), letter("ann", "2")])).unwrap().letters;
    client.commit(free("ann", numbers[1], true)).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (Vec::new(), numbers[1]));
    let next = client.commit(post(vec![letter("ann", "3")])).unwrap().letters[0];
    assert_eq!(next, numbers[1] + 1);
    let again = Commit {
        freed: vec![Freed { user: "ann".into(), through: next, unread: false }],
        ..post(vec![letter("ann", "4")])
    };
    client.commit(again).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["4".into()], 0), "freed first, then posted");
    // Whatever there is.
    client.commit(free("ann", u64::MAX, true)).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (Vec::new(), next + 1));
    client.commit(free("ann", u64::MAX, false)).unwrap();
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, 0);
}
