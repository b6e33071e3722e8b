//! Every fault in any order: afterwards the copy is what is stored, and nobody waits.

use super::*;

/// Everything at once, in an order that the seed decides.
#[test]
fn copies_agree_with_the_store_after_any_faults() {
    for seed in 1..=300 {
        random_faults(seed);
    }
}

fn random_faults(seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut fixture = Fixture::new();
    // Updates in flight, and pages as they were when the read began.
    let (mut flying, mut pages) = (Vec::<Change>::new(), BTreeMap::new());
    let mut waits = 0;
    for _ in 0..400 {
        match random(12) {
            0..=3 => {
                let name = ["a", "b", "c", "d", "e"][random(5) as usize];
                let number = (random(3) > 0).then(|| random(9));
                let change = fixture.store.change(name, number);
                // Lost, sent, or sent twice.
                flying.extend(std::iter::repeat_n(change, random(3) as usize));
            }
            4..=6 if !flying.is_empty() => {
                let change = flying.swap_remove(random(flying.len() as u64) as usize);
                fixture.update(&change);
            }
            7 => fixture.refresh(),
            8 => {
                let (at, Fixture { desk, copies, name, store, .. }) = (random(2), &mut fixture);
                waits += 1;
                match at {
                    0 => copies.wait(desk, name, 0),
                    _ => copies.wait_fresh(desk, name, store.version),
                }
            }
            9 => fixture.copies.compare(&mut fixture.desk),
            10 if !fixture.desk.wakes.is_empty() => drop(fixture.wake()),
            _ if !fixture.desk.reads.is_empty() => {
                let reads = fixture.desk.reads.len();
                fixture.desk.reads.rotate_left(random(2) as usize % reads);
                let (ticket, read) = fixture.desk.reads[0].clone();
                let answer = match random(4) {
                    0 => failed(),
                    1 => pages.remove(&ticket.0).unwrap_or_else(|| fixture.store.page(&read)),
                    _ => fixture.store.page(&read),
                };
                for asked in fixture.answer_with(answer) {
                    waits -= 1;
                    assert!(fixture.failed || fixture.copy().version >= asked, "seed {seed}: an older read");
                }
            }
            _ => {}
        }
        for (ticket, read) in &fixture.desk.reads {
            pages.entry(ticket.0).or_insert_with(|| fixture.store.page(read));
        }
        let in_flight = fixture.copies.asked.values();
        assert!(in_flight.filter(|(_, asked)| *asked == ReplicaQuestion::Page).count() <= 1, "seed {seed}");
    }
    // The faults end.
    for _ in 0..3 {
        fixture.refresh_if_unknown();
        fixture.copies.compare(&mut fixture.desk);
        while !fixture.desk.reads.is_empty() || !fixture.desk.wakes.is_empty() {
            match fixture.answer() {
                Some(served) => waits -= served.len(),
                None => drop(fixture.wake()),
            }
        }
    }
    assert_eq!(fixture.copy(), &fixture.store, "seed {seed}");
    assert_eq!(waits, 0, "seed {seed}: everybody is answered");
}

impl Fixture {
    fn refresh_if_unknown(&mut self) {
        if self.copies.get(&self.name).is_none() {
            self.refresh();
        }
    }
}
