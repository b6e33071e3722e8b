//! The driver against lost, late, repeated and reordered updates, and against failed, late and stale reads.

mod random;

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use tavern_store::{LogEnds, Page, TopicPage};

/// Numbers by name, and their common version.
#[derive(Clone, Default, PartialEq, Debug)]
struct Numbers {
    version: u64,
    rows: BTreeMap<Arc<str>, u64>,
}

#[derive(Clone)]
struct Change {
    version: u64,
    name: Arc<str>,
    number: Option<u64>,
}

impl Numbers {
    fn change(&mut self, name: &str, number: Option<u64>) -> Change {
        let change = Change { version: self.version + 1, name: name.into(), number };
        self.apply(&change);
        change
    }

    fn apply(&mut self, change: &Change) {
        assert_eq!(change.version, self.version + 1, "each change once and in order");
        self.version = change.version;
        match change.number {
            Some(number) => drop(self.rows.insert(change.name.clone(), number)),
            None => drop(self.rows.remove(&change.name)),
        }
    }

    fn page(&self, read: &Read) -> StoreAnswer {
        let Read::Topics { after, limit, .. } = read else { panic!("reads a page of numbers") };
        let later = |(name, _): &(&Arc<str>, &u64)| after.as_ref().is_none_or(|after| *name > after);
        let mut rows: Vec<(Arc<str>, u64)> =
            self.rows.iter().filter(later).map(|(name, number)| (name.clone(), *number)).collect();
        let more = rows.len() > *limit as usize;
        rows.truncate(*limit as usize);
        let log = LogEnds { first: 1, head: self.version, bytes: 0 };
        StoreAnswer::Read(Found::Topics(TopicPage { log, page: Page { rows, more } }))
    }
}

/// Where the copies of the tests live.
#[derive(Default)]
struct Desk {
    now: Time,
    tickets: u64,
    reads: Vec<(Ticket, Read)>,
    wakes: BTreeSet<(Time, Arc<str>)>,
    users: usize,
    dropped: usize,
}

impl ReplicaHost for Desk {
    type Owner = ();

    fn now(&self) -> Time {
        self.now
    }

    fn read(&mut self, (): (), read: Read) -> Ticket {
        self.tickets += 1;
        self.reads.push((Ticket(self.tickets), read));
        Ticket(self.tickets)
    }

    fn wake(&mut self, (): (), due: Time, name: &Arc<str>) {
        self.wakes.insert((due, name.clone()));
    }
}

/// A copy of the numbers.
#[derive(Default)]
struct Copy {
    numbers: Numbers,
    pages: Numbers,
    /// Changes that wait for a missing one.
    waiting: BTreeMap<u64, Change>,
}

impl Copy {
    fn read(after: Option<Arc<str>>, limit: u32) -> Read {
        Read::Topics { names: Vec::new(), after, limit }
    }

    fn catch_up(&mut self) {
        self.waiting.retain(|version, _| *version > self.numbers.version);
        while let Some(change) = self.waiting.remove(&(self.numbers.version + 1)) {
            self.numbers.apply(&change);
        }
    }
}

impl Replica for Copy {
    type Host = Desk;
    type Update = Change;
    /// The version that the numbers had when it began to wait.
    type Waiter = u64;

    fn begin(&mut self, _: &mut Desk, _: &Arc<str>) -> Option<Read> {
        self.pages = Numbers::default();
        Some(Copy::read(None, 2))
    }

    fn load(&mut self, _: &mut Desk, _: &Arc<str>, found: Found) -> PageLoad {
        let Found::Topics(TopicPage { log, page }) = found else { return PageLoad::Unusable };
        if !self.pages.rows.is_empty() && self.pages.version != log.head {
            return PageLoad::Again;
        }
        self.pages.version = log.head;
        self.pages.rows.extend(page.rows);
        match self.pages.rows.keys().last().filter(|_| page.more) {
            Some(last) => PageLoad::More(Copy::read(Some(last.clone()), 2)),
            None => PageLoad::Complete,
        }
    }

    fn install(&mut self, _: &mut Desk, _: &Arc<str>) {
        if self.pages.version >= self.numbers.version {
            self.numbers = std::mem::take(&mut self.pages);
        }
        self.catch_up();
    }

    fn apply(&mut self, _: &mut Desk, _: &Arc<str>, change: &Change) -> Applied {
        if change.version <= self.numbers.version {
            return Applied::Old;
        }
        self.waiting.insert(change.version, change.clone());
        self.catch_up();
        if self.waiting.is_empty() { Applied::Emitted } else { Applied::Gap }
    }

    fn has_gap(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn compare(&self, _: &Arc<str>) -> Option<Read> {
        Some(Copy::read(None, 0))
    }

    fn is_behind(&self, found: &Found) -> bool {
        matches!(found, Found::Topics(TopicPage { log, .. }) if log.head > self.numbers.version)
    }

    fn is_used(&self, desk: &Desk, _: &Arc<str>) -> bool {
        desk.users > 0
    }

    fn end(self, desk: &mut Desk, _: &Arc<str>) {
        desk.dropped += 1;
    }
}

struct Fixture {
    desk: Desk,
    copies: Replicas<Copy>,
    name: Arc<str>,
    store: Numbers,
    /// The last read that ended has failed.
    failed: bool,
}

fn failed() -> StoreAnswer {
    StoreAnswer::Failed(StoreError::timeout())
}

impl Fixture {
    fn new() -> Fixture {
        let desk = Desk { now: Time(1_000), users: 1, ..Desk::default() };
        Fixture {
            desk,
            copies: Replicas::new(()),
            name: "all".into(),
            store: Numbers::default(),
            failed: false,
        }
    }

    /// A copy of three numbers that was read.
    fn loaded() -> Fixture {
        let mut fixture = Fixture::new();
        ["a", "b", "c"].iter().for_each(|name| drop(fixture.store.change(name, Some(1))));
        fixture.copies.read(&mut fixture.desk, &fixture.name);
        while fixture.answer().is_some() {}
        assert_eq!(fixture.copy(), &fixture.store);
        fixture
    }

    fn copy(&self) -> &Numbers {
        &self.copies.get(&self.name).expect("it is kept").numbers
    }

    fn update(&mut self, change: &Change) {
        self.copies.update(&mut self.desk, &self.name, change);
    }

    fn refresh(&mut self) {
        self.copies.refresh(&mut self.desk, &self.name);
    }

    /// Answers the oldest read with what is stored now.
    fn answer(&mut self) -> Option<Vec<u64>> {
        let (_, read) = self.desk.reads.first()?;
        let answer = self.store.page(read);
        Some(self.answer_with(answer))
    }

    /// Returns those who waited.
    fn answer_with(&mut self, answer: StoreAnswer) -> Vec<u64> {
        let (ticket, _) = self.desk.reads.remove(0);
        let read = self.copies.answered(&mut self.desk, ticket, answer);
        self.failed = read.as_ref().is_some_and(|read| read.failed.is_some());
        read.map(|read| read.waiters).unwrap_or_default()
    }

    /// Runs the next timer.
    fn wake(&mut self) -> u64 {
        let (due, name) = self.desk.wakes.pop_first().expect("a timer is set");
        let waited = due.since(self.desk.now);
        self.desk.now = self.desk.now.max(due);
        self.copies.due(&mut self.desk, &name);
        waited
    }
}

#[test]
fn updates_during_a_read_are_applied_after_it() {
    let mut fixture = Fixture::loaded();
    let before = fixture.store.clone();
    fixture.refresh();
    let changes = [Some(2), None].map(|number| fixture.store.change("a", number));
    // The second overtakes the first.
    changes.iter().rev().for_each(|change| fixture.update(change));
    assert_eq!(fixture.copy(), &fixture.store, "they are applied at once too");
    let stale = before.page(&fixture.desk.reads[0].1);
    fixture.answer_with(stale);
    let stale = before.page(&fixture.desk.reads[0].1);
    fixture.answer_with(stale);
    assert_eq!(fixture.copy(), &fixture.store, "a stale read takes nothing back");
}

#[test]
fn missing_update_is_waited_for_and_then_read() {
    let mut fixture = Fixture::loaded();
    let changes = [2, 3].map(|number| fixture.store.change("a", Some(number)));
    fixture.update(&changes[1]);
    assert!(fixture.desk.reads.is_empty(), "it may be in flight");
    fixture.update(&changes[0]);
    fixture.wake();
    assert!(fixture.desk.reads.is_empty(), "it has arrived");
    let changes = [4, 5].map(|number| fixture.store.change("a", Some(number)));
    fixture.update(&changes[1]);
    assert_eq!(fixture.wake(), Copy::MISSING_MS);
    while fixture.answer().is_some() {}
    assert_eq!(fixture.copy(), &fixture.store);
}

#[test]
fn loss_of_the_last_update_is_found_by_comparing() {
    let mut fixture = Fixture::loaded();
    fixture.copies.compare(&mut fixture.desk);
    fixture.answer();
    assert!(fixture.desk.wakes.is_empty(), "nothing is missing");
    fixture.store.change("b", None);
    fixture.copies.compare(&mut fixture.desk);
    fixture.answer();
    fixture.wake();
    while fixture.answer().is_some() {}
    assert_eq!(fixture.copy(), &fixture.store);
}

#[test]
fn read_that_began_before_the_comparison_does_not_count() {
    let mut fixture = Fixture::loaded();
    fixture.refresh();
    let stale = fixture.desk.reads.iter().map(|(_, read)| fixture.store.page(read)).next().expect("a page");
    fixture.store.change("c", Some(7));
    fixture.copies.compare(&mut fixture.desk);
    fixture.desk.reads.rotate_left(1);
    fixture.answer();
    fixture.answer_with(stale);
    let last = Numbers { version: 3, rows: fixture.copy().rows.clone() }.page(&fixture.desk.reads[0].1);
    fixture.answer_with(last);
    assert_ne!(fixture.copy(), &fixture.store, "it is older");
    fixture.wake();
    while fixture.answer().is_some() {}
    assert_eq!(fixture.copy(), &fixture.store);
}

#[test]
fn each_name_is_compared_in_one_of_the_rounds() {
    for parts in 1..100 {
        for name in ["a", "room#1", "room#31"] {
            let turns = (7..7 + parts).filter(|round| is_turn(name, *round, parts)).count();
            assert_eq!(turns, 1, "{name}, {parts} parts");
        }
    }
}

#[test]
fn failed_read_is_retried_with_growing_delays() {
    let mut fixture = Fixture::new();
    fixture.store.change("a", Some(1));
    fixture.refresh();
    let mut delays = Vec::new();
    for _ in 0..7 {
        fixture.answer_with(failed());
        delays.push(fixture.wake());
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 16, 16].map(|times| RETRY_AFTER_MS * times));
    fixture.answer();
    assert_eq!(fixture.copy(), &fixture.store);
    fixture.refresh();
    fixture.answer_with(failed());
    assert_eq!(fixture.wake(), RETRY_AFTER_MS, "the delay starts again");
}

#[test]
fn read_serves_only_those_who_asked_before_it_began() {
    let mut fixture = Fixture::new();
    let Fixture { desk, copies, name, .. } = &mut fixture;
    copies.wait_fresh(desk, name, 1);
    copies.wait(desk, name, 2);
    copies.wait_fresh(desk, name, 3);
    assert_eq!(fixture.answer(), Some(vec![1, 2]));
    assert_eq!(fixture.answer(), Some(vec![3]));
    assert_eq!(fixture.answer(), None);
}

#[test]
fn those_who_asked_after_it_began_survive_its_failure() {
    let mut fixture = Fixture::new();
    let Fixture { desk, copies, name, .. } = &mut fixture;
    copies.wait(desk, name, 1);
    copies.wait_fresh(desk, name, 2);
    assert_eq!(fixture.answer_with(failed()), [1]);
    assert_eq!(fixture.answer(), Some(vec![2]), "the next read begins at once");
}

#[test]
fn outdated_read_is_not_used_and_serves_nobody() {
    let mut fixture = Fixture::loaded();
    let older = fixture.store.clone();
    fixture.store.change("a", None);
    let Fixture { desk, copies, name, .. } = &mut fixture;
    copies.wait(desk, name, 7);
    copies.outdate(name);
    for _ in 0..2 {
        let page = older.page(&fixture.desk.reads[0].1);
        assert!(fixture.answer_with(page).is_empty());
    }
    assert_eq!(fixture.answer(), Some(vec![7]), "it waits for the next one");
    assert_eq!(fixture.copy(), &fixture.store);
}

#[test]
fn too_many_updates_during_a_read_make_it_read_again() {
    let mut fixture = Fixture::new();
    fixture.refresh();
    let stale = fixture.store.page(&fixture.desk.reads[0].1);
    for number in 0..=UPDATES_MAX as u64 {
        let change = fixture.store.change("a", Some(number));
        fixture.update(&change);
    }
    fixture.answer_with(stale);
    assert_eq!(fixture.copy().version + 1, fixture.store.version, "the last one was dropped");
    fixture.answer();
    assert_eq!(fixture.copy(), &fixture.store);
}

#[test]
fn unused_copy_is_dropped_unless_somebody_waits() {
    let mut fixture = Fixture::loaded();
    let Fixture { desk, copies, name, .. } = &mut fixture;
    desk.users = 0;
    copies.wait(desk, name, 1);
    copies.drop_unused(desk, name);
    assert_eq!(desk.dropped, 0);
    copies.refresh(desk, name);
    fixture.answer();
    fixture.answer();
    while fixture.answer().is_some() {}
    fixture.copies.drop_unused(&mut fixture.desk, &fixture.name);
    assert!(fixture.copies.get("all").is_none() && fixture.desk.dropped == 1);
    // A late answer meets nobody, or another copy of the same name.
    fixture.desk.users = 1;
    fixture.refresh();
    let (late, read) = fixture.desk.reads.remove(0);
    fixture.desk.users = 0;
    fixture.copies.lives.clear();
    fixture.desk.users = 1;
    fixture.refresh();
    let page = fixture.store.page(&read);
    assert!(fixture.copies.answered(&mut fixture.desk, late, page).is_none());
    assert!(fixture.copies.is_reading("all"), "only its own read counts");
}

/// Every read finds pages of two versions.
fn tear(fixture: &mut Fixture) -> Vec<u64> {
    assert_eq!(fixture.answer(), Some(vec![]), "more pages follow");
    fixture.store.change("a", Some(fixture.store.version));
    fixture.answer().expect("the next page is asked for")
}

#[test]
fn pages_of_two_versions_are_read_again_with_growing_delays() {
    let mut fixture = Fixture::loaded();
    fixture.refresh();
    tear(&mut fixture);
    let mut delays = Vec::new();
    for _ in 0..7 {
        tear(&mut fixture);
        assert!(fixture.desk.reads.is_empty(), "it waits");
        delays.push(fixture.wake());
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 16, 16].map(|times| RETRY_AFTER_MS * times));
    while fixture.answer().is_some() {}
    assert_eq!(fixture.copy(), &fixture.store);
    fixture.refresh();
    tear(&mut fixture);
    assert!(!fixture.desk.reads.is_empty(), "the first time it is read at once");
}

#[test]
fn nobody_waits_without_end() {
    let mut fixture = Fixture::loaded();
    let Fixture { desk, copies, name, .. } = &mut fixture;
    copies.wait(desk, name, 7);
    let began = fixture.desk.now;
    tear(&mut fixture);
    let mut served = Vec::new();
    while served.is_empty() {
        served = tear(&mut fixture);
        fixture.wake();
    }
    assert_eq!(served, [7]);
    assert!((WAIT_MS..2 * WAIT_MS).contains(&fixture.desk.now.since(began)), "told in time");
    // The same when each read is outdated when it ends.
    let Fixture { desk, copies, name, .. } = &mut fixture;
    copies.wait_fresh(desk, name, 8);
    while fixture.answer().is_some_and(|served| served.is_empty()) {
        fixture.copies.outdate(&fixture.name);
        fixture.desk.now = fixture.desk.now + 1_000;
    }
    assert!(fixture.copies.is_reading("all"), "it is read on");
}
