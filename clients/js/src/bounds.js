// The limits and waits of clients/spec.md; ../vectors/bounds.json has the same.

/** Commands that wait for a connection or a reply. */
export const PENDING_MAX = 16_384;
/** Events of an iterator. */
export const UNREAD_MAX = 16_384;
/** Changes while a presence map loads. */
export const KEPT_MAX = 4096;
/** Characters of one SSE event. */
export const ANSWER_MAX = 66 << 20;
export const COMMAND_MS = 30_000;
export const CONNECT_MS = 10_000;
export const BYE_MS = 2000;
export const TOKEN_MS = 20_000;
/** A connection that lasted this long resets the backoff. */
export const STABLE_MS = 5000;
/** When the best transport is tried again, at least. */
export const UPGRADE_MS = 30_000;
/** How long the first half of a change of presence waits for the second. */
export const SECOND_MS = 50;
/** Failures of a transport that never worked before the next is tried, and of one that did. */
export const FAILURES = 2;
export const FAILURES_WORKED = 5;
