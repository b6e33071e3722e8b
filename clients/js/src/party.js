// The user's party: its commands, and a snapshot kept up to date by events.
// Must hold: an event that does not fit changes nothing; then the party is read again.

import { Emitter } from './emitter.js';
import { TavernError } from './errors.js';

/** @import { Party } from '../tavern.js' */
/** @import { Session } from './session.js' */

const NOT_OURS = ['invite', 'invite_cancel', 'decline', 'kick', 'leave', 'disband'];

/** Emits each party event under its `cmd`, `say` and `change`. A request id makes commands safe to send again. */
export class PartyClient extends Emitter {
  /** @type {Party<any> | null} */
  current = null;
  /** @type {Map<number, any>} open invites by party */
  invites = new Map();
  #session;
  #reloads = 0;

  /** @param {Session} session */
  constructor(session) {
    super();
    this.#session = session;
  }

  /** @returns {Promise<Party<any> | null>} */
  async get() {
    await this.#command('get');
    return this.current;
  }

  /** @param {string} user */
  invite = (user) => this.#command('invite', { user });
  /** @param {string} user */
  cancelInvite = (user) => this.#command('cancel_invite', { user });
  /** @param {number} party_id */
  accept = (party_id) => this.#command('accept', { party_id });
  /** @param {number} party_id @param {string} [message] */
  decline = (party_id, message) => this.#command('decline', { party_id, message });
  /** @param {string} user @param {string} [message] */
  kick = (user, message) => this.#command('kick', { user, message });
  /** @param {string} [message] */
  leave = (message) => this.#command('leave', { message });
  /** @param {string} user */
  promote = (user) => this.#command('promote', { user });
  /** @param {string} [message] */
  disband = (message) => this.#command('disband', { message });
  /** @param {any} data */
  setData = (data) => this.#command('set_data', { data });
  /** @param {any} [params] */
  go = (params) => this.#command('go', { params });
  cancelGo = () => this.#command('cancel_go');
  /** @param {number} go_id */
  ready = (go_id) => this.#command('ready', { go_id });
  /** @param {string} user */
  block = (user) => this.#command('block', { user });
  /** @param {string} user */
  unblock = (user) => this.#command('unblock', { user });
  /** @param {any} data */
  say = (data) => this.#command('say', { data });

  /** @param {string} cmd @param {any} [members] @returns {Promise<any>} */
  async #command(cmd, members = {}) {
    try {
      const ok = await this.#session.call(`party.${cmd}`, { ...members, rid: cmd === 'get' ? undefined : requestId() });
      if (cmd === 'accept' || cmd === 'decline') this.invites.delete(members.party_id);
      if (ok.party !== undefined) this.#set(ok.party);
      else if (!['get', 'say', 'block', 'unblock'].includes(cmd)) this.reload();
      return ok;
    } catch (error) {
      if (error instanceof TavernError && error.party !== undefined) this.#set(error.party);
      throw error;
    }
  }

  /** The snapshot may be older than the last reply. @param {Party<any> | null} [party] */
  snapshot(party) {
    if (party === undefined) return;
    if (party?.party_id === this.current?.party_id) this.#set(party);
    else this.reload();
  }

  /** @param {Party<any> | null} party */
  #set(party) {
    const now = this.current;
    if (party === now || (party && now && party.party_id === now.party_id && party.version < now.version)) return;
    this.current = party;
    this.emit('change', party);
  }

  /** Loads the party; loads it once more if called during a load. */
  async reload() {
    if (this.#reloads++) return;
    for (let seen = 0; seen !== this.#reloads; ) {
      seen = this.#reloads;
      await this.get().catch(() => {});
    }
    this.#reloads = 0;
  }

  /** @param {any} event */
  receive(event) {
    const { cmd, party_id } = event;
    if (cmd === 'invite') this.invites.set(party_id, event);
    else if (cmd === 'invite_cancel') this.invites.delete(party_id);
    const { party, asks } = fold(this.current, event, this.#session.user);
    this.#set(party);
    if (asks) this.reload();
    this.emit(cmd, event);
  }
}

/**
 * The party after an event, and whether it must be read again.
 * @param {Party<any> | null} party @param {any} event @param {string | null | undefined} me @returns {{party: Party<any> | null, asks: boolean}}
 */
export function fold(party, event, me) {
  const { cmd, uid, version } = event;
  if (!party || party.party_id !== event.party_id) return { party, asks: !NOT_OURS.includes(cmd) };
  if (version <= party.version) return { party, asks: false };
  if (cmd === 'kick' || cmd === 'disband' || (cmd === 'leave' && uid === me)) return { party: null, asks: false };
  const next = version === party.version + 1 ? change(party, event) : undefined;
  if (!next) return { party, asks: true };
  // Without a ticket the state follows from the members.
  if (next.state === 'forming' || next.state === 'idle') next.state = next.members.length < 2 ? 'forming' : 'idle';
  return { party: next, asks: false };
}

/** The next party; undefined: the event does not fit. @param {Party<any>} party @param {any} event @returns {Party<any> | undefined} */
function change(party, event) {
  const { cmd, uid, version } = event;
  const { members, go_id, ...rest } = { ...party, version };
  const ticket = go_id === undefined ? {} : { go_id };
  const member = members.find(({ user }) => user === uid);
  const others = members.filter((one) => one !== member);
  const pending = party.pending.filter(({ user }) => user !== uid);
  const now = { ...rest, members, ...ticket };
  switch (cmd) {
    case 'accept':
    case 'join':
      // For a user without a display name the server sends their id.
      return { ...now, pending, members: [...others, { user: uid, name: event.user === uid ? null : event.user, online: true, since: event.ts }] };
    case 'invited':
      return { ...now, pending: [...party.pending, { user: event.invitee, by: uid, expires_at: event.expires_at }] };
    case 'decline':
    case 'uninvited':
      return { ...now, pending };
    case 'leave':
      return { ...now, members: others };
    case 'leader':
      return member && { ...now, members: [member, ...others] };
    case 'online':
    case 'offline':
      return member && { ...now, members: members.map((one) => (one === member ? { ...one, online: cmd === 'online' } : one)) };
    case 'data':
      return { ...now, data: event.data };
    case 'party_go':
    case 'ready':
      return { ...now, state: event.state, go_id: event.go_id };
    case 'party_matched':
    case 'go_failed':
    case 'go_cancel':
      return { ...rest, members, state: 'idle' };
  }
}

const requestId = () => Array.from({ length: 2 }, () => Math.random().toString(36).slice(2, 12)).join('');
