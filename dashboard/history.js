// The messages of a channel: live ones on top of those that are stored, newest first, searched in what is loaded, earlier
// ones on demand. A channel without history has only those since the page was opened.
import { h, put, ask, empty, filter, link, table } from './dom.js';
import { count, moment, plural, text, ago, now } from './format.js';
import { call, get, may, part, ServerError } from './server.js';

const PAGE = 200;
/** Messages that the page keeps; a search beyond them is for the API. */
const LOADED_MAX = 5000;
const SHOWN_MAX = 200;
const DRAW_MS = 200;

/** `open` loads what is stored; `add` takes a live message. */
export function messages(visit, name) {
  const path = `channels/${part(name)}/history`;
  let [epoch, wanted, more, stored, seen, rows, fresh] = [0, '', false, false, 0, [], []];
  const list = table('Messages', [
    { name: 'When', cell: ({ at }) => h('time', { title: moment(at) }, ago(at)) },
    { name: 'From', cell: ({ from }) => (from?.user ? link(from.user, 'users', from.user) : from?.client ?? 'a service') },
    { name: 'Data', wide: true, cell: ({ data, offset }) => h('code', { title: offset && `offset ${count(offset)}` }, text(data, 1000)) },
  ], ({ offset, live }) => `${epoch} ${offset ?? live}`);
  list.node.tabIndex = 0;
  const below = h('div');
  const matches = (row) => !wanted || [text(row.data, Infinity), row.from?.user ?? '', row.message_id ?? ''].some((one) => one.toLowerCase().includes(wanted));
  const none = () => (stored
    ? empty('No messages are stored.', 'They are removed when they expire, or when there are too many: see history_messages and history_ttl_ms of this kind in Settings.')
    : empty('No messages since this page was opened.', 'Messages appear here as they are published. Channels of this kind keep no history.'));

  const show = () => {
    const found = rows.filter(matches);
    list.update(found.slice(0, SHOWN_MAX));
    list.node.hidden = !found.length;
    clear.hidden = !stored;
    const loaded = h('p', { class: 'end' }, `${wanted ? `${count(found.length)} of ` : ''}${plural(rows.length, 'loaded message')}${wanted ? ' match' : ''}${found.length > SHOWN_MAX ? `; the newest ${SHOWN_MAX} are shown` : ''}.`);
    const earlier = more && rows.length < LOADED_MAX && h('button', { class: 'quiet', onclick: () => loadEarlier() }, wanted ? 'Search earlier messages' : 'Show earlier messages');
    put(below, !found.length && (rows.length ? empty('No loaded message contains that.') : none()), rows.length > 0 && loaded, earlier);
  };
  const load = async (query) => {
    const page = await get(path, { limit: PAGE, ...query }, visit.signal);
    if (page.epoch !== epoch) rows = [];
    [epoch, more, stored] = [page.epoch, page.more, true];
    const known = new Set(rows.map(({ offset }) => offset));
    rows = [...rows, ...page.messages.filter(({ offset }) => !known.has(offset))].sort((a, b) => b.offset - a.offset);
    show();
  };
  const loadEarlier = () => visit.act(() => load({ before: rows.at(-1)?.offset }), () => `${plural(rows.length, 'message')} loaded.`);
  const clearAll = async () => {
    const form = await ask(`Clear the history of ${name}`, [h('p', {}, 'All stored messages of this channel are deleted. Subscribers stay; those who come back later are told that messages are missing. This cannot be undone.')], 'Clear');
    if (!form) return;
    rows = [];
    await visit.act(() => call('DELETE', path), 'The history was cleared.', () => load({}).catch(() => {}));
  };
  const box = filter('Messages containing …', '', (value) => {
    wanted = value.toLowerCase();
    show();
  });
  const clear = h('button', { class: 'quiet', onclick: clearAll }, 'Clear …');
  show();
  /** Only channels with history have a position; only an admin reads it. */
  const open = () => may('admin') && load({}).catch((error) => {
    // 404: channels of this kind keep no history.
    if (!(error instanceof ServerError) || visit.signal.aborted || error.status === 404) return;
    put(below, h('p', { class: 'end' }, `${error.title}: ${error.message}`));
  });

  const add = (message) => {
    if (stored && message.epoch !== epoch) [rows, fresh] = [[], []];
    epoch = message.epoch ?? epoch;
    fresh.push({ at: now(), live: (seen += 1), ...message });
    // Nothing is drawn while the page is hidden.
    if (fresh.length > 2 * LOADED_MAX) fresh = fresh.slice(-LOADED_MAX);
  };
  // A busy channel has more messages than can be drawn one by one.
  visit.each(DRAW_MS, () => {
    if (!fresh.length) return;
    const known = new Set(rows.map(({ offset }) => offset));
    const added = fresh.filter(({ offset }) => offset === undefined || !known.has(offset));
    [rows, fresh] = [[...added.reverse(), ...rows].slice(0, LOADED_MAX), []];
    show();
  });
  return { nodes: [h('div', { class: 'tools' }, box, clear), list.node, below], open, add };
}
