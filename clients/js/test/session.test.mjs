// The session: what is delivered, what is tried again, and when nothing is.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TavernError } from '../tavern.js';
import { HELLO, House, json, turn, until } from './house.mjs';

const refused = (code) => (error) => error instanceof TavernError && error.code === code;

test('the name goes into the address, a token into hello', async () => {
  const house = new House();
  const tavern = await house.open();
  assert.equal(house.last.url.href, 'ws://tavern.test/v1/connect?user=ann');
  assert.equal(tavern.state, 'open');
  assert.equal(tavern.transport, 'websocket');
  const other = house.tavern({ user: undefined, token: 'secret' });
  other.connect();
  await until(() => house.sockets.length === 2);
  house.last.open();
  assert.equal(house.last.url.search, '');
  assert.deepEqual(house.last.sent, [{ id: 0, op: 'hello', token: 'secret' }]);
  await tavern.close();
  other.suspend();
});

test('an event is told once, whatever comes twice', async () => {
  const house = new House();
  const tavern = await house.open();
  const heard = [];
  await tavern.channel('game#1').subscribe(({ data }) => heard.push(data));
  for (const seq of [1, 2, 2, 1, 3]) house.last.say({ seq, event: 'message', channel: 'game#1', data: seq });
  house.last.drop();
  const back = await house.again({ resumed: true });
  assert.equal(back.url.search, '?user=ann&session=s1&seq=3');
  for (const seq of [3, 4]) back.say({ seq, event: 'message', channel: 'game#1', data: seq });
  assert.deepEqual(heard, [1, 2, 3, 4]);
  tavern.suspend();
});

test('after a denied resume everything is asked for again, then reset is told', async () => {
  const house = new House();
  house.ok = (frame) => (frame.presence ? { members: { version: 1, users: [], count: 0 } } : {});
  const tavern = await house.open();
  await tavern.channel('game#1').subscribe();
  await tavern.channel('game#1').join({ seat: 1 });
  await tavern.channel('game#1').update({ seat: 2 });
  await tavern.channel('game#2').presence();
  await tavern.channel('game#3').subscribe();
  await tavern.channel('game#3').unsubscribe();
  const reset = tavern.once('reset');
  house.last.drop();
  const back = await house.again({ session: 's2' });
  assert.deepEqual(await reset, { failed: [] });
  assert.deepEqual(back.sent.map(({ id, ...frame }) => frame), [
    { op: 'subscribe', channel: 'game#1' },
    { op: 'join', channel: 'game#1', state: { seat: 2 } },
    { op: 'subscribe', channel: 'game#2', presence: true },
  ]);
  const heard = [];
  tavern.channel('game#1').on('message', ({ data }) => heard.push(data));
  back.say({ seq: 1, event: 'message', channel: 'game#1', data: 'numbers begin anew' });
  assert.deepEqual(heard, ['numbers begin anew']);
  tavern.suspend();
});

test('a command that may be repeated is, another is of unknown outcome, one that was not sent is sent', async () => {
  const house = new House();
  const tavern = await house.open();
  house.heard = undefined;
  const join = tavern.channel('game#1').join(1);
  const publish = tavern.channel('game#1').publish(1);
  house.last.drop();
  await assert.rejects(publish, refused('unknown_outcome'));
  const later = tavern.channel('game#1').publish(2);
  const back = await house.again({ resumed: true });
  assert.deepEqual(back.sent.map(({ op, data }) => [op, data]), [['join', undefined], ['publish', 2]]);
  for (const { id } of back.sent) back.say({ id, ok: { receivers: 3 } });
  await join;
  assert.deepEqual(await later, { receivers: 3 });
  tavern.suspend();
});

test('a refusal has its code, and how long to wait', async () => {
  const house = new House();
  const tavern = await house.open();
  house.heard = undefined;
  const publish = tavern.channel('game#1').publish(1);
  house.last.say({ id: house.last.sent.at(-1).id, error: { code: 'rate_limited', message: 'slowly', retry_after_ms: 70 } });
  await assert.rejects(publish, { code: 'rate_limited', message: 'slowly', retryAfterMs: 70, name: 'TavernError' });
  tavern.suspend();
});

test('a safe command is asked again when the server says so', async () => {
  const house = new House();
  const tavern = await house.open();
  const errors = [{ code: 'unavailable', retry_after_ms: 20 }, { code: 'rate_limited', retry_after_ms: 20 }];
  house.heard = (socket, { id }) => {
    const error = errors.shift();
    queueMicrotask(() => socket.say(error ? { id, error } : { id, ok: {} }));
  };
  const began = Date.now();
  await tavern.channel('game#1').join(1);
  assert.ok(Date.now() - began >= 35);
  assert.equal(house.last.sent.length, 3);
  tavern.suspend();
});

test('a command that is never answered ends', async () => {
  const house = new House();
  const tavern = await house.open({ commandTimeoutMs: 30 });
  house.heard = undefined;
  await assert.rejects(tavern.channel('game#1').join(1), refused('timeout'));
  await assert.rejects(tavern.channel('game#1').publish(1), refused('unknown_outcome'));
  tavern.suspend();
});

test('what timed out while no line was there is done when there is one', async () => {
  const house = new House();
  const tavern = house.tavern({ commandTimeoutMs: 30 });
  await assert.rejects(tavern.channel('game#1').subscribe(), refused('timeout'));
  await assert.rejects(tavern.channel('game#1').join(1), refused('timeout'));
  house.heard = (socket, frame) => queueMicrotask(() => socket.say({ id: frame.id, ok: {} }));
  tavern.connect();
  await until(() => house.last);
  house.greet();
  await until(() => house.last.sent.length === 2);
  assert.deepEqual(house.last.sent.map(({ op }) => op), ['subscribe', 'join']);
  tavern.suspend();
});

test('not more than a thousand commands wait', async () => {
  const house = new House();
  const tavern = house.tavern({ commandTimeoutMs: 50 });
  const all = await Promise.allSettled(Array.from({ length: 1001 }, () => tavern.call('ping')));
  assert.deepEqual(all.map(({ reason }) => reason.code).filter((code) => code === 'busy').length, 1);
});

for (const end of ['the event', 'the close code']) {
  test(`superseded by ${end}: nothing is tried again`, async () => {
    const house = new House();
    const tavern = await house.open();
    const told = [];
    for (const type of ['superseded', 'closed', 'reconnecting']) tavern.on(type, (event) => told.push([type, event?.code]));
    const waiting = tavern.call('who', { channel: 'game#1' }).catch((error) => error.code);
    if (end === 'the event') house.last.say({ event: 'superseded' });
    else house.last.drop(4000);
    assert.deepEqual(told, [['superseded', undefined], ['closed', 'superseded']]);
    assert.equal(await waiting, 'superseded');
    await assert.rejects(tavern.channel('game#1').publish(1), refused('superseded'));
    await turn(600);
    assert.equal(house.sockets.length, 1);
  });
}

test('closing says when to come back', async () => {
  const house = new House();
  const tavern = await house.open();
  const closing = tavern.once('closing');
  house.last.say({ event: 'closing', reconnect_after_ms: 400 });
  assert.deepEqual(await closing, { reconnectAfterMs: 400 });
  house.last.drop(4502);
  const began = Date.now();
  await house.again({ resumed: true });
  assert.ok(Date.now() - began >= 390, `after ${Date.now() - began} ms`);
  tavern.suspend();
});

test('tries come slower and slower, at random', async () => {
  const house = new House();
  const waits = [];
  const random = Math.random;
  const timeout = globalThis.setTimeout;
  try {
    Math.random = () => 1;
    globalThis.setTimeout = (due, ms, ...more) => {
      if (due.toString().includes('#dial')) waits.push(ms);
      return timeout(due, due.toString().includes('#dial') ? 0 : ms, ...more);
    };
    house.arrived = (socket) => queueMicrotask(() => socket.drop());
    const tavern = house.tavern({ transports: ['websocket'] });
    tavern.connect();
    await until(() => waits.length >= 10);
    tavern.suspend();
  } finally {
    Math.random = random;
    globalThis.setTimeout = timeout;
  }
  assert.deepEqual(waits.slice(0, 10), [250, 500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000, 20_000]);
});

test('a silent link is given up after two heartbeats, a speaking one is not', async () => {
  const house = new House();
  const tavern = await house.open({}, { heartbeat_ms: 60 });
  await turn(300);
  assert.equal(house.sockets.length, 1);
  assert.ok(house.last.sent.filter(({ op }) => op === 'ack').length >= 3, 'each heartbeat is acknowledged');
  house.heard = undefined;
  const lost = tavern.once('reconnecting');
  const began = Date.now();
  await lost;
  assert.ok(Date.now() - began < 400);
  tavern.suspend();
});

test('where sockets never open, the stream is next, and it is remembered', async () => {
  const house = new House();
  house.arrived = (socket) => queueMicrotask(() => socket.drop());
  let stream;
  const encoder = new TextEncoder();
  house.http = ({ url, body }) => {
    if (url.pathname === '/v1/command') return json({ id: body.id, ok: {} });
    const hello = encoder.encode(`data: ${JSON.stringify({ ok: { ...HELLO, resumed: url.searchParams.has('session') } })}\n\n`);
    const source = new ReadableStream({ start: (controller) => (stream = controller).enqueue(hello) });
    return new Response(source, { headers: { 'content-type': 'text/event-stream' } });
  };
  const tavern = house.tavern();
  await tavern.connect();
  assert.equal(tavern.transport, 'sse');
  assert.equal(house.sockets.length, 2);
  const heard = [];
  await tavern.channel('game#1').subscribe(({ data }) => heard.push(data));
  const event = encoder.encode(': a comment\n\nid: 1\ndata: {"seq":1,"event":"message","channel":"game#1","data":"grüß"}\n\n');
  // In the middle of a letter.
  stream.enqueue(event.slice(0, event.length - 7));
  await turn(5);
  stream.enqueue(event.slice(event.length - 7));
  await until(() => heard.length);
  assert.deepEqual(heard, ['grüß']);
  const resumed = tavern.once('resumed');
  stream.close();
  await resumed;
  assert.equal(tavern.transport, 'sse');
  assert.equal(house.sockets.length, 2);
  assert.equal(house.requests.at(-1).url.search, '?user=ann&session=s1&seq=1');
  tavern.suspend();
});

test('where streams are no streams, polling is next', async () => {
  const house = new House();
  house.arrived = (socket) => queueMicrotask(() => socket.drop());
  const polls = [];
  house.http = ({ url, body, signal }) => {
    if (url.pathname === '/v1/stream') return new Response('<html>', { status: 403 });
    if (body.op === 'hello') return json({ id: 0, ok: HELLO });
    polls.push(body);
    if (polls.length === 1) {
      return json({ session: 's1', cursor: 1, more: false, party: null, events: [{ seq: 1, event: 'message', channel: 'game#1', data: 1 }] });
    }
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  };
  const tavern = house.tavern();
  const heard = [];
  tavern.channel('game#1').on('message', ({ data }) => heard.push(data));
  await tavern.connect();
  assert.equal(tavern.transport, 'poll');
  await until(() => polls.length === 2);
  assert.deepEqual(heard, [1]);
  assert.deepEqual(polls.map(({ session, cursor }) => [session, cursor]), [['s1', 0], ['s1', 1]]);
  tavern.suspend();
});

test('while no server answers at all, no transport is blamed', async () => {
  const house = new House();
  let up = false;
  house.arrived = (socket) => queueMicrotask(() => (up ? house.greet() : socket.drop()));
  const tavern = house.tavern();
  const opened = tavern.connect();
  await until(() => house.requests.length >= 1);
  up = true;
  await opened;
  assert.equal(tavern.transport, 'websocket');
  tavern.suspend();
});

const jwt = (seconds) => `h.${btoa(JSON.stringify({ exp: Math.floor(Date.now() / 1000) + seconds }))}.s`;

test('a token is renewed before it ends', async () => {
  const house = new House();
  const tokens = [jwt(2), jwt(3600)];
  const given = [...tokens];
  const tavern = house.tavern({ user: undefined, getToken: () => given.shift() });
  house.heard = (socket, { id, op }) => queueMicrotask(() => socket.say({ id, ok: op === 'hello' ? HELLO : {} }));
  house.arrived = (socket) => queueMicrotask(() => socket.open());
  await tavern.connect();
  await until(() => house.last.sent.length === 2);
  assert.deepEqual(house.last.sent.map(({ op, token }) => [op, token]), tokens.map((token) => ['hello', token]));
  tavern.suspend();
});

test('a refused token is asked for anew, a fixed one is the end', async () => {
  const house = new House();
  const given = ['old', 'new'];
  house.arrived = (socket) => queueMicrotask(() => socket.open());
  house.heard = (socket, { id, token }) => queueMicrotask(() =>
    socket.say(token === 'new' ? { id, ok: HELLO } : { id, error: { code: 'unauthenticated', message: 'expired' } }));
  const tavern = house.tavern({ user: undefined, getToken: () => given.shift() });
  await tavern.connect();
  tavern.suspend();
  const fixed = house.tavern({ user: undefined, token: 'old' });
  await assert.rejects(fixed.connect(), refused('unauthenticated'));
  assert.equal(fixed.state, 'closed');
});

test('suspended, it comes back to its session, here and from the storage', async () => {
  const kept = new Map();
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text), removeItem: (key) => kept.delete(key) };
  const house = new House();
  const tavern = await house.open({ storage });
  house.last.say({ seq: 5, event: 'message', channel: 'game#1', data: 1 });
  tavern.suspend();
  assert.equal(tavern.state, 'suspended');
  assert.ok(house.last.closed);
  const next = house.tavern({ storage });
  const heard = [];
  const opened = next.connect();
  assert.equal(kept.size, 0, 'nobody else takes it');
  await until(() => house.sockets.length === 2);
  assert.equal(house.last.url.search, '?user=ann&session=s1&seq=5');
  house.greet({ resumed: true });
  house.last.say({ seq: 6, event: 'message', channel: 'game#1', data: 'while the page was loading' });
  await opened;
  // The page asks for it only now.
  await next.channel('game#1').subscribe(({ data }) => heard.push(data));
  assert.deepEqual(heard, ['while the page was loading']);
  next.suspend();
});

test('a storage that fails or holds nonsense is none', async () => {
  for (const storage of [
    { getItem: () => '{', setItem: () => {}, removeItem: () => {} },
    { getItem: () => '{"session":7}', setItem: () => {}, removeItem: () => {} },
    { getItem() { throw new Error('forbidden'); }, setItem() { throw new Error('full'); }, removeItem() { throw new Error('forbidden'); } },
  ]) {
    const house = new House();
    const tavern = await house.open({ storage });
    assert.equal(house.last.url.search, '?user=ann');
    tavern.suspend();
  }
});

test('closed and opened again, it is another session with the same wishes', async () => {
  const house = new House();
  const tavern = await house.open();
  await tavern.channel('game#1').subscribe();
  await tavern.close();
  assert.equal(house.last.sent.at(-1).op, 'bye');
  await assert.rejects(tavern.channel('game#1').publish(1), refused('closed'));
  const opened = tavern.connect();
  const back = await house.again({ session: 's2' });
  await opened;
  assert.equal(back.url.search, '?user=ann');
  assert.deepEqual(back.sent.map(({ op }) => op), ['subscribe']);
  tavern.suspend();
});

test('a letter is told once, in whichever session it comes', async () => {
  const house = new House();
  const tavern = await house.open();
  const heard = [];
  tavern.me.on('letter', ({ data }) => heard.push(data));
  house.last.say({ seq: 1, event: 'letter', letter: 7, data: 'a' });
  house.last.drop();
  const back = await house.again({ session: 's2' });
  back.say({ seq: 1, event: 'letter', letter: 7, data: 'a' });
  back.say({ seq: 2, event: 'letter', letter: 8, data: 'b' });
  assert.deepEqual(heard, ['a', 'b']);
  tavern.suspend();
});

test('the channel that the server chose instead is heard under the name that was asked for', async () => {
  const house = new House();
  house.ok = () => ({ channel: 'gametv#1' });
  const tavern = await house.open();
  const heard = [];
  await tavern.channel('game#1').subscribe(({ data }) => heard.push(data));
  house.last.say({ seq: 1, event: 'message', channel: 'gametv#1', data: 1 });
  assert.deepEqual(heard, [1]);
  tavern.suspend();
});

test('messages as a list; too many unread are an error', async () => {
  const house = new House();
  const tavern = await house.open();
  const channel = tavern.channel('game#1');
  const list = channel[Symbol.asyncIterator]();
  let seq = 0;
  const say = () => house.last.say({ seq: ++seq, event: 'message', channel: 'game#1', data: seq });
  say();
  say();
  assert.equal((await list.next()).value.data, 1);
  assert.equal((await list.next()).value.data, 2);
  const next = list.next();
  say();
  assert.equal((await next).value.data, 3);
  for (let n = 0; n < 4097; n++) say();
  await assert.rejects(list.next(), refused('overflow'));
  const ended = [];
  const reading = (async () => {
    for await (const { data } of channel) ended.push(data);
  })();
  say();
  await tavern.close();
  await reading;
  assert.deepEqual(ended, [seq]);
});

test('nonsense is refused at the door', () => {
  const house = new House();
  assert.throws(() => house.tavern({ transports: ['pigeon'] }), TypeError);
  assert.throws(() => new House().tavern({ transports: ['websocket'], WebSocket: null }), TypeError);
});
