// The list of users, one user with presence, inbox and follows, and one session.
import { h, put, heading, link, badge, section, empty, code, filter, table, facts, to } from './dom.js';
import { ago, count, moment, plural, span, text, now } from './format.js';
import { get, may, part, ServerError } from './server.js';
import { more } from './channels.js';
import { actions, banNote } from './user_actions.js';

const PAGE = 100;

const presence = ({ online, leaving }) => (leaving ? badge('leaving', 'warn') : online ? badge('online', 'good') : badge('offline', 'plain'));

export function users(visit) {
  let prefix = '';
  let limit = PAGE;
  let online;
  const list = table('Users', [
    { name: 'User', sort: ({ user }) => user, first: 'up', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Name', sort: ({ name }) => name, cell: ({ name }) => name },
    { name: 'Presence', sort: ({ online, leaving }) => Number(online) - Number(leaving) / 2, cell: presence },
    { name: 'Last seen', still: true, sort: ({ online, last_seen: at }) => (online ? Infinity : at), cell: ({ online, last_seen: at }) => (online ? 'now' : ago(at)) },
  ], ({ user }) => user);
  const below = h('div');
  let again;
  const box = filter('Users starting with …', '', (value) => {
    prefix = value;
    limit = PAGE;
    again();
  });
  const only = h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: ({ target }) => {
    online = target.checked || undefined;
    again();
  } }), ' online only');
  const total = h('span', {}, 'Users of the whole cluster.');
  visit.draw(heading('Users', total), h('div', { class: 'tools' }, box, only), list.node, below);
  again = visit.watch(2000, (signal) => Promise.all([get('users', { prefix, limit, online }, signal), get('stats', {}, signal)]), ([{ users: rows, next }, { cluster }]) => {
    put(total, `${plural(cluster.users_online, 'user')} online in the whole cluster.`);
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length, () => {
      limit = Math.min(1000, limit + PAGE);
      again();
    }) : online && !prefix ? empty('Nobody is online.') : prefix ? empty(`No user starts with “${prefix}”.`, 'The filter matches the start of the name and is case-sensitive.') : empty('There are no users yet.', 'A user is known once they have connected:', code(visit.mode() === 'dev' ? `websocat '${location.origin.replace(/^http/, 'ws')}/v1/connect?user=ann'` : 'tavern token --user ann --ttl 1h')));
  });
}

export function user(visit) {
  const [name] = visit.args;
  const why = h('p', { class: 'why' });
  const what = h('div');
  const places = table('Channels', [
    { name: 'Channel', cell: ({ channel }) => link(channel, 'channels', channel) },
    { name: 'Since', still: true, cell: ({ since }) => ago(since) },
    { name: 'Clients', wide: true, cell: ({ clients, gone_in_ms: gone, leaving }) => [leaving && badge(`offline in ${span(gone)}`, 'warn'), clients.map((one) => client(visit, one))] },
  ], ({ channel }) => channel);
  const where = h('div');
  const inbox = h('div');
  const follows = h('div', { class: 'pair' });
  const sub = h('span', {}, 'Loading …');
  const buttons = h('div', { class: 'actions' });
  const sessions = table('Sessions', [
    { name: 'Client', cell: (row) => sessionLink(visit, row) },
    { name: 'Transport', cell: ({ transport, moving }) => [transport ?? 'none: waiting for the client', moving && badge('moving', 'warn')] },
    { name: 'Node', cell: ({ node }) => node },
    { name: 'Since', still: true, cell: ({ since }) => ago(since) },
    { name: 'Last activity', still: true, cell: ({ heard_at: at }) => ago(at) },
    { name: 'Channels', number: true, cell: ({ channels }) => count(channels) },
  ], ({ client: id }) => id);
  const connected = h('div');
  const acts = may('users');
  visit.draw(heading(name, sub, buttons), why, what, acts && section('Sessions', connected), section('Present in', where), may('admin') && section('Inbox', inbox), section('Follows', follows));
  let banned;
  const again = visit.watch(2000, async (signal) => {
    const path = `users/${part(name)}`;
    const also = (rest, query) => get(`${path}/${rest}`, query, signal).catch((error) => ({ error }));
    const [report, messages, following, followers, open] = await Promise.all([get(path, {}, signal), may('admin') && also('inbox', { limit: 50 }), also('following', { limit: 200 }), also('followers', { limit: 200 }), acts && also('sessions')]);
    const ban = report.banned && acts ? await also('ban') : { error: true };
    return { report, messages, following, followers, open, ban };
  }, ({ report, messages, following, followers, open, ban }) => {
    const { online, last_seen: seen, activities, visibility, party, invites, channels } = report;
    put(sub, presence(report), ' ', online ? '' : seen ? `last seen ${ago(seen)}` : 'never seen', !ban.error && [' ', banNote(ban)]);
    // The buttons stay the same nodes, so that the focus is kept.
    if (acts && banned !== !ban.error) put(buttons, actions(visit, name, (banned = !ban.error), again));
    sessions.update(open?.sessions ?? []);
    if (acts) put(connected, open.error ? refusal(open.error) : open.sessions.length ? sessions.node : empty('The user has no session.'), open.missing_nodes?.length > 0 && h('p', { class: 'end' }, `These nodes did not answer: ${open.missing_nodes.join(', ')}`));
    put(why, h('strong', {}, online ? 'Why online: ' : 'Why offline: '), `${report.why}.`);
    put(what, facts([
      ['Activities', activities.length ? activities.map((one) => h('div', {}, one.activity.replaceAll('_', ' '), ' in ', link(one.channel, 'channels', one.channel))) : 'none known', true],
      ['Party', party ? link(`Party ${party}`, 'parties', String(party)) : 'none', true],
      ['Invited to', invites?.length ? invites.map((id, at) => [at > 0 && ', ', link(`Party ${id}`, 'parties', String(id))]) : undefined],
      ['Visible to', { everyone: 'everyone', followers_i_follow: 'followers they follow', nobody: 'no other user' }[visibility]],
      ['Last seen', online ? undefined : seen && moment(seen)],
    ]));
    places.update(channels);
    put(where, channels.length ? places.node : empty('The user is not present anywhere.', 'A user is in their own channel while a client is connected, and in other channels after join.'));
    if (messages) put(inbox, messages.error ? refusal(messages.error) : inboxList(messages, online));
    put(follows, people('Follows', following, `${name} follows no users.`), people('Followed by', followers, `${name} has no followers.`));
  });
}

/** A node describes its own sessions only. */
function sessionLink(visit, { client: id, node }) {
  const known = node === visit.node();
  return h(known ? 'a' : 'span', { ...(known ? { href: to('sessions', id) } : { title: `The dashboard of ${node} has its details` }), class: 'name mono' }, id.slice(0, 10));
}

function client(visit, { client: id, node, since, state, lost_at: lost, kept_until: until }) {
  return h('div', { class: 'client' },
    sessionLink(visit, { client: id, node }),
    ` on ${node}, since ${ago(since)}`,
    lost !== undefined && badge(`lost, resumable for ${span(until - now())}`, 'warn'),
    state !== null && h('code', {}, text(state, 120)));
}

const refusal = (error) => h('p', { class: 'end' }, error instanceof ServerError ? `${error.title}: ${error.message}` : 'It could not be loaded.');

function inboxList({ messages, next, dropped_through: dropped }, online) {
  const lost = dropped > 0 && h('p', { class: 'end' }, `Messages up to ${count(dropped)} were dropped unread: the inbox was full, or they expired.`);
  if (!messages.length) return [empty('The inbox is empty.', online ? 'Messages are removed as soon as a client has acknowledged them.' : 'Messages wait here until the user connects.'), lost];
  const rows = messages.map(({ message_id: id, at, event }) => h('li', {}, h('time', { title: moment(at) }, ago(at)), h('b', {}, `${event?.event ?? 'inbox'}${event?.cmd ? ` ${event.cmd}` : ''}`), h('code', {}, text(event?.data ?? rest(event), 300)), h('span', { class: 'kind' }, `id ${id}`)));
  return [h('ol', { class: 'messages' }, rows), next !== null && h('p', { class: 'end' }, 'and more'), lost];
}

const rest = ({ event, cmd, ...others } = {}) => others;

function people(title, { users: rows, next, error }, none) {
  const body = error ? refusal(error) : rows.length ? h('ul', { class: 'names' }, rows.map((row) => row.user ?? row).map((user) => h('li', {}, link(user, 'users', user)))) : h('p', { class: 'end' }, none);
  return h('div', {}, h('h3', {}, title), body, next && h('p', { class: 'end' }, 'and more'));
}

export function session(visit) {
  const [id] = visit.args;
  const body = h('div');
  visit.draw(heading('Session', h('code', {}, id)), body);
  visit.watch(2000, (signal) => get(`sessions/${part(id)}`, {}, signal), (report) => {
    const { mailbox } = report;
    put(body,
      h('p', { class: 'why' }, h('strong', {}, report.online ? 'Why online: ' : 'Why offline: '), `${report.why}.`),
      facts([
        ['User', report.user ? link(report.user, 'users', report.user) : 'anonymous'],
        ['Transport', report.transport ?? 'none'],
        ['Node', `${report.node}, shard ${report.shard}`],
        ['Since', moment(report.since)],
        ['Last activity', ago(report.heard_at)],
        ['Resumable until', report.expires_at && moment(report.expires_at)],
        ['Token expires', report.token_expires_at && moment(report.token_expires_at)],
        ['Mailbox', `${plural(mailbox.events, 'event')}, ${plural(mailbox.bytes, 'byte')}; sent up to ${count(mailbox.sent)} of ${count(mailbox.last)}`],
      ]),
      section('Subscriptions', report.channels.length + report.patterns.length ? h('ul', { class: 'names' }, report.channels.map((name) => h('li', {}, link(name, 'channels', name))), report.patterns.map((name) => h('li', {}, h('code', {}, name)))) : h('p', { class: 'end' }, 'none')));
  });
}
