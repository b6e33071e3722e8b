// Listeners, promises of one event, and iterators.
// Must hold: a failing listener affects nothing else; an iterator is bounded and says what it lost; nothing waits after the end.

import { UNREAD_MAX } from './bounds.js';
import { TavernError } from './errors.js';

/** @import { Listener } from './internal.js' */

export class Emitter {
  /** @type {Map<string, Set<Listener>>} */
  #listeners = new Map();
  /** @type {Set<(error: TavernError) => void>} what waits for an event */
  #waiting = new Set();
  /** @type {TavernError | undefined} */
  #ended;

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
    /** @type {Promise<any>} */
    const promise = new Promise((resolve, reject) => {
      /** @param {any} event */
      const handler = (event) => {
        stop();
        listener?.(event);
        resolve(event);
      };
      const stop = this.wait(type, handler, reject);
    });
    // Whoever does not await it need not know that the client has closed.
    promise.catch(() => {});
    return promise;
  }

  /** Calls `handler` with each event, and `end` at the end. Returns a function that stops both. @param {string} type @param {Listener} handler @param {(error: TavernError) => void} end */
  wait(type, handler, end) {
    this.on(type, handler);
    const over = (/** @type {TavernError} */ error) => {
      stop();
      end(error);
    };
    const stop = () => {
      this.off(type, handler);
      this.#waiting.delete(over);
    };
    this.#waiting.add(over);
    if (this.#ended) over(this.#ended);
    return stop;
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

  /** Ends iterators and promises. Without an error: there may be events again. @param {TavernError} [error] */
  end(error) {
    this.#ended = error;
    if (error) for (const over of [...this.#waiting]) over(error);
  }
}

/** @param {Emitter} source @param {string} type @returns {AsyncIterableIterator<any>} */
export function iterate(source, type) {
  /** @type {any[]} */
  const unread = [];
  /** @type {{resolve(result: IteratorResult<any>): void, reject(error: TavernError): void}[]} */
  const readers = [];
  const done = { value: undefined, done: true };
  let over = false;
  let lost = 0;
  /** @type {TavernError | undefined} */
  let fault;
  const stop = source.wait(
    type,
    (event) => {
      const reader = readers.shift();
      if (reader) return reader.resolve({ value: event, done: false });
      if (unread.push(event) <= UNREAD_MAX) return;
      unread.shift();
      lost++;
    },
    (error) => {
      over = true;
      if (error.code !== 'closed') fault = error;
      for (const { resolve, reject } of readers.splice(0)) fault ? reject(fault) : resolve(done);
    },
  );
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      if (lost) {
        const error = new TavernError('overflow', `the iterator was read too slowly: ${lost} events were dropped`);
        lost = 0;
        throw error;
      }
      if (unread.length) return { value: unread.shift(), done: false };
      if (fault) throw fault;
      return over ? done : new Promise((resolve, reject) => readers.push({ resolve, reject }));
    },
    async return() {
      over = true;
      stop();
      for (const { resolve } of readers.splice(0)) resolve(done);
      return done;
    },
  };
}
