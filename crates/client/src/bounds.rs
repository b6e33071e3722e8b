//! The limits and waits of `clients/spec.md`; `clients/vectors/bounds.json` has the same. Others that only this client has stay where
//! they are used.

use std::time::Duration;

/// Commands that wait for a connection or a reply.
pub(crate) const WAITING: usize = 16_384;
/// Events kept for a slow reader.
pub(crate) const KEPT: usize = 16_384;
/// Changes kept while a presence map loads.
pub(crate) const EARLY: usize = 4_096;
/// The longest answer of a server: the largest message size that it can be configured for, and its envelope.
pub(crate) const MESSAGE_BYTES: usize = 66 << 20;
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const BYE_TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);
/// A link that lasted this long resets the backoff.
pub(crate) const STEADY: Duration = Duration::from_secs(5);
/// How long a transport stands in for the preferred one, at least: up to twice as long.
pub(crate) const STAND_IN: Duration = Duration::from_secs(30);
/// How long the first half of a change waits for the other.
pub(crate) const SECOND_HALF: Duration = Duration::from_millis(50);
/// Failures of a transport before the next is tried: of one that never worked, and of one that did.
pub(crate) const REFUSALS: (u32, u32) = (2, 5);
