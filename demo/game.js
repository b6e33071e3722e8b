// A game is a channel that one is present in. The lobby shows it by the state one has there; followers hear it as a change of status.
import { $, attempt, calmly } from '/demo/dom.js';

const KEPT = 'tavern demo game';

export class Game {
  #channel;
  #draw = calmly(() => this.#paint());

  constructor(me) {
    this.me = me;
    $('play').addEventListener('click', () => attempt($('play'), () => (this.#channel ? this.end() : this.play(`game#${code()}`))));
  }

  state() {
    return { game: this.#channel?.name ?? null };
  }

  /** After a reload one still plays. */
  async restore() {
    const name = sessionStorage.getItem(KEPT);
    if (name) await this.play(name).catch(() => sessionStorage.removeItem(KEPT));
  }

  async play(name) {
    if (this.#channel?.name === name) return;
    if (this.#channel) await this.#leave();
    const channel = this.me.tavern.channel(name);
    await channel.join({ since: Date.now() });
    this.#channel = channel;
    sessionStorage.setItem(KEPT, name);
    this.presence = await channel.presence();
    this.presence.on('change', this.#draw);
    await this.me.lobby.join(this.state());
    this.#paint();
  }

  async end() {
    await this.#leave();
    await this.me.lobby.join(this.state());
    this.#paint();
  }

  async #leave() {
    const channel = this.#channel;
    this.#channel = undefined;
    this.presence?.off('change', this.#draw);
    sessionStorage.removeItem(KEPT);
    await channel.unsubscribe();
    await channel.leave();
  }

  #paint() {
    const name = this.#channel?.name;
    $('play').textContent = name ? 'Leave the game' : 'Start a game';
    $('game').hidden = !name;
    if (!name) return;
    $('game-title').textContent = name;
    $('players').textContent = `Playing: ${[...this.presence.users.keys()].join(', ')}`;
  }
}

const code = () => Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte) => 'abcdefghkmnpqrstuvwxyz23456789'[byte % 30]).join('');
