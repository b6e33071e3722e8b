// The panel with the frames of this page as they travel. Must hold: bounded; nothing is kept while the panel is closed, paused or
// the page is hidden; no secret is shown.
import { $, h, throttle, time } from '/demo/dom.js';

const SHOWN_MAX = 100;
const TEXT_MAX = 1000;
const PAINT_MS = 100;
const SECRETS = /"(session|token|resume)":"([^"]{4})[^"]*"/g;

export class Frames {
  #waiting = [];
  #paused = false;
  #counts = { sent: 0, received: 0 };
  #draw = throttle(() => this.#paint(), PAINT_MS);

  constructor() {
    $('frames').addEventListener('toggle', this.#draw);
    $('frames-pause').addEventListener('click', () => {
      this.#paused = !this.#paused;
      this.#draw();
    });
    document.addEventListener('visibilitychange', this.#draw);
    this.#paint();
  }

  /** A WebSocket that reports what it sends and receives. */
  get WebSocket() {
    const seen = (direction, data) => this.#seen(direction, data);
    return class extends WebSocket {
      constructor(...given) {
        super(...given);
        this.addEventListener('message', ({ data }) => seen('received', data));
      }

      send(data) {
        seen('sent', data);
        super.send(data);
      }
    };
  }

  /** The same for requests, which the client makes where no WebSocket gets through. */
  get fetch() {
    return async (address, options) => {
      if (typeof options?.body === 'string') this.#seen('sent', options.body);
      const response = await fetch(address, options);
      this.#read(response.clone()).catch(() => {});
      return response;
    };
  }

  /** A frame is a line of an event stream, or the whole answer to a command. */
  async #read(response) {
    let text = '';
    const decoder = new TextDecoder();
    for (const reader = response.body.getReader(); ; ) {
      const { value, done } = await reader.read();
      const lines = `${text}${decoder.decode(value, { stream: !done })}`.split('\n');
      text = done ? '' : lines.pop();
      for (const line of lines) if (/^(data:|{)/.test(line)) this.#seen('received', line.replace(/^data: ?/, ''));
      if (done) return;
    }
  }

  get #watching() {
    return $('frames').open && !this.#paused && !document.hidden;
  }

  #seen(direction, data) {
    this.#counts[direction]++;
    if (!document.hidden) this.#draw();
    if (!this.#watching) return;
    const cut = typeof data === 'string' ? data.slice(0, TEXT_MAX) : '(binary)';
    this.#waiting.push({ direction, at: Date.now(), text: cut.replace(SECRETS, '"$1":"$2…"'), more: data.length > TEXT_MAX });
    if (this.#waiting.length > SHOWN_MAX) this.#waiting.shift();
  }

  #paint() {
    const { sent, received } = this.#counts;
    $('frames-count').textContent = `${sent} sent, ${received} received`;
    $('frames-pause').textContent = this.#paused ? 'Continue' : 'Pause';
    const list = $('frame-list');
    // The newest is on top.
    list.prepend(...this.#waiting.splice(0).reverse().map(row));
    while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
  }
}

const row = ({ direction, at, text, more }) =>
  h('li', { class: direction }, h('time', {}, time(at)), h('b', {}, direction === 'sent' ? '↑ sent' : '↓ received'), h('code', {}, text, more && ' …'));
