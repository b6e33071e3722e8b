//! Selects a few users at a time, in order, and starts again after the last.

use std::sync::Arc;

#[derive(Default)]
pub(super) struct Rotation {
    last: Option<Arc<str>>,
}

impl Rotation {
    /// The next `most` of these users, which are sorted. Fewer: the end was reached.
    pub fn next<'a>(&mut self, users: impl Iterator<Item = &'a Arc<str>>, max: usize) -> Vec<Arc<str>> {
        let last = self.last.take();
        let rest = users.filter(|user| last.as_ref().is_none_or(|last| *user > last));
        let taken: Vec<Arc<str>> = rest.take(max).cloned().collect();
        self.last = taken.last().filter(|_| taken.len() == max).cloned();
        taken
    }

    /// All of them; the next selection starts from the first.
    pub fn all<'a>(&mut self, users: impl Iterator<Item = &'a Arc<str>>) -> Vec<Arc<str>> {
        self.last = None;
        users.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_their_turn_and_then_the_first_again() {
        let users: Vec<Arc<str>> = ["ann", "bob", "cid"].map(Into::into).into();
        let mut rotation = Rotation::default();
        assert_eq!(rotation.next(users.iter(), 2), users[..2]);
        assert_eq!(rotation.next(users.iter(), 2), users[2..]);
        assert_eq!(rotation.next(users.iter(), 2), users[..2]);
        assert_eq!(rotation.all(users.iter()), users);
        assert_eq!(rotation.next(users.iter(), 2), users[..2]);
    }
}
