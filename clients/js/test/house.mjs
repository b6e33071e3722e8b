// A server that a test plays itself: sockets that it opens, answers and drops by hand.
import { Tavern } from '../tavern.js';

export const HELLO = { session: 's1', client: 'c1', user: 'ann', node: 'n1', resumed: false, seq: 0, heartbeat_ms: 15_000, party: null };

export const turn = (ms = 0) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a fact. */
export async function until(fact, ms = 3000) {
  const end = Date.now() + ms;
  while (!fact()) {
    if (Date.now() > end) throw new Error(`waited for ${fact}`);
    await turn(2);
  }
}

export class House {
  sockets = [];
  requests = [];
  /** What a request by HTTP is answered; by default nobody is there. */
  http = () => {
    throw new TypeError('fetch failed');
  };

  constructor() {
    const house = this;
    this.WebSocket = class {
      sent = [];
      closed = false;
      constructor(url) {
        this.url = new URL(url);
        house.sockets.push(this);
        house.arrived?.(this);
      }
      send(text) {
        this.sent.push(JSON.parse(text));
        house.heard?.(this, this.sent.at(-1));
      }
      close() {
        this.closed = true;
      }
      // What the test does.
      open() {
        this.onopen?.({});
      }
      say(frame) {
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
    return new Tavern('http://tavern.test', { user: 'ann', WebSocket: this.WebSocket, fetch: this.fetch, ...options });
  }

  get last() {
    return this.sockets.at(-1);
  }

  /** A client whose session is open on a socket that answers every command with ok. */
  async open(options, hello = {}) {
    this.heard = (socket, frame) => frame.op !== 'hello' && queueMicrotask(() => socket.say({ id: frame.id, ok: this.ok?.(frame) ?? {} }));
    const tavern = this.tavern(options);
    const opened = tavern.connect();
    await until(() => this.last);
    this.greet(hello);
    await opened;
    return tavern;
  }

  greet(hello = {}) {
    this.last.open();
    this.last.say({ ok: { ...HELLO, ...hello } });
  }

  /** The next socket after a loss. */
  async again(hello) {
    const before = this.sockets.length;
    await until(() => this.sockets.length > before);
    if (hello) this.greet(hello);
    return this.last;
  }
}

export const json = (body, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } });
