//! A room compared with the store: whatever is lost, repeated, late or reordered, a watcher ends with the state of the store.

use super::*;
use crate::id::Epoch;
use crate::presence::{AttendanceInput, ClientLoss, NodeEpoch, OfflineReason};
use alloc::format;
use alloc::string::ToString;

struct Random(u64);

impl Random {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The store: attendances, and the channel's version.
#[derive(Default)]
struct Truth {
    version: u64,
    users: BTreeMap<Arc<str>, Attendance>,
}

impl Truth {
    /// A random input for a random user. `None`: it changed nothing.
    fn step(&mut self, now: u64, rng: &mut Random) -> Option<PresenceUpdate> {
        let user: Arc<str> = format!("user{}", rng.roll(4)).into();
        let client = ClientId::from_random(u128::from(rng.roll(3)));
        let home = NodeEpoch { node: "a".into(), epoch: Epoch(1) };
        let state = |n: u64| ClientState { text: n.to_string().into(), digest: n };
        let input = match rng.roll(6) {
            0 | 1 => Some(AttendanceInput::Join { client, node: home, state: Some(state(rng.roll(3))) }),
            2 => Some(AttendanceInput::Leave { client, reason: OfflineReason::Left }),
            3 => {
                let loss = ClientLoss { at: Time(now), grace_ms: rng.roll(40), reason: OfflineReason::Lost };
                Some(AttendanceInput::Lose { client, loss })
            }
            4 => Some(AttendanceInput::Join { client, node: home, state: None }),
            _ => None,
        };
        let attendance = self.users.entry(user.clone()).or_default();
        let mut changes = Vec::new();
        match input {
            Some(input) => attendance.handle(Time(now), input, &mut changes),
            None => attendance.wake(Time(now), &mut changes),
        }
        if changes.is_empty() {
            return None;
        }
        // An empty channel begins new versions, above the earlier ones.
        let others = self.users.iter().any(|(other, a)| *other != user && a.is_present());
        let begins = !others && changes.first() == Some(&AttendanceChange::UserOnline);
        if begins {
            self.version += 100;
        }
        self.version += changes.len() as u64;
        Some(PresenceUpdate {
            user,
            name: None,
            anonymous: false,
            visibility: Visibility::Everyone,
            at: Time(now),
            changes,
            to: self.version,
            begins,
        })
    }

    fn snapshot(&self) -> RoomSnapshot {
        let mut snapshot = RoomSnapshot { version: self.version, ..RoomSnapshot::default() };
        for (user, attendance) in &self.users {
            snapshot.insert(user.clone(), RoomMember::default(), attendance);
        }
        snapshot
    }
}

#[test]
fn a_snapshot_with_the_changes_after_it_equals_the_later_snapshot() {
    for seed in 0..2_000 {
        let mut rng = Random(seed);
        let (mut truth, mut now) = (Truth::default(), 0);
        let mut room = Room::new(truth.snapshot());
        for _ in 0..rng.roll(60) {
            now += rng.roll(15);
            let Some(update) = truth.step(now, &mut rng) else { continue };
            assert_eq!(room.apply(update.clone()), Applied::Emitted);
            assert_eq!(room.apply(update), Applied::Old, "once");
            assert_eq!(*room.snapshot(), truth.snapshot());
        }
    }
}

#[test]
fn late_and_reordered_changes_are_emitted_in_order() {
    for seed in 0..2_000 {
        let mut rng = Random(seed);
        let (mut truth, mut now) = (Truth::default(), 0);
        let mut room = Room::new(truth.snapshot());
        let mut under_way: Vec<PresenceUpdate> = Vec::new();
        let mut versions = Vec::new();
        for _ in 0..40 {
            now += rng.roll(15);
            under_way.extend(truth.step(now, &mut rng));
            if !under_way.is_empty() && rng.roll(3) > 0 {
                let at = rng.roll(under_way.len().min(3) as u64) as usize;
                let update = under_way.remove(at);
                if rng.roll(5) == 0 {
                    under_way.push(update.clone());
                }
                room.apply(update);
            }
            versions.extend(room.take_emitted().iter().map(|update| update.to));
        }
        for update in under_way.drain(..) {
            room.apply(update);
        }
        versions.extend(room.take_emitted().iter().map(|update| update.to));
        assert!(versions.is_sorted() && !room.has_gap(), "{versions:?}");
        assert_eq!(*room.snapshot(), truth.snapshot());
    }
}

#[test]
fn a_missing_change_is_healed_by_reading_again() {
    for seed in 0..2_000 {
        let mut rng = Random(seed);
        let (mut truth, mut now) = (Truth::default(), 0);
        let mut room = Room::new(truth.snapshot());
        // A watcher that knows only changes and differences.
        let mut watcher = room.snapshot().clone();
        for _ in 0..50 {
            now += rng.roll(15);
            let Some(update) = truth.step(now, &mut rng) else { continue };
            if rng.roll(4) == 0 {
                continue;
            }
            if room.apply(update) == Applied::Gap {
                let difference = room.replace(truth.snapshot());
                follow(&mut watcher, &difference);
                room.catch_up();
            }
            for update in room.take_emitted() {
                update.changes.iter().for_each(|change| watcher.apply(&update, change));
                watcher.version = update.to;
            }
            assert_eq!(shown(&watcher), shown(room.snapshot()));
        }
        follow(&mut watcher, &room.replace(truth.snapshot()));
        assert_eq!(shown(&watcher), shown(&truth.snapshot()));
    }
}

/// Applies a `presence` event as a client does.
fn follow(watcher: &mut RoomSnapshot, difference: &RoomDifference) {
    assert_eq!(watcher.version, difference.from);
    for gone in &difference.left {
        match gone.client {
            None => drop(watcher.members.remove(&gone.user)),
            Some(client) => drop(watcher.members.get_mut(&gone.user).unwrap().clients.remove(&client)),
        }
    }
    for entry in difference.joined.iter().chain(&difference.updated) {
        let member = watcher.members.entry(entry.user.clone()).or_default();
        if let Some(client) = entry.client {
            member.clients.insert(client, RoomClient { state: entry.state.clone(), since: Time(0) });
        }
    }
    watcher.version = difference.to;
}

/// Users and their clients with their states; times are not part of a difference.
type Shown = Vec<(Arc<str>, Vec<(ClientId, Option<ClientState>)>)>;

fn shown(snapshot: &RoomSnapshot) -> Shown {
    let clients = |member: &RoomMember| {
        member.clients.iter().map(|(client, seen)| (*client, seen.state.clone())).collect::<Vec<_>>()
    };
    snapshot.members.iter().map(|(user, member)| (user.clone(), clients(member))).collect()
}

#[test]
fn an_old_snapshot_changes_nothing() {
    let mut rng = Random(3);
    let mut truth = Truth::default();
    let mut room = Room::new(truth.snapshot());
    let mut old = truth.snapshot();
    for now in 0..40 {
        if now == 10 {
            old = truth.snapshot();
        }
        truth.step(now, &mut rng).map(|update| room.apply(update));
    }
    let before = room.snapshot().clone();
    assert!(old.version > 0 && room.replace(old).is_empty());
    assert_eq!(*room.snapshot(), before);
}

#[test]
fn a_user_who_changes_visibility_stays_a_member() {
    let member = |visibility, clients: &[u128]| RoomMember {
        visibility,
        clients: clients
            .iter()
            .map(|n| (ClientId::from_random(*n), RoomClient { state: None, since: Time(0) }))
            .collect(),
        ..RoomMember::default()
    };
    let of = |member| RoomSnapshot { version: 5, members: [("ann".into(), member)].into() };
    let difference = RoomDifference::between(
        &of(member(Visibility::Everyone, &[1, 2])),
        &of(member(Visibility::Nobody, &[2, 3])),
    );
    assert_eq!(
        (difference.joined.len(), difference.left.len(), difference.visibility_changed.len()),
        (1, 1, 1)
    );
    assert!(!difference.joined[0].arrives && !difference.is_empty());
    assert!(difference.only(|user, _| user == "bob").is_none());
    assert_eq!(difference.only(|user, _| user == "ann"), Some(difference));
    let same =
        RoomDifference::between(&of(member(Visibility::Nobody, &[])), &of(member(Visibility::Nobody, &[])));
    assert!(same.is_empty(), "still in the grace period");
}

#[test]
fn a_snapshot_without_differences_still_moves_the_version() {
    let mut truth = Truth::default();
    let mut rng = Random(7);
    while truth.snapshot().members.is_empty() {
        truth.step(1, &mut rng);
    }
    let mut room = Room::new(truth.snapshot());
    let later = RoomSnapshot { version: truth.version + 2, ..truth.snapshot() };
    let difference = room.replace(later);
    assert!(difference.is_empty() && difference.to == difference.from + 2);
    let empty = RoomSnapshot { version: truth.version + 9, ..RoomSnapshot::default() };
    assert_eq!(room.replace(empty.clone()).to, empty.version);
    let still = room.replace(RoomSnapshot { version: truth.version + 20, ..RoomSnapshot::default() });
    assert_eq!((still.from, still.to), (empty.version, empty.version), "an empty channel keeps its version");
}

/// Ann, with these clients before and after, as a viewer sees her who sees these visibilities: `+client` joins, `-client`
/// leaves, `-` leaves with all clients.
fn seen(
    before: (Visibility, &[u128]),
    after: (Visibility, &[u128]),
    sees: &[Visibility],
) -> (alloc::string::String, RoomDifference) {
    let of = |version, (visibility, clients): (Visibility, &[u128])| {
        let client = |n: &u128| (ClientId::from_random(*n), RoomClient { state: None, since: Time(0) });
        let clients = clients.iter().map(client).collect();
        let member = RoomMember { visibility, clients, ..RoomMember::default() };
        RoomSnapshot { version, members: [("ann".into(), member)].into() }
    };
    let difference = RoomDifference::between(&of(5, before), &of(8, after));
    let seen = difference.as_seen(7, &|_, visibility| sees.contains(&visibility));
    let number =
        |client: Option<ClientId>| client.map_or(alloc::string::String::new(), |id| id.bits().to_string());
    let left = seen.left.iter().map(|gone| format!("-{}", number(gone.client)));
    let joined = seen.joined.iter().map(|come| format!("+{}", number(come.client)));
    let words = left.chain(joined).collect::<Vec<_>>().join(" ");
    (words, seen)
}

#[test]
fn changed_visibility_is_a_departure_or_an_arrival_for_some_viewers() {
    use Visibility::{Everyone, FollowersIFollow, Nobody};
    let (stranger, friend) = ([Everyone], [Everyone, FollowersIFollow]);
    let check = |before, after, sees: &[Visibility], expected: &str| {
        let (words, seen) = seen(before, after, sees);
        assert_eq!(words, expected, "{before:?} {after:?} {sees:?}");
        assert_eq!((seen.from, seen.to, seen.count), (5, 8, 7));
        seen
    };
    check((Everyone, &[1]), (FollowersIFollow, &[1]), &stranger, "-");
    check((Everyone, &[1]), (FollowersIFollow, &[1]), &friend, "");
    check((Everyone, &[1]), (Everyone, &[1, 2]), &stranger, "+2");
    check((FollowersIFollow, &[1]), (FollowersIFollow, &[2]), &stranger, "");
    check((FollowersIFollow, &[1]), (FollowersIFollow, &[2]), &friend, "-1 +2");
    // A client that joined in the same tick is one of those that appear.
    let seen = check((FollowersIFollow, &[1]), (Everyone, &[1, 2]), &stranger, "+1 +2");
    assert!(seen.joined[0].arrives && !seen.joined[1].arrives);
    let seen = check((Nobody, &[1]), (FollowersIFollow, &[1]), &friend, "+1");
    assert_eq!(seen.joined[0].visibility, FollowersIFollow);
}

#[test]
fn room_has_a_gap_while_a_change_is_missing() {
    let mut rng = Random(1);
    let mut truth = Truth::default();
    let mut room = Room::new(truth.snapshot());
    let mut next = |now| loop {
        if let Some(update) = truth.step(now, &mut rng) {
            break update;
        }
    };
    let (first, second) = (next(1), next(2));
    room.apply(second);
    assert!(room.has_gap());
    room.apply(first);
    assert!(!room.has_gap());
}

#[test]
fn user_who_arrives_is_shown_as_the_change_says() {
    let update = PresenceUpdate {
        user: "ann".into(),
        name: Some("Ann".into()),
        anonymous: true,
        visibility: Visibility::Nobody,
        at: Time(4),
        changes: Vec::new(),
        to: 1,
        begins: true,
    };
    let mut room = RoomSnapshot::default();
    room.apply(&update, &AttendanceChange::UserOnline);
    let (name, visibility) = (update.name.clone(), update.visibility);
    let expected = RoomMember { name, anonymous: true, visibility, since: Time(4), ..RoomMember::default() };
    assert_eq!(room.members.get("ann"), Some(&expected));
}
