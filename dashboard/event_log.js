// The stored events of a topic: newest first, searched in what is loaded, earlier ones on demand, new ones as they come.
import { h, put, empty, filter, table } from './dom.js';
import { count, plural } from './format.js';
import { get, part } from './server.js';

const PAGE = 200;
/** Events that the page keeps; a search beyond them is for the API. */
const LOADED_MAX = 5000;
const SHOWN_MAX = 200;
const NEWEST = Number.MAX_SAFE_INTEGER;

/** `texts(event)`: what the filter searches. */
export function eventLog(visit, topic, { label, columns, texts, none, wanted = '' }) {
  const path = `topics/${part(topic)}/events`;
  let [rows, next] = [[], null];
  const list = table(label, columns, ({ seq }) => seq);
  list.node.classList.add('dense');
  const below = h('div');
  const matches = (row) => !wanted || texts(row).some((one) => one?.toLowerCase().includes(wanted));
  const show = () => {
    const found = rows.filter(matches);
    list.update(found.slice(0, SHOWN_MAX));
    list.node.hidden = !found.length;
    put(below,
      !found.length && (rows.length ? empty('No loaded event contains that.') : none()),
      rows.length > 0 && h('p', { class: 'end' }, `${wanted ? `${count(found.length)} of ` : ''}${plural(rows.length, 'loaded event')}${wanted ? ' match' : ''}${found.length > SHOWN_MAX ? `; the newest ${SHOWN_MAX} are shown` : ''}.`),
      next && rows.length < LOADED_MAX && h('button', { class: 'quiet', onclick: earlier }, wanted ? 'Search earlier events' : 'Show earlier events'));
  };
  const earlier = () => visit.act(async () => {
    const page = await get(path, { limit: PAGE, before: next }, visit.signal);
    rows = [...rows, ...page.events];
    next = page.next;
    show();
  }, () => `${plural(rows.length, 'event')} loaded.`);
  const box = filter(`${label} containing …`, wanted, (value) => {
    wanted = value.toLowerCase();
    show();
  });
  /** The newest, or those after the newest that is known. */
  const read = (signal) => get(path, { limit: PAGE, ...(rows.length ? { after: rows[0].seq } : { before: NEWEST }) }, signal);
  const update = (page) => {
    if (!rows.length) [rows, next] = [page.events, page.next];
    else rows = [...page.events.reverse(), ...rows].slice(0, LOADED_MAX);
    show();
  };
  return { nodes: [h('div', { class: 'tools' }, box), list.node, below], read, update };
}
