// One connection over WebSocket, SSE or long-poll: opens with a hello, sends commands, reports frames and its end.
// Must hold: `end` is reported for every connection that `close` did not end; no secret is in a URL, because URLs are logged.

import { ANSWER_MAX } from './bounds.js';
import { attempt, foreign, refusal } from './errors.js';

/** @import { Ticket, TransportName } from '../tavern.js' */
/** @import { Ending, Link, LinkEvents, LinkIo } from './internal.js' */

const SEND_MS = 30_000;

/** @type {Record<TransportName, (io: LinkIo, on: LinkEvents) => Link>} */
export const LINKS = {
  websocket(io, on) {
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
      send: (text) => socket.send(text),
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
        if (done || text.length > ANSWER_MAX) return on.end({ reached: greeted });
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
        const reply = await io.post('/v1/poll', ask, io.pollMs() * 2, abort.signal);
        if (reply.error) return on.end(ending(reply.error));
        on.alive();
        if (reply.reset) {
          const again = await hello({ session: reply.session });
          if (again.error) return on.end(ending(again.error));
          on.hello({ ...again.ok, reset: true });
        }
        for (const event of reply.events) on.frame(event);
        if (reply.superseded) on.frame({ event: 'superseded' });
        else on.party(reply.party);
      }
    };
    run().catch((cause) => on.end({ cause }));
    return httpSender(io, on, abort);
  },
};

/** Sends commands over HTTP, one at a time. @param {LinkIo} io @param {LinkEvents} on @param {AbortController} abort @returns {Link} */
function httpSender(io, on, abort) {
  /** @type {[string, number][]} */
  const waiting = [];
  let busy = false;
  const sendNext = async () => {
    busy = true;
    while (waiting.length && !abort.signal.aborted) {
      const [text, id] = /** @type {[string, number]} */ (waiting.shift());
      try {
        const reply = await io.post('/v1/command', { ...JSON.parse(text), session: io.ticket()?.session }, SEND_MS, abort.signal);
        on.alive();
        on.frame({ ...reply, id });
      } catch (cause) {
        on.end({ cause });
      }
    }
    busy = false;
  };
  return {
    send(text, id) {
      waiting.push([text, id]);
      if (!busy) sendNext();
    },
    close: () => abort.abort(),
  };
}

/** The JSON of a response, or an error that says what else it is. @param {Response} response @returns {Promise<any>} */
export async function answer(response) {
  const body = await response.json().catch(() => undefined);
  if (body?.error ? typeof body.error.code === 'string' : response.ok && body) return body;
  return { error: foreign(`HTTP ${response.status}: `) };
}

/** @param {any} [error] @returns {Ending} */
const ending = (error = foreign()) => ({ error: refusal(error), reached: error.foreign });
