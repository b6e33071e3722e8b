// Topics and subscriptions: what is accepted, what waits, what failed, and the levers.
import { h, put, heading, link, badge, section, empty, code, filter, table, facts, ask } from './dom.js';
import { ago, count, moment, plural, span, text } from './format.js';
import { call, get, part, post } from './server.js';
import { more } from './channels.js';

const KINDS = { healthy: 'good', throttled: 'warn', failing: 'bad', disabled: 'plain' };
const WHY = { asked: 'switched off by somebody', gone: 'the endpoint said 410 Gone', failing: 'it failed for too long' };
const health = (one) => badge(one.health, KINDS[one.health] ?? 'plain');

export function topics(visit) {
  let wanted = visit.args[0] ?? '';
  const list = table('Topics', [
    { name: 'Topic', cell: ({ topic }) => h('b', { class: 'name' }, topic) },
    { name: 'Events', number: true, cell: ({ events }) => count(events) },
    { name: 'Publisher', cell: ({ publisher }) => (publisher ? h('code', {}, publisher) : 'anybody') },
    { name: 'Subscriptions', cell: ({ subscribers }) => subscribers.map((name, at) => [at > 0 && ', ', link(name, 'subscriptions', name)]) },
  ], ({ topic }) => topic);
  const below = h('div');
  let again;
  const box = filter('Topics that hold …', wanted, (value) => {
    wanted = value;
    again();
  });
  visit.draw(heading('Topics', 'Durable events, in order, numbered without holes.'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(3000, async (signal) => {
    const [found, known] = await Promise.all([get('topics', { limit: 1000 }, signal), get('subscriptions', { limit: 1000 }, signal).catch(() => ({}))]);
    return { ...found, subscriptions: known.subscriptions ?? [] };
  }, ({ topics: all, next, subscriptions: known }) => {
    const rows = all.filter(({ topic }) => topic.includes(wanted)).map((topic) => ({ ...topic, subscribers: known.filter((one) => one.topics.includes(topic.topic)).map(({ name }) => name) }));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length) : all.length ? empty(`No topic holds “${wanted}”.`, 'A topic begins with its first event or its first subscription.') : empty('There is no topic yet.', 'It begins with its first event:', code(`tavern events publish orders create`)));
  });
}

export function subscriptions(visit) {
  let wanted = '';
  const list = table('Subscriptions', [
    { name: 'Subscription', cell: ({ name }) => link(name, 'subscriptions', name) },
    { name: 'Health', cell: health },
    { name: 'Waiting', number: true, cell: ({ queued }) => count(queued) },
    { name: 'Attempts', number: true, cell: ({ batches }) => count(batches.reduce((most, { attempts }) => Math.max(most, attempts), 0)) },
    { name: 'Acknowledged', number: true, cell: ({ acknowledged, seq }) => `${count(acknowledged)} of ${count(seq)}` },
    { name: 'Topics', wide: true, cell: ({ topics: names }) => names.join(', ') },
    { name: 'To', wide: true, cell: ({ callback, pull }) => (pull ? 'pull' : callback) },
  ], ({ name }) => name);
  const below = h('div');
  let again;
  const box = filter('Subscriptions that hold …', '', (value) => {
    wanted = value.toLowerCase();
    again();
  });
  visit.draw(heading('Subscriptions', 'Who must know, how far they are, and what holds them up.'), h('div', { class: 'tools' }, box), list.node, below);
  again = visit.watch(2000, (signal) => get('subscriptions', { limit: 1000 }, signal), ({ subscriptions: all, next }) => {
    const rows = all.filter(({ name, topics: names, callback }) => [name, ...names, callback ?? ''].some((one) => one.toLowerCase().includes(wanted)));
    list.update(rows);
    list.node.hidden = !rows.length;
    put(below, rows.length ? more(next, rows.length) : all.length ? empty(`No subscription holds “${wanted}”.`, 'Its name, its topics and its address are looked through.') : empty('Nobody subscribes to events yet.', 'Make a subscription:', code('tavern events subscribe mail --topic orders \\\n  --callback https://example.com/hook')));
  });
}

export function subscription(visit) {
  const [name] = visit.args;
  const path = `subscriptions/${part(name)}`;
  const sub = h('span', {}, 'Looking …');
  const queue = h('div');
  const batches = table('Under way', [
    { name: 'Batch', cell: ({ number }) => count(number) },
    { name: 'Events', number: true, cell: ({ events }) => count(events) },
    { name: 'Numbers', cell: ({ first_seq: first, last_seq: last }) => `${count(first)} – ${count(last)}` },
    { name: 'Attempts', number: true, cell: ({ attempts }) => count(attempts) },
    { name: 'Refusals', number: true, cell: ({ refusals }) => count(refusals) },
    { name: 'Waits since', still: true, cell: ({ accepted_at: at }) => ago(at) },
  ], ({ number }) => number);
  const way = h('div');
  const dead = h('div');
  const what = h('div');
  const turn = h('button', {}, '…');
  const again = () => look();
  const switchIt = (on) => visit.act(() => post(`${path}/${on ? 'enable' : 'disable'}`, {}), on ? 'Sending again.' : 'Switched off. Events are kept.', again);
  visit.draw(heading(name, sub, turn, h('button', { onclick: () => replay(visit, path, again) }, 'Replay …')), queue, section('Under way', way), section('Dead letters', dead), section('Settings', what));
  const parked = table('Dead letters', [
    { name: 'Number', cell: ({ seq, id }) => h('span', { title: id }, count(seq)) },
    { name: 'Topic', cell: ({ topic }) => topic },
    { name: 'Parked', still: true, cell: ({ parked_at: at }) => ago(at) },
    { name: 'Reason', cell: ({ reason }) => reason },
    { name: 'Event', wide: true, cell: ({ event }) => h('code', {}, text(event, 160)) },
    { name: '', cell: ({ seq }) => h('button', { class: 'link', 'aria-label': `Send number ${seq} again`, onclick: () => retry(visit, path, [seq], again) }, 'Send again') },
  ], ({ seq }) => seq);
  const look = visit.watch(2000, async (signal) => {
    const [report, letters] = await Promise.all([get(path, {}, signal), get(`${path}/dead-letters`, { limit: 100 }, signal)]);
    return { report, letters };
  }, ({ report, letters: { dead_letters: letters = [], next } }) => {
    const off = report.health === 'disabled';
    put(sub, health(report), ` ${off ? WHY[report.why] ?? '' : last(report.last)}`);
    turn.textContent = off ? 'Enable' : 'Disable';
    turn.onclick = () => switchIt(off);
    put(queue, facts([
      ['Waiting', plural(report.queued, 'event')],
      ['Oldest waits', report.oldest_ms === null ? 'nothing waits' : span(report.oldest_ms)],
      ['Acknowledged', `${count(report.acknowledged)} of ${count(report.seq)}`],
      ['Dead letters', count(report.dead_letters)],
      ['Failing since', report.failing_since && ago(report.failing_since)],
      ['Failed in a row', report.failures || undefined],
      ['Next attempt', off || !report.retry_at ? undefined : report.queued ? ago(report.retry_at) : 'with the next event'],
    ]));
    batches.update(report.batches);
    put(way, report.batches.length ? batches.node : empty('No batch is under way.', off ? 'Nothing is sent while it is disabled; events are kept.' : 'Everything that was sent has been acknowledged.'));
    parked.update(letters);
    if (!letters.length) put(dead, empty('There are no dead letters.', 'An event that the endpoint refuses again and again is parked here, so that the others go on.'));
    else if (!dead.contains(parked.node)) put(dead, h('div', { class: 'tools' }, h('button', { onclick: () => retry(visit, path, undefined, again) }, 'Send all again')), parked.node, h('p', { class: 'end' }, next ? 'The first 100 are shown.' : ''));
    put(what, facts([
      ['Topics', report.topics.map((topic, at) => [at > 0 && ', ', link(topic, 'topics', topic)])],
      ['To', report.pull ? 'pulled by its owner' : report.callback, true],
      ['Owner', h('code', {}, report.owner)],
      ['Batches', `up to ${plural(report.max_events, 'event')} or ${plural(report.max_bytes, 'byte')}, sent after ${span(report.timeout_ms)} at the latest`, true],
      ['At once', plural(report.concurrency, 'batch', 'batches')],
      ['Format', report.format],
      ['Made', moment(report.created_at)],
    ]));
  });
}

const last = (attempt) => (attempt ? `last attempt ${ago(attempt.at)}: ${attempt.verdict.replace('_', ' ')}` : 'nothing was sent yet');

const retry = (visit, path, ids, again) => visit.act(() => call('POST', `${path}/dead-letters/retry`, { body: ids ? { ids } : {} }), ({ retried }) => `${plural(retried, 'dead letter')} will be sent again.`, again);

async function replay(visit, path, again) {
  const fields = [
    h('p', {}, 'Events come again with the same numbers. Those that were acknowledged since are sent a second time.'),
    h('label', {}, 'From number', h('input', { name: 'from_seq', type: 'number', min: 1, step: 1, value: 1 })),
    h('label', {}, 'or from a time', h('input', { name: 'from_time', type: 'datetime-local' })),
  ];
  const form = await ask('Replay', fields, 'Replay');
  if (!form) return;
  const time = form.get('from_time');
  const body = time ? { from_time: new Date(time).getTime() } : { from_seq: Number(form.get('from_seq')) };
  await visit.act(() => post(`${path}/replay`, body), ({ from_seq: from, rewound }) => (rewound ? `Going back to number ${count(from)}.` : 'That event has not come yet: nothing to go back to.'), again);
}

