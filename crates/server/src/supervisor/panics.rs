//! Panics: logged as an event with fields, counted, and contained to the request that caused them.
//! Must hold: a panic inside the log itself is still written to stderr and does not come back here.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
    static LAST_MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Replaces the panic hook of the process. `report` gets the name of the thread and the message.
pub fn install(report: impl Fn(&str, &str) + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |info| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let message = message_of(info.payload());
        if IN_HOOK.replace(true) {
            eprintln!("panic while a panic was logged: thread={thread} message={message}");
            return;
        }
        LAST_MESSAGE.set(message.clone());
        log(thread, info, &message);
        report(thread, &message);
        IN_HOOK.set(false);
    }));
}

fn log(thread: &str, info: &PanicHookInfo<'_>, message: &str) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    // Taken only when RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    // Not `message`: that is the event's own field.
    match backtrace.status() {
        BacktraceStatus::Captured => {
            tracing::error!(thread, location, panic = message, %backtrace, "thread panicked");
        }
        _ => tracing::error!(thread, location, panic = message, "thread panicked"),
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// Panics since the process started.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// The message of the last panic on this thread.
pub fn last_message() -> String {
    LAST_MESSAGE.with_borrow(Clone::clone)
}

/// The work panicked; the hook has logged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an internal error; the server's log has the details")]
pub struct Panicked;

/// Runs work that serves one connection or one request: its panic becomes an error and affects nothing else.
pub async fn contain<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(move |context| {
        // After a panic the work is only dropped, so the state that it left is not used.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn contained_panic_becomes_an_error() {
        assert_eq!(contain(async { 7 }).await, Ok(7));
        let late = async {
            tokio::task::yield_now().await;
            panic!("planted");
        };
        assert_eq!(contain(late).await, Err(Panicked));
    }

    #[test]
    fn messages_of_both_kinds_are_read() {
        for (payload, expected) in [
            (Box::new("text") as Box<dyn Any + Send>, "text"),
            (Box::new("owned".to_owned()), "owned"),
            (Box::new(7), "no message"),
        ] {
            assert_eq!(message_of(&*payload), expected);
        }
    }
}
