// Parties: members, invites, tickets.
import { h, put, heading, link, badge, section, empty, filter, table, facts, code } from './dom.js';
import { ago, count, plural } from './format.js';
import { get, may, part } from './server.js';
import { more } from './channels.js';

const SHOWN = 4;
/** A party by its members, the leader first. */
const title = (members) => members.slice(0, SHOWN).map(({ user }) => user).join(', ') + (members.length > SHOWN ? ` and ${count(members.length - SHOWN)} more` : '');

export function parties(visit) {
  let wanted = '';
  const list = table('Parties', [
    { name: 'Party', cell: ({ party_id: id, members }) => link(title(members), 'parties', String(id)) },
    { name: 'Id', sort: ({ party_id: id }) => id, cell: ({ party_id: id }) => h('code', {}, String(id)) },
    { name: 'State', cell: ({ state }) => badge(state, 'plain') },
    { name: 'Members', number: true, sort: ({ members }) => members.length, cell: ({ members }) => count(members.length) },
    { name: 'Invited', number: true, cell: ({ pending }) => count(pending.length) },
  ], ({ party_id: id }) => id);
  const below = h('div');
  let again;
  const box = filter('Parties with a member …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  const total = h('span');
  visit.draw(heading('Parties', ['Parties with their members and open invites. ', total]), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(2000, (signal) => Promise.all([get('parties', { limit: 1000 }, signal), may('presence') && get('stats', {}, signal)]), ([{ parties: all, next }, stats]) => {
    put(total, stats && `There ${stats.cluster.parties === 1 ? 'is' : 'are'} ${count(stats.cluster.parties)}.`);
    const rows = all.filter(({ party_id: id, members, pending }) => String(id).startsWith(wanted) || [...members, ...pending].some(({ user }) => user.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length) : all.length ? empty(`No party contains “${wanted}”.`, 'The filter searches members, invited users and party ids.') : empty('There are no parties.', 'A party is created when a user without one invites another user:', code('{"id": 1, "op": "party.invite", "user": "bob"}')));
  });
}

export function party(visit) {
  const [id] = visit.args;
  const sub = h('span', {}, 'Loading …');
  const body = h('div');
  const members = table('Members', [
    { name: 'User', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Name', cell: ({ name }) => name },
    { name: 'Role', cell: ({ leads }) => (leads ? badge('leader', 'good') : 'member') },
    { name: 'Presence', cell: ({ online }) => badge(online ? 'online' : 'offline', online ? 'good' : 'warn') },
    { name: 'Since', still: true, cell: ({ since }) => ago(since) },
  ], ({ user }) => user);
  const head = heading(`Party ${id}`, sub);
  visit.draw(head, body);
  visit.watch(2000, (signal) => get(`parties/${part(id)}`, {}, signal), (answer) => {
    const found = answer.party;
    if (!found) {
      put(sub);
      put(body, empty('This party has ended or never existed.', 'Party ids are never reused.'));
      return;
    }
    put(head.querySelector('h1'), title(found.members));
    put(sub, badge(found.state, 'plain'), ` Party ${id}, ${plural(found.members.length, 'member')}, version ${count(found.version)}`);
    members.update(found.members.map((member, at) => ({ ...member, leads: at === 0 })));
    put(body,
      section('Members', members.node),
      section('Invited', found.pending.length ? h('ul', { class: 'names' }, found.pending.map(({ user, by, expires_at: at }) => h('li', {}, link(user, 'users', user), ` by ${by}, expires in ${ago(at)?.replace(/^in /, '')}`))) : h('p', { class: 'end' }, 'none')),
      section('Details', facts([['Channel', link(`party#${id}`, 'channels', `party#${id}`)], ['Ticket', found.go_id && `go_id ${found.go_id}`], ['Data', h('code', {}, JSON.stringify(found.data))]])));
  });
}
