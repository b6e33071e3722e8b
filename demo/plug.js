// The plug: drops the line and keeps the session, as a tunnel or a closed lid does, and shows how much time is left to come back.
import { $, attempt, seconds } from '/demo/dom.js';

export class Plug {
  /** When the line went, while it is down. */
  #cutAt;
  #ticking;

  constructor(me) {
    this.me = me;
    const { tavern } = me;
    $('plug').addEventListener('click', () => attempt($('plug'), () => (tavern.state === 'suspended' ? this.plugIn() : this.pull())));
    tavern.on('open', ({ resumed }) => this.#back(resumed));
    tavern.on('resumed', () => this.#back(true));
    tavern.on('reset', () => this.#back(false));
    tavern.on('reconnecting', () => this.#cut());
    this.#show();
  }

  pull() {
    this.me.tavern.suspend();
    this.#cut();
  }

  plugIn() {
    $('plug').disabled = true;
    return this.me.tavern.connect().finally(() => ($('plug').disabled = false));
  }

  #cut() {
    this.#cutAt ??= Date.now();
    clearInterval(this.#ticking);
    this.#ticking = setInterval(() => this.#show(), 100);
    this.#show();
  }

  #back(resumed) {
    if (this.#cutAt !== undefined) {
      const away = Date.now() - this.#cutAt;
      const { resume_ms, grace_ms } = this.me.times;
      const told =
        away < resume_ms && resumed ? 'nobody noticed' : away < grace_ms ? 'inside the grace: the others saw you away and back' : 'after the grace: the others saw you leave and come in again';
      this.me.chat.tell(`Back after ${(away / 1000).toFixed(1)} s, ${told}.${resumed ? ' The session went on; what was said meanwhile is here.' : ' It is a new session.'}`);
    }
    this.#cutAt = undefined;
    clearInterval(this.#ticking);
    this.#show();
  }

  #show() {
    const { tavern, times } = this.me;
    const pulled = tavern.state === 'suspended';
    $('plug').textContent = pulled ? 'Plug in' : 'Pull the plug';
    $('cut').hidden = this.#cutAt === undefined;
    document.body.dataset.line = this.#cutAt === undefined ? tavern.state : 'cut';
    if (this.#cutAt === undefined) {
      $('state').textContent = tavern.state === 'open' ? `connected by ${tavern.transport}` : 'connecting …';
      return;
    }
    $('state').textContent = pulled ? 'the plug is pulled' : 'connection lost, trying to come back …';
    const away = Date.now() - this.#cutAt;
    const left = times.grace_ms - away;
    $('left').style.width = `${Math.max(0, (left / times.grace_ms) * 100)}%`;
    $('cut-text').textContent =
      left <= 0 ? 'The grace is over: the others saw you leave.'
      : away < times.resume_ms ? `Nobody has noticed yet. Your place is kept for ${seconds(left)}.`
      : `The others see that your connection is lost. Your place is kept for ${seconds(left)}.`;
  }
}
