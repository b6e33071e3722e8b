// Errors for apps. `code` is for programs, `message` for people.

/** @import { Party } from '../tavern.js' */

export class TavernError extends Error {
  name = 'TavernError';

  /** @param {string} code @param {string} [message] @param {{retry_after_ms?: number, party?: Party<any> | null, cause?: unknown}} [more] */
  constructor(code, message, more = {}) {
    super(message, { cause: more.cause });
    this.code = code;
    this.retryAfterMs = more.retry_after_ms;
    this.party = more.party;
  }
}

/** The `error` member of a reply. @param {any} error @returns {TavernError} */
export const refusal = ({ code, message, ...more }) => new TavernError(code, message, more);

/** What stands in for an error when something else than Tavern answered. */
export const foreign = (status = '') => ({ code: 'unavailable', message: `${status}something else than Tavern answered; check the address`, foreign: true });

/** @param {unknown} cause */
export const noToken = (cause) => new TavernError('unavailable', `getToken failed: ${cause}`, { cause });

/** @param {string} what @param {number} [code] @param {any} [cause] */
export function unreachable(what, code, cause) {
  const why = cause?.message || (code === undefined ? 'no answer' : `closed with code ${code}`);
  return new TavernError('unreachable', `${what} failed: ${why}`, { cause });
}

export const unknownOutcome = () => new TavernError('unknown_outcome', 'the connection was lost before the reply; it may have been executed');

/** Whether a retry would fail the same way. @param {unknown} error */
export const isFinal = (error) => error instanceof TavernError && !['timeout', 'closed', 'unavailable', 'rate_limited', 'busy'].includes(error.code);

/** The result, or undefined if it throws. @template T @param {() => T} what */
export function attempt(what) {
  try {
    return what();
  } catch {
    return undefined;
  }
}
