// The connection card: disconnects without ending the session, like a lost network, and shows the time left to reconnect.
import { $, attempt, seconds } from '/demo/dom.js';

export class ConnectionCard {
  /** When the connection was lost; undefined while connected. */
  #lostAt;
  #ticking;

  constructor(me) {
    this.me = me;
    const { tavern } = me;
    $('disconnect').addEventListener('click', () => attempt($('disconnect'), () => (tavern.state === 'suspended' ? this.reconnect() : this.disconnect())));
    tavern.on('open', ({ resumed }) => this.#onBack(resumed));
    tavern.on('resumed', () => this.#onBack(true));
    tavern.on('reset', () => this.#onBack(false));
    tavern.on('reconnecting', () => this.#outage());
    this.#show();
  }

  disconnect() {
    this.me.tavern.suspend();
    this.#outage();
  }

  reconnect() {
    $('disconnect').disabled = true;
    return this.me.tavern.connect().finally(() => ($('disconnect').disabled = false));
  }

  #outage() {
    if (this.#lostAt === undefined) {
      this.#lostAt = Date.now();
      this.me.chat.note('You lost the connection.');
    }
    clearInterval(this.#ticking);
    this.#ticking = setInterval(() => this.#show(), 100);
    this.#show();
  }

  #onBack(resumed) {
    if (this.#lostAt !== undefined) {
      const away = Date.now() - this.#lostAt;
      const { resume_ms, grace_ms } = this.me.times;
      const seen =
        away < resume_ms && resumed ? 'no one noticed' : away < grace_ms ? 'within the grace period: others saw you leaving and back' : 'after the grace period: others saw you leave and join again';
      this.me.chat.note(`Back after ${(away / 1000).toFixed(1)} s, ${seen}.${resumed ? ' The session was resumed with all messages.' : ' This is a new session.'}`);
    }
    this.#lostAt = undefined;
    clearInterval(this.#ticking);
    this.#show();
  }

  #show() {
    const { tavern, times } = this.me;
    const suspended = tavern.state === 'suspended';
    $('disconnect').textContent = suspended ? 'Reconnect' : 'Disconnect';
    $('outage').hidden = this.#lostAt === undefined;
    document.body.dataset.connection = this.#lostAt === undefined ? tavern.state : 'cut';
    if (this.#lostAt === undefined) {
      $('state').textContent = tavern.state === 'open' ? `connected over ${tavern.transport}` : 'connecting …';
      return;
    }
    $('state').textContent = suspended ? 'disconnected' : 'connection lost, reconnecting …';
    const away = Date.now() - this.#lostAt;
    const left = times.grace_ms - away;
    $('left').style.width = `${Math.max(0, (left / times.grace_ms) * 100)}%`;
    $('outage-text').textContent =
      left <= 0 ? 'The grace period is over: others saw you leave.'
      : away < times.resume_ms ? `No one has noticed yet. You stay present for ${seconds(left)}.`
      : `Others see that your connection is lost. You stay present for ${seconds(left)}.`;
  }
}
