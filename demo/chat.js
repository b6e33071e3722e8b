// Chat messages and notes in one list. Must hold: the list and its queue are bounded.
import { $, attempt, h, time } from '/demo/dom.js';

const SHOWN_MAX = 200;
const TEXT_MAX = 500;
/** How many earlier messages a newcomer sees. */
const EARLIER = 50;
const PAINT_MS = 50;

export class Chat {
  #waiting = [];
  #painting = false;
  /** Messages received, shown or not. */
  received = 0;

  constructor({ lobby }) {
    this.lobby = lobby;
    const form = $('send');
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const text = $('text').value.trim();
      if (!text) return;
      $('text').value = '';
      attempt(form.querySelector('button'), () => this.lobby.publish({ text }));
    });
  }

  listen() {
    return this.lobby.subscribe(({ from, data, at = Date.now() }) => {
      this.received++;
      this.#add({ at, user: from?.user ?? 'anonymous', text: textOf(data) });
    }, { last: EARLIER });
  }

  /** A line about something that happened. */
  note(text) {
    this.#add({ at: Date.now(), text });
  }

  #add(line) {
    this.#waiting.push(line);
    if (this.#waiting.length > SHOWN_MAX) this.#waiting.shift();
    if (this.#painting) return;
    this.#painting = true;
    setTimeout(() => this.#paint(), PAINT_MS);
  }

  #paint() {
    this.#painting = false;
    const log = $('log');
    const low = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    $('said').append(...this.#waiting.splice(0).map(row));
    while ($('said').childElementCount > SHOWN_MAX) $('said').firstElementChild.remove();
    if (low) log.scrollTop = log.scrollHeight;
  }
}

const row = ({ at, user, text }) =>
  h('li', { class: user === undefined ? 'fact' : 'said' }, h('time', {}, time(at)), user !== undefined && h('b', {}, user), h('span', {}, text));

function textOf(data) {
  const text = typeof data?.text === 'string' ? data.text : typeof data === 'string' ? data : JSON.stringify(data);
  return text.slice(0, TEXT_MAX);
}
