// The audit trail: which key did what to whom, from where, and how it ended.
import { h, badge, empty, heading, link, to } from './dom.js';
import { ago, moment } from './format.js';
import { get } from './server.js';
import { eventLog } from './event_log.js';

const WAYS = { user: 'users', subscription: 'subscriptions', topic: 'topics', history: 'channels' };

const target = ({ action, target: name }) => {
  const page = WAYS[action.split('.')[0]];
  return name && (page ? link(name, page, name) : h('code', {}, name));
};

export function audit(visit) {
  let names = new Map();
  const log = eventLog(visit, 'tavern.audit', {
    label: 'Actions',
    wanted: visit.args[0]?.toLowerCase(),
    columns: [
      { name: 'Action', cell: ({ data }) => data.action },
      { name: 'Target', wide: true, cell: ({ data }) => target(data) },
      { name: 'Key', cell: ({ data: { key } }) => h('a', { href: to('audit', key), title: key }, names.get(key) ?? key) },
      { name: 'From', cell: ({ data }) => data.from },
      { name: 'Node', cell: ({ data }) => data.node },
      { name: 'Result', cell: ({ data: { status } }) => badge(String(status), status < 300 ? 'good' : 'bad') },
      { name: 'When', still: true, cell: ({ time }) => h('time', { title: moment(time) }, ago(time)) },
    ],
    texts: ({ data }) => [data.action, data.target, data.key, names.get(data.key), data.from, data.node],
    none: () => empty('No administrative action is recorded.', 'What changes keys, users, topics or subscriptions is recorded here, with the key that did it and its address; so is reading an inbox.'),
  });
  visit.draw(heading('Audit', 'What was done over HTTP with which API key.'), log.nodes);
  visit.watch(3000, async (signal) => {
    const [page, { keys }] = await Promise.all([log.read(signal), names.size ? {} : get('keys', { limit: 1000 }, signal)]);
    return { page, keys };
  }, ({ page, keys }) => {
    if (keys) names = new Map([['admin', 'admin_key'], ...keys.map(({ id, name }) => [id, name])]);
    log.update(page);
  });
}
