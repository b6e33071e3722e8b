// The overview: current rates, the last two minutes, and what needs attention.
import { h, put, heading, link, badge, section, empty, code } from './dom.js';
import { brief, count, now, plural, span } from './format.js';
import { get } from './server.js';
import { sparkline } from './sparkline.js';

const TILES = [
  ['published', 'Messages published', '/s'],
  ['delivered', 'Messages delivered', '/s'],
  ['connections', 'Connections', 'open'],
  ['sessions', 'Sessions', 'alive'],
  ['commands', 'Commands', '/s'],
  ['events_accepted', 'Events accepted', '/s'],
  ['events_delivered', 'Events delivered', '/s'],
  ['attempts_failed', 'Failed attempts', '/s'],
];

function tile([name, title, unit]) {
  const number = h('strong', {}, '–');
  const most = h('span', { class: 'most', title: 'Maximum of the last two minutes' });
  const spark = sparkline(title);
  const node = h('div', { class: 'tile', 'data-tile': name }, h('h3', {}, title), h('p', {}, number, h('span', {}, unit)), most, spark.node);
  return {
    node,
    update({ history, rates }) {
      const points = history[name] ?? [];
      number.textContent = brief(rates[name] ?? 0);
      most.textContent = `max ${brief(points.length ? Math.max(...points) : 0)}`;
      node.classList.toggle('alarm', name === 'attempts_failed' && rates[name] > 0);
      spark.update(points);
    },
  };
}

export function overview(visit) {
  const tiles = TILES.map(tile);
  const health = h('p', { class: 'health' });
  const totals = h('dl', { class: 'facts totals' });
  const attention = h('div');
  const title = h('span', {}, 'Overview');
  visit.draw(
    heading(title, health),
    h('div', { class: 'tiles' }, tiles.map(({ node }) => node)),
    section('Needs attention', attention),
    section('Since start', totals),
  );
  let lost = [];
  visit.tick((latest) => {
    lost = latest.lost_nodes ?? [];
    for (const one of tiles) one.update(latest);
    put(health, state(latest));
    put(totals, sums(latest).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
  });
  const some = (path, signal) => get(path, { limit: 1000 }, signal).catch(() => ({}));
  visit.watch(5000, (signal) => Promise.all([get('nodes', {}, signal), some('subscriptions', signal)]), ([{ nodes }, { subscriptions = [] }]) => {
    put(attention, problems(subscriptions, nodes, lost));
  });
}

function state({ store_up: store, bus_up: bus, clock, stopping, mode }) {
  return [
    badge(store ? 'store ok' : 'store does not answer', store ? 'good' : 'bad'),
    badge(bus ? 'bus ok' : 'bus does not answer', bus ? 'good' : 'bad'),
    clock.warning && h('span', { title: clock.warning }, badge('clock jumped', 'warn')),
    mode === 'dev' && badge('dev mode', 'plain'),
    stopping && badge('stopping', 'warn'),
  ];
}

function sums({ metrics, events, uptime_ms: up }) {
  const total = (name) => Object.entries(metrics).reduce((sum, [key, value]) => (key.split('{')[0] === name ? sum + value : sum), 0);
  return [
    ['Uptime', span(up)],
    ['Messages published', count(metrics.tavern_messages_published_total)],
    ['Messages delivered', count(metrics.tavern_events_delivered_total)],
    ['Dropped unread', count(total('tavern_events_dropped_total'))],
    ['Users online, all nodes', count(metrics.tavern_users_online)],
    ['Parties, all nodes', count(metrics.tavern_parties)],
    ['Channels with subscriptions', count(metrics.tavern_channels)],
    ['Sessions opened', count(metrics.tavern_sessions_opened_total)],
    ['Sessions resumed', count(metrics.tavern_sessions_resumed_total)],
    ['Events accepted', count(events.accepted)],
    ['Events delivered', count(events.delivered)],
    ['Dead letters', count(events.dead_letters)],
    ['Connections refused', count(total('tavern_connections_refused_total'))],
    ['Messages from other nodes', count(metrics.tavern_bus_received_total)],
  ];
}

function problems(subscriptions, nodes, lost) {
  const sick = subscriptions.filter(({ health }) => health !== 'healthy');
  const alive = new Set(nodes.filter((node) => node.alive).map(({ node }) => node));
  const dead = lost.filter(({ node }) => !alive.has(node));
  const lines = [
    ...sick.map(({ name, health, queued, failures }) => h('li', {}, badge(health, { behind: 'warn', throttled: 'warn', disabled: 'plain' }[health] ?? 'bad'), link(name, 'subscriptions', name), h('span', {}, queued ? `${plural(queued, 'event')} queued${failures ? `, ${plural(failures, 'consecutive failure')}` : ''}` : 'the last event was refused; the queue is empty'))),
    ...dead.map(({ node, epoch, at }) => h('li', {}, badge('node lost', 'bad'), link(node, 'nodes'), h('span', {}, `ended ${span(Math.max(0, now() - at))} ago without a clean stop (epoch ${epoch}); another node has taken over its clients`))),
  ];
  if (lines.length) return h('ul', { class: 'attention' }, lines);
  if (!subscriptions.length) return empty('Nothing needs attention. There are no subscriptions yet.', 'A service receives events reliably by webhook:', code("tavern events subscribe mail --topic orders --callback https://example.com/hook"));
  return h('p', { class: 'muted' }, `Nothing needs attention: ${plural(subscriptions.length, 'subscription')} healthy, ${plural(nodes.filter(({ alive }) => alive).length, 'node')} alive.`);
}
