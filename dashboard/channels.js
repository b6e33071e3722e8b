// The list of channels, and one channel live through the public client.
import { h, put, heading, link, badge, section, empty, code, filter, table, to } from './dom.js';
import { clock, count, plural, text } from './format.js';
import { get, liveClient, part } from './server.js';
import { history } from './history.js';

const PAGE = 100;
const LINES = 50;

export function channels(visit) {
  let prefix = '';
  let limit = PAGE;
  const list = table('Channels', [
    { name: 'Channel', cell: ({ channel }) => link(channel, 'channels', channel) },
    { name: 'Present', number: true, cell: ({ present }) => count(present) },
    { name: 'Subscriptions here', number: true, cell: ({ subscriptions }) => count(subscriptions) },
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
  const people = table('Present users', [
    { name: 'User', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Clients', number: true, cell: ({ clients }) => count(clients) },
    { name: 'State', wide: true, cell: ({ state, leaving }) => [leaving && badge('leaving', 'warn'), state !== undefined && state !== null && h('code', {}, text(state))] },
  ], ({ user }) => user);
  const who = h('div');
  const sub = h('span', {}, 'Loading …');
  const log = h('ol', { class: 'log', 'aria-label': 'Messages', tabindex: '0' });
  const stored = history(visit, name);
  const quiet = empty('No messages since this page was opened.', 'Messages appear here as they are published.');
  visit.draw(
    heading(name, sub, h('a', { class: 'button', href: to('try', name) }, 'Try it here')),
    section('Present users', who),
    section('Messages', log, quiet),
    stored.node,
  );

  let live;
  const show = () => {
    const rows = [...live.users.values()].map(({ user, clients, state, leaving }) => ({ user, clients: clients.size, state, leaving }));
    rows.sort((a, b) => (a.user < b.user ? -1 : 1));
    const anonymous = live.count - rows.length;
    put(sub, badge('live', 'good'), ` ${plural(live.count, 'user')} present${live.mode === 'counts' ? '; large channels show counts only' : ''}`);
    people.update(rows.slice(0, 1000));
    if (rows.length) put(who, people.node, anonymous > 0 && h('p', { class: 'end' }, `and ${plural(anonymous, 'anonymous user')}`));
    else if (anonymous > 0) put(who, h('p', { class: 'end' }, plural(anonymous, 'anonymous user')));
    else put(who, empty('No users are present.', 'A subscription does not make a user present; a client sends join. Or set presence from a service:', code(`curl -X PUT -H "Authorization: Bearer $KEY" -d '{"ttl_s": 60}' \\\n  ${location.origin}/v1/channels/${part(name)}/presence/ann`)));
  };
  const room = liveClient().channel(name);
  const said = (message) => {
    const { data, from } = message;
    quiet.hidden = true;
    stored.add(message);
    log.append(h('li', {}, h('time', {}, clock(Date.now())), h('b', {}, from?.user ?? from?.client ?? 'a service'), h('span', {}, text(data, 1000))));
    while (log.children.length > LINES) log.firstChild.remove();
    log.scrollTop = log.scrollHeight;
  };
  const follow = async () => {
    room.on('message', said);
    live = await room.presence();
    if (visit.signal.aborted) return;
    // Only channels with history have a position.
    if (room.position) stored.open();
    live.on('change', show);
    show();
  };
  visit.signal.addEventListener('abort', () => {
    room.off('message', said);
    live?.off('change', show);
    room.unsubscribe().catch(() => {});
  });
  follow().catch(() => asList());

  // If the key or the channel does not allow subscriptions, presence is loaded by REST every two seconds.
  function asList() {
    if (visit.signal.aborted) return;
    stored.open();
    visit.watch(2000, (signal) => get(`channels/${part(name)}/presence`, {}, signal), ({ users = [], count: total }) => {
      put(sub, `${plural(total, 'user')} present`);
      people.update(users.filter(({ user }) => user !== null).map(({ user, clients, leaving }) => ({ user, clients: clients.length, state: clients.at(-1)?.state, leaving })));
      if (users.length) put(who, people.node);
      else put(who, empty('No users are present.'));
    });
  }
}

