// The users in the lobby (presence) and followed users (statuses).
import { $, button, throttle, face, h, refill, seconds, time } from '/demo/dom.js';
import { activityText, changeText, placeText } from '/demo/words.js';

const SHOWN_MAX = 100;

export class People {
  /** @type {Map<string, any>} statuses of followed users */
  statuses = new Map();
  following = new Set();
  /** @type {Map<string, number>} when the grace period of a lost user ends, if known */
  #deadlines = new Map();
  #presence;
  #draw = throttle(() => this.#paint());

  constructor(me) {
    this.me = me;
    me.tavern.me.on('status', ({ user, status, change, channel }) => {
      if (!this.following.has(user)) return;
      this.statuses.set(user, status);
      if (change && change !== 'none') me.chat.note(`${user}, whom you follow, ${changeText(change, channel)}.`);
      this.#draw();
    });
    setInterval(() => this.#deadlines.size && this.#paint(), 500);
  }

  async watch() {
    this.#presence = await this.me.lobby.presence();
    this.#presence.on('change', (event) => this.#onChange(event));
    await this.#loadFollowing();
    this.me.tavern.on('reset', () => this.#draw());
    this.#draw();
  }

  /** Loads the followed users and their statuses. */
  async #loadFollowing() {
    const { users } = await this.me.tavern.me.following({ limit: 100 });
    this.following = new Set(users);
    if (users.length) for (const status of await this.me.tavern.me.status(users)) this.statuses.set(status.user, status);
  }

  #onChange(event) {
    const { user } = event;
    const { chat, name, times } = this.me;
    if (user) {
      // Events about this user's own lost connection arrive after it is back; connection.js shows it when it happens.
      if (event.event === 'user_online') chat.note(user === name ? 'You joined the lobby.' : `${user} joined the lobby.`);
      if (event.event === 'client_offline' && !event.explicit) {
        const entry = this.#presence.get(user);
        if (entry?.leaving) {
          this.#deadlines.set(user, Date.now() - times.resume_ms + times.grace_ms);
          if (user !== name) chat.note(`${user} lost the connection.`);
        }
      }
      if (event.event === 'client_online' && this.#deadlines.delete(user) && user !== name) chat.note(`${user} is back.`);
      if (event.event === 'user_offline') {
        this.#deadlines.delete(user);
        if (user !== name) chat.note(`${user} left (${event.reason}).`);
      }
      if (event.event === 'client_updated' && user !== name) {
        const game = gameOf(this.#presence.get(user));
        chat.note(game ? `${user} plays in ${placeText(game)}.` : `${user} is back in the lobby.`);
      }
    }
    if (event.event === 'snapshot') this.#deadlines.clear();
    this.#draw();
  }

  #paint() {
    const presence = this.#presence;
    if (!presence) return;
    const people = [...presence.users.values()].slice(0, SHOWN_MAX);
    $('count').textContent = String(presence.count);
    const now = Date.now();
    const rows = people.map((entry) => {
      const end = this.#deadlines.get(entry.user);
      return {
        user: entry.user,
        tabs: entry.clients.size,
        game: gameOf(entry),
        leaving: entry.leaving,
        left: entry.leaving && end !== undefined ? seconds(end - now) : undefined,
        follows: this.following.has(entry.user),
        party: this.me.party.canInvite(entry.user),
      };
    });
    refill($('here'), rows, () => rows.map((row) => this.#row(row)));
    const friends = [...this.following].sort().slice(0, SHOWN_MAX).map((user) => ({ user, text: doing(this.statuses.get(user)) }));
    $('friends-part').hidden = friends.length === 0;
    refill($('friends'), friends, () => friends.map((friend) => this.#friend(friend)));
  }

  #row({ user, tabs, game, leaving, left, follows, party }) {
    const own = user === this.me.name;
    let text = game ? `plays in ${placeText(game)}` : 'in the lobby';
    if (leaving) text = left ? `connection lost; ${left} left to reconnect` : 'connection lost; may reconnect';
    else if (tabs > 1) text += `, ${tabs} tabs`;
    const join = !own && game && button('Join', () => this.me.game.play(game), { class: 'link', 'data-act': `join ${user}`, 'aria-label': `Join ${user} in ${placeText(game)}` });
    return h(
      'li', { class: leaving ? 'leaving' : '', 'data-user': user }, face(user),
      h('div', { class: 'name' }, h('b', {}, user, own ? ' (you)' : ''), h('small', {}, text, join && ' · ', join)),
      h('div', { class: 'actions' },
        !own && button(follows ? 'Unfollow' : 'Follow', () => this.#follow(user, !follows), { 'data-act': `follow ${user}`, 'aria-pressed': String(follows), 'aria-label': `${follows ? 'Unfollow' : 'Follow'} ${user}` }),
        !own && party && button('Invite', () => this.me.party.invite(user), { 'data-act': `invite ${user}`, 'aria-label': `Invite ${user} to your party` })),
    );
  }

  #friend({ user, text }) {
    const unfollow = button('Unfollow', () => this.#follow(user, false), { 'data-act': `unfollow ${user}`, 'aria-label': `Unfollow ${user}` });
    return h('li', { 'data-friend': user }, face(user), h('div', { class: 'name' }, h('b', {}, user), h('small', {}, text)), h('div', { class: 'actions' }, unfollow));
  }

  async #follow(user, on) {
    // The first status event arrives before the reply.
    if (on) this.following.add(user);
    try {
      await (on ? this.me.tavern.me.follow(user) : this.me.tavern.me.unfollow(user));
      if (!on) this.following.delete(user);
    } catch (error) {
      if (on) this.following.delete(user);
      throw error;
    } finally {
      this.#draw();
    }
  }

  isHere(user) {
    return this.#presence?.users.has(user) ?? false;
  }

  redraw() {
    this.#draw();
  }
}

/** The game of a user, from the first of their tabs that is in one. Any client can set any state, so only a channel name counts. */
function gameOf(entry) {
  const games = [...(entry?.clients.values() ?? [])].map((state) => state?.game);
  return games.find((game) => typeof game === 'string' && game.startsWith('game#'))?.slice(0, 80);
}

function doing(status) {
  if (!status) return 'not seen yet';
  if (!status.online) return status.last_seen ? `offline, last seen ${time(status.last_seen)}` : 'offline';
  const active = status.activities.filter(({ activity }) => activity !== 'online').map(activityText);
  return `${status.leaving ? 'connection lost' : 'online'}${active.length ? `: ${active[0]}` : ''}`;
}
