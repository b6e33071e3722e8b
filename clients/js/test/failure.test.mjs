// Attempts to connect that fail: the app learns why, with nothing but the client's own means.
import assert from 'node:assert/strict';
import http from 'node:http';
import { test } from 'node:test';
import { Tavern, TavernError } from './client.mjs';
import { FakeServer, json, until } from './fake_server.mjs';

const refused = (code, message) => (error) => error instanceof TavernError && error.code === code && message.test(error.message);

/** Collects the warnings and the `error` events of a client. */
function watched(context, tavern) {
  const warnings = context.mock.method(console, 'warn', () => {}).mock;
  const failures = [];
  tavern.on('error', (failure) => failures.push(failure));
  return { failures, warnings: () => warnings.calls.map((call) => call.arguments[0]) };
}

/** A server on a free port. */
async function listening(handler) {
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

for (const kind of ['websocket', 'sse', 'poll']) {
  test(`${kind}: an address where nothing listens gives an error for each attempt and one warning`, async (context) => {
    const { server, url } = await listening();
    await new Promise((resolve) => server.close(resolve));
    // For versions of Node without a WebSocket of their own.
    const fake = new FakeServer();
    fake.onConnect = (socket) => queueMicrotask(() => socket.drop());
    const tavern = new Tavern(url, { user: 'ann', transports: [kind], WebSocket: globalThis.WebSocket ?? fake.WebSocket, commandTimeoutMs: 300 });
    const { failures, warnings } = watched(context, tavern);
    tavern.connect();
    await until(() => failures.length >= 1, 10_000);
    const published = tavern.channel('game#1').publish(1);
    await assert.rejects(published, (error) => refused('timeout', /no reply to publish in time, the client is connecting: .* failed/)(error) && error.cause.code === 'unreachable');
    await until(() => failures.length >= 2, 10_000);
    for (const { error, retryInMs } of failures) {
      assert.ok(error instanceof TavernError && error.code === 'unreachable' && error.message.startsWith(`${kind} to ${url} failed: `), error.message);
      assert.ok(retryInMs >= 0);
    }
    assert.equal(warnings().length, 1);
    assert.match(warnings()[0], new RegExp(`tavern: ${kind} to ${url} failed: .*; the client keeps trying`));
    assert.equal(tavern.state, 'connecting');
    tavern.suspend();
  });

  for (const [status, type, body] of [[404, 'text/html', '<html>'], [404, 'application/json', '{"error":"not found"}'], [200, 'application/json', '{}'], [200, 'text/html', '<html>']]) {
    test(`${kind}: a server that answers ${status} ${body} is not taken for Tavern`, async (context) => {
      const fake = new FakeServer();
      fake.onConnect = (socket) => queueMicrotask(() => socket.drop());
      const { server, url } = await listening((request, response) => response.writeHead(status, { 'content-type': type }).end(body));
      const tavern = new Tavern(url, { user: 'ann', transports: [kind], WebSocket: fake.WebSocket });
      const { failures, warnings } = watched(context, tavern);
      tavern.connect();
      await until(() => failures.length >= 2, 10_000);
      if (kind !== 'websocket') assert.match(failures[0].error.message, /something else than Tavern answered; check the address/);
      assert.equal(warnings().length, 1);
      tavern.suspend();
      server.closeAllConnections();
      server.close();
    });
  }
}

test('getToken that throws or gives no string is reported, with its error, and called again', async (context) => {
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => server.sendHello());
  const given = [() => Promise.reject(new Error('login is down')), () => undefined, () => 'token'];
  const tavern = server.tavern({ user: undefined, getToken: () => given.shift()() });
  const { failures, warnings } = watched(context, tavern);
  await tavern.connect();
  assert.deepEqual(failures.map(({ error }) => error.message), [
    'getToken failed: Error: login is down', 'getToken failed: TypeError: it gave undefined instead of a string',
  ]);
  assert.equal(failures[0].error.cause.message, 'login is down');
  assert.equal(server.last.hello.token, 'token');
  assert.deepEqual(warnings(), ['tavern: getToken failed: Error: login is down; the client keeps trying']);
  tavern.suspend();
});

test('a token that cannot be renewed is reported while the session stays open', async (context) => {
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => server.sendHello());
  const soon = `h.${btoa(JSON.stringify({ exp: Math.floor(Date.now() / 1000) + 2 }))}.s`;
  const given = [() => soon];
  const tavern = server.tavern({ user: undefined, getToken: () => (given.shift() ?? (() => { throw new Error('login is down'); }))() });
  const { failures, warnings } = watched(context, tavern);
  await tavern.connect();
  await until(() => failures.length, 10_000);
  assert.equal(tavern.state, 'open');
  assert.equal(failures[0].error.message, 'getToken failed: Error: login is down');
  assert.equal(warnings().length, 1);
  tavern.suspend();
});

test('a transport that throws is a failed attempt like any other', async (context) => {
  const server = new FakeServer();
  server.http = () => json({ ok: { session: 's1', client: 'c1', user: 'ann', node: 'n1', resumed: false, seq: 0, heartbeat_ms: 15_000 } });
  const insecure = class {
    constructor() {
      throw new Error('An insecure WebSocket connection may not be initiated from a page loaded over HTTPS.');
    }
  };
  const tavern = server.tavern({ WebSocket: insecure, transports: ['websocket', 'poll'] });
  const { failures, warnings } = watched(context, tavern);
  await tavern.connect();
  assert.equal(tavern.transport, 'poll');
  assert.equal(failures.length, 2);
  assert.match(failures[0].error.message, /websocket to .* failed: An insecure WebSocket/);
  assert.equal(warnings().length, 1);
  tavern.suspend();
});

test('a refusal that retrying cannot change rejects connect and warns', async (context) => {
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => socket.open());
  server.onCommand = (socket, { id }) => queueMicrotask(() => socket.push({ id, error: { code: 'unauthenticated', message: 'the token has expired' } }));
  const tavern = server.tavern({ user: undefined, token: 'old' });
  const { failures, warnings } = watched(context, tavern);
  await assert.rejects(tavern.connect(), refused('unauthenticated', /expired/));
  assert.deepEqual([tavern.state, failures.length, warnings()], ['closed', 0, ['tavern: the token has expired; the client is closed']]);
});

test('after a success the next failure warns again', async (context) => {
  const server = new FakeServer();
  const tavern = await server.open({ transports: ['websocket'] });
  const { failures, warnings } = watched(context, tavern);
  for (const round of [1, 2]) {
    server.last.drop();
    await server.reconnected();
    server.last.drop();
    await server.reconnected({ resumed: true });
    assert.deepEqual([failures.length, warnings().length], [round, round]);
  }
  tavern.suspend();
});

test('an address that is none is refused at once', () => {
  for (const url of ['ftp://tavern.test', 'http://', 'http://[tavern', 'tavern.test']) assert.throws(() => new Tavern(url), TypeError, url);
});

test('a user may be called like a property of every object', async () => {
  const kept = new Map();
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text), removeItem: (key) => kept.delete(key) };
  const server = new FakeServer();
  const received = [];
  const open = async (hello) => {
    const tavern = await server.open({ user: '__proto__', storage }, { user: '__proto__', ...hello });
    tavern.me.on('inbox', ({ data }) => received.push(data));
    return tavern;
  };
  const tavern = await open();
  server.last.push({ seq: 1, event: 'inbox', message_id: 7, data: 'a' });
  server.last.push({ seq: 2, event: 'inbox', message_id: 7, data: 'a' });
  tavern.suspend();
  const next = server.tavern({ user: '__proto__', storage });
  next.me.on('inbox', ({ data }) => received.push(data));
  next.connect();
  await server.reconnected({ user: '__proto__', session: 's2' });
  server.last.push({ seq: 1, event: 'inbox', message_id: 7, data: 'a' });
  server.last.push({ seq: 2, event: 'inbox', message_id: 8, data: 'b' });
  assert.deepEqual(received, ['a', 'b']);
  next.suspend();
});

test('a connection that ends while the client closes is no failure', async (context) => {
  const server = new FakeServer();
  const tavern = await server.open();
  const { failures, warnings } = watched(context, tavern);
  server.onCommand = undefined;
  const closed = tavern.close();
  await until(() => server.last.sent.at(-1)?.op === 'bye');
  // The session has ended: its connection is closed before the reply, and the next attempt is refused.
  server.onConnect = (socket) => queueMicrotask(() => socket.push({ error: { code: 'gone', message: 'the session has ended' } }));
  server.last.drop();
  await closed;
  assert.deepEqual([failures, warnings(), tavern.state], [[], [], 'closed']);
});
