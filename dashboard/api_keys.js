// API keys: the list, a new one, revoking one.
import { h, put, ask, badge, code, empty, filter, heading, table, to } from './dom.js';
import { ago, moment, now, plural } from './format.js';
import { call, get, part, post } from './server.js';

const SCOPES = {
  publish: 'publish messages',
  events: 'publish events to topics',
  subscriptions: 'manage and read subscriptions',
  presence: 'read and set presence',
  parties: 'act on parties',
  users: 'disconnect, ban and erase users',
  admin: 'everything about this server',
};
const DAY_MS = 86_400_000;

const state = ({ revoked_at: revoked, expires_at: expires }) => {
  if (revoked) return badge(`revoked ${ago(revoked)}`, 'bad');
  if (expires) return h('span', { title: moment(expires) }, expires < now() ? badge(`expired ${ago(expires)}`, 'bad') : `expires ${ago(expires)}`);
  return badge('valid', 'good');
};

export function apiKeys(visit) {
  let wanted = '';
  let again;
  const list = table('API keys', [
    { name: 'Name', sort: ({ name }) => name, cell: ({ name }) => name },
    { name: 'Id', cell: ({ id }) => h('code', {}, id) },
    { name: 'Scopes', wide: true, cell: ({ scopes }) => scopes.join(', ') },
    { name: 'State', cell: state },
    { name: 'Created', still: true, sort: ({ created_at: at }) => at, cell: ({ created_at: at }) => ago(at) },
    { name: 'Last used', still: true, sort: ({ last_used_at: at }) => at, cell: ({ last_used_at: at }) => ago(at) ?? 'never' },
    { name: 'Did', cell: ({ id, name }) => h('a', { href: to('audit', id), 'aria-label': `What ${name} did` }, 'audit') },
    { name: 'Action', cell: (one) => !one.revoked_at && h('button', { class: 'link', 'aria-label': `Revoke ${one.name}`, onclick: () => revoke(visit, one, again) }, 'Revoke …') },
  ], ({ id }) => id);
  const below = h('div');
  const box = filter('Keys containing …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  visit.draw(heading('API keys', 'Keys of services and operators. A key is shown once, when it is created.', h('button', { class: 'main', onclick: () => create(visit, again) }, 'New key')), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(5000, (signal) => get('keys', { limit: 1000 }, signal), ({ keys, next }) => {
    const rows = keys.filter(({ id, name, scopes }) => [id, name, ...scopes].some((one) => one.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? h('p', { class: 'end' }, next ? 'The first 1,000 are shown.' : plural(rows.length, 'key')) : keys.length ? empty(`No key contains “${wanted}”.`) : empty('There are no stored keys.', 'The admin_key of the configuration works without one. Create a key for each service, with the scopes that it needs.'));
  });
}

async function create(visit, again) {
  const fields = [
    h('label', {}, 'What it is for', h('input', { name: 'name', required: true, maxlength: 128, autocomplete: 'off' })),
    h('fieldset', {}, h('legend', {}, 'It may'), Object.entries(SCOPES).map(([scope, what]) => h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'scopes', value: scope }), ` ${what} (${scope})`))),
    h('label', {}, 'Valid for so many days; empty: until it is revoked', h('input', { name: 'days', type: 'number', min: 1, max: 3650 })),
  ];
  const form = await ask('New API key', fields, 'Create');
  if (!form) return;
  const days = Number(form.get('days'));
  const body = { name: form.get('name').trim(), scopes: form.getAll('scopes'), ...(days ? { expires_at: now() + days * DAY_MS } : {}) };
  const made = await visit.act(() => post('keys', body), 'Created.', again);
  if (made) await ask(`The key ${made.name}`, [h('p', {}, 'Copy it now: it is not shown again.'), code(made.key)], 'Done');
}

async function revoke(visit, { id, name }, again) {
  const form = await ask(`Revoke ${name}`, [h('p', {}, 'Requests with this key are refused at once, and its connections are closed. This cannot be undone.')], 'Revoke');
  if (form) await visit.act(() => call('DELETE', `keys/${part(id)}`), 'Revoked.', again);
}
