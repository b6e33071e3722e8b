// The Tavern client: one session, kept over whatever transport works. README.md tells how it is used.
// Must hold: an event is told once and in order, or `gap` or `reset` says that some are missing; what was wanted before a loss is
// so after it; nothing is tried again after `superseded`.

const PENDING_MAX = 1000; // Commands without an answer.
const HELD_MAX = 1024; // What waits for its first listener, or for a snapshot.
const UNREAD_MAX = 4096; // What an iterator leaves unread.
const BLOCK_MAX = 8 << 20; // One event on a stream.
const BACKOFF_MS = 250;
const BACKOFF_MAX_MS = 20_000;
const STABLE_MS = 5_000; // A link that lived so long was no false start.
const UPGRADE_MS = 30_000; // When a better transport is tried again.
const TRIES_MAX = 5;

/** @import { Ear, Ending, Hello, House, Keeper, Link, Listener, Message, Options, Part, Party, PartyCommands, Pending, Person, State, Status, Ticket, TransportName, Users } from './types.js' */

export class TavernError extends Error {
  name = 'TavernError';

  /** @param {string} code @param {string} [message] @param {{retry_after_ms?: number, party?: Party | null}} [more] */
  constructor(code, message, more = {}) {
    super(message);
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
      const heard = (event) => {
        this.off(type, heard);
        listener?.(event);
        resolve(event);
      };
      this.on(type, heard);
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
  const hear = (event) => {
    const reader = waiting.shift();
    if (reader) return reader({ value: event, done: false });
    if (unread.push(event) <= UNREAD_MAX) return;
    fault = new TavernError('overflow', `more than ${UNREAD_MAX} events were left unread`);
    unread.length = 0;
    end();
  };
  const end = () => {
    over = true;
    source.off(type, hear);
    client.off('closed', end);
    for (const reader of waiting.splice(0)) reader({ value: undefined, done: true });
  };
  source.on(type, hear);
  client.on('closed', end);
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next() {
      if (unread.length) return Promise.resolve({ value: unread.shift(), done: false });
      if (fault) {
        const told = fault;
        fault = undefined;
        return Promise.reject(told);
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

/** Who is there: a snapshot and what was told after it. Tells `change`. */
export class Presence extends Emitter {
  /** @type {Map<string, Person>} */
  users = new Map();
  /** @type {'full' | 'coalesced' | 'counts'} */
  mode = 'full';
  /** @type {number | undefined} none while a snapshot is awaited */
  version;
  /** Those who are there and not named. */
  #nameless = 0;
  /** @type {any[]} */
  #early = [];
  #refresh;
  #client;

  /** @param {Tavern} client @param {() => void} refresh asks for another snapshot */
  constructor(client, refresh) {
    super();
    this.#client = client;
    this.#refresh = refresh;
  }

  get count() {
    return this.users.size + this.#nameless;
  }

  /** @param {string} user */
  get(user) {
    return this.users.get(user);
  }

  [Symbol.asyncIterator]() {
    return iterate(this, 'change', this.#client);
  }

  doubt() {
    this.version = undefined;
    this.#early = [];
  }

  /** @param {any} members the answer that holds the members */
  snapshot(members) {
    this.users.clear();
    for (const { user, name, clients, leaving } of members.users ?? []) {
      if (user === null) continue;
      const person = this.#person(user, name);
      for (const { client, state } of clients) {
        person.clients.set(client, state);
        person.state = state;
      }
      person.leaving = leaving === true;
    }
    this.#nameless = members.count - this.users.size;
    this.mode = members.users ? 'full' : 'counts';
    this.version = members.version;
    this.emit('change', { event: 'snapshot' });
    for (const event of this.#early.splice(0)) if (event.version > members.version) this.hear(event);
  }

  /** @param {any} event */
  hear(event) {
    if (event.event === 'presence_mode') {
      this.mode = event.mode;
      this.emit('change', event);
      return;
    }
    if (this.version === undefined) {
      // A snapshot over HTTP may be overtaken by what comes after it.
      if (this.#early.push(event) > HELD_MAX) this.#early.shift();
      return;
    }
    const from = event.from_version ?? event.version - 1;
    if (this.count > 0) {
      if (event.version <= this.version) return;
      if (from > this.version) {
        this.doubt();
        this.#early.push(event);
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
        if (user === null) this.#nameless++;
        else this.#person(user, event.name);
        break;
      case 'user_offline':
        if (user === null) this.#nameless = Math.max(0, this.#nameless - 1);
        else this.users.delete(user);
        break;
      case 'client_offline':
        this.#gone(event);
        break;
      case 'presence':
        for (const one of event.left ?? []) {
          if (one.client === undefined) this.users.delete(one.user);
          else this.#gone(one);
        }
        for (const one of [...(event.joined ?? []), ...(event.updated ?? [])]) this.#here(one);
        this.#nameless = Math.max(0, event.count - this.users.size);
        if (!event.joined && this.#nameless > 0) this.mode = 'counts';
        else if (event.joined && this.mode === 'full' && event.version - event.from_version > 1) this.mode = 'coalesced';
        break;
      default:
        if (client) this.#here(event);
    }
  }

  /** @param {any} entry */
  #here({ user, client, state }) {
    if (user === null) return;
    const person = this.#person(user);
    if (client === undefined) {
      person.leaving = true;
      return;
    }
    person.clients.set(client, state);
    person.state = state;
    person.leaving = false;
  }

  /** @param {any} entry */
  #gone({ user, client }) {
    const person = this.users.get(user);
    if (!person) return;
    person.clients.delete(client);
    person.leaving = person.clients.size === 0;
    person.state = [...person.clients.values()].pop();
  }

  /** @param {string} user @param {string | null} [name] @returns {Person} */
  #person(user, name = null) {
    let person = this.users.get(user);
    if (!person) this.users.set(user, (person = { user, name, clients: new Map(), state: undefined, leaving: false }));
    person.name ??= name;
    return person;
  }
}

/** Tells `message` and `gap`. */
export class Channel extends Emitter {
  #client;
  #listens = false;
  /** @type {{state: any} | undefined} */
  #joined;
  /** @type {Presence | undefined} */
  #presence;
  /** @type {Message[] | undefined} what came before anybody listened, as after a page load */
  #held = [];

  /** @param {Tavern} client @param {string} name */
  constructor(client, name) {
    super();
    this.#client = client;
    this.name = name;
    /** The channel that the server chose instead; usually the same. */
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

  /** @param {(message: Message) => void} [listener] */
  async subscribe(listener) {
    if (listener) this.on('message', listener);
    this.#listens = true;
    try {
      await this.#listen();
    } catch (error) {
      if (final(error)) this.#listens = false;
      throw error;
    }
  }

  /** Ends listening and watching. */
  async unsubscribe() {
    this.#listens = false;
    this.#presence = undefined;
    await this.#client.call('unsubscribe', { channel: this.actual });
  }

  /** @param {any} data any JSON @returns {Promise<{receivers: number}>} */
  publish(data) {
    return this.#client.call('publish', { channel: this.name, data }, false);
  }

  /** @param {any} [state] */
  join(state) {
    return this.#be('join', state);
  }

  /** @param {any} state */
  update(state) {
    return this.#be('update', state);
  }

  /** @param {string} op @param {any} state @returns {Promise<void>} */
  async #be(op, state) {
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

  /** Begins to watch. @returns {Promise<Presence>} */
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

  async #listen() {
    const presence = this.#presence;
    const ok = await this.#client.call('subscribe', { channel: this.name, presence: presence ? true : undefined });
    if (ok.channel) this.#client.alias(ok.channel, this);
    if (presence && ok.members && presence === this.#presence) presence.snapshot(ok.members);
  }

  /** Something was lost: who is there is read again. */
  refresh() {
    this.#presence?.doubt();
    if (this.#presence) this.#listen().catch(() => {});
  }

  restore() {
    const asked = [];
    if (this.#presence) this.#presence.doubt();
    if (this.#presence || this.#listens) asked.push(this.#listen());
    if (this.#joined) asked.push(this.join(this.#joined.state));
    return asked;
  }

  /** @param {any} event */
  hear(event) {
    if (event.event !== 'message') this.#presence?.hear(event);
    else if (!this.#held) this.emit('message', event);
    else if (this.#held.push(event) > HELD_MAX) this.#held.shift();
  }
}

/** Tells `status`, `statuses` and `letter`. */
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

/** The user's party. Tells each letter by its `cmd`, and `change`. A request id lets commands be repeated. */
export class PartyDesk extends Emitter {
  /** @type {Party | null} */
  current = null;
  /** @type {Map<number, any>} open invites by party */
  invites = new Map();
  #client;
  #reads = 0;

  /** @param {Tavern} client */
  constructor(client) {
    super();
    this.#client = client;
    for (const [name, members] of Object.entries(PARTY)) {
      /** @param {any[]} given */
      const command = (...given) => this.#do(name, Object.fromEntries(members.map((member, at) => [member, given[at]])));
      Object.assign(this, { [name]: command });
    }
  }

  /** @returns {Promise<Party | null>} */
  async get() {
    await this.#do('get', {});
    return this.current;
  }

  /** @param {string} name @param {any} members @returns {Promise<any>} */
  async #do(name, members) {
    const op = `party.${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`;
    try {
      const ok = await this.#client.call(op, { ...members, rid: name === 'get' ? undefined : requestId() });
      if (name === 'accept' || name === 'decline') this.invites.delete(members.party_id);
      if (ok.party !== undefined) this.#set(ok.party);
      else if (!['get', 'say', 'block', 'unblock'].includes(name)) this.#read();
      return ok;
    } catch (error) {
      if (error instanceof TavernError && error.party !== undefined) this.#set(error.party);
      throw error;
    }
  }

  /** It may be older than what an answer said. @param {Party | null} [party] */
  snapshot(party) {
    if (party === undefined) return;
    if (party?.party_id === this.current?.party_id) this.#set(party);
    else this.#read();
  }

  /** @param {Party | null} party */
  #set(party) {
    const now = this.current;
    if (party === now || (party && now && party.party_id === now.party_id && party.version < now.version)) return;
    this.current = party;
    this.emit('change', party);
  }

  /** Reads the party, once at a time; again, if it was asked for meanwhile. */
  async #read() {
    if (this.#reads++) return;
    for (let seen = 0; seen !== this.#reads; ) {
      seen = this.#reads;
      await this.get().catch(() => {});
    }
    this.#reads = 0;
  }

  /** Folds a letter into the snapshot; what it cannot tell is read. @param {any} letter */
  hear(letter) {
    const { cmd, party_id, version } = letter;
    const party = this.current;
    if (cmd === 'invite') this.invites.set(party_id, letter);
    else if (cmd === 'invite_cancel') this.invites.delete(party_id);
    else if (party && party.party_id === party_id) {
      const next = version > party.version + 1 ? undefined : fold(party, letter, this.#client.user);
      if (version > party.version) next === undefined ? this.#read() : this.#set(next);
    } else if (!['decline', 'kick', 'leave', 'disband'].includes(cmd)) this.#read();
    this.emit(cmd, letter);
  }
}

/**
 * The party after a letter of the next version; undefined: the letter does not say.
 * @param {Party} party @param {any} letter @param {string | null | undefined} me @returns {Party | null | undefined}
 */
export function fold(party, letter, me) {
  const { cmd, uid } = letter;
  let { members, pending, state, go_id, ...rest } = party;
  const others = members.filter((member) => member.user !== uid);
  const uninvited = pending.filter((invite) => invite.user !== uid);
  switch (cmd) {
    case 'accept':
    case 'join':
      // Who has no name is called by his id.
      members = [...others, { user: uid, name: letter.user === uid ? null : letter.user, online: true, since: letter.ts }];
      pending = uninvited;
      state = 'idle';
      break;
    case 'invited':
      pending = [...pending, { user: letter.invitee, by: uid, expires_at: letter.expires_at }];
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
      rest.data = letter.data;
      break;
    case 'party_go':
    case 'ready':
      ({ state } = letter);
      go_id = letter.go_id;
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
  const after = { ...rest, members, pending, state, version: letter.version };
  return go_id === undefined ? after : { ...after, go_id };
}

/** One session with a server, or a cluster of them. */
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
  party = /** @type {PartyDesk & PartyCommands} */ (new PartyDesk(this));

  /** @type {Map<string, Channel>} */
  #channels = new Map();
  /** @type {Map<string, Channel>} names that the server chose instead */
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
  /** @type {Record<string, number>} the last letter of each user */
  #letters = {};
  /** @type {Set<TransportName>} */
  #worked = new Set();
  /** @type {TransportName[]} */
  #kinds;
  /** @type {Record<string, any>} */
  #timers = {};
  #again = false;
  #seq = 0;
  #acked = 0;
  #turn = 0;
  #nextId = 1;
  #at = 0;
  #fails = 0;
  #attempt = 0;
  #denied = 0;
  #openedAt = 0;
  #heardAt = 0;
  #heartbeatMs = 15_000;
  /** @type {number | undefined} */
  #retryAfterMs;
  #base;
  #options;
  /** @type {Keeper | null | undefined} */
  #storage;
  #fetch;
  #Socket;

  /** @param {string | URL} [url] @param {Options} [options] */
  constructor(url = globalThis.location?.origin, options = {}) {
    super();
    this.#base = String(url).replace(/^ws/, 'http').replace(/\/+$/, '');
    if (!/^https?:\/\/./.test(this.#base)) throw new TypeError(`${url} is no http address`);
    this.#options = options;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#storage = options.storage === undefined ? attempt(() => globalThis.document && sessionStorage) : options.storage;
    this.#Socket = options.WebSocket ?? globalThis.WebSocket;
    const known = Object.keys(LINKS);
    const wanted = options.transports ?? /** @type {TransportName[]} */ (known);
    for (const kind of wanted) if (!known.includes(kind)) throw new TypeError(`there is no transport ${kind}`);
    this.#kinds = wanted.filter((kind) => kind !== 'websocket' || this.#Socket);
    if (!this.#kinds.length) throw new TypeError('no transport is left; this platform has no WebSocket');
    if (options.resume) [this.#session, this.#seq] = [options.resume.session, options.resume.seq];
  }

  /** @returns {TransportName | undefined} */
  get transport() {
    return this.state === 'open' ? this.#kinds[this.#at] : undefined;
  }

  /** @returns {Ticket | undefined} */
  get ticket() {
    return this.#session === undefined ? undefined : { session: this.#session, seq: this.#seq };
  }

  /** Goes on trying until the session is there. */
  connect() {
    if (this.state === 'connecting' || this.state === 'open') return this.#opening?.promise ?? Promise.resolve();
    this.#again ||= this.state === 'closed';
    this.#ended = undefined;
    this.state = 'connecting';
    this.#load();
    this.#attend(true);
    /** @type {any} */
    const opening = (this.#opening ??= {});
    opening.promise ??= new Promise((resolve, reject) => Object.assign(opening, { resolve, reject }));
    // Whoever does not wait for it hears `closed`.
    opening.promise.catch(() => {});
    this.#attempt = this.#fails = this.#denied = 0;
    this.#dial();
    return opening.promise;
  }

  async close() {
    if (this.state === 'closed') return;
    if (this.#session !== undefined) {
      const bye = this.state === 'open' ? this.call('bye') : this.#post('/v1/command', { op: 'bye', session: this.#session }, 2000);
      await Promise.race([bye.catch(() => {}), new Promise((resolve) => setTimeout(resolve, 2000))]);
    }
    this.#finish(new TavernError('closed', 'the client was closed'));
  }

  /** Keeps the session for `connect`. */
  suspend() {
    if (this.state !== 'connecting' && this.state !== 'open') return;
    this.#save();
    this.#attend(false);
    this.#hangUp();
    this.state = 'suspended';
    this.#release();
  }

  /** @param {string} name @returns {Channel} always the same one for a name */
  channel(name) {
    let channel = this.#channels.get(name);
    if (!channel) this.#channels.set(name, (channel = new Channel(this, name)));
    return channel;
  }

  /** @param {string} op @param {any} [members] @param {boolean} [safe] may be repeated @returns {Promise<any>} */
  call(op, members, safe = true) {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      if (this.#pending.size >= PENDING_MAX) return reject(new TavernError('busy', `${PENDING_MAX} commands are waiting`));
      const id = this.#nextId++;
      /** @type {Pending} */
      const pending = { id, frame: { id, op, ...members }, safe, sent: false, tries: 0, timer: 0, resolve, reject };
      pending.timer = setTimeout(() => {
        this.#pending.delete(id);
        // What it wished for is still wished.
        this.#again = true;
        reject(pending.sent && !safe ? unknown() : new TavernError('timeout', `${op} was not answered in time`));
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
    pending.sent = true;
    this.#link.send(pending.frame);
  }

  async #dial() {
    const turn = ++this.#turn;
    const mine = () => turn === this.#turn;
    let token;
    try {
      token = await this.#fresh();
    } catch (fault) {
      if (mine()) this.#lost({ error: new TavernError('unavailable', `getToken failed: ${fault}`) });
      return;
    }
    if (!mine()) return;
    // What an abandoned link still says is nobody's.
    /** @type {Ear} */
    const ear = {
      hello: (ok) => mine() && this.#greet(ok),
      frame: (frame) => mine() && this.#hear(frame),
      party: (party) => mine() && this.party.snapshot(party),
      alive: () => mine() && (this.#heardAt = Date.now()),
      end: (why) => mine() && this.#lost(why),
    };
    this.#timer('open', this.#options.connectTimeoutMs ?? 10_000, () => this.#lost({ reached: true }));
    /** @type {House} */
    const house = {
      token,
      socket: (url) => new this.#Socket(url),
      ticket: () => this.ticket,
      pollMs: () => Math.min(this.#heartbeatMs, 15_000),
      address: (path, query) => this.#address(path, query),
      post: (path, body, ms, signal) => this.#post(path, body, ms, signal),
      get: (path, query, signal) => this.#fetch(this.#address(path, query), { headers: this.#headers(), cache: 'no-store', signal }),
    };
    this.#link = LINKS[this.#kinds[this.#at]](house, ear);
  }

  /** @param {Hello} ok */
  #greet(ok) {
    const had = this.#session !== undefined;
    const kept = ok.resumed && !ok.reset;
    this.#timer('open');
    this.#session = ok.session;
    if (!kept) this.#seq = 0;
    this.#acked = this.#seq;
    [this.client, this.user, this.node, this.#heartbeatMs] = [ok.client, ok.user, ok.node, ok.heartbeat_ms];
    this.#fails = this.#denied = 0;
    this.#retryAfterMs = undefined;
    this.#openedAt = this.#heardAt = Date.now();
    this.state = 'open';
    const kind = this.#kinds[this.#at];
    const stands = this.#at > 0 && this.#worked.has(this.#kinds[0]) && !this.#worked.has(kind);
    this.#worked.add(kind);
    if (stands) {
      this.#timer('upgrade', UPGRADE_MS * (1 + Math.random()), () => {
        this.#at = 0;
        this.#lost({});
      });
    }
    this.#beat(Date.now(), true);
    this.#renewLater();
    if (this.#options.statuses) this.call('hello', { status: true }).catch(() => {});
    // Before anything that waits, so that it finds its channels.
    const restored = this.#again || (had && !kept) ? this.#restore() : undefined;
    this.#again = false;
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
  #hear(frame) {
    if (frame.event !== undefined) return this.#event(frame);
    const pending = this.#pending.get(frame.id);
    if (!pending?.sent) return;
    if (frame.error) return this.#refused(pending, frame.error);
    this.#settle(pending);
    pending.resolve(frame.ok);
  }

  /** @param {Pending} pending */
  #settle(pending) {
    clearTimeout(pending.timer);
    this.#pending.delete(pending.id);
  }

  /** @param {Pending} pending @param {any} error */
  #refused(pending, { code, message, ...more }) {
    const again = pending.tries++ < TRIES_MAX;
    const { op } = pending.frame;
    // It was not carried out: a new session, or a new token, and once more.
    if (again && !['bye', 'hello'].includes(op) && ['gone', 'unauthenticated'].includes(code)) {
      if (op === 'ack') this.#settle(pending);
      pending.sent = false;
      return this.#lost(this.#options.getToken ? { error: new TavernError(code, message) } : {});
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
  #event(event) {
    if (event.seq !== undefined) {
      if (event.seq <= this.#seq) return;
      this.#seq = event.seq;
    }
    if (event.letter !== undefined) {
      const user = this.user ?? '';
      if (event.letter <= (this.#letters[user] ?? 0)) return;
      this.#letters[user] = event.letter;
    }
    switch (event.event) {
      case 'superseded':
        this.emit('superseded');
        return this.#finish(new TavernError('superseded', 'the session is in use elsewhere'));
      case 'closing':
        this.#retryAfterMs = event.reconnect_after_ms;
        this.emit('closing', { reconnectAfterMs: event.reconnect_after_ms });
        return;
      case 'gap':
        for (const channel of event.channel ? [this.#find(event.channel)] : this.#channels.values()) {
          channel.refresh();
          channel.emit('gap', event);
        }
        this.emit('gap', event);
        return;
      case 'status':
        this.me.emit('status', event);
        return;
      case 'statuses':
        this.me.emit('statuses', event.statuses);
        for (const status of event.statuses) this.me.emit('status', { user: status.user, status, change: 'none' });
        return;
      case 'letter':
        this.me.emit('letter', event);
        return;
      case 'party':
        this.party.hear(event);
        return;
    }
    if (event.channel?.startsWith('party#')) this.party.emit('say', event);
    else if (event.channel !== undefined) this.#find(event.channel).hear(event);
    this.emit(event.event, event);
  }

  /** @param {string} name */
  #find(name) {
    return this.#aliases.get(name) ?? this.channel(name);
  }

  /** The link is gone: what now? @param {Ending} why */
  #lost(why) {
    const { code, error } = why;
    const opened = this.state === 'open';
    const kind = this.#kinds[this.#at];
    this.#hangUp();
    this.state = 'connecting';
    if (code === 4000) return this.#event({ event: 'superseded' });
    if (code === 4001 || error?.code === 'unauthenticated') {
      this.#token = undefined;
      const denied = error ?? new TavernError('unauthenticated', 'the token has expired');
      if (!this.#options.getToken || ++this.#denied >= TRIES_MAX) return this.#finish(denied);
    } else if (code !== undefined && code > 4001 && code < 4500) {
      return this.#finish(new TavernError('closed', `the server closed the connection with ${code}`));
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
      if (++this.#fails >= (this.#worked.has(kind) ? 4 : 2)) this.#try(this.#at + 1);
    } else {
      // No server answered: no transport is to blame.
      this.#try(0);
    }
    const most = Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** this.#attempt++);
    const wait = Math.max(this.#retryAfterMs ?? Math.random() * most, error?.retryAfterMs ?? 0);
    this.#retryAfterMs = undefined;
    this.#timer('retry', wait, () => this.#dial());
  }

  /** @param {number} at the next transport in turn */
  #try(at) {
    this.#fails = 0;
    this.#at = at % this.#kinds.length;
  }

  /** Commands that a lost link may or may not have carried. */
  #release() {
    for (const pending of this.#pending.values()) {
      if (pending.sent && !pending.safe) {
        this.#settle(pending);
        pending.reject(unknown());
      }
      pending.sent = false;
    }
  }

  #hangUp() {
    this.#turn++;
    for (const name of Object.keys(this.#timers)) this.#timer(name);
    const link = this.#link;
    this.#link = undefined;
    link?.close();
  }

  /** The end. @param {TavernError} why */
  #finish(why) {
    if (this.state === 'closed') return;
    this.#hangUp();
    this.#attend(false);
    this.state = 'closed';
    this.#ended = why;
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
  #beat(last, even) {
    const half = this.#heartbeatMs / 2;
    this.#timer('beat', half, () => {
      const now = Date.now();
      // The page was asleep, which does not mean that the link is dead.
      const late = now - last > half * 2;
      if (!late && now - this.#heardAt > this.#heartbeatMs * 2) return this.#lost({});
      if (even || late) this.#ack();
      this.#beat(now, !even);
    });
  }

  #ack() {
    const seq = this.#seq;
    const kind = this.transport;
    // A page sees no pings: the answer is its sign of life. Not repeated: another session counts anew.
    if (!kind || kind === 'poll' || (kind === 'sse' && seq === this.#acked)) return;
    this.call('ack', { seq }, false).then(() => (this.#acked = seq), () => {});
  }

  /** @returns {Promise<string | undefined>} a token that still holds */
  async #fresh() {
    const { token, getToken } = this.#options;
    if (!getToken) return (this.#token = token);
    const ends = expiry(this.#token);
    if (this.#token === undefined || (ends !== undefined && ends - Date.now() < 1000)) this.#token = await getToken();
    return this.#token;
  }

  #renewLater() {
    const ends = expiry(this.#token);
    if (ends === undefined || !this.#options.getToken) return;
    const left = ends - Date.now();
    this.#timer('renew', Math.max(500, left - Math.min(30_000, left / 5)), async () => {
      try {
        this.#token = await this.#options.getToken?.();
        if (this.state === 'open') await this.call('hello', { token: this.#token });
      } catch {
        // The old one may still hold; if not, the server says so.
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
  #attend(on) {
    const page = /** @type {any} */ (globalThis);
    if (!page.document || !page.addEventListener) return;
    const change = on ? 'addEventListener' : 'removeEventListener';
    for (const type of ['online', 'pagehide', 'pageshow']) page[change](type, this.#notice);
    page.document[change]('visibilitychange', this.#notice);
  }

  /** @param {any} event */
  #notice = (event) => {
    if (event.type === 'pagehide') {
      this.#save();
      this.#hangUp();
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

  // Only a page that goes writes the session down, and the next one takes it: a copied tab gets a session of its own.
  #save() {
    const kept = { ...this.ticket, letters: this.#letters, transport: this.#kinds[this.#at] };
    attempt(() => this.#storage?.setItem(this.#key, JSON.stringify(kept)));
  }

  #load() {
    const kept = attempt(() => JSON.parse(this.#storage?.getItem(this.#key) ?? 'null'));
    attempt(() => this.#storage?.removeItem(this.#key));
    if (!kept || this.#session !== undefined) return;
    if (typeof kept.session === 'string' && Number.isSafeInteger(kept.seq)) [this.#session, this.#seq] = [kept.session, kept.seq];
    Object.assign(this.#letters, kept.letters);
    this.#at = Math.max(0, this.#kinds.indexOf(kept.transport));
  }
}

/** @type {Record<TransportName, (house: House, ear: Ear) => Link>} */
const LINKS = {
  websocket(house, ear) {
    // A token in the address would be written into logs.
    const url = house.address('/v1/connect', house.token === undefined ? house.ticket() : {});
    const socket = house.socket(url.replace(/^http/, 'ws'));
    let greeted = false;
    socket.onopen = () => {
      if (house.token !== undefined) socket.send(JSON.stringify({ id: 0, op: 'hello', token: house.token, ...house.ticket() }));
    };
    socket.onmessage = (/** @type {{data: string}} */ { data }) => {
      const frame = attempt(() => JSON.parse(data));
      if (!frame) return ear.end({});
      ear.alive();
      if (greeted) ear.frame(frame);
      else if (frame.error) ear.end(ending(frame.error));
      else if (frame.ok) {
        greeted = true;
        ear.hello(frame.ok);
      } else ear.frame(frame);
    };
    socket.onclose = (/** @type {{code: number}} */ { code }) => ear.end({ code });
    socket.onerror = () => setTimeout(ear.end, 100, {});
    return {
      send: (frame) => socket.send(JSON.stringify(frame)),
      close() {
        socket.onopen = socket.onmessage = socket.onclose = null;
        socket.onerror = () => {};
        socket.close();
      },
    };
  },

  sse(house, ear) {
    const abort = new AbortController();
    const run = async () => {
      const response = await house.get('/v1/stream', house.ticket(), abort.signal);
      const stream = /text\/event-stream/.test(response.headers.get('content-type') ?? '');
      if (!stream || !response.body) return ear.end(ending((await answer(response)).error));
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let text = '';
      let greeted = false;
      for (;;) {
        const { done, value } = await reader.read();
        if (done || text.length > BLOCK_MAX) return ear.end({ reached: greeted });
        ear.alive();
        text += decoder.decode(value, { stream: true });
        const blocks = text.split('\n\n');
        text = blocks.pop() ?? '';
        for (const block of blocks) {
          const lines = block.split('\n').filter((line) => line.startsWith('data:'));
          if (!lines.length) continue;
          const frame = JSON.parse(lines.map((line) => line.slice(5)).join('\n'));
          if (greeted || !frame.ok) ear.frame(frame);
          else {
            greeted = true;
            ear.hello(frame.ok);
          }
        }
      }
    };
    run().catch(() => ear.end({}));
    return voice(house, ear, abort);
  },

  poll(house, ear) {
    const abort = new AbortController();
    const hello = (/** @type {any} */ ticket) => house.post('/v1/command', { id: 0, op: 'hello', ...ticket }, 10_000, abort.signal);
    const run = async () => {
      const first = await hello(house.ticket());
      if (first.error) return ear.end(ending(first.error));
      ear.hello(first.ok);
      while (!abort.signal.aborted) {
        const { session, seq } = /** @type {Ticket} */ (house.ticket());
        const ask = { session, cursor: seq, timeout_ms: house.pollMs() };
        const answer = await house.post('/v1/poll', ask, house.pollMs() * 2, abort.signal);
        if (answer.error) return ear.end(ending(answer.error));
        ear.alive();
        if (answer.reset) {
          const anew = await hello({ session: answer.session });
          if (anew.error) return ear.end(ending(anew.error));
          ear.hello({ ...anew.ok, reset: true });
        }
        for (const event of answer.events) ear.frame(event);
        if (answer.superseded) ear.frame({ event: 'superseded' });
        else ear.party(answer.party);
      }
    };
    run().catch(() => ear.end({}));
    return voice(house, ear, abort);
  },
};

/** Commands by HTTP, in order. @param {House} house @param {Ear} ear @param {AbortController} abort @returns {Link} */
function voice(house, ear, abort) {
  /** @type {any[]} */
  const waiting = [];
  let busy = false;
  const speak = async () => {
    busy = true;
    while (waiting.length && !abort.signal.aborted) {
      const frame = waiting.shift();
      try {
        const answer = await house.post('/v1/command', { ...frame, session: house.ticket()?.session }, 30_000, abort.signal);
        ear.alive();
        ear.frame({ ...answer, id: frame.id });
      } catch {
        ear.end({});
      }
    }
    busy = false;
  };
  return {
    send(frame) {
      waiting.push(frame);
      if (!busy) speak();
    },
    close: () => abort.abort(),
  };
}

/** @param {Response} response @returns {Promise<any>} */
const answer = (response) =>
  response.json().catch(() => ({ error: { code: 'unavailable', message: `HTTP ${response.status}`, foreign: true } }));
/** @param {any} error @returns {TavernError} */
const refusal = ({ code, message, ...more }) => new TavernError(code, message, more);
/** @param {any} error @returns {Ending} */
const ending = (error) => ({ error: refusal(error), reached: error.foreign });
const unknown = () => new TavernError('unknown_outcome', 'the connection was lost before the answer; it may have happened');
/** Asking again would be answered the same. @param {unknown} error */
const final = (error) => error instanceof TavernError && !['timeout', 'closed', 'unavailable', 'rate_limited', 'busy'].includes(error.code);
const requestId = () => Array.from({ length: 2 }, () => Math.random().toString(36).slice(2, 12)).join('');

/** @param {string | undefined} token @returns {number | undefined} when it ends */
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
