// The Tavern client: one session over WebSocket, SSE or long-poll.
// Must hold: each event is emitted once and in order, or `gap` or `reset` reports a loss; subscriptions and presence are restored
// after a reconnect; no reconnect after `superseded`.

const PENDING_MAX = 1000; // Commands waiting for a reply.
const HELD_MAX = 1024; // Events buffered until the first listener or a snapshot.
const UNREAD_MAX = 4096; // Events buffered for an iterator.
const BLOCK_MAX = 8 << 20; // Characters of one SSE event.
const BACKOFF_MS = 250;
const BACKOFF_MAX_MS = 20_000;
const STABLE_MS = 5_000; // A link that lasted this long resets the backoff.
const UPGRADE_MS = 30_000; // When the best transport is tried again.
const TRIES_MAX = 5;

/** @import { LinkEvents, Ending, From, Hello, HistoryPage, LinkIo, SessionStorage, Link, Listener, Message, Options, Part, Party, PartyCommands, Pending, Position, PresenceUser, Published, State, Status, Ticket, TransportName, Users } from './types.js' */

export class TavernError extends Error {
  name = 'TavernError';

  /** @param {string} code @param {string} [message] @param {{retry_after_ms?: number, party?: Party | null, cause?: unknown}} [more] */
  constructor(code, message, more = {}) {
    super(message, { cause: more.cause });
    this.code = code;
    this.retryAfterMs = more.retry_after_ms;
    this.party = more.party;
  }
}

export class Emitter {
  /** @type {Map<string, Set<Listener>>} */
  #listeners = new Map();

  /** @param {string} type @param {Listener} listener */
  on(type, listener) {
    let all = this.#listeners.get(type);
    if (!all) this.#listeners.set(type, (all = new Set()));
    all.add(listener);
    return this;
  }

  /** @param {string} type @param {Listener} listener */
  off(type, listener) {
    this.#listeners.get(type)?.delete(listener);
    return this;
  }

  /** @param {string} type @param {Listener} [listener] @returns {Promise<any>} */
  once(type, listener) {
    return new Promise((resolve) => {
      /** @param {any} event */
      const handler = (event) => {
        this.off(type, handler);
        listener?.(event);
        resolve(event);
      };
      this.on(type, handler);
    });
  }

  /** @param {string} type @param {any} [event] */
  emit(type, event) {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
      try {
        listener(event);
      } catch (fault) {
        queueMicrotask(() => {
          throw fault;
        });
      }
    }
  }
}

/** @param {Emitter} source @param {string} type @param {Tavern} client @returns {AsyncIterableIterator<any>} */
function iterate(source, type, client) {
  /** @type {any[]} */
  const unread = [];
  /** @type {((result: IteratorResult<any>) => void)[]} */
  const waiting = [];
  let over = client.state === 'closed';
  /** @type {TavernError | undefined} */
  let fault;
  /** @param {any} event */
  const push = (event) => {
    const reader = waiting.shift();
    if (reader) return reader({ value: event, done: false });
    if (unread.push(event) <= UNREAD_MAX) return;
    fault = new TavernError('overflow', `the iterator is more than ${UNREAD_MAX} events behind`);
    unread.length = 0;
    end();
  };
  const end = () => {
    over = true;
    source.off(type, push);
    client.off('closed', end);
    for (const reader of waiting.splice(0)) reader({ value: undefined, done: true });
  };
  source.on(type, push);
  client.on('closed', end);
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next() {
      if (unread.length) return Promise.resolve({ value: unread.shift(), done: false });
      if (fault) {
        const error = fault;
        fault = undefined;
        return Promise.reject(error);
      }
      if (over) return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve) => waiting.push(resolve));
    },
    return() {
      end();
      return Promise.resolve({ value: undefined, done: true });
    },
  };
}

/** Who is in a channel: a snapshot plus the changes since. Emits `change`. */
export class Presence extends Emitter {
  /** @type {Map<string, PresenceUser>} */
  users = new Map();
  /** @type {'full' | 'coalesced' | 'counts'} */
  mode = 'full';
  /** @type {number | undefined} undefined while waiting for a snapshot */
  version;
  /** Users who are present but not named. */
  #anonymous = 0;
  /** @type {any[]} */
  #waiting = [];
  #refresh;
  #client;

  /** @param {Tavern} client @param {() => void} refresh requests a new snapshot */
  constructor(client, refresh) {
    super();
    this.#client = client;
    this.#refresh = refresh;
  }

  get count() {
    return this.users.size + this.#anonymous;
  }

  /** @param {string} user */
  get(user) {
    return this.users.get(user);
  }

  [Symbol.asyncIterator]() {
    return iterate(this, 'change', this.#client);
  }

  invalidate() {
    this.version = undefined;
    this.#waiting = [];
  }

  /** @param {any} members `members` of the reply */
  snapshot(members) {
    this.users.clear();
    for (const { user, name, clients, leaving } of members.users ?? []) {
      if (user === null) continue;
      const entry = this.#ensure(user, name);
      for (const { client, state } of clients) {
        entry.clients.set(client, state);
        entry.state = state;
      }
      entry.leaving = leaving === true;
    }
    this.#anonymous = members.count - this.users.size;
    this.mode = members.users ? 'full' : 'counts';
    this.version = members.version;
    this.emit('change', { event: 'snapshot' });
    for (const event of this.#waiting.splice(0)) if (event.version > members.version) this.receive(event);
  }

  /** @param {any} event */
  receive(event) {
    if (event.event === 'presence_mode') {
      this.mode = event.mode;
      this.emit('change', event);
      return;
    }
    if (this.version === undefined) {
      // Over HTTP, changes can arrive before the snapshot they follow.
      if (this.#waiting.push(event) > HELD_MAX) this.#waiting.shift();
      return;
    }
    const from = event.from_version ?? event.version - 1;
    if (this.count > 0) {
      if (event.version <= this.version) return;
      if (from > this.version) {
        this.invalidate();
        this.#waiting.push(event);
        this.#refresh();
        return;
      }
    }
    this.version = event.version;
    this.#apply(event);
    this.emit('change', event);
  }

  /** @param {any} event */
  #apply(event) {
    const { user, client } = event;
    switch (event.event) {
      case 'user_online':
        if (user === null) this.#anonymous++;
        else this.#ensure(user, event.name);
        break;
      case 'user_offline':
        if (user === null) this.#anonymous = Math.max(0, this.#anonymous - 1);
        else this.users.delete(user);
        break;
      case 'client_offline':
        this.#offline(event);
        break;
      case 'presence':
        for (const one of event.left ?? []) {
          if (one.client === undefined) this.users.delete(one.user);
          else this.#offline(one);
        }
        for (const one of [...(event.joined ?? []), ...(event.updated ?? [])]) this.#online(one);
        this.#anonymous = Math.max(0, event.count - this.users.size);
        if (!event.joined && this.#anonymous > 0) this.mode = 'counts';
        else if (event.joined && this.mode === 'full' && event.version - event.from_version > 1) this.mode = 'coalesced';
        break;
      default:
        if (client) this.#online(event);
    }
  }

  /** @param {any} entry */
  #online({ user, client, state }) {
    if (user === null) return;
    const entry = this.#ensure(user);
    if (client === undefined) {
      entry.leaving = true;
      return;
    }
    entry.clients.set(client, state);
    entry.state = state;
    entry.leaving = false;
  }

  /** @param {any} entry */
  #offline({ user, client }) {
    const entry = this.users.get(user);
    if (!entry) return;
    entry.clients.delete(client);
    entry.leaving = entry.clients.size === 0;
    entry.state = [...entry.clients.values()].pop();
  }

  /** @param {string} user @param {string | null} [name] @returns {PresenceUser} */
  #ensure(user, name = null) {
    let entry = this.users.get(user);
    if (!entry) this.users.set(user, (entry = { user, name, clients: new Map(), state: undefined, leaving: false }));
    entry.name ??= name;
    return entry;
  }
}

/** Emits `message`, `gap`, `revoked`, and `recovered` when a new session has asked for what was missed. */
export class Channel extends Emitter {
  #client;
  #listens = false;
  /** @type {Position | undefined} of the last message; only with history */
  #position;
  /** Messages are missing: the server is asked for them. */
  #heals = false;
  /** A gap was announced: any later message may follow. */
  #jumps = false;
  /** @type {{state: any} | undefined} */
  #joined;
  /** @type {Presence | undefined} */
  #presence;
  /** @type {Message[] | undefined} messages before the first listener, as after a page load */
  #held = [];

  /** @param {Tavern} client @param {string} name */
  constructor(client, name) {
    super();
    this.#client = client;
    this.name = name;
    /** The channel that the authorize hook chose; usually the same. */
    this.actual = name;
  }

  /** @override @param {string} type @param {Listener} listener */
  on(type, listener) {
    super.on(type, listener);
    if (type === 'message' && this.#held) {
      const held = this.#held;
      this.#held = undefined;
      for (const message of held) this.emit('message', message);
    }
    return this;
  }

  /** Where this client is in the history of the channel. */
  get position() {
    return this.#position;
  }

  /** @param {((message: Message) => void) | From} [listener] @param {From} [from] with the last messages, or after a position */
  async subscribe(listener, from = {}) {
    if (typeof listener === 'function') this.on('message', listener);
    else from = listener ?? from;
    this.#listens = true;
    try {
      await this.#listen(from);
    } catch (error) {
      if (final(error)) this.#listens = false;
      throw error;
    }
  }

  /** Stops messages and presence events. */
  async unsubscribe() {
    this.#listens = false;
    this.#presence = this.#position = undefined;
    await this.#client.call('unsubscribe', { channel: this.actual });
  }

  /**
   * @param {any} data any JSON @param {{id?: string, retain?: boolean}} [options] with an id it is retried, and published once if the
   * channel has history @returns {Promise<Published>}
   */
  publish(data, { id, retain } = {}) {
    return this.#client.call('publish', { channel: this.name, data, message_id: id, retain }, id !== undefined);
  }

  /** @param {{after?: number, before?: number, limit?: number}} [part] @returns {Promise<HistoryPage>} */
  history(part) {
    return this.#client.call('history', { channel: this.name, ...part });
  }

  /** @param {any} [state] */
  join(state) {
    return this.#setState('join', state);
  }

  /** @param {any} state */
  update(state) {
    return this.#setState('update', state);
  }

  /** @param {string} op @param {any} state @returns {Promise<void>} */
  async #setState(op, state) {
    const joined = (this.#joined = { state });
    try {
      await this.#client.call(op, { channel: this.name, state });
    } catch (error) {
      if (final(error) && this.#joined === joined) this.#joined = undefined;
      throw error;
    }
  }

  async leave() {
    this.#joined = undefined;
    await this.#client.call('leave', { channel: this.name });
  }

  /** @param {Part} [part] @returns {Promise<any>} */
  who(part) {
    return this.#client.call('who', { channel: this.name, ...part });
  }

  /** Starts watching presence. @returns {Promise<Presence>} */
  async presence() {
    const known = this.#presence;
    if (known?.version !== undefined) return known;
    const presence = (this.#presence ??= new Presence(this.#client, () => this.refresh()));
    try {
      await this.#listen();
    } catch (error) {
      if (final(error) && this.#presence === presence) this.#presence = undefined;
      throw error;
    }
    return presence;
  }

  [Symbol.asyncIterator]() {
    return iterate(this, 'message', this.#client);
  }

  /** @param {From} [from] */
  async #listen(from) {
    const presence = this.#presence;
    const known = this.#position;
    // Over HTTP messages may arrive before the reply.
    if (from && !this.#heals) this.#position = undefined;
    let ok;
    try {
      ok = await this.#client.call('subscribe', { channel: this.name, presence: presence ? true : undefined, ...from });
    } catch (error) {
      this.#position ??= known;
      throw error;
    }
    const { epoch, offset, recovered } = ok;
    if (epoch !== undefined && (!this.#position || recovered === false)) this.#position = { epoch, offset };
    if (recovered !== undefined) this.emit('recovered', { recovered });
    if (recovered === false) this.emit('gap', { event: 'gap', channel: this.name });
    if (ok.channel) this.#client.alias(ok.channel, this);
    if (presence && ok.members && presence === this.#presence) presence.snapshot(ok.members);
  }

  /** Events were lost: loads presence again. */
  refresh() {
    this.#presence?.invalidate();
    if (this.#presence) this.#listen().catch(() => {});
  }

  /** @returns {Promise<any>[]} */
  restore() {
    const asked = [];
    const since = this.#position;
    if (this.#presence) this.#presence.invalidate();
    if (this.#presence || this.#listens) asked.push(this.#listen(since && { since }));
    if (this.#joined) asked.push(this.join(this.#joined.state));
    return asked;
  }

  /** A fresh token does not allow this any more. @param {any} event */
  revoked(event) {
    if (event.verb === 'join') this.#joined = undefined;
    else this.#presence = undefined;
    if (event.verb === 'subscribe') this.#listens = false;
    this.emit('revoked', event);
  }

  /** Whether a message is the next one in the history. @param {Message} message */
  #follows({ epoch, offset }) {
    const known = this.#position;
    if (epoch === undefined || offset === undefined) return true;
    if (known && (epoch < known.epoch || (epoch === known.epoch && offset <= known.offset))) return false;
    if (known && epoch === known.epoch && offset > known.offset + 1 && !this.#jumps) {
      if (!this.#heals) {
        this.#heals = true;
        this.#listen({ since: known }).catch(() => {}).finally(() => (this.#heals = false));
      }
      return false;
    }
    this.#position = { epoch, offset };
    return !(this.#jumps = false);
  }

  /** @param {any} event */
  missed(event) {
    this.#jumps ||= event.channel !== undefined;
    this.refresh();
    this.emit('gap', event);
  }

  /** @param {any} event @returns {boolean} false: it is not new */
  receive(event) {
    if (event.event !== 'message') this.#presence?.receive(event);
    else if (!this.#follows(event)) return false;
    else if (!this.#held) this.emit('message', event);
    else if (this.#held.push(event) > HELD_MAX) this.#held.shift();
    return true;
  }
}

/** Emits `status`, `statuses` and `inbox`. */
export class Me extends Emitter {
  #client;

  /** @param {Tavern} client */
  constructor(client) {
    super();
    this.#client = client;
  }

  /** @param {string[]} users @returns {Promise<Status[]>} */
  async status(users) {
    return (await this.#client.call('status', { users })).statuses;
  }

  /** @param {string} user */
  async follow(user) {
    await this.#client.call('follow', { user });
  }

  /** @param {string} user */
  async unfollow(user) {
    await this.#client.call('unfollow', { user });
  }

  /** @param {Part} [part] @returns {Promise<Users>} */
  following(part) {
    return this.#client.call('following', { ...part });
  }

  /** @param {Part} [part] @returns {Promise<Users>} */
  followers(part) {
    return this.#client.call('followers', { ...part });
  }

  /** @param {'everyone' | 'followers_i_follow' | 'nobody'} value */
  async visibility(value) {
    await this.#client.call('visibility', { value });
  }
}

const PARTY = {
  invite: ['user'],
  cancelInvite: ['user'],
  accept: ['party_id'],
  decline: ['party_id', 'message'],
  kick: ['user', 'message'],
  leave: ['message'],
  promote: ['user'],
  disband: ['message'],
  setData: ['data'],
  go: ['params'],
  cancelGo: [],
  ready: ['go_id'],
  block: ['user'],
  unblock: ['user'],
  say: ['data'],
};

/** The user's party. Emits each party event under its `cmd`, and `change`. A request id makes commands safe to retry. */
export class PartyClient extends Emitter {
  /** @type {Party | null} */
  current = null;
  /** @type {Map<number, any>} open invites by party */
  invites = new Map();
  #client;
  #reloads = 0;

  /** @param {Tavern} client */
  constructor(client) {
    super();
    this.#client = client;
    for (const [name, members] of Object.entries(PARTY)) {
      /** @param {any[]} given */
      const command = (...given) => this.#command(name, Object.fromEntries(members.map((member, at) => [member, given[at]])));
      Object.assign(this, { [name]: command });
    }
  }

  /** @returns {Promise<Party | null>} */
  async get() {
    await this.#command('get', {});
    return this.current;
  }

  /** @param {string} name @param {any} members @returns {Promise<any>} */
  async #command(name, members) {
    const op = `party.${name.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`)}`;
    try {
      // A message that is said twice is seen twice.
      const ok = await this.#client.call(op, { ...members, rid: name === 'get' ? undefined : requestId() }, name !== 'say');
      if (name === 'accept' || name === 'decline') this.invites.delete(members.party_id);
      if (ok.party !== undefined) this.#set(ok.party);
      else if (!['get', 'say', 'block', 'unblock'].includes(name)) this.#reload();
      return ok;
    } catch (error) {
      if (error instanceof TavernError && error.party !== undefined) this.#set(error.party);
      throw error;
    }
  }

  /** The snapshot may be older than the last reply. @param {Party | null} [party] */
  snapshot(party) {
    if (party === undefined) return;
    if (party?.party_id === this.current?.party_id) this.#set(party);
    else this.#reload();
  }

  /** @param {Party | null} party */
  #set(party) {
    const now = this.current;
    if (party === now || (party && now && party.party_id === now.party_id && party.version < now.version)) return;
    this.current = party;
    this.emit('change', party);
  }

  /** Loads the party; loads it once more if called during a load. */
  async #reload() {
    if (this.#reloads++) return;
    for (let seen = 0; seen !== this.#reloads; ) {
      seen = this.#reloads;
      await this.get().catch(() => {});
    }
    this.#reloads = 0;
  }

  /** Applies an event to the snapshot, or reloads it. @param {any} event */
  receive(event) {
    const { cmd, party_id, version } = event;
    const party = this.current;
    if (cmd === 'invite') this.invites.set(party_id, event);
    else if (cmd === 'invite_cancel') this.invites.delete(party_id);
    else if (party && party.party_id === party_id) {
      const next = version > party.version + 1 ? undefined : fold(party, event, this.#client.user);
      if (version > party.version) next === undefined ? this.#reload() : this.#set(next);
    } else if (!['decline', 'kick', 'leave', 'disband'].includes(cmd)) this.#reload();
    this.emit(cmd, event);
  }
}

/**
 * The party after an event with the next version; undefined: the event does not say enough.
 * @param {Party} party @param {any} event @param {string | null | undefined} me @returns {Party | null | undefined}
 */
export function fold(party, event, me) {
  const { cmd, uid } = event;
  let { members, pending, state, go_id, ...rest } = party;
  const others = members.filter((member) => member.user !== uid);
  const uninvited = pending.filter((invite) => invite.user !== uid);
  switch (cmd) {
    case 'accept':
    case 'join':
      // For a user without a display name the server sends their id.
      members = [...others, { user: uid, name: event.user === uid ? null : event.user, online: true, since: event.ts }];
      pending = uninvited;
      state = 'idle';
      break;
    case 'invited':
      pending = [...pending, { user: event.invitee, by: uid, expires_at: event.expires_at }];
      break;
    case 'decline':
    case 'uninvited':
      pending = uninvited;
      break;
    case 'kick':
    case 'disband':
      return null;
    case 'leave':
      if (uid === me) return null;
      members = others;
      if (members.length === 1) state = 'forming';
      break;
    case 'leader':
      members = [...members.filter((member) => member.user === uid), ...others];
      break;
    case 'online':
    case 'offline':
      members = members.map((member) => (member.user === uid ? { ...member, online: cmd === 'online' } : member));
      break;
    case 'data':
      rest.data = event.data;
      break;
    case 'party_go':
    case 'ready':
      ({ state } = event);
      go_id = event.go_id;
      break;
    case 'party_matched':
    case 'go_failed':
    case 'go_cancel':
      state = 'idle';
      go_id = undefined;
      break;
    default:
      return undefined;
  }
  const after = { ...rest, members, pending, state, version: event.version };
  return go_id === undefined ? after : { ...after, go_id };
}

/** One session with a server or a cluster. */
export class Tavern extends Emitter {
  /** @type {State} */
  state = 'idle';
  /** @type {string | undefined} public id of this session */
  client;
  /** @type {string | null | undefined} */
  user;
  /** @type {string | undefined} */
  node;
  me = new Me(this);
  party = /** @type {PartyClient & PartyCommands} */ (new PartyClient(this));

  /** @type {Map<string, Channel>} */
  #channels = new Map();
  /** @type {Map<string, Channel>} by the name that the authorize hook chose */
  #aliases = new Map();
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
  #denials = 0;
  #openedAt = 0;
  #aliveAt = 0;
  #heartbeatMs = 15_000;
  /** @type {number | undefined} */
  #retryAfterMs;
  /** The longest frame that the server takes. */
  #frameBytes = Infinity;
  #base;
  #options;
  /** @type {SessionStorage | null | undefined} */
  #storage;
  #fetch;
  #Socket;

  /** @param {string | URL} [url] @param {Options} [options] */
  constructor(url = globalThis.location?.origin, options = {}) {
    super();
    this.#base = String(url).replace(/^ws/, 'http').replace(/\/+$/, '');
    if (!/^https?:\/\/./.test(this.#base) || !attempt(() => new URL(this.#base))) throw new TypeError(`${url} is not an address; use http(s)://host:port`);
    this.#options = options;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#storage = options.storage === undefined ? attempt(() => globalThis.document && sessionStorage) : options.storage;
    this.#Socket = options.WebSocket ?? globalThis.WebSocket;
    const known = Object.keys(LINKS);
    const wanted = options.transports ?? /** @type {TransportName[]} */ (known);
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

  /** Resolves when the session is open; retries until then. */
  connect() {
    if (this.state === 'connecting' || this.state === 'open') return this.#opening?.promise ?? Promise.resolve();
    this.#restoring ||= this.state === 'closed';
    this.#ended = undefined;
    this.state = 'connecting';
    this.#load();
    this.#watchPage(true);
    /** @type {any} */
    const opening = (this.#opening ??= {});
    opening.promise ??= new Promise((resolve, reject) => Object.assign(opening, { resolve, reject }));
    // Callers that do not await it get `closed`.
    opening.promise.catch(() => {});
    this.#attempt = this.#failures = this.#denials = 0;
    this.#dial();
    return opening.promise;
  }

  async close() {
    if (this.state === 'closed') return;
    this.#closing = true;
    if (this.#session !== undefined) {
      const bye = this.state === 'open' ? this.call('bye') : this.#post('/v1/command', { op: 'bye', session: this.#session }, 2000);
      await Promise.race([bye.catch(() => {}), new Promise((resolve) => setTimeout(resolve, 2000))]);
    }
    this.#finish(new TavernError('closed', 'the client was closed'));
  }

  /** Keeps the session; `connect` resumes it. */
  suspend() {
    if (this.state !== 'connecting' && this.state !== 'open') return;
    this.#save();
    this.#watchPage(false);
    this.#closeLink();
    this.state = 'suspended';
    this.#release();
  }

  /** @param {string} name @returns {Channel} the same object for the same name */
  channel(name) {
    let channel = this.#channels.get(name);
    if (!channel) this.#channels.set(name, (channel = new Channel(this, name)));
    return channel;
  }

  /** @param {string} op @param {any} [members] @param {boolean} [safe] whether it may be retried @returns {Promise<any>} */
  call(op, members, safe = true) {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      if (this.#pending.size >= PENDING_MAX) return reject(new TavernError('busy', `${PENDING_MAX} commands are waiting for a reply`));
      const id = this.#nextId++;
      /** @type {Pending} */
      const pending = { id, frame: { id, op, ...members }, safe, sent: false, tries: 0, timer: 0, resolve, reject };
      pending.timer = setTimeout(() => {
        this.#pending.delete(id);
        // Still wanted by the app: restore it on the next connection.
        this.#restoring = true;
        if (pending.sent && !safe) return reject(unknown());
        const cause = this.#failure;
        const why = this.state === 'open' ? '' : `, the client is ${this.state}: ${cause?.message ?? 'await connect()'}`;
        reject(new TavernError('timeout', `no reply to ${op} in time${why}`, { cause }));
      }, this.#options.commandTimeoutMs ?? 30_000);
      this.#pending.set(id, pending);
      this.#send(pending);
    });
  }

  /** @param {string} name @param {Channel} channel */
  alias(name, channel) {
    channel.actual = name;
    this.#aliases.set(name, channel);
  }

  /** @param {Pending} pending */
  #send(pending) {
    if (this.state !== 'open' || pending.sent || !this.#link) return;
    const text = JSON.stringify(pending.frame);
    // A character has at most three bytes for each of its units.
    if (text.length * 3 > this.#frameBytes && new TextEncoder().encode(text).length > this.#frameBytes) {
      this.#settle(pending);
      return pending.reject(new TavernError('too_large', `${pending.frame.op} has more than ${this.#frameBytes} bytes`));
    }
    pending.sent = true;
    this.#link.send(pending.frame);
  }

  async #dial() {
    const dialId = ++this.#dialId;
    const current = () => dialId === this.#dialId;
    let token;
    try {
      token = await this.#freshToken();
    } catch (fault) {
      if (current()) this.#onLost({ error: noToken(fault) });
      return;
    }
    if (!current()) return;
    // Ignores a link that was replaced.
    /** @type {LinkEvents} */
    const on = {
      hello: (ok) => current() && this.#onHello(ok),
      frame: (frame) => current() && this.#onFrame(frame),
      party: (party) => current() && this.party.snapshot(party),
      alive: () => current() && (this.#aliveAt = Date.now()),
      end: (why) => current() && this.#onLost(why),
    };
    this.#timer('open', this.#options.connectTimeoutMs ?? 10_000, () => this.#onLost({ reached: true, cause: new Error('no hello in time') }));
    /** @type {LinkIo} */
    const io = {
      token,
      socket: (url) => new this.#Socket(url),
      ticket: () => this.ticket,
      pollMs: () => Math.min(this.#heartbeatMs, 15_000),
      address: (path, query) => this.#address(path, query),
      post: (path, body, ms, signal) => this.#post(path, body, ms, signal),
      get: (path, headers, signal) => this.#fetch(this.#address(path), { headers: { ...this.#headers(), ...headers }, cache: 'no-store', signal }),
    };
    try {
      this.#link = LINKS[this.#kinds[this.#index]](io, on);
    } catch (cause) {
      on.end({ cause });
    }
  }

  /** @param {Hello} ok */
  #onHello(ok) {
    const had = this.#session !== undefined;
    const kept = ok.resumed && !ok.reset;
    this.#timer('open');
    this.#session = ok.session;
    if (!kept) this.#seq = 0;
    this.#acked = this.#seq;
    [this.client, this.user, this.node, this.#heartbeatMs] = [ok.client, ok.user, ok.node, ok.heartbeat_ms];
    this.#frameBytes = ok.frame_bytes ?? Infinity;
    this.#failures = this.#denials = 0;
    this.#failure = undefined;
    this.#retryAfterMs = undefined;
    this.#openedAt = this.#aliveAt = Date.now();
    this.state = 'open';
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
    if (this.#options.statuses) this.call('hello', { status: true }).catch(() => {});
    // Before waiting commands are sent: they may depend on the channels.
    const restored = this.#restoring || (had && !kept) ? this.#restore() : undefined;
    this.#restoring = false;
    for (const pending of [...this.#pending.values()]) this.#send(pending);
    const opening = this.#opening;
    this.#opening = undefined;
    if (opening) this.emit('open', { resumed: had && kept });
    opening?.resolve();
    if (had && kept) this.emit('resumed');
    this.party.snapshot(ok.party);
    restored?.then((failed) => kept || this.emit('reset', { failed }));
  }

  /** @returns {Promise<{channel: string, error: any}[]>} what could not be restored */
  async #restore() {
    const asked = [...this.#channels.values()].flatMap((channel) =>
      channel.restore().map((done) => done.then(() => undefined, (error) => ({ channel: channel.name, error }))),
    );
    return (await Promise.all(asked)).filter((failure) => failure !== undefined);
  }

  /** @param {any} frame */
  #onFrame(frame) {
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
  #onError(pending, { code, message, ...more }) {
    const again = pending.tries++ < TRIES_MAX;
    const { op } = pending.frame;
    // Not executed: reconnect with a new session or token, then retry.
    const expired = code === 'unauthenticated' && this.#options.getToken;
    if (again && !['bye', 'hello'].includes(op) && (code === 'gone' || expired)) {
      if (op === 'ack') this.#settle(pending);
      pending.sent = false;
      return this.#onLost(expired ? { error: new TavernError(code, message) } : {});
    }
    if (again && pending.safe && (code === 'unavailable' || (code === 'rate_limited' && !op.startsWith('party.')))) {
      pending.sent = false;
      setTimeout(() => this.#pending.has(pending.id) && this.#send(pending), more.retry_after_ms ?? BACKOFF_MS * 2 ** pending.tries);
      return;
    }
    this.#settle(pending);
    pending.reject(new TavernError(code, message, more));
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
    switch (event.event) {
      case 'superseded':
        this.emit('superseded');
        return this.#finish(new TavernError('superseded', 'another connection took over this session'));
      case 'closing':
        this.#retryAfterMs = event.reconnect_after_ms;
        this.emit('closing', { reconnectAfterMs: event.reconnect_after_ms });
        return;
      case 'gap':
        for (const channel of event.channel ? [this.#find(event.channel)] : this.#channels.values()) {
          channel.missed(event);
        }
        this.emit('gap', event);
        return;
      case 'revoked':
        if (event.channel) this.#find(event.channel).revoked(event);
        this.emit('revoked', event);
        return;
      case 'status':
        this.me.emit('status', event);
        return;
      case 'statuses':
        this.me.emit('statuses', event.statuses);
        for (const status of event.statuses) this.me.emit('status', { user: status.user, status, change: 'none' });
        return;
      case 'inbox':
        this.me.emit('inbox', event);
        return;
      case 'party':
        this.party.receive(event);
        return;
    }
    if (event.channel?.startsWith('party#')) this.party.emit('say', event);
    else if (event.channel !== undefined && !this.#find(event.channel).receive(event)) return;
    this.emit(event.event, event);
  }

  /** @param {string} name */
  #find(name) {
    return this.#aliases.get(name) ?? this.channel(name);
  }

  /** Gives up or schedules the next attempt. @param {Ending} why */
  #onLost(why) {
    const { code, error, cause } = why;
    const opened = this.state === 'open';
    const kind = this.#kinds[this.#index];
    this.#closeLink();
    this.state = 'connecting';
    if (code === 4000) return this.#onEvent({ event: 'superseded' });
    if (code === 4001 || error?.code === 'unauthenticated') {
      this.#token = undefined;
      const denied = error ?? new TavernError('unauthenticated', 'the token has expired; pass getToken');
      if (!this.#options.getToken || ++this.#denials >= TRIES_MAX) return this.#finish(denied);
    } else if (code !== undefined && code > 4001 && code < 4500) {
      return this.#finish(new TavernError('closed', `the server closed the connection with code ${code}`));
    } else if (error && ['not_allowed', 'bad_request'].includes(error.code)) {
      return this.#finish(error);
    }
    if (opened) {
      if (Date.now() - this.#openedAt >= STABLE_MS) this.#attempt = 0;
      this.#release();
      this.emit('reconnecting', { code, error });
      if (this.state !== 'connecting') return;
    } else if (error && !why.reached) {
    } else if (kind === 'websocket' || why.reached) {
      if (++this.#failures >= (this.#worked.has(kind) ? 4 : 2)) this.#use(this.#index + 1);
    } else {
      // No server answered at all: not the fault of this transport.
      this.#use(0);
    }
    const most = Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** this.#attempt++);
    const wait = Math.max(this.#retryAfterMs ?? Math.random() * most, error?.retryAfterMs ?? 0);
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
    this.emit('error', { error, retryInMs });
  }

  /** @param {number} at the next transport in turn */
  #use(at) {
    this.#failures = 0;
    this.#index = at % this.#kinds.length;
  }

  /** After a lost link: fails sent commands that are not safe to retry. */
  #release() {
    for (const pending of this.#pending.values()) {
      if (pending.sent && !pending.safe) {
        this.#settle(pending);
        pending.reject(unknown());
      }
      pending.sent = false;
    }
  }

  #closeLink() {
    this.#dialId++;
    for (const name of Object.keys(this.#timers)) this.#timer(name);
    const link = this.#link;
    this.#link = undefined;
    link?.close();
  }

  /** Ends the session for good. @param {TavernError} why */
  #finish(why) {
    if (this.state === 'closed') return;
    this.#closeLink();
    this.#watchPage(false);
    this.state = 'closed';
    this.#closing = false;
    this.#ended = why;
    if (!['closed', 'superseded'].includes(why.code)) console.warn(`tavern: ${why.message}; the client is closed`);
    [this.#session, this.#seq] = [undefined, 0];
    for (const pending of [...this.#pending.values()]) {
      this.#settle(pending);
      pending.reject(pending.sent && !pending.safe ? unknown() : why);
    }
    this.#opening?.reject(why);
    this.#opening = undefined;
    this.emit('closed', { code: why.code, error: why });
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
    // Pages cannot see pings: the reply shows that the link is alive. Not retried: a new session numbers from 1.
    if (!kind || kind === 'poll' || (kind === 'sse' && seq === this.#acked)) return;
    this.call('ack', { seq }, false).then(() => (this.#acked = seq), () => {});
  }

  /** @returns {Promise<string | undefined>} a token that has not expired */
  async #freshToken() {
    const { token, getToken } = this.#options;
    if (!getToken) return (this.#token = token);
    const ends = expiry(this.#token);
    if (this.#token === undefined || (ends !== undefined && ends - Date.now() < 1000)) this.#token = await this.#newToken();
    return this.#token;
  }

  async #newToken() {
    const token = await this.#options.getToken?.();
    if (typeof token !== 'string') throw new TypeError(`it gave ${token === null ? token : typeof token} instead of a string`);
    return token;
  }

  #renewLater() {
    const ends = expiry(this.#token);
    if (ends === undefined || !this.#options.getToken) return;
    const left = ends - Date.now();
    this.#timer('renew', Math.max(500, left - Math.min(30_000, left / 5)), async () => {
      try {
        this.#token = await this.#newToken();
        if (this.state === 'open') await this.call('hello', { token: this.#token });
      } catch (fault) {
        // The old token may still be valid.
        if (this.state === 'open') this.#failed(fault instanceof TavernError ? fault : noToken(fault));
      }
      if (this.state === 'open') this.#renewLater();
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

  /** @param {string} name @param {number} [ms] @param {() => void} [due] */
  #timer(name, ms, due) {
    clearTimeout(this.#timers[name]);
    delete this.#timers[name];
    if (due) this.#timers[name] = setTimeout(due, Math.min(ms ?? 0, 2 ** 31 - 1));
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
    if (event.type === 'pagehide') {
      this.#save();
      this.#closeLink();
      this.state = 'connecting';
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

/** @type {Record<TransportName, (io: LinkIo, on: LinkEvents) => Link>} */
const LINKS = {
  websocket(io, on) {
    // No secrets: URLs are logged.
    const url = io.address('/v1/connect', { hello: 'no' });
    const socket = io.socket(url.replace(/^http/, 'ws'));
    let greeted = false;
    /** @type {unknown} */
    let cause;
    socket.onopen = () => {
      socket.send(JSON.stringify({ id: 0, op: 'hello', token: io.token, ...io.ticket() }));
    };
    socket.onmessage = (/** @type {{data: string}} */ { data }) => {
      const frame = attempt(() => JSON.parse(data));
      if (!frame) return on.end({ cause: foreign() });
      on.alive();
      if (greeted) on.frame(frame);
      else if (frame.error) on.end(ending(frame.error));
      else if (frame.ok) {
        greeted = true;
        on.hello(frame.ok);
      } else on.frame(frame);
    };
    socket.onclose = (/** @type {{code: number}} */ { code }) => on.end({ code, cause });
    socket.onerror = (/** @type {any} */ event) => {
      cause = event?.error;
      setTimeout(on.end, 100, { cause });
    };
    return {
      send: (frame) => socket.send(JSON.stringify(frame)),
      close() {
        socket.onopen = socket.onmessage = socket.onclose = null;
        socket.onerror = () => {};
        socket.close();
      },
    };
  },

  sse(io, on) {
    const abort = new AbortController();
    const run = async () => {
      const { session, seq } = io.ticket() ?? {};
      /** @type {Record<string, string>} */
      const headers = session ? { 'tavern-session': session, 'last-event-id': `${seq}` } : {};
      const response = await io.get('/v1/stream', headers, abort.signal);
      const stream = /text\/event-stream/.test(response.headers.get('content-type') ?? '');
      if (!stream || !response.body) return on.end(ending((await answer(response)).error));
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let text = '';
      let greeted = false;
      for (;;) {
        const { done, value } = await reader.read();
        if (done || text.length > BLOCK_MAX) return on.end({ reached: greeted });
        on.alive();
        text += decoder.decode(value, { stream: true });
        const blocks = text.split('\n\n');
        text = blocks.pop() ?? '';
        for (const block of blocks) {
          const lines = block.split('\n').filter((line) => line.startsWith('data:'));
          if (!lines.length) continue;
          const frame = JSON.parse(lines.map((line) => line.slice(5)).join('\n'));
          if (greeted || !frame.ok) on.frame(frame);
          else {
            greeted = true;
            on.hello(frame.ok);
          }
        }
      }
    };
    run().catch((cause) => on.end({ cause }));
    return httpSender(io, on, abort);
  },

  poll(io, on) {
    const abort = new AbortController();
    const hello = (/** @type {any} */ ticket) => io.post('/v1/command', { id: 0, op: 'hello', ...ticket }, 10_000, abort.signal);
    const run = async () => {
      const first = await hello(io.ticket());
      if (!first.ok?.session) return on.end(ending(first.error));
      on.hello(first.ok);
      while (!abort.signal.aborted) {
        const { session, seq } = /** @type {Ticket} */ (io.ticket());
        const ask = { session, cursor: seq, timeout_ms: io.pollMs() };
        const answer = await io.post('/v1/poll', ask, io.pollMs() * 2, abort.signal);
        if (answer.error) return on.end(ending(answer.error));
        on.alive();
        if (answer.reset) {
          const again = await hello({ session: answer.session });
          if (again.error) return on.end(ending(again.error));
          on.hello({ ...again.ok, reset: true });
        }
        for (const event of answer.events) on.frame(event);
        if (answer.superseded) on.frame({ event: 'superseded' });
        else on.party(answer.party);
      }
    };
    run().catch((cause) => on.end({ cause }));
    return httpSender(io, on, abort);
  },
};

/** Sends commands over HTTP, one at a time. @param {LinkIo} io @param {LinkEvents} on @param {AbortController} abort @returns {Link} */
function httpSender(io, on, abort) {
  /** @type {any[]} */
  const waiting = [];
  let busy = false;
  const sendNext = async () => {
    busy = true;
    while (waiting.length && !abort.signal.aborted) {
      const frame = waiting.shift();
      try {
        const answer = await io.post('/v1/command', { ...frame, session: io.ticket()?.session }, 30_000, abort.signal);
        on.alive();
        on.frame({ ...answer, id: frame.id });
      } catch (cause) {
        on.end({ cause });
      }
    }
    busy = false;
  };
  return {
    send(frame) {
      waiting.push(frame);
      if (!busy) sendNext();
    },
    close: () => abort.abort(),
  };
}

/** @param {Response} response @returns {Promise<any>} */
async function answer(response) {
  const body = await response.json().catch(() => undefined);
  if (body?.error ? typeof body.error.code === 'string' : response.ok && body) return body;
  return { error: foreign(`HTTP ${response.status}: `) };
}

const foreign = (status = '') => ({ code: 'unavailable', message: `${status}something else than Tavern answered; check the address`, foreign: true });
/** @param {unknown} cause */
const noToken = (cause) => new TavernError('unavailable', `getToken failed: ${cause}`, { cause });
/** @param {string} what @param {number} [code] @param {any} [cause] */
const unreachable = (what, code, cause) =>
  new TavernError('unreachable', `${what} failed: ${cause?.message || (code === undefined ? 'no answer' : `closed with code ${code}`)}`, { cause });
/** @param {any} error @returns {TavernError} */
const refusal = ({ code, message, ...more }) => new TavernError(code, message, more);
/** @param {any} [error] @returns {Ending} */
const ending = (error = foreign()) => ({ error: refusal(error), reached: error.foreign });
const unknown = () => new TavernError('unknown_outcome', 'the connection was lost before the reply; it may have been executed');
/** Whether a retry would fail the same way. @param {unknown} error */
const final = (error) => error instanceof TavernError && !['timeout', 'closed', 'unavailable', 'rate_limited', 'busy'].includes(error.code);
const requestId = () => Array.from({ length: 2 }, () => Math.random().toString(36).slice(2, 12)).join('');

/** @param {string | undefined} token @returns {number | undefined} when it expires */
function expiry(token) {
  const exp = attempt(() => JSON.parse(atob((token ?? '').split('.')[1].replace(/-/g, '+').replace(/_/g, '/'))).exp);
  return Number.isFinite(exp) ? exp * 1000 : undefined;
}

/** @template T @param {() => T} what */
function attempt(what) {
  try {
    return what();
  } catch {
    return undefined;
  }
}
