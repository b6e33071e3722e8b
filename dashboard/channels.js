// The list of channels, and one channel live through the public client.
import { h, put, heading, link, badge, section, empty, code, filter, table, to } from './dom.js';
import { count, plural, text } from './format.js';
import { get, liveClient, may, part, post } from './server.js';
import { messages } from './history.js';

const PAGE = 100;

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
  visit.draw(heading('Channels', 'Channels with users present, or with subscriptions on this node. Users’ own channels are listed under user#…'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(2000, (signal) => get('channels', { prefix, present: true, limit }, signal), ({ channels: rows, next }) => {
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
  let shown = PAGE;
  let redraw;
  const people = table('Present users', [
    { name: 'User', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Clients', number: true, cell: ({ clients }) => count(clients) },
    { name: 'State', wide: true, cell: ({ state, leaving }) => [leaving && badge('leaving', 'warn'), state !== undefined && state !== null && h('code', {}, text(state))] },
  ], ({ user }) => user);
  const who = h('div');
  const sub = h('span', {}, 'Loading …');
  const said = messages(visit, name);
  visit.draw(
    heading(name, sub, h('a', { class: 'button', href: to('try', name) }, 'Try it here')),
    h('div', { class: 'room' }, section('Messages', may('publish') && publishForm(visit, name), said.nodes), section('Present users', who)),
  );
  const showMore = () => {
    shown += PAGE;
    redraw();
  };
  const present = (rows, anonymous) => {
    people.update(rows.slice(0, shown));
    const others = anonymous > 0 && h('p', { class: 'end' }, `${rows.length ? 'and ' : ''}${plural(anonymous, 'anonymous user')}`);
    if (rows.length) put(who, people.node, rows.length > shown && h('button', { class: 'quiet', onclick: showMore }, `Show more of ${count(rows.length)}`), others);
    else put(who, others || empty('No users are present.', 'A subscription does not make a user present; a client sends join. Or set presence from a service:', code(`curl -X PUT -H "Authorization: Bearer $KEY" -d '{"ttl_s": 60}' \\\n  ${location.origin}/v1/channels/${part(name)}/presence/ann`)));
  };

  let live;
  const show = () => {
    const rows = [...live.users.values()].map(({ user, clients, state, leaving }) => ({ user, clients: clients.size, state, leaving }));
    rows.sort((a, b) => (a.user < b.user ? -1 : 1));
    put(sub, badge('live', 'good'), ` ${plural(live.count, 'user')} present${live.mode === 'counts' ? '; large channels show counts only' : ''}`);
    present(rows, live.count - rows.length);
  };
  const room = liveClient().channel(name);
  const follow = async () => {
    room.on('message', said.add);
    live = await room.presence();
    if (visit.signal.aborted) return;
    // Only channels with history have a position.
    if (room.position) said.open();
    live.on('change', show);
    (redraw = show)();
  };
  visit.signal.addEventListener('abort', () => {
    room.off('message', said.add);
    live?.off('change', show);
    room.unsubscribe().catch(() => {});
  });
  follow().catch(() => asList());

  // If the key or the channel does not allow subscriptions, presence is loaded by REST every two seconds.
  function asList() {
    if (visit.signal.aborted) return;
    said.open();
    redraw = visit.watch(2000, (signal) => get(`channels/${part(name)}/presence`, {}, signal), ({ users = [], count: total }) => {
      put(sub, `${plural(total, 'user')} present`);
      present(users.filter(({ user }) => user !== null).map(({ user, clients, leaving }) => ({ user, clients: clients.length, state: clients.at(-1)?.state, leaving })), 0);
    });
  }
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
