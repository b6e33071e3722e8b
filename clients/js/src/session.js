// One session over any number of connections: connects, resumes, sends commands again, drops repeated events.
// Knows nothing about channels or parties: its owner handles events and decides what to restore.
// Must hold: an event is delivered once; a command gets one result, even if the client itself fails; no reconnect after `superseded`.

import { BYE_MS, COMMAND_MS, CONNECT_MS, FAILURES, FAILURES_WORKED, PENDING_MAX, STABLE_MS, TOKEN_MS, UPGRADE_MS } from './bounds.js';
import { TavernError, attempt, noToken, refusal, unknownOutcome, unreachable } from './errors.js';
import { afterClose, afterHello, afterLoss, afterReply, backoff, isRepeatable, renewAfter } from './rules.js';
import { LINKS, answer } from './transports.js';

/** @import { Hello, Options, State, Storage, Ticket, TransportName } from '../tavern.js' */
/** @import { Ending, Link, LinkEvents, LinkIo, Pending, SessionEvents } from './internal.js' */

const OWN_IDS = 16;
const SECRETS = ['token', 'session'];

export class Session {
  /** @type {State} */
  state = 'idle';
  /** @type {string | undefined} public id of this session */
  client;
  /** @type {string | null | undefined} */
  user;
  /** @type {string | undefined} */
  node;
  on;

  /** @type {string[]} public ids of this client's sessions */
  #own = [];
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  /** @type {Link | undefined} */
  #link;
  /** @type {any} the promise of `connect` */
  #opening;
  /** @type {TavernError | undefined} */
  #ended;
  /** @type {string | undefined} */
  #session;
  /** @type {string | undefined} */
  #token;
  /** The token was fetched for this attempt. */
  #fresh = false;
  /** @type {Map<string, number>} id of the last inbox message of each user */
  #inboxIds = new Map();
  /** @type {TavernError | undefined} of the last attempt, until one succeeds */
  #failure;
  #closing = false;
  /** @type {Set<TransportName>} */
  #worked = new Set();
  /** @type {TransportName[]} */
  #kinds;
  /** @type {Record<string, any>} */
  #timers = {};
  #restoring = false;
  #seq = 0;
  #acked = 0;
  #dialId = 0;
  #nextId = 1;
  #index = 0;
  #failures = 0;
  #attempt = 0;
  #openedAt = 0;
  #aliveAt = 0;
  #heartbeatMs = 15_000;
  /** @type {number | undefined} */
  #retryAfterMs;
  /** The longest frame that the server takes. */
  #frameBytes = Infinity;
  #base;
  #options;
  /** @type {Storage | null | undefined} */
  #storage;
  #fetch;
  #Socket;

  /** @param {string | URL | undefined} url @param {Options} options @param {SessionEvents} on */
  constructor(url, options, on) {
    this.on = on;
    this.#base = String(url).replace(/^ws/, 'http').replace(/\/+$/, '');
    if (!/^https?:\/\/./.test(this.#base) || !attempt(() => new URL(this.#base))) throw new TypeError(`${url} is not an address; use http(s)://host:port`);
    this.#options = options;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#storage = options.storage === undefined ? attempt(() => globalThis.document && sessionStorage) : options.storage;
    this.#Socket = options.WebSocket ?? globalThis.WebSocket;
    const known = /** @type {TransportName[]} */ (Object.keys(LINKS));
    const wanted = options.transports ?? known;
    for (const kind of wanted) if (!known.includes(kind)) throw new TypeError(`unknown transport ${kind}; use ${known.join(', ')}`);
    this.#kinds = wanted.filter((kind) => kind !== 'websocket' || this.#Socket);
    if (!this.#kinds.length) throw new TypeError('no WebSocket here: pass options.WebSocket or allow another transport');
    if (options.resume) [this.#session, this.#seq] = [options.resume.session, options.resume.seq];
  }

  /** @returns {TransportName | undefined} */
  get transport() {
    return this.state === 'open' ? this.#kinds[this.#index] : undefined;
  }

  /** @returns {Ticket | undefined} */
  get ticket() {
    return this.#session === undefined ? undefined : { session: this.#session, seq: this.#seq };
  }

  /** @param {string} [client] */
  isOwn(client) {
    return client !== undefined && this.#own.includes(client);
  }

  connect() {
    if (this.state === 'connecting' || this.state === 'open') return this.#opening?.promise ?? Promise.resolve();
    this.#restoring ||= this.state === 'closed';
    this.#ended = undefined;
    this.#become('connecting');
    this.#load();
    this.#watchPage(true);
    /** @type {any} */
    const opening = (this.#opening ??= {});
    opening.promise ??= new Promise((resolve, reject) => Object.assign(opening, { resolve, reject }));
    // Callers that do not await it get `closed`.
    opening.promise.catch(() => {});
    this.#attempt = this.#failures = 0;
    this.#fresh = false;
    this.#dial();
    return opening.promise;
  }

  async close() {
    if (this.state === 'closed') return;
    this.#closing = true;
    if (this.#session !== undefined) {
      const bye = this.state === 'open' ? this.call('bye') : this.#post('/v1/command', { op: 'bye', session: this.#session }, BYE_MS);
      await Promise.race([bye.catch(() => {}), new Promise((resolve) => setTimeout(resolve, BYE_MS))]);
    }
    this.#finish(new TavernError('closed', 'the client was closed'));
  }

  suspend() {
    if (this.state !== 'connecting' && this.state !== 'open') return;
    this.#save();
    this.#watchPage(false);
    this.#closeLink();
    this.#become('suspended');
    this.#release();
  }

  /** @param {string} op @param {any} [members] @param {boolean} [repeatable] @returns {Promise<any>} */
  call(op, members, repeatable = isRepeatable(op, members)) {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      if (this.#pending.size >= PENDING_MAX) return reject(new TavernError('busy', `${PENDING_MAX} commands are waiting for a reply`));
      const id = this.#nextId++;
      // Later changes of the given values change nothing.
      const text = JSON.stringify({ id, op, ...members });
      /** @type {Pending} */
      const pending = { id, op, text, repeatable, sent: false, retries: 0, timer: 0, resolve, reject };
      pending.timer = setTimeout(() => {
        this.#pending.delete(id);
        // Still wanted by the app: restore it on the next connection.
        this.#restoring = true;
        if (pending.sent && !repeatable) return reject(unknownOutcome());
        const cause = this.#failure;
        const why = this.state === 'open' ? '' : `, the client is ${this.state}: ${cause?.message ?? 'await connect()'}`;
        reject(new TavernError('timeout', `no reply to ${op} in time${why}`, { cause }));
      }, this.#options.commandTimeoutMs ?? COMMAND_MS);
      this.#pending.set(id, pending);
      this.#send(pending);
    });
  }

  /** Runs a part of the client. If it throws, nothing would run the session any more: it ends. @param {() => any} work */
  guard(work) {
    const failed = (/** @type {unknown} */ cause) => this.#finish(new TavernError('failed', `the client failed: ${cause}`, { cause }));
    try {
      const result = work();
      if (result instanceof Promise) result.catch(failed);
    } catch (cause) {
      failed(cause);
    }
  }

  get #renews() {
    return Boolean(this.#options.getToken);
  }

  /** @param {State} state */
  #become(state) {
    this.#log('state', state);
    this.state = state;
  }

  /** @param {string} what @param {any} [detail] */
  #log(what, detail) {
    const { debug } = this.#options;
    if (!debug) return;
    const known = typeof detail === 'string' && detail.startsWith('{') ? JSON.parse(detail) : detail;
    const text = typeof known === 'string' ? known : JSON.stringify(known, (name, value) => (SECRETS.includes(name) ? '…' : value));
    if (typeof debug === 'function') debug(what, text);
    else console.debug('tavern', what, text);
  }

  /** @param {Pending} pending */
  #send(pending) {
    if (this.state !== 'open' || pending.sent || !this.#link) return;
    const { id, op, text } = pending;
    // A character has at most three bytes for each of its units.
    if (text.length * 3 > this.#frameBytes && new TextEncoder().encode(text).length > this.#frameBytes) {
      this.#settle(pending);
      return pending.reject(new TavernError('too_large', `${op} has more than ${this.#frameBytes} bytes`));
    }
    pending.sent = true;
    this.#log('send', text);
    this.guard(() => this.#link?.send(text, id));
  }

  async #dial() {
    const dialId = ++this.#dialId;
    // Ignores what a link reports that was replaced.
    /** @param {(given: any) => void} what @returns {(given?: any) => void} */
    const current = (what) => (given) => {
      if (dialId === this.#dialId) this.guard(() => what(given));
    };
    let token;
    try {
      token = await this.#freshToken();
    } catch (fault) {
      return current(() => this.#onLost({ error: noToken(fault) }))();
    }
    current(() => {
      /** @type {LinkEvents} */
      const on = {
        hello: current((ok) => this.#onHello(ok)),
        frame: current((frame) => this.#onFrame(frame)),
        party: current((party) => this.on.party(party)),
        alive: current(() => (this.#aliveAt = Date.now())),
        end: current((why) => this.#onLost(why)),
      };
      this.#timer('open', this.#options.connectTimeoutMs ?? CONNECT_MS, () => this.#onLost({ reached: true, cause: new Error('no hello in time') }));
      /** @type {LinkIo} */
      const io = {
        token,
        socket: (url) => /** @type {any} */ (new this.#Socket(url)),
        ticket: () => this.ticket,
        pollMs: () => Math.min(this.#heartbeatMs, 15_000),
        address: (path, query) => this.#address(path, query),
        post: (path, body, ms, signal) => this.#post(path, body, ms, signal),
        get: (path, headers, signal) => this.#fetch(this.#address(path), { headers: { ...this.#headers(), ...headers }, cache: 'no-store', signal }),
      };
      this.#log('dial', `${this.#kinds[this.#index]} to ${this.#base}`);
      try {
        this.#link = LINKS[this.#kinds[this.#index]](io, on);
      } catch (cause) {
        on.end({ cause });
      }
    })();
  }

  /** @param {Hello} ok */
  #onHello(ok) {
    this.#log('hello', ok);
    const had = this.#session !== undefined;
    const kept = ok.resumed && !ok.reset;
    this.#timer('open');
    this.#session = ok.session;
    if (!kept) this.#seq = 0;
    this.#acked = this.#seq;
    [this.client, this.user, this.node, this.#heartbeatMs] = [ok.client, ok.user, ok.node, ok.heartbeat_ms];
    if (!this.isOwn(ok.client)) this.#own = [...this.#own, ok.client].slice(-OWN_IDS);
    this.#frameBytes = ok.frame_bytes ?? Infinity;
    this.#failures = 0;
    this.#fresh = false;
    this.#failure = this.#retryAfterMs = undefined;
    this.#openedAt = this.#aliveAt = Date.now();
    this.#become('open');
    const kind = this.#kinds[this.#index];
    const stands = this.#index > 0 && this.#worked.has(this.#kinds[0]) && !this.#worked.has(kind);
    this.#worked.add(kind);
    if (stands) {
      this.#timer('upgrade', UPGRADE_MS * (1 + Math.random()), () => {
        this.#index = 0;
        this.#onLost({});
      });
    }
    this.#heartbeat(Date.now(), true);
    this.#renewLater();
    if (this.#options.statuses) this.loadStatuses();
    // Before waiting commands are sent: they may depend on the channels.
    const restored = this.#restoring || (had && !kept) ? this.on.restore() : undefined;
    this.#restoring = false;
    for (const pending of [...this.#pending.values()]) this.#send(pending);
    const opening = this.#opening;
    this.#opening = undefined;
    if (opening) this.on.change('open', { resumed: had && kept });
    opening?.resolve();
    if (had && kept) this.on.change('resumed');
    this.on.party(ok.party);
    this.guard(() => restored?.then((failed) => kept || this.on.change('reset', { failed })));
  }

  /** Asks for the statuses of all followed users, if the app wants them. */
  loadStatuses() {
    if (this.#options.statuses) this.call('hello', { status: true }, false).catch(() => {});
  }

  /** @param {any} frame */
  #onFrame(frame) {
    this.#log('receive', frame);
    if (frame.event !== undefined) return this.#onEvent(frame);
    const pending = this.#pending.get(frame.id);
    if (!pending?.sent) return;
    if (frame.error) return this.#onError(pending, frame.error);
    this.#settle(pending);
    pending.resolve(frame.ok);
  }

  /** @param {Pending} pending */
  #settle(pending) {
    clearTimeout(pending.timer);
    this.#pending.delete(pending.id);
  }

  /** @param {Pending} pending @param {any} error */
  #onError(pending, error) {
    const { op, repeatable, retries } = pending;
    const { then, wait_ms } = afterReply({ op, repeatable, renews: this.#renews, retries }, error);
    if (then === 'report') {
      this.#settle(pending);
      return pending.reject(refusal(error));
    }
    pending.retries++;
    pending.sent = false;
    if (then === 'reconnect') {
      if (op === 'ack') this.#settle(pending);
      return this.#onLost(error.code === 'gone' ? {} : { error: refusal(error) });
    }
    setTimeout(() => this.guard(() => this.#pending.has(pending.id) && this.#send(pending)), wait_ms);
  }

  /** @param {any} event */
  #onEvent(event) {
    if (event.seq !== undefined) {
      if (event.seq <= this.#seq) return;
      this.#seq = event.seq;
    }
    if (event.message_id !== undefined) {
      const user = this.user ?? '';
      if (event.message_id <= (this.#inboxIds.get(user) ?? 0)) return;
      this.#inboxIds.set(user, event.message_id);
    }
    if (event.event === 'superseded') {
      this.on.change('superseded');
      return this.#finish(new TavernError('superseded', 'another connection took over this session'));
    }
    if (event.event === 'closing') {
      this.#retryAfterMs = event.reconnect_after_ms;
      return this.on.change('closing', { reconnectAfterMs: event.reconnect_after_ms });
    }
    this.on.event(event);
  }

  /** Gives up or schedules the next attempt. @param {Ending} why */
  #onLost({ code, error, reached, cause }) {
    this.#log('lost', { code, error: error?.message, cause: cause && String(cause) });
    const opened = this.state === 'open';
    const kind = this.#kinds[this.#index];
    this.#closeLink();
    this.#become('connecting');
    const closed = afterClose(code, this.#renews);
    if (closed.error === 'superseded') return this.#onEvent({ event: 'superseded' });
    if (closed.error === 'unauthenticated') return this.#finish(new TavernError('unauthenticated', 'the token has expired; pass getToken'));
    if (closed.error) return this.#finish(new TavernError(closed.error, `the server closed the connection for good, with code ${code}`));
    let wait = this.#retryAfterMs ?? 0;
    let atOnce = false;
    if (closed.then === 'new_token') this.#token = undefined;
    if (error) {
      const { then, wait_ms = 0 } = afterHello({ code: error.code, retry_after_ms: error.retryAfterMs }, { renews: this.#renews, fresh: this.#fresh });
      if (then === 'close') return this.#finish(error);
      if (error.code === 'unauthenticated') this.#token = undefined;
      atOnce = then === 'new_token' && !opened;
      wait = wait_ms;
    }
    if (opened) {
      if (Date.now() - this.#openedAt >= STABLE_MS) this.#attempt = 0;
      this.#release();
      this.on.change('reconnecting', { code, error });
      if (this.state !== 'connecting') return;
    } else if (error && !reached) {
      // A refusal of the server: not the fault of this transport.
    } else if (kind === 'websocket' || reached) {
      if (++this.#failures >= (this.#worked.has(kind) ? FAILURES_WORKED : FAILURES)) this.#use(this.#index + 1);
    } else {
      // No server answered at all: not the fault of this transport either.
      this.#use(0);
    }
    // The server has spread the waits of its clients before it stops.
    if (this.#retryAfterMs === undefined && !atOnce) wait = backoff(++this.#attempt, Math.random(), wait);
    this.#retryAfterMs = undefined;
    this.#timer('retry', wait, () => this.#dial());
    if (!opened) this.#failed(error ?? unreachable(`${kind} to ${this.#base}`, code, cause), wait);
  }

  /** Reports every failure as an event, and the first until the next success in the console. @param {TavernError} error @param {number} [retryInMs] */
  #failed(error, retryInMs) {
    // The stream of a session may end before the reply to its `bye` arrives.
    if (this.#closing) return;
    if (!this.#failure) console.warn(`tavern: ${error.message}${retryInMs === undefined ? '' : '; the client keeps trying'}`);
    this.#failure = error;
    this.on.change('error', { error, retryInMs });
  }

  /** @param {number} at the next transport in turn */
  #use(at) {
    this.#failures = 0;
    this.#index = at % this.#kinds.length;
  }

  /** After a lost link: fails sent commands that are not safe to repeat. */
  #release() {
    for (const pending of [...this.#pending.values()]) {
      const then = afterLoss(pending);
      if (then === 'drop' || then === 'unknown_outcome') {
        this.#settle(pending);
        pending.reject(unknownOutcome());
      }
      pending.sent = false;
    }
  }

  #closeLink() {
    this.#dialId++;
    for (const name of Object.keys(this.#timers)) this.#timer(name);
    const link = this.#link;
    this.#link = undefined;
    attempt(() => link?.close());
  }

  /** Ends the session for good. @param {TavernError} why */
  #finish(why) {
    if (this.state === 'closed') return;
    this.#closeLink();
    this.#watchPage(false);
    this.#become('closed');
    this.#closing = false;
    this.#ended = why;
    if (!['closed', 'superseded'].includes(why.code)) console.warn(`tavern: ${why.message}; the client is closed`);
    [this.#session, this.#seq] = [undefined, 0];
    for (const pending of [...this.#pending.values()]) {
      this.#settle(pending);
      pending.reject(pending.sent && !pending.repeatable && why.code !== 'failed' ? unknownOutcome() : why);
    }
    this.#opening?.reject(why);
    this.#opening = undefined;
    this.on.change('closed', { code: why.code, error: why });
  }

  /** @param {number} last @param {boolean} even */
  #heartbeat(last, even) {
    const half = this.#heartbeatMs / 2;
    this.#timer('beat', half, () => {
      const now = Date.now();
      // The page was suspended; the link may still be alive.
      const late = now - last > half * 2;
      if (!late && now - this.#aliveAt > this.#heartbeatMs * 2) return this.#onLost({});
      if (even || late) this.#ack();
      this.#heartbeat(now, !even);
    });
  }

  #ack() {
    const seq = this.#seq;
    const kind = this.transport;
    // Pages cannot see pings: the reply shows that the link is alive.
    if (!kind || kind === 'poll' || (kind === 'sse' && seq === this.#acked)) return;
    this.call('ack', { seq }).then(() => (this.#acked = seq), () => {});
  }

  /** @returns {Promise<string | undefined>} a token that has not expired */
  async #freshToken() {
    const { token, getToken } = this.#options;
    if (!getToken) return (this.#token = token);
    const ends = expiry(this.#token);
    if (this.#token === undefined || (ends !== undefined && ends - Date.now() < 1000)) {
      this.#token = await this.#newToken();
      this.#fresh = true;
    }
    return this.#token;
  }

  /** @returns {Promise<string>} */
  async #newToken() {
    /** @type {any} */
    let timer;
    const late = new Promise((_, reject) => (timer = setTimeout(reject, TOKEN_MS, new Error('no token in time'))));
    try {
      const token = await Promise.race([this.#options.getToken?.(), late]);
      if (typeof token !== 'string') throw new TypeError(`it gave ${token === null ? token : typeof token} instead of a string`);
      return token;
    } finally {
      clearTimeout(timer);
    }
  }

  #renewLater() {
    const ends = expiry(this.#token);
    if (ends === undefined || !this.#renews) return;
    this.#timer('renew', renewAfter(ends - Date.now()), async () => {
      const dialId = this.#dialId;
      try {
        const token = await this.#newToken();
        if (dialId !== this.#dialId) return;
        this.#token = token;
        await this.call('hello', { token }, false);
      } catch (fault) {
        // The old token may still be valid.
        if (this.state === 'open') this.#failed(fault instanceof TavernError ? fault : noToken(fault));
      }
      if (dialId === this.#dialId) this.#renewLater();
    });
  }

  /** @param {string} path @param {Record<string, any>} [query] */
  #address(path, query = {}) {
    const pairs = Object.entries({ user: this.#options.user, ...query }).filter(([, value]) => value !== undefined);
    const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
    return `${this.#base}${path}${text && '?'}${text}`;
  }

  /** @returns {Record<string, string>} */
  #headers() {
    return this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` };
  }

  /** @param {string} path @param {any} body @param {number} ms @param {AbortSignal} [signal] */
  async #post(path, body, ms, signal) {
    const limit = AbortSignal.timeout(ms);
    const response = await this.#fetch(this.#address(path), {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...this.#headers() },
      body: JSON.stringify(body),
      cache: 'no-store',
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
    });
    return answer(response);
  }

  /** @param {string} name @param {number} [ms] @param {() => any} [due] */
  #timer(name, ms, due) {
    clearTimeout(this.#timers[name]);
    delete this.#timers[name];
    if (due) this.#timers[name] = setTimeout(() => this.guard(due), Math.min(ms ?? 0, 2 ** 31 - 1));
  }

  /** @param {boolean} on */
  #watchPage(on) {
    const page = /** @type {any} */ (globalThis);
    if (!page.document || !page.addEventListener) return;
    const change = on ? 'addEventListener' : 'removeEventListener';
    for (const type of ['online', 'pagehide', 'pageshow']) page[change](type, this.#onPage);
    page.document[change]('visibilitychange', this.#onPage);
  }

  /** @param {any} event */
  #onPage = (event) => {
    this.guard(() => {
      if (event.type === 'pagehide') {
        this.#save();
        this.#closeLink();
        this.#become('connecting');
        this.#release();
      } else if (event.type === 'pageshow') {
        if (!event.persisted) return;
        this.#load();
        this.#dial();
      } else if (event.type === 'online' || !globalThis.document.hidden) {
        if (this.#timers.retry) {
          this.#timer('retry');
          this.#attempt = 0;
          this.#dial();
        } else {
          this.#ack();
        }
      }
    });
  };

  get #key() {
    return `tavern ${this.#base} ${this.#options.user ?? ''}`;
  }

  // Saved only when the page goes away, removed when loaded: a duplicated tab gets its own session.
  #save() {
    const kept = { ...this.ticket, inbox: [...this.#inboxIds], transport: this.#kinds[this.#index] };
    attempt(() => this.#storage?.setItem(this.#key, JSON.stringify(kept)));
  }

  #load() {
    const kept = attempt(() => JSON.parse(this.#storage?.getItem(this.#key) ?? 'null'));
    attempt(() => this.#storage?.removeItem(this.#key));
    if (!kept || this.#session !== undefined) return;
    if (typeof kept.session === 'string' && Number.isSafeInteger(kept.seq)) [this.#session, this.#seq] = [kept.session, kept.seq];
    attempt(() => new Map(kept.inbox).forEach((id, user) => this.#inboxIds.set(user, id)));
    this.#index = Math.max(0, this.#kinds.indexOf(kept.transport));
  }
}

/** @param {string | undefined} token @returns {number | undefined} when it expires */
function expiry(token) {
  const exp = attempt(() => JSON.parse(atob((token ?? '').split('.')[1].replace(/-/g, '+').replace(/_/g, '/'))).exp);
  return Number.isFinite(exp) ? exp * 1000 : undefined;
}
