//! Planted faults, for the tests of the supervisor: `PLANTED_FAULT=part:panic:file` (or `part:return:file`) ends the part
//! once the file exists. Compiled with debug assertions only: in a release build this does nothing.

use std::future::Future;
use std::time::Duration;

/// How a planted fault ends its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), allow(dead_code, reason = "faults are planted in debug builds only"))]
pub enum Fault {
    Panic,
    Return,
}

#[cfg(debug_assertions)]
mod planted {
    use super::{Duration, Fault};
    use std::path::PathBuf;
    use std::sync::OnceLock;

    const VARIABLE: &str = "PLANTED_FAULT";
    /// How often the file is checked.
    pub const CHECK_INTERVAL: Duration = Duration::from_millis(10);

    struct PlantedPanic {
        part: String,
        fault: Fault,
        file: PathBuf,
    }

    /// The fault that is planted for this part, and whether it is due.
    pub fn find(part: &str) -> Option<(Fault, bool)> {
        static PLANTED: OnceLock<Option<PlantedPanic>> = OnceLock::new();
        let planted = PLANTED.get_or_init(|| read(&std::env::var(VARIABLE).ok()?)).as_ref()?;
        (planted.part == part).then(|| (planted.fault, planted.file.exists()))
    }

    fn read(text: &str) -> Option<PlantedPanic> {
        let mut fields = text.splitn(3, ':');
        let (part, how, file) = (fields.next()?, fields.next()?, fields.next()?);
        let fault = if how == "panic" { Fault::Panic } else { Fault::Return };
        Some(PlantedPanic { part: part.to_owned(), fault, file: file.into() })
    }
}

#[cfg(not(debug_assertions))]
mod planted {
    use super::{Duration, Fault};

    pub const CHECK_INTERVAL: Duration = Duration::MAX;

    #[inline]
    pub fn find(_: &str) -> Option<(Fault, bool)> {
        None
    }
}

/// Panics if a panic is planted here; true if the part must return.
#[inline]
pub fn strikes(part: &str) -> bool {
    match planted::find(part) {
        Some((Fault::Panic, true)) => panic!("planted in {part}"),
        Some((Fault::Return, true)) => true,
        _ => false,
    }
}

/// How long a part that checks by itself may sleep.
#[inline]
pub fn limit(part: &str, sleep: Option<Duration>) -> Option<Duration> {
    match planted::find(part) {
        Some(_) => Some(sleep.map_or(planted::CHECK_INTERVAL, |sleep| sleep.min(planted::CHECK_INTERVAL))),
        None => sleep,
    }
}

/// Runs a task, or ends it as planted.
pub async fn until_due(part: &str, work: impl Future<Output = ()>) {
    if planted::find(part).is_none() {
        return work.await;
    }
    let due = async {
        while !strikes(part) {
            tokio::time::sleep(planted::CHECK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = due => {}
    }
}
