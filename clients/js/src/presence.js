// Who is in a channel: a snapshot plus the changes since.
// Must hold: a snapshot and the events after it give the later snapshot; an event that does not fit changes nothing and asks for a new one.

import { KEPT_MAX, SECOND_MS } from './bounds.js';
import { Emitter, iterate } from './emitter.js';

/** @import { PresenceUser } from '../tavern.js' */

/** An arrival and its client come in two events, and so does a leave. */
/** @type {Record<string, string>} */
const SECOND = { user_online: 'client_online', client_offline: 'user_offline' };

/** Emits `change`. */
export class Presence extends Emitter {
  /** @type {Map<string, PresenceUser<any>>} */
  users = new Map();
  /** @type {Map<string, any>} states of anonymous clients */
  anonymous = new Map();
  /** @type {'full' | 'coalesced' | 'counts'} */
  mode = 'full';
  /** All users, anonymous ones included. */
  count = 0;
  /** @type {number | undefined} undefined while waiting for a snapshot */
  version;
  /** @type {any[]} changes since a snapshot was asked for */
  #kept = [];
  #refresh;
  /** @type {any} */
  #timer;
  /** @type {any} the change that waits for its second half */
  #first;

  /** @param {() => void} refresh requests a new snapshot */
  constructor(refresh) {
    super();
    this.#refresh = refresh;
  }

  /** @param {string} user */
  get(user) {
    return this.users.get(user);
  }

  [Symbol.asyncIterator]() {
    return iterate(this, 'change');
  }

  /** Changes nothing until the next snapshot. */
  invalidate() {
    this.version = undefined;
  }

  /** Events were lost: asks for a snapshot, once. */
  lose() {
    if (this.version === undefined) return;
    this.invalidate();
    this.#refresh();
  }

  /** @param {any} members `members` of the reply */
  snapshot(members) {
    if (this.version !== undefined && members.version < this.version) return;
    this.users.clear();
    this.anonymous.clear();
    for (const { user, name, clients, leaving } of members.users ?? []) {
      for (const { client, state } of clients) this.#online({ user, client, state });
      if (user !== null) Object.assign(this.#ensure(user), { name: name ?? null, leaving: leaving === true });
    }
    this.count = members.count;
    if (!members.users) this.mode = 'counts';
    else if (this.mode === 'counts') this.mode = 'coalesced';
    this.version = members.version;
    this.#announce({ event: 'snapshot' });
    for (const event of this.#kept.splice(0)) this.receive(event);
  }

  /** @param {any} event */
  receive(event) {
    if (this.version === undefined) {
      if (this.#kept.length < KEPT_MAX) this.#kept.push(event);
      return;
    }
    if (event.event === 'presence_mode') return this.#turn(event);
    if (event.version <= this.version) return;
    // The version of an empty channel may jump.
    if ((event.from_version ?? event.version - 1) > this.version && this.count > 0) {
      this.#kept = [event];
      return this.lose();
    }
    this.version = event.version;
    this.#apply(event);
    const { user } = event;
    const entry = this.users.get(user);
    if (event.event === 'user_online' || (event.event === 'client_offline' && event.explicit && entry?.leaving)) {
      this.#announceLater(event);
    } else this.#announce(event);
  }

  /** @param {any} event */
  #turn(event) {
    if (event.version < (this.version ?? 0)) return;
    const before = this.mode;
    this.mode = event.mode;
    if (event.mode === 'counts') {
      // Most departures are not reported any more.
      this.users.clear();
      this.anonymous.clear();
    }
    this.#announce(event);
    if (event.version > (this.version ?? 0) || (before === 'counts' && event.mode !== 'counts')) this.lose();
  }

  /** @param {any} change */
  #announce(change) {
    clearTimeout(this.#timer);
    const first = this.#first;
    this.#first = undefined;
    if (first?.user === change.user && SECOND[first?.event] === change.event) {
      change = { ...first, ...change, event: `user_${change.event.split('_')[1]}` };
    } else if (first) this.emit('change', first);
    this.emit('change', change);
  }

  /** @param {any} change */
  #announceLater(change) {
    if (this.#first) this.#announce(change);
    else {
      this.#first = change;
      this.#timer = setTimeout(() => this.#flush(), SECOND_MS);
    }
  }

  #flush() {
    const first = this.#first;
    this.#first = undefined;
    if (first) this.emit('change', first);
  }

  /** @param {any} event */
  #apply(event) {
    const { user, client } = event;
    switch (event.event) {
      case 'user_online':
        this.count++;
        if (user !== null) this.#ensure(user, event.name);
        break;
      case 'user_offline':
        this.count = Math.max(0, this.count - 1);
        this.users.delete(user);
        break;
      case 'client_offline':
        this.#offline(event);
        break;
      case 'presence':
        for (const one of event.left ?? []) one.client === undefined ? this.users.delete(one.user) : this.#offline(one);
        for (const one of [...(event.joined ?? []), ...(event.updated ?? [])]) this.#online(one);
        this.count = event.count;
        break;
      default:
        if (client) this.#online(event);
    }
  }

  /** @param {any} entry */
  #online({ user, client, state = null }) {
    if (user === null) {
      // A hidden user has no client and is only counted.
      if (client) this.anonymous.set(client, state);
      return;
    }
    const entry = this.#ensure(user);
    if (client === undefined) {
      entry.leaving ||= !entry.clients.size;
      return;
    }
    entry.clients.set(client, state);
    entry.state = state;
    entry.leaving = false;
  }

  /** @param {any} entry */
  #offline({ user, client }) {
    if (user === null) this.anonymous.delete(client);
    const entry = this.users.get(user);
    if (!entry) return;
    entry.clients.delete(client);
    entry.leaving = entry.clients.size === 0;
    entry.state = [...entry.clients.values()].pop();
  }

  /** @param {string} user @param {string | null} [name] @returns {PresenceUser<any>} */
  #ensure(user, name = null) {
    let entry = this.users.get(user);
    if (!entry) this.users.set(user, (entry = { user, name, clients: new Map(), state: undefined, leaving: false }));
    entry.name ??= name;
    return entry;
  }
}
