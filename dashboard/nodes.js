// Nodes with their leases, and the settings of the answering node.
import { h, put, heading, badge, empty, filter, table } from './dom.js';
import { ago, count, plural, span } from './format.js';
import { get } from './server.js';

export function nodes(visit) {
  let wanted = '';
  const list = table('Nodes', [
    { name: 'Node', cell: ({ node, here }) => [h('b', { class: 'name' }, node), here && badge('this node', 'plain')] },
    { name: 'State', cell: ({ alive, clean }) => (alive ? badge('alive', 'good') : clean ? badge('stopped', 'plain') : badge('dead', 'bad')) },
    { name: 'Lease', number: true, cell: ({ alive, lease_ms: left }) => (alive ? span(left) : 'expired') },
    { name: 'Epoch', number: true, cell: ({ epoch }) => h('code', {}, String(epoch)) },
    { name: 'Started', still: true, cell: ({ opened_at: at }) => ago(at) },
    { name: 'Stopped', still: true, cell: ({ closed_at: at }) => ago(at) },
    { name: 'Load', wide: true, cell: ({ here }) => here && `${plural(here.connections, 'connection')}, ${plural(here.sessions, 'session')}, ${plural(here.shards, 'shard')}` },
  ], ({ node, epoch }) => `${node} ${epoch}`);
  const below = h('div');
  let again;
  const box = filter('Nodes containing …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  visit.draw(heading('Nodes', 'A node is alive while it renews its lease. When the lease expires, other nodes take over its clients.'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(1000, (signal) => get('nodes', {}, signal), ({ nodes: all }) => {
    const rows = all.filter(({ node }) => node.toLowerCase().includes(wanted));
    rows.sort((a, b) => Number(b.alive) - Number(a.alive) || b.opened_at - a.opened_at);
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? h('p', { class: 'end' }, `${count(rows.filter(({ alive }) => alive).length)} alive, ${count(rows.filter(({ alive }) => !alive).length)} stopped`) : empty(`No node contains “${wanted}”.`));
  });
}

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
