// Subscriptions: queues, failures, and the commands to control them.
import { h, put, heading, link, badge, section, empty, code, filter, table, facts, ask } from './dom.js';
import { ago, count, moment, plural, span, text } from './format.js';
import { call, get, part, post } from './server.js';
import { more } from './channels.js';
import { attempts } from './attempts.js';
import { attemptCharts } from './attempt_charts.js';
import { create, edit, remove, rotate, test } from './subscription_form.js';

const KINDS = { healthy: 'good', behind: 'warn', throttled: 'warn', failing: 'bad', disabled: 'plain' };
const NAMES = { behind: 'falling behind' };
/** Why a subscription needs attention, by the reason that the server gives. */
export const WHY = {
  asked: 'disabled by an operator', gone: 'the endpoint answered 410 Gone', failing: 'it failed for too long',
  'not pulled': 'its events are not pulled', 'slow endpoint': 'the endpoint answers too slowly', 'refuses everything': 'the endpoint refuses every event',
};
const health = (one) => badge(NAMES[one.health] ?? one.health, KINDS[one.health] ?? 'plain');

export function subscriptions(visit) {
  let wanted = '';
  const list = table('Subscriptions', [
    { name: 'Subscription', sort: ({ name }) => name, cell: ({ name }) => link(name, 'subscriptions', name) },
    { name: 'Health', sort: ({ health: state }) => Object.keys(KINDS).indexOf(state), cell: health },
    { name: 'Oldest', number: true, sort: ({ oldest_ms: ms }) => ms, first: 'down', hint: 'How long the oldest event has waited', cell: ({ oldest_ms: ms }) => ms !== null && span(ms) },
    { name: 'Queued', number: true, sort: ({ queued }) => queued, cell: ({ queued }) => count(queued) },
    { name: 'Attempts', number: true, sort: ({ batches }) => Math.max(0, ...batches.map(({ attempts }) => attempts)), cell: ({ batches }) => count(batches.reduce((most, { attempts }) => Math.max(most, attempts), 0)) },
    { name: 'Acknowledged', number: true, cell: ({ acknowledged, seq }) => `${count(acknowledged)} of ${count(seq)}` },
    { name: 'Topics', wide: true, cell: ({ topics: names }) => names.join(', ') },
    { name: 'To', wide: true, cell: ({ callback, pull, health: state, why, last_error: error }) => [pull ? 'pull' : callback, state !== 'healthy' && h('div', { class: 'sub' }, WHY[why] ?? error?.error)] },
  ], ({ name }) => name);
  const below = h('div');
  let again;
  const box = filter('Subscriptions containing …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  const add = h('button', { onclick: () => create(visit, () => again()) }, 'New …');
  visit.draw(heading('Subscriptions', 'Progress, queue and health of each subscription.', add), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(2000, (signal) => get('subscriptions', { limit: 1000 }, signal), ({ subscriptions: all, next }) => {
    const rows = all.filter(({ name, topics: names, callback }) => [name, ...names, callback ?? ''].some((one) => one.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length) : all.length ? empty(`No subscription contains “${wanted}”.`, 'The filter searches names, topics and callback addresses.') : empty('There are no subscriptions yet.', 'Create one:', code('tavern events subscribe mail --topic orders \\\n  --callback https://example.com/hook')));
  });
}

export function subscription(visit) {
  const [name] = visit.args;
  const path = `subscriptions/${part(name)}`;
  const sub = h('span', {}, 'Loading …');
  const queue = h('div');
  const batches = table('In flight', [
    { name: 'Batch', cell: ({ number }) => count(number) },
    { name: 'Events', number: true, cell: ({ events }) => count(events) },
    { name: 'Seqs', cell: ({ first_seq: first, last_seq: last }) => `${count(first)} – ${count(last)}` },
    { name: 'Attempts', number: true, cell: ({ attempts }) => count(attempts) },
    { name: 'Refusals', number: true, cell: ({ refusals }) => count(refusals) },
    { name: 'Accepted', still: true, cell: ({ accepted_at: at }) => ago(at) },
  ], ({ number }) => number);
  const way = h('div');
  const dead = h('div');
  const what = h('div');
  const turn = h('button', {}, '…');
  const again = () => look();
  const switchIt = (on) => visit.act(() => post(`${path}/${on ? 'enable' : 'disable'}`, {}), on ? 'Enabled.' : 'Disabled. Events are kept.', again);
  let report;
  const button = (label, act) => h('button', { onclick: act }, label);
  const now = button('Retry now', () => visit.act(() => post(`${path}/enable`, {}), 'Retrying.', again));
  const actions = [
    turn, now,
    button('Send a test', () => test(visit, path)),
    button('Replay …', () => replay(visit, path, again)),
    button('Edit …', () => report && edit(visit, path, report, again)),
    button('Replace secret …', () => rotate(visit, path, name, again)),
    button('Delete …', () => report && remove(visit, path, report)),
  ];
  const tries = attempts(visit, path, again);
  const charts = attemptCharts();
  visit.draw(heading(name, sub, ...actions), queue, section('Deliveries', charts.node), section('In flight', way), section('Attempts', tries.nodes), section('Dead letters', dead), section('Settings', what));
  const parked = table('Dead letters', [
    { name: 'Seq', cell: ({ seq, id }) => h('span', { title: id }, count(seq)) },
    { name: 'Topic', cell: ({ topic }) => topic },
    { name: 'Failed', still: true, cell: ({ parked_at: at }) => ago(at) },
    { name: 'Reason', cell: ({ reason }) => reason },
    { name: 'Event', wide: true, cell: ({ event }) => h('code', {}, text(event, 160)) },
    { name: 'Action', cell: ({ seq }) => h('button', { class: 'link', 'aria-label': `Retry event ${seq}`, onclick: () => retry(visit, path, [seq], again) }, 'Retry') },
  ], ({ seq }) => seq);
  const look = visit.watch(2000, async (signal) => {
    const [found, deadLetters, tried] = await Promise.all([get(path, {}, signal), get(`${path}/dead-letters`, { limit: 100 }, signal), get(`${path}/attempts`, tries.query(), signal)]);
    return { found, deadLetters, tried };
  }, ({ found, deadLetters: { dead_letters: letters = [], next }, tried }) => {
    report = found;
    tries.update(tried.attempts);
    charts.update(found, tried.attempts, tries.query().failed);
    const off = report.health === 'disabled';
    put(sub, health(report), ` ${[WHY[report.why], !off && last(report.last)].filter(Boolean).join('; ')}`);
    turn.textContent = off ? 'Enable' : 'Disable';
    now.hidden = !['failing', 'throttled'].includes(report.health);
    turn.onclick = () => switchIt(off);
    put(queue, facts([
      ['Queued', plural(report.queued, 'event')],
      ['Oldest queued', report.oldest_ms === null ? 'none' : span(report.oldest_ms)],
      ['Acknowledged', `${count(report.acknowledged)} of ${count(report.seq)}`],
      ['Dead letters', count(report.dead_letters)],
      ['Last error', report.last_error && `${report.last_error.error}, ${ago(report.last_error.at)}`, true],
      ['Failing since', report.failing_since && ago(report.failing_since)],
      ['Consecutive failures', report.failures || undefined],
      ['Next attempt', off || !report.retry_at ? undefined : report.queued ? ago(report.retry_at) : 'with the next event'],
    ]));
    batches.update(report.batches);
    put(way, report.batches.length ? batches.node : empty('No batch is in flight.', off ? 'A disabled subscription sends nothing; events are kept.' : 'All sent events have been acknowledged.'));
    parked.update(letters);
    if (!letters.length) put(dead, empty('There are no dead letters.', 'An event that the endpoint refuses repeatedly becomes a dead letter, so that later events are delivered.'));
    else if (!dead.contains(parked.node)) put(dead, h('div', { class: 'tools' }, h('button', { onclick: () => retry(visit, path, undefined, again) }, 'Retry all')), parked.node, h('p', { class: 'end' }, next ? 'The first 100 are shown.' : ''));
    put(what, facts([
      ['Topics', report.topics.map((topic, at) => [at > 0 && ', ', link(topic, 'topics', topic)])],
      ['To', report.pull ? 'pulled by the owner' : report.callback, true],
      ['Owner', h('code', {}, report.owner)],
      ['Batches', `up to ${plural(report.max_events, 'event')} or ${plural(report.max_bytes, 'byte')}, sent after at most ${span(report.timeout_ms)}`, true],
      ['Concurrency', plural(report.concurrency, 'batch', 'batches')],
      ['Format', report.format],
      ['Created', moment(report.created_at)],
    ]));
  });
}

const last = (attempt) => (attempt ? `last attempt ${ago(attempt.at)}: ${attempt.outcome.replace('_', ' ')}` : 'no attempts yet');

const retry = (visit, path, ids, again) => visit.act(() => call('POST', `${path}/dead-letters/retry`, { body: ids ? { ids } : {} }), ({ retried }) => `${plural(retried, 'dead letter')} will be retried.`, again);

async function replay(visit, path, again) {
  const fields = [
    h('p', {}, 'Events are delivered again with the same seqs, including acknowledged ones.'),
    h('label', {}, 'From seq', h('input', { name: 'from_seq', type: 'number', min: 1, step: 1, value: 1 })),
    h('label', {}, 'or from time', h('input', { name: 'from_time', type: 'datetime-local' })),
  ];
  const form = await ask('Replay', fields, 'Replay');
  if (!form) return;
  const time = form.get('from_time');
  const body = time ? { from_time: new Date(time).getTime() } : { from_seq: Number(form.get('from_seq')) };
  await visit.act(() => post(`${path}/replay`, body), ({ from_seq: from, rewound }) => (rewound ? `Replaying from seq ${count(from)}.` : 'There are no events from there on: nothing to replay.'), again);
}

