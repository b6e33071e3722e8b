// What a client does after a refusal or a loss: the tables of clients/spec.md. Pure.

const RETRIES = 5;
const FIRST_MS = 250;
const MOST_MS = 15_000;
const AGAIN_MS = 125;
const LATER = ['rate_limited', 'busy', 'unavailable', 'internal', 'gone', 'conflict', 'blocked'];

/** The wait before the nth attempt in a row. @param {number} attempt @param {number} chance @param {number} [atLeast] */
export const backoff = (attempt, chance, atLeast = 0) => chance * Math.min(MOST_MS, FIRST_MS * 2 ** Math.min(attempt - 1, 16)) + atLeast;

/** Whether a command may be sent again when its outcome is unknown. @param {string} op @param {any} members */
export const isRepeatable = (op, members) =>
  op === 'publish' ? members?.message_id !== undefined : !['party.say', 'bye'].includes(op);

/**
 * After an error reply.
 * @param {{op: string, repeatable: boolean, renews: boolean, retries: number}} command @param {{code: string, retry_after_ms?: number}} error
 * @returns {{then: 'retry' | 'reconnect' | 'report', wait_ms?: number}}
 */
export function afterReply({ op, repeatable, renews, retries }, { code, retry_after_ms }) {
  if (retries < RETRIES) {
    const isNew = code === 'gone' || (code === 'unauthenticated' && renews);
    if (isNew && op !== 'hello' && op !== 'bye') return { then: 'reconnect' };
    const isLimited = code === 'rate_limited' && !op.startsWith('party.');
    if (repeatable && (isLimited || code === 'unavailable')) return { then: 'retry', wait_ms: retry_after_ms ?? AGAIN_MS * 2 ** (retries + 1) };
  }
  return { then: 'report' };
}

/**
 * After a lost connection.
 * @param {{op: string, repeatable: boolean, sent: boolean}} command @returns {'keep' | 'resend' | 'drop' | 'unknown_outcome'}
 */
export function afterLoss({ op, repeatable, sent }) {
  if (op === 'ack' || op === 'ping') return 'drop';
  if (!sent) return 'keep';
  return repeatable ? 'resend' : 'unknown_outcome';
}

/**
 * After a refused hello. `fresh`: the token was fetched for this attempt.
 * @param {{code: string, retry_after_ms?: number}} error @param {{renews: boolean, fresh: boolean}} token
 * @returns {{then: 'retry' | 'new_token' | 'close', wait_ms?: number}}
 */
export function afterHello({ code, retry_after_ms }, { renews, fresh }) {
  if (code === 'unauthenticated' && renews && !fresh) return { then: 'new_token' };
  return LATER.includes(code) ? { then: 'retry', wait_ms: retry_after_ms } : { then: 'close' };
}

/**
 * After a close code.
 * @param {number | null | undefined} code @param {boolean} renews @returns {{then: 'reconnect' | 'new_token' | 'close', error?: string}}
 */
export function afterClose(code, renews) {
  if (code === 4000) return { then: 'close', error: 'superseded' };
  if (code === 4001) return renews ? { then: 'new_token' } : { then: 'close', error: 'unauthenticated' };
  if (code && code > 4001 && code < 4500) return { then: 'close', error: 'gone' };
  return { then: 'reconnect' };
}

/** When a token with this much time left is renewed. @param {number} left */
export const renewAfter = (left) => Math.max(500, left - Math.min(60_000, left / 4));
