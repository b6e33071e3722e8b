// The users in a channel, in pages: live as long as the server names them; of a large channel it tells only how many there are, and
// the page that is shown comes from the store.
import { h, put, badge, code, empty, filter, link, table } from './dom.js';
import { count, plural, text } from './format.js';
import { get, part } from './server.js';

const PAGE = 100;

/** Sorts after every name before those that begin like this. */
const before = (start) => {
  const signs = [...start];
  const last = signs.pop();
  return last ? `${signs.join('')}${String.fromCodePoint(last.codePointAt(0) - 1)}\u{10ffff}` : '';
};

/** `show(live)`: the presence of the public client has changed; `fromStore()`: it is not to be had. Both return the number of users. */
export function people(visit, name, told) {
  // After which user each page so far begins.
  let [cursors, live, polled] = [[''], undefined, undefined];
  const list = table('Present users', [
    { name: 'User', cell: ({ user }) => link(user, 'users', user) },
    { name: 'Clients', number: true, cell: ({ clients }) => count(clients) },
    { name: 'State', wide: true, cell: ({ state, leaving }) => [leaving && badge('leaving', 'warn'), state !== undefined && state !== null && h('code', {}, text(state))] },
  ], ({ user }) => user);
  const turn = (to) => {
    cursors = to;
    again();
  };
  const from = filter('Users from …', '', (start) => turn([before(start)]));
  const tools = h('div', { class: 'tools', hidden: true }, from);
  const [back, next] = ['Previous', 'Next'].map((label) => h('button', { class: 'quiet' }, label));
  const where = h('span', {});
  const pages = h('div', { class: 'pages' }, back, next, where);
  const rest = h('div');
  list.node.classList.add('dense');
  list.node.tabIndex = 0;
  list.node.hidden = true;
  pages.hidden = true;

  const draw = (rows, more, total, anonymous) => {
    const [shown, first] = [rows.slice(0, PAGE), cursors.length === 1 && !cursors[0]];
    const last = shown.at(-1)?.user;
    const isLong = more || !first;
    list.update(shown);
    list.node.hidden = !shown.length;
    tools.hidden = !isLong && total <= PAGE;
    pages.hidden = !isLong;
    back.disabled = cursors.length === 1;
    next.disabled = !more;
    back.onclick = () => turn(cursors.slice(0, -1));
    next.onclick = () => turn([...cursors, last]);
    where.textContent = shown.length ? `${shown[0].user} to ${last}, of ${plural(total, 'user')}` : `No user from there on, of ${plural(total, 'user')}`;
    const others = anonymous > 0 && h('p', { class: 'end' }, `${rows.length ? 'and ' : ''}${plural(anonymous, 'anonymous user')}`);
    put(rest, others || (!total && empty('No users are present.', 'A subscription does not make a user present; a client sends join. Or set presence from a service:', code(`curl -X PUT -H "Authorization: Bearer $KEY" -d '{"ttl_s": 60}' \\\n  ${location.origin}/v1/channels/${part(name)}/presence/ann`))));
  };
  const ofClient = () => {
    const all = [...live.users.values()].map(({ user, clients, state, leaving }) => ({ user, clients: clients.size, state, leaving }));
    const rows = all.filter(({ user }) => user > cursors.at(-1)).sort((a, b) => (a.user < b.user ? -1 : 1));
    draw(rows, rows.length > PAGE, live.count, live.count - all.length);
  };
  const fromStore = () => {
    const read = async (signal) => ({ after: cursors.at(-1), ...await get(`channels/${part(name)}/presence`, { after: cursors.at(-1), limit: PAGE }, signal) });
    polled ??= visit.watch(2000, read, ({ after, users = [], count: total, next: more }) => {
      if (live && live.mode !== 'counts') return ofClient();
      // Another page is wanted meanwhile.
      if (after !== cursors.at(-1)) return void setTimeout(polled);
      if (!live) told(total);
      const rows = users.filter(({ user }) => user !== null);
      draw(rows.map(({ user, clients, leaving }) => ({ user, clients: clients.length, state: clients.at(-1)?.state, leaving })), Boolean(more), total, live ? 0 : users.length - rows.length);
    });
    polled();
  };
  const again = () => (live && live.mode !== 'counts' ? ofClient() : fromStore());
  const show = (given) => {
    const was = live?.mode;
    live = given;
    told(live.count, live.mode);
    // A large channel changes all the time: its page is read every two seconds.
    if (live.mode !== 'counts' || was !== 'counts') again();
  };
  return { nodes: [tools, pages, list.node, rest], show, fromStore };
}
