// Channels and patterns: what reaches the app. Presence maps after single events: clients/vectors.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeServer, until } from './fake_server.mjs';

const said = (seq, channel, data, client = 'c9') => ({ seq, event: 'message', channel, data, from: { user: 'x', client } });

test('a pattern gets the messages of all channels that match, until it is unsubscribed', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const received = [];
  const pattern = tavern.pattern('game#*');
  assert.equal(tavern.pattern('game#*'), pattern);
  await pattern.subscribe(({ channel, data }) => received.push([channel, data]));
  server.last.push(said(1, 'game#1', 'a'));
  server.last.push(said(2, 'chat#1', 'b'));
  server.last.push(said(3, 'game#2', 'c'));
  server.last.drop();
  const back = await server.reconnected({ session: 's2' });
  await until(() => back.sent.length);
  assert.deepEqual(back.sent.map(({ id, ...frame }) => frame), [{ op: 'subscribe', pattern: 'game#*' }]);
  server.last.push(said(1, 'game#3', 'd'));
  const gap = pattern.once('gap');
  server.last.push({ seq: 2, event: 'gap', pattern: 'game#*' });
  assert.equal((await gap).pattern, 'game#*');
  await pattern.unsubscribe();
  server.last.push(said(3, 'game#1', 'e'));
  assert.deepEqual(received, [['game#1', 'a'], ['game#2', 'c'], ['game#3', 'd']]);
  tavern.suspend();
});

test('with echo: false own messages do not reach the app, whatever session published them', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const [quiet, loud] = [[], []];
  await tavern.channel('game#1').subscribe(({ data }) => quiet.push(data), { echo: false });
  await tavern.channel('game#2').subscribe(({ data }) => loud.push(data));
  server.last.push(said(1, 'game#1', 'own', 'c1'));
  server.last.push(said(2, 'game#1', 'other'));
  server.last.push(said(3, 'game#2', 'own', 'c1'));
  server.last.push({ seq: 4, event: 'message', channel: 'game#1', data: 'of a service' });
  server.last.drop();
  const back = await server.reconnected({ session: 's2', client: 'c2' });
  back.push(said(1, 'game#1', 'of my last session', 'c1'));
  back.push(said(2, 'game#1', 'of this session', 'c2'));
  assert.deepEqual([quiet, loud], [['other', 'of a service'], ['own']]);
  tavern.suspend();
});

test('an arrival and a leave are one change each', async () => {
  const server = new FakeServer();
  server.ok = (frame) => (frame.presence ? { members: { version: 1, users: [], count: 0 } } : {});
  const tavern = await server.open();
  const presence = await tavern.channel('game#1').presence();
  const changes = [];
  presence.on('change', (change) => changes.push([change.event, presence.count, presence.get('bob')?.state]));
  const at = (version, event, more = {}) => server.last.push({ seq: version, event, channel: 'game#1', version, user: 'bob', ...more });
  at(2, 'user_online', { name: 'Bob' });
  at(3, 'client_online', { client: 'b1', state: { seat: 1 } });
  at(4, 'client_offline', { client: 'b1', explicit: true, reason: 'left' });
  at(5, 'user_offline', { reason: 'left' });
  assert.deepEqual(changes, [['user_online', 1, { seat: 1 }], ['user_offline', 0, undefined]]);
  // Present because the app says so: no client follows.
  at(6, 'user_online', { name: null });
  assert.equal(changes.length, 2);
  await until(() => changes.length === 3);
  // The second half of another user does not take its place.
  at(7, 'user_online', { user: 'ann', name: null });
  at(8, 'user_online', { user: 'cid', name: null });
  at(9, 'client_online', { user: 'cid', client: 'c1', state: 1 });
  assert.deepEqual(changes.slice(3).map(([event]) => event), ['user_online', 'user_online', 'client_online']);
  // A client that is lost is a change of its own: the user is leaving, and may come back.
  at(10, 'client_offline', { user: 'cid', client: 'c1', explicit: false, reason: 'lost' });
  assert.deepEqual([changes.at(-1)[0], presence.get('cid').leaving], ['client_offline', true]);
  tavern.suspend();
});

test('missing messages are asked for once, and come in order', async () => {
  const server = new FakeServer();
  server.ok = (frame) => (frame.op === 'subscribe' ? { epoch: 7, offset: 4, ...(frame.since && { recovered: true }) } : {});
  const tavern = await server.open();
  const received = [];
  await tavern.channel('chat#1').subscribe(({ data }) => received.push(data));
  const push = (seq, offset) => server.last.push({ ...said(seq, 'chat#1', offset), epoch: 7, offset });
  push(1, 5);
  const recovered = tavern.channel('chat#1').once('recovered');
  push(2, 7);
  push(3, 8);
  await recovered;
  for (const [seq, offset] of [[4, 6], [5, 7], [6, 8]]) push(seq, offset);
  assert.deepEqual(received, [5, 6, 7, 8]);
  assert.deepEqual(server.last.sent.map(({ since }) => since), [undefined, { epoch: 7, offset: 5 }]);
  assert.deepEqual(tavern.channel('chat#1').position, { epoch: 7, offset: 8 });
  tavern.suspend();
});

test('statuses are folded, and loaded again after a gap', async () => {
  const server = new FakeServer();
  const tavern = await server.open({ statuses: true });
  const status = (user, online) => ({ user, online, name: null, channels: [], activities: [], last_seen: null });
  server.last.push({ seq: 1, event: 'statuses', statuses: [status('bob', true), status('cid', false)] });
  server.last.push({ seq: 2, event: 'status', user: 'cid', status: status('cid', true), change: 'none' });
  assert.deepEqual([...tavern.me.statuses.values()].map(({ user, online }) => [user, online]), [['bob', true], ['cid', true]]);
  await tavern.me.unfollow('bob');
  assert.deepEqual([...tavern.me.statuses.keys()], ['cid']);
  const asked = () => server.last.sent.filter(({ op, status: wanted }) => op === 'hello' && wanted).length;
  assert.equal(asked(), 1);
  server.last.push({ seq: 9, event: 'gap', from: 3, to: 9 });
  assert.equal(asked(), 2);
  tavern.suspend();
});

test('debug shows frames and states, and no secret', async () => {
  const server = new FakeServer();
  const lines = [];
  const debug = (what, detail) => lines.push(`${what} ${detail}`);
  const tavern = await server.open({ debug, user: undefined, token: 'the token' });
  await tavern.call('ping', { token: 'the token' });
  tavern.suspend();
  const text = lines.join('\n');
  assert.match(text, /state connecting\ndial websocket to http:\/\/tavern.test\nhello \{/);
  assert.match(text, /send \{"id":1,"op":"ping","token":"…"\}/);
  assert.doesNotMatch(text, /the token|"s1"/);
});
