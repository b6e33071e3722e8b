// Channels and patterns: subscriptions, messages, own presence, the presence map.
// Must hold: a new session restores exactly what the app wants and the server has not refused for good.

import { Emitter, iterate } from './emitter.js';
import { TavernError, isFinal } from './errors.js';
import { HistoryCursor } from './history_cursor.js';
import { Presence } from './presence.js';

/** @import { HistoryPage, Message, Part, Position, Published, SubscribeOptions } from '../tavern.js' */
/** @import { Listener } from './internal.js' */
/** @import { Session } from './session.js' */

const HELD_MAX = 1024;

/** Emits `message`, `gap` and `revoked`. */
class Subscription extends Emitter {
  /** @protected @type {Session} */
  session;
  /** @protected whether the app wants messages */
  listens = false;
  /** Own messages reach the app. */
  #echo = true;
  /** @type {Message<any>[] | undefined} messages before the first listener, as after a page load */
  #held = [];

  /** @param {Session} session */
  constructor(session) {
    super();
    this.session = session;
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

  [Symbol.asyncIterator]() {
    return iterate(this, 'message');
  }

  /**
   * @param {((message: Message<any>) => void) | SubscribeOptions} [listener] @param {SubscribeOptions} [options]
   * @returns {Promise<void>}
   */
  async subscribe(listener, options = {}) {
    if (typeof listener === 'function') this.on('message', listener);
    else options = listener ?? options;
    const { echo = this.#echo, ...from } = options;
    this.#echo = echo;
    this.listens = true;
    try {
      await this.listen(from);
    } catch (error) {
      if (isFinal(error)) this.listens = false;
      throw error;
    }
  }

  /** @protected @param {any} _from @returns {Promise<void>} */
  async listen(_from) {}

  /** @param {Message<any>} message */
  deliver(message) {
    if (!this.#echo && this.session.isOwn(message.from?.client)) return;
    if (!this.#held) this.emit('message', message);
    else if (this.#held.push(message) > HELD_MAX) this.#held.shift();
  }

  /** A fresh token does not allow this any more. @param {any} event */
  revoked(event) {
    if (event.verb === 'subscribe') this.listens = false;
    this.emit('revoked', event);
  }
}

/** All channels whose names match a glob. */
export class Pattern extends Subscription {
  /** @param {Session} session @param {string} glob */
  constructor(session, glob) {
    super(session);
    this.glob = glob;
  }

  get subscribed() {
    return this.listens;
  }

  async unsubscribe() {
    this.listens = false;
    await this.session.call('unsubscribe', { pattern: this.glob });
  }

  /** @protected @override */
  async listen() {
    await this.session.call('subscribe', { pattern: this.glob });
  }

  /** @returns {Promise<any>[]} */
  restore() {
    return this.listens ? [this.listen()] : [];
  }
}

/** Also emits `recovered` when a new session has asked for what was missed. */
export class Channel extends Subscription {
  #cursor = new HistoryCursor();
  /** @type {{state: any} | undefined} */
  #joined;
  /** @type {Presence | undefined} */
  #presence;

  /** @param {Session} session @param {string} name */
  constructor(session, name) {
    super(session);
    this.name = name;
    /** The channel that the authorize hook chose; usually the same. */
    this.actual = name;
  }

  /** Where this client is in the history of the channel. @returns {Position | undefined} */
  get position() {
    return this.#cursor.position;
  }

  async unsubscribe() {
    this.listens = false;
    this.#presence = undefined;
    this.#cursor = new HistoryCursor();
    await this.session.call('unsubscribe', { channel: this.actual });
  }

  /** @param {any} data @param {{id?: string, retain?: boolean}} [options] @returns {Promise<Published>} */
  publish(data, { id, retain } = {}) {
    return this.session.call('publish', { channel: this.name, data, message_id: id, retain });
  }

  /** @param {{after?: number, before?: number, limit?: number}} [part] @returns {Promise<HistoryPage<any>>} */
  history(part) {
    return this.session.call('history', { channel: this.name, ...part });
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
      await this.session.call(op, { channel: this.name, state });
    } catch (error) {
      if (isFinal(error) && this.#joined === joined) this.#joined = undefined;
      throw error;
    }
  }

  async leave() {
    this.#joined = undefined;
    await this.session.call('leave', { channel: this.name });
  }

  /** @param {Part & {counts_only?: boolean}} [part] @returns {Promise<any>} */
  who(part) {
    return this.session.call('who', { channel: this.name, ...part });
  }

  /** Subscribes with presence. @returns {Promise<Presence>} */
  async presence() {
    const known = this.#presence;
    if (known?.version !== undefined) return known;
    const presence = (this.#presence ??= new Presence(() => this.#ask()));
    try {
      await this.listen();
    } catch (error) {
      if (isFinal(error) && this.#presence === presence) this.#presence = undefined;
      throw error;
    }
    return presence;
  }

  /** @protected @override @param {any} [from] with the last messages, or after a position */
  async listen(from) {
    const presence = this.#presence;
    const cursor = this.#cursor;
    // Over HTTP messages may arrive before the reply.
    const known = from?.last !== undefined || from?.since ? cursor.restart() : undefined;
    let ok;
    try {
      ok = await this.session.call('subscribe', { channel: this.name, presence: presence ? true : undefined, ...from });
    } catch (error) {
      cursor.position ??= known;
      throw error;
    }
    cursor.replied(ok);
    const { recovered } = ok;
    if (recovered !== undefined) this.emit('recovered', { recovered });
    if (recovered === false) this.emit('gap', { event: 'gap', channel: this.name });
    if (ok.channel) {
      this.actual = ok.channel;
      this.session.on.redirected(this);
    }
    if (presence && ok.members && presence === this.#presence) presence.snapshot(ok.members);
  }

  /** Asks again on its own; a loss of the connection asks again anyway. @param {any} [from] */
  #ask(from) {
    this.listen(from).catch(() => {});
  }

  /** @returns {Promise<any>[]} */
  restore() {
    const asked = [];
    const since = this.position;
    this.#presence?.invalidate();
    if (this.#presence || this.listens) asked.push(this.listen(since && { since }));
    if (this.#joined) asked.push(this.join(this.#joined.state));
    return asked;
  }

  /** @override @param {any} event */
  revoked(event) {
    if (event.verb === 'join') this.#joined = undefined;
    else this.#presence = undefined;
    super.revoked(event);
  }

  /** Events were lost. @param {any} event */
  missed(event) {
    if (event.channel !== undefined) this.#cursor.announceGap();
    this.#presence?.lose();
    this.emit('gap', event);
  }

  /** @param {any} event @returns {boolean} false: it is not new */
  receive(event) {
    if (event.event !== 'message') {
      this.#presence?.receive(event);
      return true;
    }
    const since = this.position;
    const turn = this.#cursor.take(event);
    if (turn === 'deliver') this.deliver(event);
    else if (turn === 'heal') {
      const cursor = this.#cursor;
      this.session.call('subscribe', { channel: this.name, since }).then(
        (ok) => this.#healed(cursor, ok),
        () => cursor.failed(),
      );
    }
    return turn === 'deliver';
  }

  /** @param {HistoryCursor} cursor @param {any} ok */
  #healed(cursor, ok) {
    cursor.replied(ok);
    const { recovered } = ok;
    this.emit('recovered', { recovered });
    if (recovered === false) this.emit('gap', { event: 'gap', channel: this.name });
  }

  /** @override @param {TavernError} [error] */
  end(error) {
    super.end(error);
    this.#presence?.end(error);
  }
}
