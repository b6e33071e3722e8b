// Users who cannot connect.
import { h, put, empty, filter, heading, link, table } from './dom.js';
import { ago, moment, plural } from './format.js';
import { call, get, part } from './server.js';

export function bans(visit) {
  let wanted = '';
  let again;
  const lift = (user) => visit.act(() => call('DELETE', `users/${part(user)}/ban`), `The ban of ${user} was lifted.`, () => again());
  const list = table('Bans', [
    { name: 'User', sort: ({ user }) => user, first: 'up', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Until', still: true, sort: ({ until }) => until ?? Infinity, cell: ({ until }) => (until ? `${moment(until)} (${ago(until)})` : 'the ban is lifted') },
    { name: 'Since', still: true, sort: ({ at }) => at, cell: ({ at }) => at && ago(at) },
    { name: 'Reason', wide: true, cell: ({ reason }) => reason },
    { name: 'Action', cell: ({ user }) => h('button', { class: 'link', 'aria-label': `Lift the ban of ${user}`, onclick: () => lift(user) }, 'Lift') },
  ], ({ user }) => user);
  const below = h('div');
  const box = filter('Users or reasons containing …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  visit.draw(heading('Bans', 'Banned users cannot connect over any transport. Ban a user on their page.'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(3000, (signal) => get('bans', { limit: 1000 }, signal), ({ bans: all, next }) => {
    const rows = all.filter(({ user, reason }) => [user, reason ?? ''].some((one) => one.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? h('p', { class: 'end' }, next ? 'The first 1,000 are shown.' : plural(rows.length, 'banned user')) : all.length ? empty(`No ban contains “${wanted}”.`) : empty('Nobody is banned.', 'Ban, Disconnect and Erase are on the page of each user.'));
  });
}
