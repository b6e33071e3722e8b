// The nodes of the cluster side by side, what started and ended in the last day, and the settings of the answering node.
import { h, put, heading, badge, empty, filter, section, table } from './dom.js';
import { ago, brief, bytes, count, latency, moment, now, percent, rate, span } from './format.js';
import { get } from './server.js';
import { nodeProblem } from './cluster.js';

// Figures of a node: title, name, format. Every one sorts the table.
const FIGURES = [
  ['p99', 'delivery_p99_ms', latency, 'From publishing a message to writing it to a client'],
  ['Store', 'store_p99_ms', latency, 'A commit or a read, p99'],
  ['Bus', 'bus_p99_ms', latency, 'To another node and back, p99'],
  ['CPU', 'cpu_percent', percent, '100 %: one core'],
  ['Memory', 'memory_bytes', bytes],
  ['Sessions', 'sessions', brief],
  ['In', 'published', rate, 'Messages published'],
  ['Out', 'delivered', rate, 'Messages delivered'],
  ['Clock', 'clock_offset_ms', (ms) => `${ms > 0 ? '+' : ''}${latency(ms)}`, 'Its clock compared with the time of the store'],
];

export function nodes(visit) {
  let wanted = '';
  const figure = ([name, key, format, hint]) => ({
    name, number: true, hint, sort: ({ figures }) => figures?.[key], cell: ({ figures }) => figures?.[key] === undefined ? '–' : format(figures[key]),
  });
  const list = table('Nodes', [
    { name: 'Node', sort: ({ node }) => node, first: 'up', cell: ({ node }) => h('b', { class: 'name' }, node) },
    { name: 'State', sort: ({ state }) => state[1], cell: ({ state: [kind, label, text] }) => h('span', { title: text }, badge(label, kind)) },
    ...FIGURES.map(figure),
    { name: 'Lease', number: true, sort: ({ lease_ms: left }) => left, cell: ({ lease_ms: left }) => span(left) },
    { name: 'Up', number: true, sort: ({ opened_at: at }) => -at, cell: ({ opened_at: at }) => span(Math.max(0, now() - at)).split(' ').slice(0, 2).join(' ') },
    { name: 'Version', sort: ({ version }) => version, cell: ({ version, shards }) => version && h('span', { title: `${shards} shards` }, version) },
  ], ({ node }) => node);
  list.node.classList.add('dense');
  const log = table('Starts and ends', [
    { name: 'Node', cell: ({ node }) => h('b', { class: 'name' }, node) },
    { name: 'What', cell: ({ what: [kind, label] }) => badge(label, kind) },
    { name: 'When', still: true, cell: ({ at }) => `${moment(at)} (${ago(at)})` },
    { name: 'Epoch', number: true, cell: ({ epoch }) => h('code', {}, String(epoch)) },
  ], ({ node, epoch, what }) => `${node} ${epoch} ${what[1]}`);
  const below = h('div');
  let again;
  const box = filter('Nodes containing …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  const here = h('span', {});
  visit.draw(
    heading('Nodes', ['A node is alive while it renews its lease. When the lease expires, other nodes take over its clients. ', here]),
    h('div', { class: 'tools' }, box), list.node, below,
    section('The last day', log.node),
  );
  again = visit.watch(2000, (signal) => Promise.all([get('nodes', {}, signal), get('load', {}, signal)]), ([{ nodes: stored }, load]) => {
    const loads = new Map(load.nodes.map((one) => [one.node, one]));
    const open = stored.filter((node) => node.closed_at === null);
    const rows = open.filter(({ node }) => node.toLowerCase().includes(wanted)).map((node) => described(node, loads.get(node.node)));
    here.textContent = `This node is ${load.node}.`;
    list.update(rows);
    for (const line of list.node.querySelectorAll('tbody tr')) line.classList.toggle('stale', Boolean(loads.get(line.querySelector('.name').textContent)?.silent_ms));
    list.node.hidden = !rows.length;
    put(below, rows.length ? h('p', { class: 'end' }, `${count(open.filter(({ alive }) => alive).length)} alive of ${count(open.length)}`) : empty(`No node contains “${wanted}”.`));
    log.update(load.runs.filter(({ node }) => node.toLowerCase().includes(wanted)).flatMap(ends).sort((a, b) => b.at - a.at));
  });
}

function described({ node, alive, lease_ms, opened_at }, load) {
  const problem = load && nodeProblem({ ...load, alive });
  const state = !alive ? ['bad', 'dead', 'its lease has ended'] : problem ?? (load ? ['good', 'alive', 'renews its lease and answers'] : ['plain', 'alive', 'has not answered yet']);
  return { node, state, lease_ms, opened_at, figures: load?.figures, version: load?.version, shards: load?.shards };
}

const ends = ({ node, epoch, started_at: start, ended_at: end, clean }) => [
  end !== null && { node, epoch, at: end, what: clean ? ['plain', 'stopped'] : ['bad', 'died'] },
  now() - start < 86_400_000 && { node, epoch, at: start, what: ['good', 'started'] },
].filter(Boolean);

export function settings(visit) {
  let wanted = '';
  const list = table('Settings', [
    { name: 'Key', cell: ({ key }) => h('b', { class: 'name mono' }, key) },
    { name: 'Value', wide: true, cell: ({ value }) => h('code', {}, value === null || value === '' ? '–' : typeof value === 'string' ? value : JSON.stringify(value)) },
    { name: 'Source', cell: ({ origin }) => (origin === 'default' ? h('span', { class: 'kind' }, origin) : h('b', {}, origin)) },
  ], ({ key }) => key);
  const below = h('div');
  let found = [];
  const show = () => {
    const rows = found.filter(({ key, value, origin }) => [key, JSON.stringify(value), origin].some((one) => one.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? h('p', { class: 'end' }, `${count(rows.length)} of ${count(found.length)}`) : empty(`No setting contains “${wanted}”.`, 'The filter searches keys, values and sources.'));
  };
  const box = filter('Settings containing …', '', (value) => {
    wanted = value.toLowerCase();
    show();
  });
  visit.draw(heading('Settings', 'The settings in effect on this node and the source of each value, as shown by tavern check. Secrets are not shown.'), h('div', { class: 'tools' }, box), list.node, below);
  visit.watch(30_000, (signal) => get('settings', {}, signal), ({ values }) => {
    found = values;
    show();
  });
}
