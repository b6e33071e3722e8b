// The client object that apps use: routes the events of its session to channels, party and user.
// Must hold: one `Channel` per name; after the end nothing waits.

import { Channel, Pattern } from './channel.js';
import { Emitter } from './emitter.js';
import { matches } from './glob.js';
import { Me } from './me.js';
import { PartyClient } from './party.js';
import { Session } from './session.js';

/** @import { Options, TavernError } from '../tavern.js' */

/** One session with a server or a cluster. */
export class Tavern extends Emitter {
  /** @type {Map<string, Channel>} */
  #channels = new Map();
  /** @type {Map<string, Channel>} by the name that the authorize hook chose */
  #aliases = new Map();
  /** @type {Map<string, Pattern>} */
  #patterns = new Map();
  #session;
  /** @type {TavernError | undefined} */
  #ended;

  /** @param {string | URL} [url] @param {Options} [options] */
  constructor(url = globalThis.location?.origin, options = {}) {
    super();
    this.#session = new Session(url, options, {
      event: (event) => this.#onEvent(event),
      party: (party) => this.party.snapshot(party),
      change: (type, event) => this.#onChange(type, event),
      redirected: (channel) => this.#aliases.set(channel.actual, channel),
      restore: () => this.#restore(),
    });
    this.me = new Me(this.#session);
    this.party = new PartyClient(this.#session);
  }

  get state() {
    return this.#session.state;
  }

  get transport() {
    return this.#session.transport;
  }

  get client() {
    return this.#session.client;
  }

  get user() {
    return this.#session.user;
  }

  get node() {
    return this.#session.node;
  }

  get ticket() {
    return this.#session.ticket;
  }

  /** @returns {Promise<void>} */
  connect() {
    this.#end();
    return this.#session.connect();
  }

  /** @returns {Promise<void>} */
  close() {
    return this.#session.close();
  }

  suspend() {
    this.#session.suspend();
  }

  /** @param {string} name @returns {Channel} the same object for the same name */
  channel(name) {
    return this.#known(this.#channels, name, Channel);
  }

  /** @param {string} glob @returns {Pattern} */
  pattern(glob) {
    return this.#known(this.#patterns, glob, Pattern);
  }

  /** @template {Emitter} T @param {Map<string, T>} all @param {string} name @param {new (session: Session, name: string) => T} Kind */
  #known(all, name, Kind) {
    let one = all.get(name);
    if (!one) {
      all.set(name, (one = new Kind(this.#session, name)));
      one.end(this.#ended);
    }
    return one;
  }

  /** @param {string} op @param {any} [members] @param {boolean} [repeatable] @returns {Promise<any>} */
  call(op, members, repeatable) {
    return this.#session.call(op, members, repeatable);
  }

  /** Ends what waits for events; without an error there may be events again. @param {TavernError} [error] */
  #end(error) {
    this.#ended = error;
    for (const emitter of [this, this.me, this.party, ...this.#channels.values(), ...this.#patterns.values()]) emitter.end(error);
  }

  /** @param {string} type @param {any} [event] */
  #onChange(type, event) {
    this.emit(type, event);
    if (type === 'closed' && this.state === 'closed') this.#end(event.error);
  }

  /** @returns {Promise<{channel: string, error: TavernError}[]>} what could not be restored */
  async #restore() {
    const asked = [...this.#channels, ...this.#patterns].flatMap(([channel, subscription]) =>
      subscription.restore().map((done) => done.then(() => undefined, (error) => ({ channel, error }))),
    );
    return (await Promise.all(asked)).filter((failure) => failure !== undefined);
  }

  /** @param {any} event */
  #onEvent(event) {
    const { channel: name, pattern } = event;
    const wanted = this.#patterns.get(pattern);
    switch (event.event) {
      case 'gap':
        for (const one of name ? [this.#find(name)] : pattern ? [] : this.#channels.values()) one.missed(event);
        for (const one of pattern ? [wanted] : name ? [] : this.#patterns.values()) one?.emit('gap', event);
        if (!name && !pattern) {
          if (this.party.current) this.party.reload();
          this.#session.loadStatuses();
        }
        break;
      case 'revoked':
        if (name) this.#find(name).revoked(event);
        wanted?.revoked(event);
        break;
      case 'status':
      case 'statuses':
      case 'inbox':
        return this.me.receive(event);
      case 'party':
        return this.party.receive(event);
      default:
        if (name?.startsWith('party#')) this.party.emit('say', event);
        else if (name !== undefined && !this.#find(name).receive(event)) return;
        if (event.event === 'message') {
          for (const one of this.#patterns.values()) if (one.subscribed && matches(one.glob, name)) one.deliver(event);
        }
    }
    this.emit(event.event, event);
  }

  /** @param {string} name */
  #find(name) {
    return this.#aliases.get(name) ?? this.channel(name);
  }
}
