// A fake server: tests open, answer and drop its sockets by hand.
import { after } from 'node:test';
import { Tavern } from './client.mjs';

/** @type {Tavern[]} */
const made = [];
// A command that waits for its reply keeps the process alive.
after(() => Promise.all(made.map((tavern) => tavern.close())));

export const HELLO = { session: 's1', client: 'c1', user: 'ann', node: 'n1', resumed: false, seq: 0, heartbeat_ms: 15_000, party: null };

export const sleep = (ms = 0) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `fact` is true. */
export async function until(fact, ms = 3000) {
  const end = Date.now() + ms;
  while (!fact()) {
    if (Date.now() > end) throw new Error(`waited for ${fact}`);
    await sleep(2);
  }
}

export class FakeServer {
  sockets = [];
  requests = [];
  /** Answers HTTP requests; by default no server is reachable. */
  http = () => {
    throw new TypeError('fetch failed');
  };

  constructor() {
    const server = this;
    this.WebSocket = class {
      sent = [];
      closed = false;
      constructor(url) {
        this.url = new URL(url);
        server.sockets.push(this);
        server.onConnect?.(this);
      }
      send(text) {
        const frame = JSON.parse(text);
        if (frame.id === 0) this.hello = frame;
        else this.sent.push(frame);
        server.onCommand?.(this, frame);
      }
      close() {
        this.closed = true;
      }
      // Called by tests.
      open() {
        this.onopen?.({});
      }
      push(frame) {
        this.onmessage?.({ data: JSON.stringify(frame) });
      }
      drop(code = 1006) {
        this.onclose?.({ code });
      }
    };
    this.fetch = async (url, options) => {
      const request = { url: new URL(url), body: options.body && JSON.parse(options.body), headers: options.headers, signal: options.signal };
      this.requests.push(request);
      return this.http(request);
    };
  }

  tavern(options) {
    const tavern = new Tavern('http://tavern.test', { user: 'ann', WebSocket: this.WebSocket, fetch: this.fetch, ...options });
    made.push(tavern);
    return tavern;
  }

  get last() {
    return this.sockets.at(-1);
  }

  /** A client with an open session, on a socket that answers every command with ok. */
  async open(options, hello = {}) {
    this.onCommand = (socket, frame) => frame.op !== 'hello' && queueMicrotask(() => socket.push({ id: frame.id, ok: this.ok?.(frame) ?? {} }));
    const tavern = this.tavern(options);
    const opened = tavern.connect();
    await until(() => this.last);
    this.sendHello(hello);
    await opened;
    return tavern;
  }

  sendHello(hello = {}) {
    this.last.open();
    this.last.push({ ok: { ...HELLO, ...hello } });
  }

  /** The next socket, after a lost connection. */
  async reconnected(hello) {
    const before = this.sockets.length;
    await until(() => this.sockets.length > before);
    if (hello) this.sendHello(hello);
    return this.last;
  }
}

export const json = (body, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } });
