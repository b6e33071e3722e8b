// The stored messages of a channel: newest first, searched in what is loaded, earlier ones on demand.
import { h, put, ask, empty, filter, link, section, table } from './dom.js';
import { count, moment, plural, text, ago } from './format.js';
import { call, get, part, ServerError } from './server.js';

const PAGE = 200;
/** Messages that the page keeps; a search beyond them is for the API. */
const LOADED_MAX = 5000;
const SHOWN_MAX = 200;

/** A hidden section; `open` loads and shows it, `add` takes a live message. */
export function history(visit, name) {
  const path = `channels/${part(name)}/history`;
  let [epoch, wanted, more, rows] = [0, '', false, []];
  const list = table('History', [
    { name: 'Offset', cell: ({ offset }) => count(offset) },
    { name: 'Stored', still: true, cell: ({ at }) => h('time', { title: moment(at) }, ago(at)) },
    { name: 'From', cell: ({ from }) => (from?.user ? link(from.user, 'users', from.user) : from?.client ?? 'a service') },
    { name: 'Data', wide: true, cell: ({ data }) => h('code', {}, text(data, 1000)) },
  ], ({ offset }) => `${epoch} ${offset}`);
  const below = h('div');
  const matches = (row) => !wanted || [text(row.data, Infinity), row.from?.user ?? '', row.message_id ?? ''].some((one) => one.toLowerCase().includes(wanted));

  const show = () => {
    const found = rows.filter(matches);
    list.update(found.slice(0, SHOWN_MAX));
    list.node.hidden = !found.length;
    const loaded = h('p', { class: 'end' }, `${wanted ? `${count(found.length)} of ` : ''}${plural(rows.length, 'loaded message')}${wanted ? ' match' : ''}${found.length > SHOWN_MAX ? `; the newest ${SHOWN_MAX} are shown` : ''}.`);
    const earlier = more && rows.length < LOADED_MAX && h('button', { class: 'quiet', onclick: () => loadEarlier() }, wanted ? 'Search earlier messages' : 'Show earlier messages');
    put(below,
      !found.length && (rows.length ? empty('No loaded message contains that.') : empty('No messages are stored.', 'They are removed when they expire, or when there are too many: see history_messages and history_ttl_ms of this kind in Settings.')),
      rows.length > 0 && loaded, earlier);
  };
  const load = async (query) => {
    const page = await get(path, { limit: PAGE, ...query }, visit.signal);
    if (page.epoch !== epoch) rows = [];
    epoch = page.epoch;
    more = page.more;
    const known = new Set(rows.map(({ offset }) => offset));
    rows = [...rows, ...page.messages.filter(({ offset }) => !known.has(offset))].sort((a, b) => b.offset - a.offset);
    show();
  };
  const loadEarlier = () => visit.act(() => load({ before: rows.at(-1)?.offset }), () => `${plural(rows.length, 'message')} loaded.`);
  const clear = async () => {
    const form = await ask(`Clear the history of ${name}`, [h('p', {}, 'All stored messages of this channel are deleted. Subscribers stay; those who come back later are told that messages are missing. This cannot be undone.')], 'Clear');
    if (!form) return;
    rows = [];
    await visit.act(() => call('DELETE', path), 'The history was cleared.', () => load({}).catch(() => {}));
  };
  const box = filter('Messages containing …', '', (value) => {
    wanted = value.toLowerCase();
    show();
  });
  const node = section('History', h('div', { class: 'tools' }, box, h('button', { class: 'quiet', onclick: clear }, 'Clear …')), list.node, below);
  node.hidden = true;
  const open = () => load({}).then(() => (node.hidden = false), (error) => {
    if (!(error instanceof ServerError) || visit.signal.aborted) return;
    // 404: channels of this kind keep no history.
    if (error.status === 404) return;
    put(node, h('h2', {}, 'History'), h('p', { class: 'end' }, `${error.title}: ${error.message}`));
    node.hidden = false;
  });

  const add = (message) => {
    if (node.hidden || message.offset === undefined) return;
    if (message.epoch !== epoch) rows = [];
    epoch = message.epoch;
    if (rows.some(({ offset }) => offset === message.offset)) return;
    rows = [message, ...rows].slice(0, LOADED_MAX);
    show();
  };
  return { node, open, add };
}
