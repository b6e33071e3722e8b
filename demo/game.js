// A game is a channel that its players join. The lobby shows it through the user's presence state; followers get a status event.
import { $, attempt, throttle } from '/demo/dom.js';
import { placeText } from '/demo/words.js';

const STORAGE_KEY = 'tavern demo game';

export class Game {
  #channel;
  #draw = throttle(() => this.#paint());

  constructor(me) {
    this.me = me;
    $('play').addEventListener('click', () => attempt($('play'), () => (this.#channel ? this.end() : this.play(`game#${code()}`))));
  }

  state() {
    return { game: this.name ?? null };
  }

  /** The channel of the game; undefined outside one. */
  get name() {
    return this.#channel?.name;
  }

  /** Rejoins the game after a reload. */
  async restore() {
    const name = sessionStorage.getItem(STORAGE_KEY);
    if (name) await this.play(name).catch(() => sessionStorage.removeItem(STORAGE_KEY));
  }

  async play(name) {
    if (this.#channel?.name === name) return;
    if (this.#channel) await this.#leave();
    const channel = this.me.tavern.channel(name);
    await channel.join({ since: Date.now() });
    this.#channel = channel;
    sessionStorage.setItem(STORAGE_KEY, name);
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
    sessionStorage.removeItem(STORAGE_KEY);
    await channel.unsubscribe();
    await channel.leave();
  }

  #paint() {
    const { name } = this;
    this.me.party?.redraw();
    $('play').textContent = name ? 'Leave the game' : 'Start a game';
    $('game').hidden = !name;
    if (!name) return;
    $('game-title').textContent = `You play in ${placeText(name)}`;
    $('players').textContent = `Playing: ${[...this.presence.users.keys()].sort().join(', ')}`;
  }
}

const code = () => Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte) => 'abcdefghkmnpqrstuvwxyz23456789'[byte % 30]).join('');
