// The list of channels, and one channel live through the public client.
import { h, put, heading, link, badge, section, empty, code, filter, table, to } from './dom.js';
import { brief, count, plural } from './format.js';
import { get, liveClient, may, part, post } from './server.js';
import { messages } from './history.js';
import { people } from './room.js';

const PAGE = 100;
const RATE_SECONDS = 10;

export function channels(visit) {
  let prefix = '';
  let limit = PAGE;
  const list = table('Channels', [
    { name: 'Channel', sort: ({ channel: one }) => one, first: 'up', cell: ({ channel }) => link(channel, 'channels', channel) },
    { name: 'Present', number: true, sort: ({ present }) => present, cell: ({ present }) => count(present) },
    { name: 'Subscriptions here', number: true, sort: ({ subscriptions }) => subscriptions, cell: ({ subscriptions }) => count(subscriptions) },
  ], ({ channel }) => channel);
  const below = h('div');
  let again;
  const box = filter('Channels starting with …', '', (value) => {
    prefix = value;
    limit = PAGE;
    again();
  });
  const total = h('span');
  visit.draw(heading('Channels', ['Channels with users present, or with subscriptions on this node. Users’ own channels are listed under user#… ', total]), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(2000, (signal) => Promise.all([get('channels', { prefix, present: true, limit }, signal), get('stats', {}, signal)]), ([{ channels: rows, next }, { cluster }]) => {
    put(total, `In the whole cluster: ${plural(cluster.channels, 'channel')} with subscribers, ${plural(cluster.presences, 'presence')}.`);
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length, () => {
      limit = Math.min(1000, limit + PAGE);
      again();
    }) : prefix ? empty(`No channel starts with “${prefix}”.`, 'The filter matches the start of the name, including the kind: game#…') : empty('There are no channels yet.', 'Open Try it, or run in a terminal:', code("tavern subscribe 'game#1'")));
  });
}

export function more(next, shown, act) {
  if (next === null || next === undefined) return h('p', { class: 'end' }, `${count(shown)} shown`);
  if (shown >= 1000) return h('p', { class: 'end' }, 'The first 1,000 are shown. Filter to see others.');
  return h('button', { class: 'quiet', onclick: act }, 'Show more');
}

export function channel(visit) {
  const [name] = visit.args;
  const sub = h('span', {}, 'Loading …');
  const pace = h('span', {});
  const said = messages(visit, name);
  const told = (total, mode) => put(sub, mode && badge('live', 'good'), ` ${plural(total, 'user')} present${mode === 'counts' ? ', read every two seconds' : ''}`);
  const who = people(visit, name, told);
  visit.draw(
    heading(name, [sub, pace], h('a', { class: 'button', href: to('try', name) }, 'Try it here')),
    h('div', { class: 'room' }, section('Messages', may('publish') && publishForm(visit, name), said.nodes), section('Present users', who.nodes)),
  );

  let live;
  // How many messages came in each of the last seconds.
  let [seconds, heard] = [[], 0];
  const add = (message) => {
    heard += 1;
    said.add(message);
  };
  const show = () => who.show(live);
  const room = liveClient().channel(name);
  const follow = async () => {
    room.on('message', add);
    live = await room.presence();
    if (visit.signal.aborted) return;
    // Only channels with history have a position.
    if (room.position) said.open();
    live.on('change', show);
    visit.each(1000, () => {
      [seconds, heard] = [[...seconds, heard].slice(-RATE_SECONDS), 0];
      pace.textContent = `; ${brief(seconds.reduce((sum, one) => sum + one, 0) / seconds.length)} messages/s in the last ${plural(seconds.length, 'second')}`;
    });
    show();
  };
  visit.signal.addEventListener('abort', () => {
    room.off('message', add);
    live?.off('change', show);
    room.unsubscribe().catch(() => {});
  });
  // If the key or the channel does not allow subscriptions, presence is loaded by REST every two seconds.
  follow().catch(() => {
    if (visit.signal.aborted) return;
    said.open();
    who.fromStore();
  });
}

function publishForm(visit, name) {
  const input = h('input', { name: 'message', required: true, autocomplete: 'off', placeholder: 'hello, or {"any": "JSON"}' });
  const publish = async (event) => {
    event.preventDefault();
    const data = parse(input.value);
    const sent = await visit.act(() => post(`channels/${part(name)}/messages`, { data }), 'Published.');
    if (sent) input.value = '';
  };
  return h('form', { class: 'row', onsubmit: publish }, h('label', { class: 'wide' }, 'Publish a message', input), h('button', {}, 'Publish'));
}

function parse(given) {
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}
