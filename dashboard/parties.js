// Parties: who is with whom, who was invited, and whether they go.
import { h, put, heading, link, badge, section, empty, filter, table, facts, code } from './dom.js';
import { ago, count, plural } from './format.js';
import { get, part } from './server.js';
import { more } from './channels.js';

const names = (members) => members.map(({ user }, at) => [at > 0 && ', ', link(user, 'users', user)]);

export function parties(visit) {
  let wanted = '';
  const list = table('Parties', [
    { name: 'Party', cell: ({ party_id: id }) => link(`Party ${id}`, 'parties', String(id)) },
    { name: 'State', cell: ({ state }) => badge(state, 'plain') },
    { name: 'Members', wide: true, cell: ({ members }) => names(members) },
    { name: 'Invited', number: true, cell: ({ pending }) => count(pending.length) },
  ], ({ party_id: id }) => id);
  const below = h('div');
  let again;
  const box = filter('Parties with a member …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  visit.draw(heading('Parties', 'Users who are together, and whom they have invited.'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(2000, (signal) => get('parties', { limit: 1000 }, signal), ({ parties: all, next }) => {
    const rows = all.filter(({ party_id: id, members, pending }) => String(id).startsWith(wanted) || [...members, ...pending].some(({ user }) => user.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length) : all.length ? empty(`No party holds “${wanted}”.`, 'Members, guests and numbers are looked through.') : empty('There is no party.', 'It begins when somebody who has none invites somebody:', code('{"id": 1, "op": "party.invite", "user": "bob"}')));
  });
}

export function party(visit) {
  const [id] = visit.args;
  const sub = h('span', {}, 'Looking …');
  const body = h('div');
  const members = table('Members', [
    { name: 'User', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Name', cell: ({ name }) => name },
    { name: 'Part', cell: ({ leads }) => (leads ? badge('leads', 'good') : 'member') },
    { name: 'Presence', cell: ({ online }) => badge(online ? 'online' : 'away', online ? 'good' : 'warn') },
    { name: 'Since', still: true, cell: ({ since }) => ago(since) },
  ], ({ user }) => user);
  visit.draw(heading(`Party ${id}`, sub), body);
  visit.watch(2000, (signal) => get(`parties/${part(id)}`, {}, signal), (answer) => {
    const found = answer.party;
    if (!found) {
      put(sub);
      put(body, empty('This party has ended, or has never been.', 'Numbers are not used twice.'));
      return;
    }
    put(sub, badge(found.state, 'plain'), ` ${plural(found.members.length, 'member')}, version ${count(found.version)}`);
    members.update(found.members.map((member, at) => ({ ...member, leads: at === 0 })));
    put(body,
      section('Members', members.node),
      section('Invited', found.pending.length ? h('ul', { class: 'names' }, found.pending.map(({ user, by, expires_at: at }) => h('li', {}, link(user, 'users', user), ` by ${by}, open for ${ago(at)?.replace(/^in /, '')}`))) : h('p', { class: 'end' }, 'nobody')),
      section('Facts', facts([['Channel', link(`party#${id}`, 'channels', `party#${id}`)], ['Going', found.go_id && `attempt ${found.go_id}`], ['Data', h('code', {}, JSON.stringify(found.data))]])));
  });
}
