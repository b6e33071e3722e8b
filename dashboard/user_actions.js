// What an operator can do to a user: end their sessions, ban them, erase them.
import { h, ask, badge } from './dom.js';
import { moment, now, plural } from './format.js';
import { call, part, post } from './server.js';

const HOUR_MS = 3_600_000;
const path = (name) => `users/${part(name)}`;

const reason = () => h('label', {}, 'Reason, shown to the user', h('input', { name: 'reason', maxlength: 120, autocomplete: 'off' }));

/** Nodes that did not answer have not done it. */
const done = (said) => ({ sessions, missing_nodes: missing }) => `${said}: ${plural(sessions, 'session')} ended.${missing.length ? ` These nodes did not answer: ${missing.join(', ')}.` : ''}`;

export function actions(visit, name, ban, again) {
  const act = (label, run) => h('button', { class: 'quiet', onclick: run }, label);
  return [
    act('Disconnect …', () => disconnect(visit, name, again)),
    ban ? act('Lift the ban', () => visit.act(() => call('DELETE', `${path(name)}/ban`), 'The ban was lifted.', again)) : act('Ban …', () => banUser(visit, name, again)),
    act('Erase …', () => erase(visit, name, again)),
  ];
}

/** A banned user, in words. */
export const banNote = ({ until, reason: why }) => [badge('banned', 'bad'), ` ${until ? `until ${moment(until)}` : 'until the ban is lifted'}${why ? `: ${why}` : ''}`];

async function disconnect(visit, name, again) {
  const fields = [h('p', {}, `All sessions of ${name} end on every node. Their clients do not reconnect by themselves, but the user may sign in again.`), reason()];
  const form = await ask(`Disconnect ${name}`, fields, 'Disconnect');
  if (form) await visit.act(() => post(`${path(name)}/disconnect`, { reason: form.get('reason') || undefined }), done('Disconnected'), again);
}

async function banUser(visit, name, again) {
  const fields = [h('p', {}, `All sessions of ${name} end, and they cannot connect over any transport.`), reason(), h('label', {}, 'For so many hours; empty: until the ban is lifted', h('input', { name: 'hours', type: 'number', min: 1, max: 876_000 }))];
  const form = await ask(`Ban ${name}`, fields, 'Ban');
  if (!form) return;
  const hours = Number(form.get('hours'));
  const body = { reason: form.get('reason') || undefined, until: hours ? now() + hours * HOUR_MS : undefined };
  await visit.act(() => call('PUT', `${path(name)}/ban`, { body }), done('Banned'), again);
}

async function erase(visit, name, again) {
  const fields = [h('p', {}, 'Their sessions end. Presence, party membership, follows in both directions, last seen, visibility and inbox are deleted. Messages they published are not. This cannot be undone.'), h('label', {}, `Type ${name} to confirm`, h('input', { name: 'confirm', required: true, autocomplete: 'off', spellcheck: 'false' }))];
  const form = await ask(`Erase ${name}`, fields, 'Erase');
  if (!form) return;
  await visit.act(() => (form.get('confirm') === name ? call('DELETE', path(name)) : Promise.reject(new Error('The name is different: nothing was erased.'))), `${name} was erased.`, again);
}
