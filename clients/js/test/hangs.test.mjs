// Nothing hangs: whatever part of the client fails, every pending and every later call ends within two seconds.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, FakeServer, json, until } from './fake_server.mjs';

const boom = () => {
  throw new Error('boom');
};

/** Each makes another part of the client fail, once it is open and commands wait. */
const PARTS = {
  'receiving events': ({ server }) => server.last.push({ seq: 1, event: 'statuses', statuses: 7 }),
  'the session of another server': ({ server }) => server.last.push({ seq: 1, event: 'message', channel: {}, data: 1 }),
  'presence': ({ server }) => server.last.push({ seq: 1, event: 'presence', channel: 'game#1', version: 9, from_version: 1, left: 7 }),
  'the party': ({ server }) => server.last.push({ seq: 1, event: 'party', cmd: 'leave', party_id: 1, version: 2, uid: 'x' }),
  'sending': ({ server, tavern }) => {
    server.last.send = boom;
    tavern.call('ping').catch(() => {});
  },
  'timers': ({ server, context }) => {
    // The heartbeat reads the clock.
    context.mock.method(Date, 'now').mock.mockImplementationOnce(boom);
  },
  'restoring': async ({ server, tavern }) => {
    tavern.channel('game#1').restore = boom;
    server.last.drop();
    await server.reconnected({ session: 's2' });
  },
};

for (const [part, fail] of Object.entries(PARTS)) {
  test(`when ${part} fails, every call ends`, async (context) => {
    context.mock.method(console, 'warn', () => {});
    const server = new FakeServer();
    const party = { party_id: 1, version: 1, state: 'idle', data: {}, members: 7, pending: 7 };
    server.ok = (frame) => (frame.presence ? { members: { version: 1, users: [], count: 1 } } : frame.op === 'party.get' ? { party } : {});
    const tavern = await server.open({}, { heartbeat_ms: 200, party });
    await until(() => tavern.party.current);
    await tavern.channel('game#1').presence();
    server.onCommand = undefined;
    const waiting = [tavern.call('who', { channel: 'game#1' }), tavern.channel('game#1').publish(1), tavern.channel('game#1').once('message'),
      tavern.channel('game#1')[Symbol.asyncIterator]().next()];
    const settled = Promise.allSettled(waiting);
    const began = performance.now();
    await fail({ server, tavern, context });
    const ended = await Promise.race([settled, new Promise((resolve) => setTimeout(resolve, 2000))]);
    context.mock.restoreAll();
    assert.ok(ended, 'it hangs');
    const codes = ended.map(({ reason }) => reason?.code);
    // A connection was lost before its client failed.
    assert.deepEqual(new Set(codes), new Set(part === 'restoring' ? ['failed', 'unknown_outcome'] : ['failed']));
    for (const later of [tavern.call('ping'), tavern.channel('new#1').subscribe(), tavern.channel('new#1').once('message'), tavern.party.get()]) {
      await assert.rejects(later, { code: 'failed' });
    }
    assert.ok(performance.now() - began < 2000);
    assert.equal(tavern.state, 'closed');
    // The app may try again.
    server.onCommand = (socket, { id, op }) => op !== 'hello' && queueMicrotask(() => socket.push({ id, ok: op === 'party.get' ? { party: null } : {} }));
    delete tavern.channel('game#1').restore;
    const again = tavern.connect();
    await server.reconnected({});
    await again;
    assert.equal(tavern.state, 'open');
    await tavern.close();
  });
}

test('when renewing the token fails, every call ends', async (context) => {
  context.mock.method(console, 'warn', () => {});
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => server.sendHello());
  server.onCommand = undefined;
  const soon = `h.${btoa(JSON.stringify({ exp: Math.floor(Date.now() / 1000) + 2 }))}.s`;
  // The client says in its error what was thrown, and this cannot be said.
  const given = [() => soon, () => Promise.reject({ toString: boom })];
  const tavern = server.tavern({ user: undefined, getToken: () => given.shift()() });
  await tavern.connect();
  const waiting = tavern.call('who', { channel: 'game#1' });
  await assert.rejects(waiting, { code: 'failed' });
  await assert.rejects(tavern.call('ping'), { code: 'failed' });
  assert.equal(tavern.state, 'closed');
});

for (const kind of ['sse', 'poll']) {
  test(`${kind}: what is not a frame ends the connection or the client, and nothing hangs`, async (context) => {
    context.mock.method(console, 'warn', () => {});
    const server = new FakeServer();
    let polls = 0;
    server.http = ({ url, body }) => {
      if (url.pathname === '/v1/stream') {
        return new Response(`data: ${JSON.stringify({ ok: HELLO })}\n\ndata: {"seq":1,"event":"statuses","statuses":7}\n\n`, { headers: { 'content-type': 'text/event-stream' } });
      }
      if (body.op === 'hello') return json({ id: 0, ok: HELLO });
      if (url.pathname === '/v1/poll' && polls++ === 0) return json({ session: 's1', cursor: 1, events: [{ seq: 1, event: 'statuses', statuses: 7 }] });
      return new Promise(() => {});
    };
    const tavern = server.tavern({ transports: [kind] });
    tavern.connect();
    const waiting = tavern.call('who', { channel: 'game#1' });
    await assert.rejects(waiting, { code: 'failed' });
    await assert.rejects(tavern.call('ping'), { code: 'failed' });
  });
}

test('a value that is not JSON fails its own command only', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const cyclic = {};
  cyclic.self = cyclic;
  for (const value of [cyclic, 10n]) await assert.rejects(tavern.channel('game#1').publish(value), TypeError);
  await tavern.channel('game#1').publish(1);
  server.last.drop();
  await server.reconnected({ resumed: true });
  await until(() => tavern.state === 'open');
  tavern.suspend();
});

test('getToken that never answers is reported, and asked again', async (context) => {
  context.mock.method(console, 'warn', () => {});
  const timeout = globalThis.setTimeout;
  context.mock.method(globalThis, 'setTimeout', (due, ms, ...more) => timeout(due, ms === 20_000 ? 5 : ms, ...more));
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => server.sendHello());
  const given = [() => new Promise(() => {}), () => 'token'];
  const tavern = server.tavern({ user: undefined, getToken: () => given.shift()() });
  const failure = tavern.once('error');
  await tavern.connect();
  assert.match((await failure).error.message, /getToken failed: Error: no token in time/);
  tavern.suspend();
});
