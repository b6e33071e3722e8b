// The overview: users online, whether the cluster is healthy, and its load in the last minutes, hour and day.
import { h, put, heading, link, badge, section, empty, code } from './dom.js';
import { brief, bytes, count, latency, now, percent, plural, rate, span } from './format.js';
import { get, may } from './server.js';
import { chart } from './charts.js';
import { WHY } from './events.js';
import { problemsOf } from './cluster.js';

const RANGES = [['5m', '5 min', 'five minutes', 300_000], ['1h', '1 h', 'hour', 3_600_000], ['24h', '24 h', 'day', 86_400_000]];
const LOAD_MS = 2000;
// Kept while other pages are shown.
let range = '1h';

const LOWEST = { users: 4, rate: 1, ms: 1 };
const CHARTS = [
  { title: 'Messages', lines: [['published', 'published'], ['delivered', 'delivered'], ['dropped', 'dropped']], format: rate, least: LOWEST.rate },
  { title: 'Publish to delivery', lines: [['delivery_p99_ms', 'p99'], ['delivery_p50_ms', 'p50']], format: latency, unit: 'ms', least: LOWEST.ms, hint: 'From publishing a message to writing it to a connected client; the slowest node' },
  { title: 'Connections', lines: [['websocket', 'WebSocket'], ['sse', 'SSE'], ['poll', 'poll'], ['redis', 'Redis']], format: brief, least: LOWEST.users },
  { title: 'Events', lines: [['events_accepted', 'accepted'], ['events_delivered', 'delivered'], ['attempts_failed', 'failed attempts']], format: rate, least: LOWEST.rate },
  { title: 'Event backlog', lines: [['events_queued', '']], format: brief, least: LOWEST.users, hint: 'Events that wait for delivery to a webhook' },
  { title: 'Oldest event', lines: [['oldest_event_ms', '']], format: latency, unit: 'ms', least: 1000, hint: 'How long the oldest of them has waited' },
  { title: 'Store and bus, p99', lines: [['store_p99_ms', 'store'], ['bus_p99_ms', 'bus']], format: latency, unit: 'ms', least: LOWEST.ms, hint: 'A commit or a read; a question to another node and its answer; the slowest node' },
  { title: 'CPU', lines: [['cpu_percent', '']], format: percent, least: 10, hint: '100 %: one core; the busiest node' },
  { title: 'Memory', lines: [['memory_bytes', '']], format: bytes, unit: 'bytes', hint: 'The largest node' },
  { title: 'Free disk', lines: [['disk_free_bytes', '']], format: bytes, unit: 'bytes', hint: 'Of the data folder; the fullest disk. Other stores than SQLite have their own' },
];

export function overview(visit) {
  let series;
  let due = 0;
  const health = h('p', { class: 'health' });
  const users = h('strong', { class: 'hero' }, '–');
  const then = h('p', { class: 'then' });
  const online = chart({ title: 'Users online', lines: [['users_online', '']], format: brief, least: LOWEST.users, tall: true });
  const charts = CHARTS.map(chart);
  const attention = h('div');
  const totals = h('dl', { class: 'facts totals' });
  const buttons = RANGES.map(([name, label]) => h('button', { 'data-range': name, 'aria-pressed': String(name === range), onclick: () => choose(name) }, label));
  visit.draw(
    heading('Overview', health, h('div', { class: 'choice', role: 'group', 'aria-label': 'Range of the charts' }, buttons)),
    h('div', { class: 'online' }, h('div', {}, h('h2', {}, 'Users online'), users, then), online.node, totals),
    section('Needs attention', attention),
    section('Load', h('div', { class: 'charts' }, charts.map(({ node }) => node))),
  );
  const choose = (name) => {
    range = name;
    buttons.forEach((one) => one.setAttribute('aria-pressed', String(one.dataset.range === name)));
    due = 0;
    again();
  };
  let latest;
  let subscriptions;
  const again = visit.watch(LOAD_MS, async (signal) => {
    // The series changes once in a step; the figures are those of now.
    const wanted = Date.now() >= due ? range : undefined;
    const load = await get('load', { range: wanted }, signal);
    return { ...load, wanted };
  }, (load) => {
    if (load.wanted && load.wanted !== range) return void setTimeout(again);
    if (load.wanted) {
      series = load.cluster;
      due = Date.now() + Math.min(series.step_ms, 60_000) - LOAD_MS / 2;
    }
    const { figures } = load.cluster;
    users.textContent = count(figures.users_online);
    put(then, changes(series, figures.users_online, range).map((one) => h('span', {}, one)));
    for (const one of [online, ...charts]) one.update(series, figures);
    latest = load;
    attend();
  });
  const attend = () => {
    if (!latest) return;
    const found = problemsOf(latest);
    put(health, state(found, latest, visit.mode()));
    put(attention, problems(found, subscriptions, latest));
    put(totals, facts(latest.cluster.figures, subscriptions).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
  };
  if (may('subscriptions')) visit.watch(5000, (signal) => get('subscriptions', { limit: 1000 }, signal).then((found) => found.subscriptions, (error) => ({ error })), (found) => {
    subscriptions = found;
    attend();
  });
}

/** How many there were an hour ago, or at the beginning, and between which numbers. */
function changes({ series, start, step_ms: step }, current, range) {
  const points = (series.users_online ?? []).map((users, at) => ({ users, at: start + at * step })).filter(({ users }) => users !== null);
  const [, , words, length] = RANGES.find(([name]) => name === range);
  if (!points.length || current === undefined) return [];
  const before = (ms) => {
    // The first point may be half a minute younger than the range.
    const point = points.find(({ at }) => at >= now() - ms - step) ?? points[0];
    const minutes = Math.round((now() - point.at) / 60_000);
    return minutes && [h('b', {}, count(point.users)), ` ${span(minutes * 60_000)} ago, `, change(Math.round(current - point.users))];
  };
  const all = points.map(({ users }) => users).concat(current);
  return [before(length), length > 3_600_000 && before(3_600_000), `from ${count(Math.min(...all))} to ${count(Math.max(...all))} in the last ${words}`].filter(Boolean);
}

const change = (more) => (more === 0 ? 'unchanged' : more > 0 ? `+${count(more)}` : `−${count(-more)}`);

function state(found, { nodes }, mode) {
  const bad = found.filter(({ kind }) => kind === 'bad').length;
  const alive = nodes.filter((node) => node.alive);
  const answering = alive.filter((node) => node.silent_ms === null).length;
  return [
    bad ? badge(`cluster unhealthy: ${plural(bad, 'problem')}`, 'bad') : badge('cluster healthy', 'good'),
    badge(`${count(answering)} of ${plural(alive.length, 'node')} ${alive.length === 1 ? 'answers' : 'answer'}`, answering < alive.length ? 'bad' : 'plain'),
    mode === 'dev' && badge('dev mode', 'plain'),
  ];
}

const KINDS = { behind: 'warn', throttled: 'warn', disabled: 'plain' };
const NAMES = { behind: 'falling behind' };

/** The age of its oldest event in milliseconds. */
const age = ({ oldest_ms: oldest }) => oldest ?? undefined;

function sick(subscription) {
  const { name, health, queued, failures, last_error: error, why } = subscription;
  const oldest = age(subscription);
  const words = [
    queued ? `${plural(queued, 'event')} queued${oldest === undefined ? '' : `, the oldest for ${span(oldest)}`}` : 'nothing is queued',
    failures && plural(failures, 'consecutive failure'),
    WHY[why] ?? error?.error,
  ];
  return h('li', {}, badge(NAMES[health] ?? health, KINDS[health] ?? 'bad'), link(name, 'subscriptions', name), h('span', {}, words.filter(Boolean).join('; ')));
}

function problems(found, subscriptions, { nodes }) {
  const known = Array.isArray(subscriptions) ? subscriptions : [];
  const lines = [
    ...found.map(({ kind, label, node, text }) => h('li', {}, badge(label, kind), node ? link(node, 'nodes') : null, h('span', {}, text))),
    ...known.filter(({ health }) => health !== 'healthy').map(sick),
    subscriptions?.error && h('li', {}, badge('subscriptions', 'plain'), h('span', {}, `not known: ${subscriptions.error.message}`)),
  ].filter(Boolean);
  if (lines.length) return h('ul', { class: 'attention' }, lines);
  if (subscriptions && !known.length) return empty('Nothing needs attention. There are no subscriptions yet.', 'A service receives events reliably by webhook:', code('tavern events subscribe mail --topic orders --callback https://example.com/hook'));
  return h('p', { class: 'muted' }, `Nothing needs attention: ${plural(known.length, 'subscription')} healthy, ${plural(nodes.filter(({ alive }) => alive).length, 'node')} alive.`);
}

function facts(figures, subscriptions) {
  const waiting = (Array.isArray(subscriptions) ? subscriptions : []).filter(({ queued, health }) => queued > 0 && health !== 'disabled');
  const slowest = waiting.sort((a, b) => (age(b) ?? 0) - (age(a) ?? 0))[0];
  return [
    ['Slowest subscription', slowest ? [link(slowest.name, 'subscriptions', slowest.name), h('div', {}, `${plural(slowest.queued, 'event')}${age(slowest) === undefined ? '' : `, ${span(age(slowest))}`} behind`)] : 'none waits'],
    ['Sessions', count(figures.sessions)],
    ['Channels with subscribers', count(figures.channels)],
    ['Commands', rate(figures.commands ?? 0)],
  ];
}

