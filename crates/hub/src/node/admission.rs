//! Admission: how many hellos a node takes at once and each second. The clients above that are told when to try again, each at
//! a time of its own, so that a crowd that reconnects returns as a queue.
//! Must hold: a hello that began is counted until it is answered or its connection closes; without limits no lock is taken.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::Time;
use tavern_wire::error::{Code, Refusal};

/// Hellos that may come at once after a quiet time: those of one second.
const BURST_US: u64 = 1_000_000;
/// Nobody is asked to wait less, as each attempt costs a connection, or longer.
const WAIT_MIN_MS: u64 = 50;
const WAIT_MAX_MS: u64 = 15_000;
/// The time between two clients that try again, when only the number in progress is limited.
const APART_US: u64 = 1_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionLimits {
    /// Hellos in progress; 0: no limit.
    pub in_progress: usize,
    /// Hellos per second; 0: no limit.
    pub per_second: u32,
}

#[derive(Default)]
pub struct Admission {
    limits: AdmissionLimits,
    in_progress: Arc<AtomicUsize>,
    refused: AtomicU64,
    schedule: Mutex<HelloSchedule>,
}

/// Times of clients, in microseconds.
#[derive(Default)]
struct HelloSchedule {
    /// When a hello would come next, if all that were admitted had come evenly.
    admitted: u64,
    /// When the last of those that were refused tries again.
    refused: u64,
}

/// A hello in progress. It ends when this is dropped.
#[derive(Debug)]
pub struct AdmittedHello(Arc<AtomicUsize>);

impl Drop for AdmittedHello {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub fn new(limits: AdmissionLimits) -> Admission {
        Admission { limits, ..Admission::default() }
    }

    /// Begins a hello, or says when to try again.
    pub fn admit(&self, now: Time) -> Result<Arc<AdmittedHello>, Refusal> {
        let AdmissionLimits { in_progress, per_second } = self.limits;
        let hello = AdmittedHello(self.in_progress.clone());
        let before = self.in_progress.fetch_add(1, Ordering::Relaxed);
        if in_progress == 0 && per_second == 0 {
            return Ok(Arc::new(hello));
        }
        let is_full = in_progress > 0 && before >= in_progress;
        let apart_us = 1_000_000_u64.checked_div(u64::from(per_second));
        let now_us = now.ms().saturating_mul(1_000);
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = apart_us.is_some() && schedule.admitted > now_us + BURST_US;
        if !is_full && !is_early {
            schedule.admitted = schedule.admitted.max(now_us) + apart_us.unwrap_or(0);
            return Ok(Arc::new(hello));
        }
        schedule.refused = schedule.refused.max(now_us) + apart_us.unwrap_or(APART_US);
        let wait_ms = (schedule.refused - now_us) / 1_000;
        drop(schedule);
        self.refused.fetch_add(1, Ordering::Relaxed);
        let message = "too many clients are connecting to this node; retry later";
        Err(Refusal::new(Code::Unavailable, message).retry_after(bounded(wait_ms)))
    }

    pub fn in_progress(&self) -> usize {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// How many hellos were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Times beyond the longest are spread over its second half.
fn bounded(wait_ms: u64) -> u64 {
    match wait_ms {
        ..=WAIT_MAX_MS => wait_ms.max(WAIT_MIN_MS),
        _ => WAIT_MAX_MS / 2 + wait_ms % (WAIT_MAX_MS / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(in_progress: usize, per_second: u32) -> Admission {
        Admission::new(AdmissionLimits { in_progress, per_second })
    }

    fn wait_of(refused: Result<Arc<AdmittedHello>, Refusal>) -> u64 {
        let refusal = refused.expect_err("it is refused");
        assert_eq!(refusal.code, Code::Unavailable);
        refusal.retry_after_ms.expect("it says when to try again")
    }

    #[test]
    fn hellos_in_progress_are_bounded_until_they_end() {
        let admission = admission(2, 0);
        let (one, two) = (admission.admit(Time(1)), admission.admit(Time(1)));
        assert_eq!(wait_of(admission.admit(Time(1))), WAIT_MIN_MS);
        assert_eq!((admission.in_progress(), admission.refused()), (2, 1));
        drop(one);
        let three = admission.admit(Time(1));
        assert!(two.is_ok() && three.is_ok() && admission.admit(Time(1)).is_err());
        drop((two, three));
        assert_eq!(admission.in_progress(), 0);
    }

    #[test]
    fn those_who_are_refused_return_as_a_queue() {
        let admission = admission(0, 100);
        let waits: Vec<u64> = (0..10_000)
            .filter_map(|_| admission.admit(Time(1)).err())
            .map(|refusal| refusal.retry_after_ms.unwrap_or(0))
            .collect();
        // A second's worth is admitted at once; then one client every 10 ms.
        assert_eq!(waits.len(), 10_000 - 101);
        assert!(waits[..1_000].windows(2).skip(5).all(|pair| pair[1] == pair[0] + 10));
        assert!(waits.iter().all(|wait| (WAIT_MIN_MS..=WAIT_MAX_MS).contains(wait)));
        // Beyond the longest wait they are spread too.
        let late = waits[2_000..].iter().filter(|wait| **wait > WAIT_MAX_MS / 2).count();
        let at_once = waits[2_000..].iter().filter(|wait| **wait == WAIT_MAX_MS).count();
        assert!(late > 7_000 && at_once < 100, "{late} late, {at_once} at once");
    }

    #[test]
    fn a_queue_that_returns_in_time_is_admitted() {
        let admission = admission(0, 100);
        let mut due: Vec<u64> = vec![1; 1_000];
        let mut attempts = 0;
        while let Some(now) = due.iter().copied().min() {
            let at = due.iter().position(|time| *time == now).expect("it is there");
            attempts += 1;
            match admission.admit(Time(now)) {
                Ok(_) => {
                    due.swap_remove(at);
                }
                Err(refusal) => due[at] = now + refusal.retry_after_ms.unwrap_or(0).max(1),
            }
            assert!(now < 12_000, "the last clients wait too long");
        }
        assert!(attempts < 2_500, "{attempts} attempts of 1,000 clients");
    }

    #[test]
    fn without_limits_everybody_is_admitted() {
        let admission = admission(0, 0);
        let all: Vec<_> = (0..1_000).map(|_| admission.admit(Time(1))).collect();
        assert!(all.iter().all(Result::is_ok) && admission.in_progress() == 1_000);
    }
}
