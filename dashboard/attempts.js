// Attempts to deliver: the list of a subscription, and what one of them sent and received.
import { h, put, ask, badge, code, empty, filter, table } from './dom.js';
import { ago, bytes, count, span, text } from './format.js';
import { get } from './server.js';

// Attempts in the table; on a phone each takes several lines.
const SHOWN = 25;

/** The last attempts of a subscription, with a filter; a row opens the request and the response. */
export function attempts(visit, path, again) {
  let [failed, wanted, found] = [false, '', []];
  const list = table('Attempts', [
    { name: 'Number', cell: (one) => h('button', { class: 'link', 'aria-label': `Request and response of attempt ${one.number}`, onclick: () => open(one.number) }, count(one.number)) },
    { name: 'Result', wide: true, cell: ({ outcome, error, status }) => [badge(outcome.replace('_', ' '), outcome === 'delivered' ? 'good' : 'bad'), ` ${error ?? status ?? ''}`] },
    { name: 'Batch', number: true, cell: ({ batch }) => count(batch) },
    { name: 'Seqs', cell: ({ first_seq: first, last_seq: end }) => `${count(first)} – ${count(end)}` },
    { name: 'Took', number: true, cell: ({ duration_ms: ms }) => span(ms) },
    { name: 'Began', still: true, cell: ({ at }) => ago(at) },
    { name: 'Response', wide: true, cell: ({ body }) => body && h('code', {}, text(body, 80)) },
  ], ({ number }) => number);
  const open = async (number) => {
    const one = await visit.act(() => get(`${path}/attempts/${number}`));
    if (one) await ask(`Attempt ${count(number)}`, exchange(one), 'Done');
  };
  const below = h('div');
  const show = () => {
    const rows = found.filter((one) => [one.outcome, one.error ?? '', String(one.status ?? ''), one.url, one.body].some((part_) => part_.toLowerCase().includes(wanted)));
    list.update(rows.slice(0, SHOWN));
    list.node.hidden = !rows.length;
    put(below, rows.length > SHOWN ? h('p', { class: 'end' }, `The newest ${SHOWN} of ${count(rows.length)} are shown; the filter searches all.`) : !rows.length && empty(wanted || failed ? 'No attempt matches the filter.' : 'There are no attempts yet.', 'An attempt is one request to the callback.'));
  };
  const box = filter('Attempts containing …', '', (value) => {
    wanted = value.toLowerCase();
    show();
  });
  const only = h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (event) => {
    failed = event.target.checked;
    again();
  } }), ' failed only');
  const update = (all) => {
    found = all;
    show();
  };
  return { nodes: [h('div', { class: 'tools' }, box, only), list.node, below], query: () => ({ limit: 200, failed }), update };
}

const heads = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join('\n');

/** What was sent, and what the endpoint answered. */
export function exchange({ url, duration_ms: ms, status, error, request, headers, body, body_truncated: cut }) {
  const { body: sent, bytes: size } = request;
  return [
    h('h3', {}, `Response after ${span(ms)}: ${error ?? status}`),
    Object.keys(headers).length > 0 && code(heads(headers)),
    body ? code(body + (cut ? ' …' : '')) : h('p', { class: 'end' }, status ? 'The response had no body.' : 'There was no response.'),
    h('h3', {}, `Request: POST ${url}, ${bytes(size)}`),
    code(heads(request.headers)),
    sent === undefined ? h('p', { class: 'end' }, 'The body is no longer known: retention has removed its events from the log.') : code(pretty(sent)),
  ];
}

/** JSON with a line for each member; a body of which only the beginning is shown stays as it is. */
function pretty(sent) {
  try {
    return JSON.stringify(JSON.parse(sent), null, 2);
  } catch {
    return `${sent} …`;
  }
}
