// Who is in the lobby, and whom one follows: a living map of presence, and statuses.
import { $, button, calmly, face, h, refill, seconds, time } from '/demo/dom.js';

const SHOWN_MAX = 100;

export class People {
  /** @type {Map<string, any>} what is known of those one follows */
  statuses = new Map();
  following = new Set();
  /** @type {Map<string, number>} when the grace of somebody ends, if his loss was heard */
  #deadlines = new Map();
  #presence;
  #draw = calmly(() => this.#paint());

  constructor(me) {
    this.me = me;
    me.tavern.me.on('status', ({ user, status, change, channel }) => {
      if (!this.following.has(user)) return;
      this.statuses.set(user, status);
      if (change && change !== 'none') me.chat.tell(`${user}, whom you follow: ${change}${channel ? ` in ${channel}` : ''}`);
      this.#draw();
    });
    setInterval(() => this.#deadlines.size && this.#paint(), 500);
  }

  async watch() {
    this.#presence = await this.me.lobby.presence();
    this.#presence.on('change', (event) => this.#heard(event));
    await this.#learn();
    this.me.tavern.on('reset', () => this.#draw());
    this.#draw();
  }

  /** Whom one follows, as the server has it. */
  async #learn() {
    const { users } = await this.me.tavern.me.following({ limit: 100 });
    this.following = new Set(users);
    if (users.length) for (const status of await this.me.tavern.me.status(users)) this.statuses.set(status.user, status);
  }

  #heard(event) {
    const { user } = event;
    const { chat, name, times } = this.me;
    const he = user === name ? 'You' : user;
    if (user) {
      if (event.event === 'user_online') chat.tell(user === name ? 'You came in.' : `${he} came in.`);
      if (event.event === 'client_offline' && !event.explicit) {
        const person = this.#presence.get(user);
        if (person?.leaving) {
          this.#deadlines.set(user, Date.now() - times.resume_ms + times.grace_ms);
          chat.tell(`${he} lost the connection.`);
        }
      }
      if (event.event === 'client_online' && this.#deadlines.delete(user)) chat.tell(user === name ? 'You are back.' : `${he} is back.`);
      if (event.event === 'user_offline') {
        this.#deadlines.delete(user);
        chat.tell(user === name ? `You were gone (${event.reason}).` : `${he} left (${event.reason}).`);
      }
      if (event.event === 'client_updated' && user !== name) {
        const game = gameOf(this.#presence.get(user));
        chat.tell(game ? `${he} plays ${game}.` : `${he} is back in the lobby.`);
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
    const rows = people.map((person) => {
      const end = this.#deadlines.get(person.user);
      return {
        user: person.user,
        tabs: person.clients.size,
        game: gameOf(person),
        leaving: person.leaving,
        left: person.leaving && end !== undefined ? seconds(end - now) : undefined,
        follows: this.following.has(person.user),
        party: this.me.party.canInvite(person.user),
      };
    });
    refill($('here'), rows, () => rows.map((row) => this.#row(row)));
    const friends = [...this.following].sort().slice(0, SHOWN_MAX).map((user) => ({ user, text: doing(this.statuses.get(user)) }));
    $('friends-part').hidden = friends.length === 0;
    refill($('friends'), friends, () => friends.map((friend) => this.#friend(friend)));
  }

  #row({ user, tabs, game, leaving, left, follows, party }) {
    const own = user === this.me.name;
    let text = game ? `plays ${game}` : 'in the lobby';
    if (leaving) text = left ? `connection lost; has ${left} to come back` : 'connection lost; may come back';
    else if (tabs > 1) text += `, ${tabs} tabs`;
    const join = !own && game && button('Join', () => this.me.game.play(game), { class: 'link', 'data-act': `join ${user}`, 'aria-label': `Join ${user} in ${game}` });
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
    // What is told of him comes at once, before the answer.
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

  redraw() {
    this.#draw();
  }
}

/** A state is what anybody says: only a name of a channel counts. */
const gameOf = (person) => (typeof person?.state?.game === 'string' && person.state.game.startsWith('game#') ? person.state.game.slice(0, 80) : undefined);

function doing(status) {
  if (!status) return 'not seen yet';
  if (!status.online) return status.last_seen ? `offline, last seen ${time(status.last_seen)}` : 'offline';
  const told = status.activities.filter(({ activity }) => activity !== 'online').map(({ activity, channel }) => (channel.startsWith('party#') ? activity : `${activity} in ${channel}`));
  return `${status.leaving ? 'connection lost' : 'online'}${told.length ? `: ${told[0]}` : ''}`;
}
