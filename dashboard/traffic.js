// Messages and commands of this node as they happen. The server bounds what it sends; the page keeps the newest lines.
import { h, put, badge, empty, errorBox, filter, heading, link, table } from './dom.js';
import { clock, count, moment, plural, text } from './format.js';
import { ServerError, lines } from './server.js';

/** Lines that the page keeps. */
const KEPT_MAX = 1000;
const SHOWN_MAX = 100;
const DRAW_MS = 250;
const AGAIN_MS = 2000;
const KINDS = [['', 'Everything'], ['messages', 'Messages'], ['commands', 'Commands'], ['refused', 'Refused']];

const what = (row) => {
  if (row.kind === 'message') return link(row.channel, 'channels', row.channel);
  return [badge(row.op ?? 'command', row.kind === 'refused' ? 'bad' : 'plain'), row.target && ` ${row.target}`];
};
const detail = (row) => {
  if (row.kind === 'refused') return `${row.code}: ${row.message}`;
  return row.kind === 'message' && h('code', { title: plural(row.receivers, 'receiver') + ' on this node' }, text(row.data, 300) + (row.truncated ? '…' : ''));
};
const words = (row) => [row.user, row.client, row.channel, row.op, row.target, row.code, row.message, text(row.data ?? '', Infinity)];

export function traffic(visit) {
  let [only, channel, sender, wanted] = ['', '', '', ''];
  let [rows, held, number, drawn] = [[], null, 0, true];
  let asking = new AbortController();
  const state = h('span', {}, 'Opening …');
  const list = table('Traffic', [
    { name: 'When', still: true, cell: ({ at }) => h('time', { title: moment(at) }, clock(at)) },
    { name: 'Who', cell: ({ user, client, kind }) => (user ? link(user, 'users', user) : client ? h('span', { class: 'mono' }, client.slice(0, 10)) : kind === 'message' ? 'a service' : 'not signed in') },
    { name: 'What', wide: true, cell: what },
    { name: 'Data', wide: true, cell: detail },
  ], (row) => row.number);
  list.node.classList.add('dense');
  const below = h('div');

  const show = () => {
    drawn = true;
    const from = held ?? rows;
    const found = from.filter((row) => !wanted || words(row).some((one) => one?.toLowerCase().includes(wanted)));
    list.update(found.slice(0, SHOWN_MAX));
    list.node.hidden = !found.length;
    put(below, found.length ? h('p', { class: 'end' }, `${wanted ? `${count(found.length)} of ` : ''}${plural(from.length, 'line')}${found.length > SHOWN_MAX ? `; the newest ${SHOWN_MAX} are shown` : ''}.`)
      : from.length ? empty('No line contains that.') : empty('Nothing has happened yet.', 'Lines appear as clients of this node send commands, and as messages are published on it.'));
  };
  const take = (line) => {
    if (line.kind !== 'status') {
      rows.unshift({ ...line, number: (number += 1) });
      if (rows.length > KEPT_MAX) rows.length = KEPT_MAX;
      drawn = drawn && held !== null;
      return;
    }
    state.dataset.channel = channel;
    put(state, badge('live', 'good'), ` Messages and commands of ${line.node}; ${count(line.seen)} seen`, line.skipped > 0 && `, of which ${count(line.skipped)} are not shown: there are more than 200 in a second`, '.');
  };
  const open = async () => {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    if (document.hidden || visit.signal.aborted) return;
    try {
      await lines('traffic', { only, channel, sender }, signal, take);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ServerError)) throw error;
      if (error.code !== 'lost') return void (put(state), put(below, errorBox(error, open)));
    }
    if (signal.aborted) return;
    put(state, badge('not connected', 'bad'));
    setTimeout(() => signal.aborted || open(), AGAIN_MS);
  };
  const begin = () => {
    [rows, held] = [[], null];
    pause.textContent = 'Pause';
    show();
    open();
  };
  const field = (label, set) => filter(label, '', (value) => {
    set(value);
    begin();
  });
  const kind = h('select', { 'aria-label': 'What is shown', onchange: ({ target }) => {
    only = target.value;
    begin();
  } }, KINDS.map(([value, label]) => h('option', { value }, label)));
  const pause = h('button', { onclick: () => {
    held = held ? null : rows.slice();
    pause.textContent = held ? 'Continue' : 'Pause';
    show();
  } }, 'Pause');
  visit.draw(
    heading('Live traffic', state, pause),
    h('div', { class: 'tools many' }, kind, field('Channels such as game#*', (value) => (channel = value)), field('Of user …', (value) => (sender = value)),
      filter('Lines containing …', '', (value) => {
        wanted = value.toLowerCase();
        show();
      })),
    list.node, below,
  );
  visit.each(DRAW_MS, () => drawn || show());
  document.addEventListener('visibilitychange', open, { signal: visit.signal });
  visit.signal.addEventListener('abort', () => asking.abort());
  begin();
}
