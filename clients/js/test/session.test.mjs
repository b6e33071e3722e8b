// The session: delivery, retries, reconnects, transports, tokens.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TavernError } from './client.mjs';
import { HELLO, FakeServer, json, sleep, until } from './fake_server.mjs';

const refused = (code) => (error) => error instanceof TavernError && error.code === code;

test('a user name goes into the URL, a token and the session secret into hello', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  assert.equal(server.last.url.href, 'ws://tavern.test/v1/connect?user=ann&hello=no');
  assert.equal(tavern.state, 'open');
  assert.equal(tavern.transport, 'websocket');
  const other = server.tavern({ user: undefined, token: 'secret' });
  other.connect();
  await until(() => server.sockets.length === 2);
  server.last.open();
  assert.equal(server.last.url.search, '?hello=no');
  assert.deepEqual(server.last.hello, { id: 0, op: 'hello', token: 'secret' });
  await tavern.close();
  other.suspend();
});

test('a duplicate event is emitted once', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const received = [];
  await tavern.channel('game#1').subscribe(({ data }) => received.push(data));
  for (const seq of [1, 2, 2, 1, 3]) server.last.push({ seq, event: 'message', channel: 'game#1', data: seq });
  server.last.drop();
  const back = await server.reconnected({ resumed: true });
  assert.equal(back.url.search, '?user=ann&hello=no');
  assert.deepEqual(back.hello, { id: 0, op: 'hello', session: 's1', seq: 3 });
  for (const seq of [3, 4]) back.push({ seq, event: 'message', channel: 'game#1', data: seq });
  assert.deepEqual(received, [1, 2, 3, 4]);
  tavern.suspend();
});

test('a denied resume restores subscriptions and presence, then emits reset', async () => {
  const server = new FakeServer();
  server.ok = (frame) => (frame.presence ? { members: { version: 1, users: [], count: 0 } } : {});
  const tavern = await server.open();
  await tavern.channel('game#1').subscribe();
  await tavern.channel('game#1').join({ seat: 1 });
  await tavern.channel('game#1').update({ seat: 2 });
  await tavern.channel('game#2').presence();
  await tavern.channel('game#3').subscribe();
  await tavern.channel('game#3').unsubscribe();
  const reset = tavern.once('reset');
  server.last.drop();
  const back = await server.reconnected({ session: 's2' });
  assert.deepEqual(await reset, { failed: [] });
  assert.deepEqual(back.sent.map(({ id, ...frame }) => frame), [
    { op: 'subscribe', channel: 'game#1' },
    { op: 'join', channel: 'game#1', state: { seat: 2 } },
    { op: 'subscribe', channel: 'game#2', presence: true },
  ]);
  const received = [];
  tavern.channel('game#1').on('message', ({ data }) => received.push(data));
  back.push({ seq: 1, event: 'message', channel: 'game#1', data: 'seq starts at 1 again' });
  assert.deepEqual(received, ['seq starts at 1 again']);
  tavern.suspend();
});

test('after a lost link safe commands are retried, others fail with unknown_outcome, unsent ones are sent', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  server.onCommand = undefined;
  const join = tavern.channel('game#1').join(1);
  const publish = tavern.channel('game#1').publish(1);
  server.last.drop();
  await assert.rejects(publish, refused('unknown_outcome'));
  const later = tavern.channel('game#1').publish(2);
  const back = await server.reconnected({ resumed: true });
  assert.deepEqual(back.sent.map(({ op, data }) => [op, data]), [['join', undefined], ['publish', 2]]);
  for (const { id } of back.sent) back.push({ id, ok: { receivers: 3 } });
  await join;
  assert.deepEqual(await later, { receivers: 3 });
  tavern.suspend();
});

test('an error has its code and retry_after', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  server.onCommand = undefined;
  const publish = tavern.channel('game#1').publish(1);
  server.last.push({ id: server.last.sent.at(-1).id, error: { code: 'rate_limited', message: 'slow down', retry_after_ms: 70 } });
  await assert.rejects(publish, { code: 'rate_limited', message: 'slow down', retryAfterMs: 70, name: 'TavernError' });
  tavern.suspend();
});

test('a safe command is retried after retry_after_ms', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const errors = [{ code: 'unavailable', retry_after_ms: 20 }, { code: 'rate_limited', retry_after_ms: 20 }];
  server.onCommand = (socket, { id }) => {
    const error = errors.shift();
    queueMicrotask(() => socket.push(error ? { id, error } : { id, ok: {} }));
  };
  const began = Date.now();
  await tavern.channel('game#1').join(1);
  assert.ok(Date.now() - began >= 35);
  assert.equal(server.last.sent.length, 3);
  tavern.suspend();
});

test('a command without a reply times out', async () => {
  const server = new FakeServer();
  const tavern = await server.open({ commandTimeoutMs: 30 });
  server.onCommand = undefined;
  await assert.rejects(tavern.channel('game#1').join(1), refused('timeout'));
  await assert.rejects(tavern.channel('game#1').publish(1), refused('unknown_outcome'));
  tavern.suspend();
});

test('a subscription that timed out offline is restored on connect', async () => {
  const server = new FakeServer();
  const tavern = server.tavern({ commandTimeoutMs: 30 });
  await assert.rejects(tavern.channel('game#1').subscribe(), refused('timeout'));
  await assert.rejects(tavern.channel('game#1').join(1), refused('timeout'));
  server.onCommand = (socket, frame) => frame.op !== 'hello' && queueMicrotask(() => socket.push({ id: frame.id, ok: {} }));
  tavern.connect();
  await until(() => server.last);
  server.sendHello();
  await until(() => server.last.sent.length === 2);
  assert.deepEqual(server.last.sent.map(({ op }) => op), ['subscribe', 'join']);
  tavern.suspend();
});

test('the 16,385th pending command fails with busy', async () => {
  const server = new FakeServer();
  const tavern = server.tavern({ commandTimeoutMs: 50 });
  const all = await Promise.allSettled(Array.from({ length: 16_385 }, () => tavern.call('ping')));
  assert.deepEqual(all.map(({ reason }) => reason.code).filter((code) => code === 'busy').length, 1);
});

for (const end of ['the event', 'the close code']) {
  test(`superseded by ${end}: the client does not reconnect`, async () => {
    const server = new FakeServer();
    const tavern = await server.open();
    const emitted = [];
    for (const type of ['superseded', 'closed', 'reconnecting']) tavern.on(type, (event) => emitted.push([type, event?.code]));
    const waiting = tavern.call('who', { channel: 'game#1' }).catch((error) => error.code);
    if (end === 'the event') server.last.push({ event: 'superseded' });
    else server.last.drop(4000);
    assert.deepEqual(emitted, [['superseded', undefined], ['closed', 'superseded']]);
    assert.equal(await waiting, 'superseded');
    await assert.rejects(tavern.channel('game#1').publish(1), refused('superseded'));
    await sleep(600);
    assert.equal(server.sockets.length, 1);
  });
}

test('closing delays the reconnect by reconnect_after_ms', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const closing = tavern.once('closing');
  server.last.push({ event: 'closing', reconnect_after_ms: 400 });
  assert.deepEqual(await closing, { reconnectAfterMs: 400 });
  server.last.drop(4502);
  const began = Date.now();
  await server.reconnected({ resumed: true });
  assert.ok(Date.now() - began >= 390, `after ${Date.now() - began} ms`);
  tavern.suspend();
});

test('reconnects back off exponentially with jitter', async (context) => {
  context.mock.method(console, 'warn', () => {});
  const server = new FakeServer();
  const waits = [];
  const { random } = Math;
  const timeout = globalThis.setTimeout;
  try {
    Math.random = () => 1;
    const connectTimeoutMs = 12_345;
    globalThis.setTimeout = (due, ms, ...more) => timeout(due, ms === connectTimeoutMs ? ms : 0, ...more);
    server.onConnect = (socket) => queueMicrotask(() => socket.drop());
    const tavern = server.tavern({ transports: ['websocket'], connectTimeoutMs });
    tavern.on('error', ({ retryInMs }) => waits.push(retryInMs));
    tavern.connect();
    await until(() => waits.length >= 9);
    tavern.suspend();
  } finally {
    Math.random = random;
    globalThis.setTimeout = timeout;
  }
  assert.deepEqual(waits.slice(0, 9), [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
});

test('a link without traffic is closed after two heartbeats, a live one is kept', async () => {
  const server = new FakeServer();
  const tavern = await server.open({}, { heartbeat_ms: 60 });
  await sleep(300);
  assert.equal(server.sockets.length, 1);
  assert.ok(server.last.sent.filter(({ op }) => op === 'ack').length >= 3, 'an ack per heartbeat');
  server.onCommand = undefined;
  const lost = tavern.once('reconnecting');
  const began = Date.now();
  await lost;
  assert.ok(Date.now() - began < 400);
  tavern.suspend();
});

test('falls back to SSE when WebSocket fails, and stays there', async () => {
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => socket.drop());
  let stream;
  const encoder = new TextEncoder();
  server.http = ({ url, body, headers }) => {
    if (url.pathname === '/v1/command') return json({ id: body.id, ok: {} });
    const hello = encoder.encode(`data: ${JSON.stringify({ ok: { ...HELLO, resumed: 'tavern-session' in headers } })}\n\n`);
    const source = new ReadableStream({ start: (controller) => (stream = controller).enqueue(hello) });
    return new Response(source, { headers: { 'content-type': 'text/event-stream' } });
  };
  const tavern = server.tavern();
  await tavern.connect();
  assert.equal(tavern.transport, 'sse');
  assert.equal(server.sockets.length, 2);
  const received = [];
  await tavern.channel('game#1').subscribe(({ data }) => received.push(data));
  const event = encoder.encode(': a comment\n\nid: 1\ndata: {"seq":1,"event":"message","channel":"game#1","data":"grüß"}\n\n');
  // In the middle of a character.
  stream.enqueue(event.slice(0, event.length - 7));
  await sleep(5);
  stream.enqueue(event.slice(event.length - 7));
  await until(() => received.length);
  assert.deepEqual(received, ['grüß']);
  const resumed = tavern.once('resumed');
  stream.close();
  await resumed;
  assert.equal(tavern.transport, 'sse');
  assert.equal(server.sockets.length, 2);
  assert.equal(server.requests.at(-1).url.search, '?user=ann');
  assert.deepEqual(server.requests.at(-1).headers, { 'tavern-session': 's1', 'last-event-id': '1' });
  tavern.suspend();
});

test('falls back to long-poll when SSE fails', async () => {
  const server = new FakeServer();
  server.onConnect = (socket) => queueMicrotask(() => socket.drop());
  const polls = [];
  server.http = ({ url, body, signal }) => {
    if (url.pathname === '/v1/stream') return new Response('<html>', { status: 403 });
    if (body.op === 'hello') return json({ id: 0, ok: HELLO });
    polls.push(body);
    if (polls.length === 1) {
      return json({ session: 's1', cursor: 1, more: false, party: null, events: [{ seq: 1, event: 'message', channel: 'game#1', data: 1 }] });
    }
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  };
  const tavern = server.tavern();
  const received = [];
  tavern.channel('game#1').on('message', ({ data }) => received.push(data));
  await tavern.connect();
  assert.equal(tavern.transport, 'poll');
  await until(() => polls.length === 2);
  assert.deepEqual(received, [1]);
  assert.deepEqual(polls.map(({ session, cursor }) => [session, cursor]), [['s1', 0], ['s1', 1]]);
  tavern.suspend();
});

test('an unreachable server does not change the transport', async () => {
  const server = new FakeServer();
  let up = false;
  server.onConnect = (socket) => queueMicrotask(() => (up ? server.sendHello() : socket.drop()));
  const tavern = server.tavern();
  const opened = tavern.connect();
  await until(() => server.requests.length >= 1);
  up = true;
  await opened;
  assert.equal(tavern.transport, 'websocket');
  tavern.suspend();
});

const jwt = (seconds) => `h.${btoa(JSON.stringify({ exp: Math.floor(Date.now() / 1000) + seconds }))}.s`;

test('a token is renewed before it expires', async () => {
  const server = new FakeServer();
  const tokens = [jwt(2), jwt(3600)];
  const given = [...tokens];
  const tavern = server.tavern({ user: undefined, getToken: () => given.shift() });
  server.onCommand = (socket, { id, op }) => queueMicrotask(() => socket.push({ id, ok: op === 'hello' ? HELLO : {} }));
  server.onConnect = (socket) => queueMicrotask(() => socket.open());
  await tavern.connect();
  await until(() => server.last.sent.length === 1);
  assert.deepEqual([server.last.hello, ...server.last.sent].map(({ op, token }) => [op, token]), tokens.map((token) => ['hello', token]));
  tavern.suspend();
});

test('a token that is refused later is requested again; a fixed or a new one closes the client', async (context) => {
  context.mock.method(console, 'warn', () => {});
  const server = new FakeServer();
  let good = 'old';
  server.onConnect = (socket) => queueMicrotask(() => socket.open());
  server.onCommand = (socket, { id, token }) => queueMicrotask(() =>
    socket.push(token === good ? { id, ok: { ...HELLO, resumed: true } } : { id, error: { code: 'unauthenticated', message: 'expired' } }));
  const given = ['old', 'new', 'refused'];
  const tavern = server.tavern({ user: undefined, getToken: () => given.shift() });
  await tavern.connect();
  good = 'new';
  const resumed = tavern.once('resumed');
  server.last.drop();
  await resumed;
  assert.equal(server.last.hello.token, 'new');
  good = 'none';
  const closed = tavern.once('closed');
  server.last.drop(4001);
  assert.equal((await closed).code, 'unauthenticated');
  assert.equal(given.length, 0);
  const fixed = server.tavern({ user: undefined, token: 'old' });
  await assert.rejects(fixed.connect(), refused('unauthenticated'));
  assert.equal(fixed.state, 'closed');
});

test('a suspended session is resumed from storage', async () => {
  const kept = new Map();
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text), removeItem: (key) => kept.delete(key) };
  const server = new FakeServer();
  const tavern = await server.open({ storage });
  server.last.push({ seq: 5, event: 'message', channel: 'game#1', data: 1 });
  tavern.suspend();
  assert.equal(tavern.state, 'suspended');
  assert.ok(server.last.closed);
  const next = server.tavern({ storage });
  const received = [];
  const opened = next.connect();
  assert.equal(kept.size, 0, 'no other tab can load it');
  await until(() => server.sockets.length === 2);
  server.sendHello({ resumed: true });
  assert.deepEqual(server.last.hello, { id: 0, op: 'hello', session: 's1', seq: 5 });
  server.last.push({ seq: 6, event: 'message', channel: 'game#1', data: 'while the page was loading' });
  await opened;
  // The page subscribes only now.
  await next.channel('game#1').subscribe(({ data }) => received.push(data));
  assert.deepEqual(received, ['while the page was loading']);
  next.suspend();
});

test('a broken storage is ignored', async () => {
  for (const storage of [
    { getItem: () => '{', setItem: () => {}, removeItem: () => {} },
    { getItem: () => '{"session":7}', setItem: () => {}, removeItem: () => {} },
    { getItem() { throw new Error('forbidden'); }, setItem() { throw new Error('full'); }, removeItem() { throw new Error('forbidden'); } },
  ]) {
    const server = new FakeServer();
    const tavern = await server.open({ storage });
    assert.equal('session' in server.last.hello, false);
    tavern.suspend();
  }
});

test('connect after close makes a new session with the same subscriptions', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  await tavern.channel('game#1').subscribe();
  await tavern.close();
  assert.equal(server.last.sent.at(-1).op, 'bye');
  await assert.rejects(tavern.channel('game#1').publish(1), refused('closed'));
  const opened = tavern.connect();
  const back = await server.reconnected({ session: 's2' });
  await opened;
  assert.equal('session' in back.hello, false);
  assert.deepEqual(back.sent.map(({ op }) => op), ['subscribe']);
  tavern.suspend();
});

test('an inbox message is emitted once across sessions', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const received = [];
  tavern.me.on('inbox', ({ data }) => received.push(data));
  server.last.push({ seq: 1, event: 'inbox', message_id: 7, data: 'a' });
  server.last.drop();
  const back = await server.reconnected({ session: 's2' });
  back.push({ seq: 1, event: 'inbox', message_id: 7, data: 'a' });
  back.push({ seq: 2, event: 'inbox', message_id: 8, data: 'b' });
  assert.deepEqual(received, ['a', 'b']);
  tavern.suspend();
});

test('messages of a redirected channel arrive under the requested name', async () => {
  const server = new FakeServer();
  server.ok = () => ({ channel: 'gametv#1' });
  const tavern = await server.open();
  const received = [];
  await tavern.channel('game#1').subscribe(({ data }) => received.push(data));
  server.last.push({ seq: 1, event: 'message', channel: 'gametv#1', data: 1 });
  assert.deepEqual(received, [1]);
  tavern.suspend();
});

test('an iterator yields messages and says once that it fell behind', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const channel = tavern.channel('game#1');
  const list = channel[Symbol.asyncIterator]();
  let seq = 0;
  const send = () => server.last.push({ seq: ++seq, event: 'message', channel: 'game#1', data: seq });
  send();
  send();
  assert.equal((await list.next()).value.data, 1);
  assert.equal((await list.next()).value.data, 2);
  const next = list.next();
  send();
  assert.equal((await next).value.data, 3);
  for (let n = 0; n < 16_386; n++) send();
  await assert.rejects(list.next(), refused('overflow'));
  assert.equal((await list.next()).value.data, 6, 'the oldest two are lost, and it goes on');
  await list.return();
  const ended = [];
  const reading = (async () => {
    for await (const { data } of channel) ended.push(data);
  })();
  send();
  await tavern.close();
  await reading;
  assert.deepEqual(ended, [seq]);
});

test('an iterator and a promise of an event fail with the client', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  const channel = tavern.channel('game#1');
  const next = channel[Symbol.asyncIterator]().next();
  const message = channel.once('message');
  server.last.push({ event: 'superseded' });
  await assert.rejects(next, refused('superseded'));
  await assert.rejects(message, refused('superseded'));
  await assert.rejects(tavern.channel('another').once('message'), refused('superseded'));
});

test('unknown transports are rejected', () => {
  const server = new FakeServer();
  assert.throws(() => server.tavern({ transports: ['unknown'] }), TypeError);
  assert.throws(() => new FakeServer().tavern({ transports: ['websocket'], WebSocket: null }), TypeError);
});

test('a frame that is too large for the server is refused without sending it', async () => {
  const server = new FakeServer();
  const tavern = await server.open({}, { frame_bytes: 200 });
  await assert.rejects(tavern.channel('game#1').publish('x'.repeat(200)), refused('too_large'));
  await assert.rejects(tavern.channel('game#1').publish('ü'.repeat(100)), refused('too_large'));
  assert.equal(server.last.sent.length, 0);
  await tavern.channel('game#1').publish('x'.repeat(100));
  assert.equal(server.last.sent.length, 1);
  assert.equal(tavern.state, 'open');
  tavern.suspend();
});

test('a party message without a reply is not sent again', async () => {
  const server = new FakeServer();
  const tavern = await server.open();
  server.onCommand = undefined;
  const said = tavern.party.say('hello');
  const invited = tavern.party.invite('bob');
  await until(() => server.last.sent.length === 2);
  server.last.drop();
  await assert.rejects(said, refused('unknown_outcome'));
  const back = await server.reconnected({ resumed: true });
  assert.deepEqual(back.sent.map(({ op }) => op), ['party.invite']);
  back.push({ id: back.sent[0].id, ok: {} });
  await invited;
  tavern.suspend();
});

test('what a fresh token does not allow is reported and not restored', async () => {
  const server = new FakeServer();
  server.ok = (frame) => (frame.presence ? { members: { version: 1, users: [], count: 0 } } : {});
  const tavern = await server.open();
  const [game, chat] = [tavern.channel('game#1'), tavern.channel('chat#1')];
  await game.subscribe();
  await game.presence();
  await game.join({ seat: 1 });
  await chat.presence();
  const ended = [];
  tavern.on('revoked', ({ verb, channel, pattern }) => ended.push(`${verb} ${channel ?? pattern}`));
  game.on('revoked', ({ verb }) => ended.push(`game: ${verb}`));
  server.last.push({ seq: 1, event: 'revoked', verb: 'subscribe', channel: 'game#1' });
  server.last.push({ seq: 2, event: 'revoked', verb: 'join', channel: 'game#1' });
  server.last.push({ seq: 3, event: 'revoked', verb: 'subscribe', pattern: 'game#*' });
  assert.deepEqual(ended, ['game: subscribe', 'subscribe game#1', 'game: join', 'join game#1', 'subscribe game#*']);
  server.last.drop();
  const back = await server.reconnected({ session: 's2' });
  await until(() => back.sent.length > 0);
  assert.deepEqual(back.sent.map(({ id, ...frame }) => frame), [{ op: 'subscribe', channel: 'chat#1', presence: true }]);
  tavern.suspend();
});
