// Topics: the list, and one with its events, which can be searched and published.
import { h, put, badge, code, empty, facts, filter, heading, link, section, table } from './dom.js';
import { ago, count, moment, text } from './format.js';
import { get, may, own, part, post } from './server.js';
import { more } from './channels.js';
import { eventLog } from './event_log.js';

const subscribers = (names) => names.map((name, at) => [at > 0 && ', ', link(name, 'subscriptions', name)]);
/** The subscriptions that this key may see. */
const subscriptionsOf = (signal) => (may('subscriptions') ? get('subscriptions', { limit: 1000 }, signal) : { subscriptions: [] });
const of = (all, topic) => all.filter(({ topics }) => topics.includes(topic)).map(({ name }) => name);

export function topics(visit) {
  let wanted = '';
  const list = table('Topics', [
    { name: 'Topic', sort: ({ topic }) => topic, first: 'up', cell: ({ topic }) => link(topic, 'topics', topic) },
    { name: 'Events', number: true, sort: ({ events }) => events, cell: ({ events }) => count(events) },
    { name: 'Publisher', cell: ({ publisher }) => (publisher ? h('code', {}, publisher) : 'unclaimed') },
    { name: 'Subscriptions', cell: ({ names }) => subscribers(names) },
  ], ({ topic }) => topic);
  const below = h('div');
  let again;
  const box = filter('Topics containing …', wanted, (value) => {
    wanted = value;
    again();
  });
  visit.draw(heading('Topics', 'Durable events, in order, numbered without gaps.'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(3000, (signal) => Promise.all([get('topics', { limit: 1000 }, signal), subscriptionsOf(signal)]), ([{ topics: all, next }, { subscriptions }]) => {
    const rows = all.filter(({ topic }) => topic.includes(wanted)).map((topic) => ({ ...topic, names: of(subscriptions, topic.topic) }));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length) : all.length ? empty(`No topic contains “${wanted}”.`, 'A topic is created by its first event or subscription.') : empty('There are no topics yet.', 'Publish an event to create one:', code(`tavern events publish orders create`)));
  });
}

export function topic(visit) {
  const [name] = visit.args;
  const path = `topics/${part(name)}`;
  const sub = h('span', {}, 'Loading …');
  const what = h('div');
  const form = h('div');
  const log = eventLog(visit, name, {
    label: 'Events',
    columns: [
      { name: 'Seq', cell: ({ seq, id }) => h('span', { title: `id ${id}` }, count(seq)) },
      { name: 'Type', cell: ({ type }) => type },
      { name: 'Published', still: true, cell: ({ time }) => h('time', { title: moment(time) }, ago(time)) },
      { name: 'By key', cell: ({ publisher }) => publisher && h('code', {}, publisher) },
      { name: 'Data', wide: true, cell: ({ data, url }) => [url && h('div', {}, url), h('code', {}, text(data, 1000))] },
    ],
    texts: ({ id, type, url, publisher, data }) => [id, type, url, publisher, text(data, Infinity)],
    none: () => empty('No events are stored.', 'Retention removes those that every subscription has received, and the oldest ones when the log is full.'),
  });
  const system = name.startsWith('tavern.');
  const browses = may('subscriptions') && (!system || may('admin') || ['tavern.presence', 'tavern.parties', 'tavern.deliveries'].includes(name));
  visit.draw(heading(name, sub), what, !system && may('events') && section('Publish', form), browses && section('Events', log.nodes));
  const shown = publishForm(visit, path, () => again());
  const again = visit.watch(2000, (signal) => Promise.all([get(path, {}, signal), subscriptionsOf(signal), browses && log.read(signal)]), ([found, { subscriptions }, page]) => {
    const names = of(subscriptions, name);
    put(sub, system ? badge('of the server', 'plain') : '', ` ${count(found.events)} events`);
    put(what, facts([
      ['Publisher', found.publisher ? h('code', {}, found.publisher) : 'the next key that publishes'],
      ['Subscriptions', names.length ? subscribers(names) : count(found.subscriptions), true],
      ['Created', moment(found.created_at)],
    ]));
    const foreign = found.publisher && found.publisher !== own().key;
    if (foreign) put(form, h('p', { class: 'end' }, `Only the key ${found.publisher} publishes to this topic. An admin key can transfer it: PUT /v1/topics/${name}`));
    else if (!form.contains(shown)) put(form, shown);
    if (page) log.update(page);
  });
}

function publishForm(visit, path, again) {
  const [type, data] = [h('input', { name: 'type', required: true, maxlength: 255, autocomplete: 'off', value: 'create' }), h('input', { name: 'data', value: '{}', autocomplete: 'off', spellcheck: 'false' })];
  const publish = async (event) => {
    event.preventDefault();
    await visit.act(() => post(`${path}/events`, { type: type.value, data: JSON.parse(data.value || 'null') }), ({ last_seq: seq }) => `Published with seq ${count(seq)}.`, again);
  };
  return h('form', { class: 'row', onsubmit: publish }, h('label', {}, 'Type', type), h('label', { class: 'wide' }, 'Data, as JSON', data), h('button', { class: 'main' }, 'Publish'));
}
