// The party card: invites, members, matchmaking.
import { $, button, throttle, face, h, note, refill, seconds } from '/demo/dom.js';
import { partyText } from '/demo/words.js';

const BOT_TRIES = 10;
const BOT_PAUSE_MS = 300;

export class PartyCard {
  /** The last answer of the matchmaker to this party: a sentence, and the channel of the match. */
  #answer;
  #draw = throttle(() => this.#paint());

  constructor(me) {
    this.me = me;
    const { party } = me.tavern;
    const { chat } = me;
    party.on('change', this.#draw);
    party.on('invite', ({ user }) => {
      chat.note(`${user} invites you to a party.`);
      this.#draw();
    });
    party.on('invite_cancel', this.#draw);
    party.on('accept', ({ user }) => chat.note(`${user} joined the party.`));
    party.on('decline', ({ user, reason }) => chat.note(`${user} did not join: ${reason}.`));
    party.on('leave', ({ user, reason }) => chat.note(`${user} left the party (${reason}).`));
    party.on('disband', () => {
      this.#answer = undefined;
      chat.note('The party has ended.');
    });
    party.on('party_go', () => {
      this.#answer = undefined;
      chat.note('The party is in the queue.');
    });
    party.on('go_failed', ({ reason, missing }) => this.#answered(`No match: ${reason ?? `missing ${(missing ?? []).join(', ')}`}.`));
    party.on('party_matched', (event) => this.#matched(event));
    // Updates the countdown of invites.
    setInterval(() => me.tavern.party.invites.size && this.#paint(), 500);
    this.#paint();
  }

  canInvite(user) {
    const party = this.me.tavern.party.current;
    if (!party) return true;
    const known = [...party.members, ...party.pending].some((one) => one.user === user);
    return party.members[0]?.user === this.me.name && !known;
  }

  async invite(user) {
    for (let tries = 0; ; tries++) {
      try {
        await this.me.tavern.party.invite(user);
        break;
      } catch (error) {
        // The practice bot connects when the page is opened, and may not be online yet.
        if (user !== this.me.times.bot || !['no_such_user', 'user_not_logged'].includes(error.code) || tries >= BOT_TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, BOT_PAUSE_MS));
      }
    }
    note(`You invited ${user}.`);
  }

  #matched({ match, against }) {
    const others = Array.isArray(against) && against.length ? ` against ${against.join(', ')}` : '';
    const name = typeof match === 'string' && /^[\w-]{1,40}$/.test(match) ? `game#${match}` : undefined;
    this.#answered(`Matched: ${`${match}${others}`.slice(0, 200)}.`, name);
    if (name) this.me.game.play(name).catch(() => {});
  }

  /** What the matchmaker said, in the chat, in this card and beside the events of services. */
  #answered(text, game) {
    this.#answer = { text, game };
    this.me.chat.note(text);
    this.me.receiver?.answered(text);
    this.#draw();
  }

  /** Where the party is after the answer. */
  #afterwards() {
    const { text, game } = this.#answer;
    if (!game) return `${text} You can go again.`;
    return this.me.game.name === game ? `${text} You are in the match now.` : `${text} You have left the match; you can go again.`;
  }

  redraw() {
    this.#draw();
  }

  #paint() {
    const { party } = this.me.tavern;
    const now = Date.now();
    for (const [id, { expires_at }] of party.invites) if (expires_at < now) party.invites.delete(id);
    const invites = [...party.invites.values()].map(({ party_id, user, expires_at }) => ({ party_id, user, left: seconds(expires_at - now) }));
    refill($('invites'), invites, () => invites.map((invite) => this.#invited(invite)));
    refill($('party-body'), [party.current, this.me.name, this.#answer, this.me.game.name], () => (party.current ? this.#members(party.current) : this.#none()));
    this.me.people?.redraw();
  }

  #none() {
    const { bot } = this.me.times;
    return [
      h('p', { class: 'muted' }, 'You are not in a party. Invite a user from the lobby to create one.'),
      bot && h('div', { class: 'actions' }, button('Invite the practice bot', () => this.invite(bot), { 'data-act': `invite ${bot}` })),
    ];
  }

  #invited({ party_id, user, left }) {
    const { party } = this.me.tavern;
    return h(
      'li', { class: 'invite' }, face(user), h('div', { class: 'name' }, h('b', {}, user), h('small', {}, `invites you, expires in ${left}`)),
      h('div', { class: 'actions' },
        button('Accept', () => party.accept(party_id).finally(this.#draw), { class: 'main', 'data-act': `accept ${party_id}` }),
        button('Decline', () => party.decline(party_id).finally(this.#draw), { 'data-act': `decline ${party_id}` })),
    );
  }

  #members({ members, pending, state }) {
    const { party } = this.me.tavern;
    const leads = members[0]?.user === this.me.name;
    const waits = ['gathering', 'queued'].includes(state);
    const rows = members.map(({ user, online }, at) =>
      h('li', { class: online ? '' : 'leaving' }, face(user), h('div', { class: 'name' }, h('b', {}, user), h('small', {}, `${at === 0 ? 'leader' : 'member'}${online ? '' : ', offline'}`))));
    const asked = pending.map(({ user }) => h('li', { class: 'leaving' }, face(user), h('div', { class: 'name' }, h('b', {}, user), h('small', {}, 'invited'))));
    return [
      h('ul', { class: 'rows' }, rows, asked),
      h('p', { class: 'muted', id: 'party-state' }, this.#answer && state === 'idle' ? this.#afterwards() : partyText(state)),
      h('div', { class: 'actions' },
        leads && state === 'idle' && button('Go together', () => party.go({ mode: 'practice' }), { class: 'main', 'data-act': 'go' }),
        leads && waits && button('Cancel', () => party.cancelGo(), { 'data-act': 'cancel' }),
        button('Leave the party', () => party.leave(), { 'data-act': 'leave' })),
      waits && this.#matchmaker(),
    ];
  }

  #matchmaker() {
    if (this.me.times.matchmaker) return h('p', { class: 'muted' }, 'The matchmaker has the ticket.');
    return h('div', { class: 'hint' },
      h('p', {}, 'The ticket waits in the topic tavern.parties: this server has no matchmaker. Stop the server, then start both:'),
      h('pre', { tabindex: '0' }, h('code', {}, 'python3 examples/matchmaker/matchmaker.py --practice 3 \\\n  --key "$(cat tavern-data/dev-key)" &\nTAVERN_PARTIES_MATCHMAKER_URL=http://127.0.0.1:7410/ \\\n  tavern dev')));
  }
}
