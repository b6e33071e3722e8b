// Dialogs that create, change, test and delete a subscription.
import { exchange } from './attempts.js';
import { h, ask, code } from './dom.js';
import { plural } from './format.js';
import { call, part, post } from './server.js';

const field = (label, name, value, props = {}) => h('label', {}, label, h('input', { name, value: value ?? '', autocomplete: 'off', spellcheck: 'false', ...props }));

const fields = (one) => [
  field('Topics, with commas between', 'topics', (one?.topics ?? []).join(', '), { required: true }),
  field('Callback URL; empty: the events are pulled', 'callback', one?.pull ? '' : one?.callback, { type: 'url', placeholder: 'https://example.com/hook' }),
  field('Events in a batch, at most', 'max_events', one?.max_events ?? 100, { type: 'number', min: 1, max: 10_000 }),
  field('An event waits for its batch, at most (ms)', 'timeout_ms', one?.timeout_ms ?? 500, { type: 'number', min: 0, max: 3_600_000 }),
  field('Batches in flight; with more than 1 the order is not kept', 'concurrency', one?.concurrency ?? 1, { type: 'number', min: 1, max: 16 }),
];

function settings(form) {
  const callback = form.get('callback').trim();
  return {
    topics: form.get('topics').split(/[\s,]+/).filter(Boolean),
    ...(callback ? { callback, pull: false } : { pull: true }),
    max_events: Number(form.get('max_events')),
    timeout_ms: Number(form.get('timeout_ms')),
    concurrency: Number(form.get('concurrency')),
  };
}

const showSecret = (name, secret, why) => ask(`The secret of ${name}`, [h('p', {}, why), code(secret)], 'Done');

export async function create(visit, again) {
  const form = await ask('New subscription', [field('Name', 'name', '', { required: true, maxlength: 64, pattern: '[A-Za-z0-9_.\\-]+' }), ...fields()], 'Create');
  if (!form) return;
  const name = form.get('name').trim();
  const put = await visit.act(() => call('PUT', `subscriptions/${part(name)}`, { body: settings(form) }), ({ created }) => (created ? 'Created.' : 'It existed and was changed.'), again);
  if (put?.secret) await showSecret(name, put.secret, 'It verifies the signatures of webhooks and is not shown again.');
}

export async function edit(visit, path, report, again) {
  const form = await ask(`Change ${report.name}`, fields(report), 'Save');
  if (form) await visit.act(() => call('PUT', path, { body: settings(form) }), 'Changed.', again);
}

export async function rotate(visit, path, name, again) {
  const form = await ask('Replace the secret', [h('p', {}, 'Webhooks are signed with a new secret at once, and with the old one too for a while (events.rotation_ms).')], 'Replace');
  if (!form) return;
  const put = await visit.act(() => post(`${path}/rotate`, {}), 'The secret was replaced.', again);
  if (put) await showSecret(name, put.secret, 'The new secret; it is not shown again.');
}

export async function remove(visit, path, report) {
  const form = await ask(`Delete ${report.name}`, [h('p', {}, `${plural(report.queued, 'queued event')} and ${plural(report.dead_letters, 'dead letter')} will not be delivered. This cannot be undone.`)], 'Delete');
  if (form) await visit.act(() => call('DELETE', path), 'Deleted.', () => (location.hash = '#/subscriptions'));
}

/** Sends a test event and shows what was sent and what the endpoint answered. */
export async function test(visit, path) {
  const attempt = await visit.act(() => call('POST', `${path}/test`, { wait: 60_000 }), (found) => (found.outcome === 'delivered' ? 'The endpoint accepted the test event.' : `The test failed: ${found.error}.`));
  if (attempt) await ask('Test event', exchange(attempt), 'Done');
}
