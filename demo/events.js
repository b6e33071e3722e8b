// Pulls a subscription as a service does and shows its events. Must hold: the list is bounded; no requests while disconnected.
import { $, h, time } from '/demo/dom.js';

const SHOWN_MAX = 100;
const WAIT_MS = 20_000;
const PAUSE_MS = 500;
const PAUSE_MAX_MS = 8_000;

export class Receiver {
  #after;
  #abort = new AbortController();
  #running = false;

  constructor({ tavern }) {
    this.tavern = tavern;
    $('events').replaceChildren(this.#nothing());
  }

  #nothing() {
    return h('li', { class: 'muted', id: 'no-events' }, 'No events yet. Join, leave or invite a user.');
  }

  /** Pulls once, which creates the subscription if necessary. */
  begin() {
    return this.#ask(0).catch(() => {});
  }

  async start() {
    if (this.#running) return;
    this.#running = true;
    let pause = PAUSE_MS;
    while (!this.#abort.signal.aborted) {
      // While the client reconnects the server may be down. After a manual disconnect it is not.
      if (this.tavern.state === 'connecting') {
        await sleep(PAUSE_MS);
        continue;
      }
      try {
        await this.#ask(WAIT_MS);
        pause = PAUSE_MS;
      } catch {
        await sleep(pause);
        pause = Math.min(pause * 2, PAUSE_MAX_MS);
      }
    }
  }

  stop() {
    this.#abort.abort();
  }

  /** The answer of a matchmaker. It is no event: it comes from a service. */
  answered(text) {
    this.#add([h('li', { class: 'answer' }, h('b', {}, 'Your matchmaker answered'), h('time', {}, time(Date.now())), h('span', {}, text))]);
  }

  async #ask(wait) {
    const query = new URLSearchParams({ wait_ms: String(wait) });
    if (this.#after !== undefined) query.set('after', String(this.#after));
    const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(WAIT_MS * 2)]);
    const response = await fetch(`/demo/events?${query}`, { cache: 'no-store', signal });
    const answer = await response.json();
    if (!response.ok) {
      // The log was truncated or replaced: start from now.
      if (['gone', 'bad_request'].includes(answer.error?.code)) this.#after = undefined;
      throw new Error(answer.error?.message);
    }
    this.#after = answer.next_after;
    if (answer.events.length) this.#show(answer.events);
  }

  #show(events) {
    this.#add(events.slice(-SHOWN_MAX).map(row));
  }

  /** Rows on top of the list, the last first. */
  #add(rows) {
    const list = $('events');
    $('no-events')?.remove();
    list.prepend(...rows.reverse());
    while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
  }
}

function row({ seq, topic, type, time: at, data }) {
  const body = JSON.stringify(data ?? null, null, 1).slice(0, 2000);
  return h('li', {},
    h('details', {},
      h('summary', {}, h('span', { class: 'seq' }, `#${seq}`), h('b', {}, type), h('span', { class: 'event-summary' }, summaryText(data)), h('time', {}, at ? time(at) : '')),
      h('p', { class: 'muted' }, topic),
      h('pre', { tabindex: '0' }, h('code', {}, body))));
}

/** A short summary of an event. */
function summaryText(data) {
  const { user, leader, channel, reason, members } = data ?? {};
  const parts = [user, leader && `${leader} leads`, channel && `in ${channel}`, reason && `(${reason})`, Array.isArray(members) && members.join(', ')];
  return parts.filter((part) => typeof part === 'string').join(' ').slice(0, 120);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
