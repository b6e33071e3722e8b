// The user of this session: statuses, follows, inbox.

import { Emitter } from './emitter.js';

/** @import { Part, Status, Users } from '../tavern.js' */
/** @import { Session } from './session.js' */

/** The statuses of followed users after events. Pure. */
export class Statuses {
  /** @type {Map<string, Status>} */
  users = new Map();

  /** @param {Status[]} all */
  replace(all) {
    this.users = new Map(all.map((status) => [status.user, status]));
  }

  /** @param {{user: string, status: Status}} event */
  receive({ user, status }) {
    this.users.set(user, status);
  }

  /** @param {string} user */
  unfollowed(user) {
    this.users.delete(user);
  }
}

/** Emits `status`, `statuses` and `inbox`. */
export class Me extends Emitter {
  #session;
  #statuses = new Statuses();

  /** @param {Session} session */
  constructor(session) {
    super();
    this.#session = session;
  }

  /** The statuses of followed users that the server has sent so far. */
  get statuses() {
    return this.#statuses.users;
  }

  /** @param {string[]} users @returns {Promise<Status[]>} */
  async status(users) {
    return (await this.#session.call('status', { users })).statuses;
  }

  /** @param {string} user */
  async follow(user) {
    await this.#session.call('follow', { user });
  }

  /** @param {string} user */
  async unfollow(user) {
    await this.#session.call('unfollow', { user });
    this.#statuses.unfollowed(user);
  }

  /** @param {Part} [part] @returns {Promise<Users>} */
  following(part) {
    return this.#session.call('following', { ...part });
  }

  /** @param {Part} [part] @returns {Promise<Users>} */
  followers(part) {
    return this.#session.call('followers', { ...part });
  }

  /** @param {'everyone' | 'followers_i_follow' | 'nobody'} value */
  async visibility(value) {
    await this.#session.call('visibility', { value });
  }

  /** @param {any} event */
  receive(event) {
    switch (event.event) {
      case 'status':
        this.#statuses.receive(event);
        return this.emit('status', event);
      case 'statuses':
        this.#statuses.replace(event.statuses);
        this.emit('statuses', event.statuses);
        for (const status of event.statuses) this.emit('status', { user: status.user, status, change: 'none' });
        return;
      default:
        this.emit('inbox', event);
    }
  }
}
