//! A lease: something that ends at a time unless it is renewed or settled first.
//! Must hold: at its due time a lease has ended, for every reader; renewing never shortens it.

use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease {
    due: Time,
}

impl Lease {
    pub fn until(due: Time) -> Lease {
        Lease { due }
    }

    pub fn due(self) -> Time {
        self.due
    }

    /// A deadline at time t has passed for anything that happens at t.
    pub fn ended(self, now: Time) -> bool {
        now >= self.due
    }

    /// Extends the lease; an ended lease cannot be renewed, only taken anew.
    pub fn renew(&mut self, now: Time, due: Time) -> bool {
        if self.ended(now) {
            return false;
        }
        self.due = self.due.max(due);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_ended_at_its_due_time() {
        let lease = Lease::until(Time(10));
        assert!(!lease.ended(Time(9)));
        assert!(lease.ended(Time(10)));
    }

    #[test]
    fn renewing_never_shortens_and_never_revives() {
        let mut lease = Lease::until(Time(10));
        assert!(lease.renew(Time(5), Time(7)));
        assert_eq!(lease.due(), Time(10));
        assert!(lease.renew(Time(9), Time(20)));
        assert_eq!(lease.due(), Time(20));
        assert!(!lease.renew(Time(20), Time(99)));
        assert_eq!(lease.due(), Time(20));
    }
}
