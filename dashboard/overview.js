// The first page: what happens now, how it was in the last two minutes, and what needs somebody.
import { h, put, heading, link, badge, section, empty, code } from './dom.js';
import { brief, count, plural, span } from './format.js';
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
  const most = h('span', { class: 'most', title: 'The most of the last two minutes' });
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
  const wants = h('div');
  const title = h('span', {}, 'Overview');
  visit.draw(
    heading(title, health),
    h('div', { class: 'tiles' }, tiles.map(({ node }) => node)),
    section('Needs somebody', wants),
    section('Since the start', totals),
  );
  visit.beat((latest) => {
    for (const one of tiles) one.update(latest);
    put(health, state(latest));
    put(totals, sums(latest).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
  });
  const some = (path, signal) => get(path, { limit: 1000 }, signal).catch(() => ({}));
  visit.watch(5000, (signal) => Promise.all([get('nodes', {}, signal), some('subscriptions', signal)]), ([{ nodes }, { subscriptions = [] }]) => {
    put(wants, troubles(subscriptions, nodes));
  });
}

function state({ store_up: store, bus_up: bus, stopping, mode }) {
  return [
    badge(store ? 'store answers' : 'store does not answer', store ? 'good' : 'bad'),
    badge(bus ? 'bus answers' : 'bus does not answer', bus ? 'good' : 'bad'),
    mode === 'dev' && badge('dev mode', 'plain'),
    stopping && badge('stopping', 'warn'),
  ];
}

function sums({ metrics, events, uptime_ms: up }) {
  const dropped = metrics['tavern_events_dropped_total{reason="mailbox_full"}'] + metrics['tavern_events_dropped_total{reason="memory"}'];
  return [
    ['Up', span(up)],
    ['Messages published', count(metrics.tavern_messages_published_total)],
    ['Messages delivered', count(metrics.tavern_events_delivered_total)],
    ['Dropped unread', count(dropped)],
    ['Channels listened to', count(metrics.tavern_channels)],
    ['Sessions opened', count(metrics.tavern_sessions_opened_total)],
    ['Sessions resumed', count(metrics.tavern_sessions_resumed_total)],
    ['Events accepted', count(events.accepted)],
    ['Events delivered', count(events.delivered)],
    ['Dead letters', count(events.dead_letters)],
    ['Connections refused', count(metrics.tavern_connections_refused_total)],
    ['From other nodes', count(metrics.tavern_bus_received_total)],
  ];
}

function troubles(subscriptions, nodes) {
  const sick = subscriptions.filter(({ health }) => health !== 'healthy');
  const dead = nodes.filter(({ alive, clean, closed_at: closed }) => !alive && !clean && closed === null);
  const lines = [
    ...sick.map(({ name, health, queued, failures }) => h('li', {}, badge(health, { throttled: 'warn', disabled: 'plain' }[health] ?? 'bad'), link(name, 'subscriptions', name), h('span', {}, queued ? `${plural(queued, 'event')} waiting${failures ? `, ${plural(failures, 'failed attempt')} in a row` : ''}` : 'its last event was refused; nothing waits'))),
    ...dead.map(({ node, epoch }) => h('li', {}, badge('lease over', 'bad'), link(node, 'nodes'), h('span', {}, `life ${epoch} ended without a goodbye; another node takes over its clients`))),
  ];
  if (lines.length) return h('ul', { class: 'wants' }, lines);
  if (!subscriptions.length) return empty('All is well, and nobody subscribes to events yet.', 'A service that must know for sure gets events by webhook:', code("tavern events subscribe mail --topic orders --callback https://example.com/hook"));
  return h('p', { class: 'calm' }, `All is well: ${plural(subscriptions.length, 'subscription')} healthy, ${plural(nodes.filter(({ alive }) => alive).length, 'node')} alive.`);
}
