// The server: its REST API with the admin key, and one live session through the public client.
import { Tavern } from '/client.js';

const KEY = 'tavern.key';
const PATIENCE_MS = 10_000;

let key = take() ?? kept();
let live;

/** The key may come after the `#` of the address that `tavern dev` prints. It leaves the address at once. */
function take() {
  const given = /^#key=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) return undefined;
  history.replaceState(null, '', '#/');
  try {
    return keep(decodeURIComponent(given));
  } catch {
    return undefined;
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEY) ?? undefined;
  } catch {
    return undefined;
  }
}

function keep(text) {
  try {
    sessionStorage.setItem(KEY, text);
  } catch {
    // Then it lasts as long as the page.
  }
  return text;
}

export const hasKey = () => key !== undefined;

export function setKey(text) {
  forgetKey();
  key = keep(text);
}

export function forgetKey() {
  key = undefined;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There is nothing to forget.
  }
  live?.close().catch(() => {});
  live = undefined;
}

/** What the server refused, or that it did not answer. */
export class Trouble extends Error {
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.code = reason;
    const [title, advice] = WORDS[reason] ?? (status === 404 ? WORDS.not_found : ['The server refused']);
    this.title = title;
    this.advice = advice;
  }
}

const WORDS = {
  lost: ['The server does not answer', 'Is it running, and is the network there? The page tries again by itself.'],
  unauthenticated: ['This key is not known', 'Make one with `tavern key create`, or use the admin_key of the configuration.'],
  not_allowed: ['This key may not do that', 'Use a key with the scope named above.'],
  not_found: ['It is not there', 'It may have ended, or the name is another.'],
  unavailable: ['The server cannot tell now', 'Look at its log: the store or the bus does not answer.'],
  bad_request: ['The server did not understand'],
};

export async function call(method, path, { query, body, signal } = {}) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== '');
  const search = new URLSearchParams(pairs).toString();
  const limit = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let answer;
  try {
    response = await fetch(`/v1/${path}${search && '?'}${search}`, {
      method,
      cache: 'no-store',
      headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    answer = await response.json();
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new Trouble(0, 'lost', 'No answer came from this address.');
  }
  if (response.ok) return answer;
  const error = answer.error ?? {};
  throw new Trouble(response.status, error.code, error.message ?? `HTTP ${response.status}`);
}

export const get = (path, query, signal) => call('GET', path, { query, signal });
export const post = (path, body) => call('POST', path, { body });

/** A name as a part of a path. */
export const part = (name) => encodeURIComponent(name);

/** The session that hears what happens; made when first needed. */
export function hear() {
  if (!live) {
    live = new Tavern(location.origin, { token: key, storage: null });
    live.on('closed', () => (live = undefined));
    live.connect().catch(() => {});
  }
  return live;
}
