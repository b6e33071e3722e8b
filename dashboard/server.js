// Access to the server: the REST API with the API key, and one live session of the public client.
import { Tavern } from '/client.js';

const KEY = 'tavern.key';
const TIMEOUT_MS = 10_000;

// Of a link that `tavern dashboard` printed.
let code;
let key = take() ?? kept();
let live;

/** Reads the key from the `#key=` URL that `tavern dev` prints, or the code of a link, and removes it from the URL. */
function take() {
  const [, kind, given] = /^#(key|code)=(.+)$/.exec(location.hash) ?? [];
  if (given === undefined) return undefined;
  history.replaceState(null, '', '#/');
  try {
    if (kind === 'key') return keep(decodeURIComponent(given));
    code = decodeURIComponent(given);
  } catch {
    // It is no key and no code.
  }
  return undefined;
}

/** Exchanges the code of a link, if there is one, for a key. */
export async function redeem() {
  if (code === undefined) return;
  const given = code;
  code = undefined;
  forgetKey();
  setKey((await call('POST', 'dashboard/sign-in', { body: { code: given } })).key);
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
    // Without storage the key lasts as long as the page.
  }
  return text;
}

export const hasKey = () => key !== undefined;

let rights = { key: null, scopes: [] };
/** The id and the scopes of the key. */
export const own = () => rights;
/** Whether the key has one of these scopes. */
export const may = (...scopes) => scopes.some((scope) => rights.scopes.includes(scope));
export const learnRights = async () => (rights = await get('whoami'));

export function setKey(text) {
  forgetKey();
  key = keep(text);
}

export function forgetKey() {
  key = undefined;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Without storage there is nothing to remove.
  }
  live?.close().catch(() => {});
  live = undefined;
}

/** An error reply, or no reply, from the server. */
export class ServerError extends Error {
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.code = reason;
    const [title, advice] = MESSAGES[reason] ?? (status === 404 ? MESSAGES.not_found : ['The server refused the request']);
    this.title = title;
    this.advice = advice;
  }
}

const MESSAGES = {
  lost: ['The server does not answer', 'Check that it is running and reachable. The page retries automatically.'],
  unauthenticated: ['This key is not valid', 'Create one with `tavern key create`, or use the admin_key of the configuration.'],
  not_allowed: ['This key is not allowed to do that', 'Use a key with the scope named above.'],
  not_found: ['Not found', 'It may have ended, or the name is different.'],
  unavailable: ['The server cannot answer now', 'The store or the bus does not respond; see the server log.'],
  bad_request: ['The request is not valid'],
};

/** `wait`: how long the server itself may take. */
export async function call(method, path, { query, body, signal, wait = 0 } = {}) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== '');
  const search = new URLSearchParams(pairs).toString();
  const limit = AbortSignal.timeout(TIMEOUT_MS + wait);
  let response;
  let answer;
  try {
    response = await fetch(`/v1/${path}${search && '?'}${search}`, {
      method,
      cache: 'no-store',
      headers: { ...(key && { authorization: `Bearer ${key}` }), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    answer = await response.json();
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new ServerError(0, 'lost', 'No response from this address.');
  }
  if (response.ok) return answer;
  const error = answer.error ?? {};
  throw new ServerError(response.status, error.code, error.message ?? `HTTP ${response.status}`);
}

export const get = (path, query, signal) => call('GET', path, { query, signal });
export const post = (path, body) => call('POST', path, { body });

/** Reads a response of JSON lines until it ends. */
export async function lines(path, query, signal, take) {
  const pairs = Object.entries(query).filter(([, value]) => value !== '');
  let reader;
  try {
    const response = await fetch(`/v1/${path}?${new URLSearchParams(pairs)}`, { cache: 'no-store', headers: key ? { authorization: `Bearer ${key}` } : {}, signal });
    if (!response.ok) {
      const { error } = await response.json();
      throw new ServerError(response.status, error.code, error.message);
    }
    reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const found = (rest + value).split('\n');
      rest = found.pop();
      found.forEach((line) => take(JSON.parse(line)));
    }
  } catch (fault) {
    if (signal.aborted || fault instanceof ServerError) throw fault;
    throw new ServerError(0, 'lost', 'No response from this address.');
  }
}

/** Encodes a name for a URL path. */
export const part = (name) => encodeURIComponent(name);

/** The live session; created on first use. */
export function liveClient() {
  if (!live) {
    live = new Tavern(location.origin, { token: key, storage: null });
    live.on('closed', () => (live = undefined));
    live.connect().catch(() => {});
  }
  return live;
}
