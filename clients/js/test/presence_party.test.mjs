// Presence maps and party snapshots, built from literal events.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Presence, fold } from '../tavern.js';
import { HELLO, FakeServer, until } from './fake_server.mjs';

const ROOM = {
  version: 10, count: 3,
  users: [
    { user: 'ann', name: 'Ann', clients: [{ client: 'a1', state: 1, since: 0 }, { client: 'a2', state: 2, since: 0 }], since: 0 },
    { user: 'bob', name: null, clients: [], since: 0, leaving: true },
    { user: null, name: null, clients: [{ client: 'x', state: null, since: 0 }], since: 0 },
  ],
};

function room(members = ROOM) {
  let refreshed = 0;
  const presence = new Presence(/** @type {any} */ ({}), () => refreshed++);
  if (members) presence.snapshot(members);
  const shown = () => Object.fromEntries([...presence.users].map(([user, { clients }]) => [user, Object.fromEntries(clients)]));
  return { presence, shown, refreshed: () => refreshed };
}

test('a snapshot fills the presence map', () => {
  const { presence, shown } = room();
  assert.deepEqual(shown(), { ann: { a1: 1, a2: 2 }, bob: {} });
  assert.equal(presence.count, 3);
  assert.equal(presence.get('bob')?.leaving, true);
  assert.deepEqual([presence.get('ann')?.name, presence.get('ann')?.state], ['Ann', 2]);
});

test('changes apply in order and old ones are ignored', () => {
  const { presence, shown } = room();
  let changes = 0;
  presence.on('change', () => changes++);
  for (const event of [
    { event: 'user_offline', version: 10, user: 'ann' },
    { event: 'client_offline', version: 11, user: 'ann', client: 'a2', explicit: true },
    { event: 'client_updated', version: 12, user: 'ann', client: 'a1', state: { x: 1 } },
    { event: 'user_online', version: 13, user: 'cid', name: 'Cid' },
    { event: 'client_online', version: 14, user: 'cid', client: 'c1', state: null },
    { event: 'user_offline', version: 15, user: 'bob' },
    { event: 'user_online', version: 16, user: null, name: null },
    { event: 'client_online', version: 17, user: null, client: null, state: null },
  ]) presence.receive(event);
  assert.deepEqual(shown(), { ann: { a1: { x: 1 } }, cid: { c1: null } });
  assert.deepEqual([presence.count, presence.version, changes], [4, 17, 7]);
  presence.receive({ event: 'client_offline', version: 18, user: 'cid', client: 'c1' });
  assert.equal(presence.get('cid')?.leaving, true);
});

test('a coalesced event applies all its changes', () => {
  const { presence, shown } = room();
  presence.receive({
    event: 'presence', from_version: 10, version: 20, count: 3,
    left: [{ user: 'bob' }, { user: 'ann', client: 'a1' }, { user: null, client: 'x' }],
    joined: [{ user: 'cid', client: 'c1', state: 5 }, { user: 'dan' }],
    updated: [{ user: 'ann', client: 'a2', state: 6 }],
  });
  assert.deepEqual(shown(), { ann: { a2: 6 }, cid: { c1: 5 }, dan: {} });
  assert.deepEqual([presence.count, presence.mode, presence.get('dan')?.leaving], [3, 'coalesced', true]);
});

test('in counts mode only the number changes', () => {
  const { presence, shown } = room({ version: 5, count: 7000 });
  assert.deepEqual([presence.count, presence.mode], [7000, 'counts']);
  presence.receive({ event: 'presence', from_version: 5, version: 9, count: 7002, joined: [{ user: 'ann', client: 'a', state: 1 }], updated: [], left: [] });
  presence.receive({ event: 'presence', from_version: 9, version: 12, count: 6999 });
  assert.deepEqual(shown(), { ann: { a: 1 } });
  assert.deepEqual([presence.count, presence.mode], [6999, 'counts']);
  presence.receive({ event: 'presence_mode', mode: 'coalesced', version: 12 });
  assert.equal(presence.mode, 'coalesced');
});

test('a missing version requests a snapshot and buffers later changes', () => {
  const { presence, shown, refreshed } = room();
  presence.receive({ event: 'client_online', version: 12, user: 'cid', client: 'c1', state: 1 });
  presence.receive({ event: 'client_updated', version: 13, user: 'cid', client: 'c1', state: 2 });
  assert.equal(refreshed(), 1);
  presence.snapshot({ version: 12, count: 1, users: [{ user: 'cid', name: null, clients: [{ client: 'c1', state: 1 }] }] });
  assert.deepEqual(shown(), { cid: { c1: 2 } });
  assert.deepEqual([presence.version, refreshed()], [13, 1]);
});

test('the version of an empty channel may jump', () => {
  const { presence, shown, refreshed } = room({ version: 40, count: 0, users: [] });
  presence.receive({ event: 'user_online', version: 90, user: 'ann', name: null });
  presence.receive({ event: 'client_online', version: 91, user: 'ann', client: 'a', state: null });
  assert.deepEqual([shown(), refreshed()], [{ ann: { a: null } }, 0]);
});

// Parties.

const PARTY = {
  party_id: 7, version: 4, state: 'idle', data: {},
  members: [{ user: 'ann', name: 'Ann', online: true, since: 1 }, { user: 'bob', name: 'Bob', online: true, since: 2 }],
  pending: [{ user: 'cid', by: 'ann', expires_at: 99 }],
};
const partyEvent = (cmd, uid, more) => ({ event: 'party', cmd, uid, party_id: 7, version: 5, user: `name of ${uid}`, ts: 50, ...more });
const names = (party) => party?.members.map(({ user }) => user);

for (const [what, given, me, expected] of [
  ['accept', partyEvent('accept', 'cid'), 'ann', { members: ['ann', 'bob', 'cid'], pending: 0, state: 'idle' }],
  ['join', partyEvent('join', 'cid'), 'bob', { members: ['ann', 'bob', 'cid'], pending: 0, state: 'idle' }],
  ['decline', partyEvent('decline', 'cid', { reason: 'declined' }), 'ann', { members: ['ann', 'bob'], pending: 0, state: 'idle' }],
  ['invited', partyEvent('invited', 'ann', { invitee: 'dan', expires_at: 60 }), 'bob', { members: ['ann', 'bob'], pending: 2, state: 'idle' }],
  ['ready', partyEvent('ready', 'bob', { go_id: 5, state: 'queued' }), 'ann', { members: ['ann', 'bob'], pending: 1, state: 'queued', go_id: 5 }],
  ['uninvited', partyEvent('uninvited', 'cid'), 'bob', { members: ['ann', 'bob'], pending: 0, state: 'idle' }],
  ['leave', partyEvent('leave', 'bob'), 'ann', { members: ['ann'], pending: 1, state: 'forming' }],
  ['leader', partyEvent('leader', 'bob'), 'ann', { members: ['bob', 'ann'], pending: 1, state: 'idle' }],
  ['party_go', partyEvent('party_go', 'ann', { go_id: 5, state: 'gathering' }), 'bob', { members: ['ann', 'bob'], pending: 1, state: 'gathering', go_id: 5 }],
  ['party_go at once', partyEvent('party_go', 'ann', { go_id: 5, state: 'queued' }), 'bob', { members: ['ann', 'bob'], pending: 1, state: 'queued', go_id: 5 }],
  ['go_cancel', partyEvent('go_cancel', 'ann', { go_id: 5 }), 'bob', { members: ['ann', 'bob'], pending: 1, state: 'idle' }],
]) {
  test(`party: ${what}`, () => {
    const after = fold({ ...PARTY, go_id: 5 }, given, me);
    const { go_id, ...rest } = expected;
    const seen = { members: names(after), pending: after?.pending.length, state: after?.state };
    assert.deepEqual(seen, rest);
    assert.equal(after?.version, 5);
    if (['party_go', 'party_go at once', 'go_cancel', 'ready'].includes(what)) assert.equal(after?.go_id, go_id);
  });
}

test('party: disband, kick and own leave end it; data and offline change it', () => {
  assert.equal(fold(PARTY, partyEvent('disband', 'ann'), 'bob'), null);
  assert.equal(fold(PARTY, partyEvent('kick', 'bob'), 'bob'), null);
  assert.equal(fold(PARTY, partyEvent('leave', 'bob', { reason: 'timeout' }), 'bob'), null);
  assert.deepEqual(fold(PARTY, partyEvent('data', 'ann', { data: { map: 'x' } }), 'bob')?.data, { map: 'x' });
  assert.deepEqual(fold(PARTY, partyEvent('offline', 'bob'), 'ann')?.members.map(({ online }) => online), [true, false]);
  assert.equal(fold(PARTY, partyEvent('something new', 'bob'), 'ann'), undefined);
  assert.deepEqual(names(PARTY), ['ann', 'bob'], 'the old snapshot is unchanged');
});

test('the party snapshot follows hello, replies, events and errors', async () => {
  const server = new FakeServer();
  let truth = { ...PARTY };
  server.ok = ({ op }) => (op === 'party.get' ? { party: truth } : {});
  const tavern = await server.open({}, { ...HELLO, party: truth });
  await until(() => tavern.party.current);
  assert.deepEqual(tavern.party.current, PARTY);
  const emitted = [];
  for (const cmd of ['decline', 'change', 'leader', 'invite']) tavern.party.on(cmd, () => emitted.push(cmd));
  server.last.push({ seq: 1, message_id: 1, ...partyEvent('decline', 'cid') });
  assert.deepEqual([tavern.party.current.pending, tavern.party.current.version], [[], 5]);
  // Version 6 was missed: the party is loaded.
  truth = { ...PARTY, version: 7, members: [...PARTY.members].reverse() };
  server.last.push({ seq: 2, message_id: 2, ...partyEvent('leader', 'bob', { version: 7 }) });
  await until(() => tavern.party.current.version === 7);
  assert.deepEqual(names(tavern.party.current), ['bob', 'ann']);
  assert.deepEqual(emitted, ['change', 'decline', 'leader', 'change']);
  // An old event changes nothing.
  server.last.push({ seq: 3, message_id: 3, ...partyEvent('disband', 'ann', { version: 6 }) });
  assert.equal(tavern.party.current.version, 7);
  // An event of another party: an invite.
  server.last.push({ seq: 4, message_id: 4, ...partyEvent('invite', 'eve', { party_id: 9, version: 1 }) });
  assert.equal(tavern.party.invites.get(9).uid, 'eve');
  server.last.push({ seq: 5, message_id: 5, ...partyEvent('invite_cancel', 'eve', { party_id: 9, version: 2 }) });
  assert.equal(tavern.party.invites.size, 0);
  const said = tavern.party.once('say');
  server.last.push({ seq: 6, event: 'message', channel: 'party#7', data: 'hi', from: { user: 'bob', client: 'b' } });
  assert.equal((await said).data, 'hi');
  // An error carries the current party.
  server.onCommand = (socket, { id }) => queueMicrotask(() => socket.push({ id, error: { code: 'not_member', message: 'no', party: null } }));
  await assert.rejects(tavern.party.kick('bob', 'out'), { code: 'not_member', party: null });
  assert.equal(tavern.party.current, null);
  const { op, user, message, rid } = server.last.sent.at(-1);
  assert.deepEqual([op, user, message, typeof rid], ['party.kick', 'bob', 'out', 'string']);
  tavern.suspend();
});

test('every party command sends the op and members of the protocol', async () => {
  const server = new FakeServer();
  server.ok = () => ({ party: null });
  const tavern = await server.open();
  const { party } = tavern;
  const sent = server.last.sent;
  sent.length = 0;
  await party.get();
  await party.invite('u'); await party.cancelInvite('u'); await party.accept(1); await party.decline(1, 'm'); await party.kick('u', 'm');
  await party.leave('m'); await party.promote('u'); await party.disband('m'); await party.setData({ a: 1 }); await party.go({ b: 1 });
  await party.cancelGo(); await party.ready(3); await party.block('u'); await party.unblock('u'); await party.say('hi');
  assert.deepEqual(sent.map(({ id, rid, ...frame }) => frame), [
    { op: 'party.get' }, { op: 'party.invite', user: 'u' }, { op: 'party.cancel_invite', user: 'u' }, { op: 'party.accept', party_id: 1 },
    { op: 'party.decline', party_id: 1, message: 'm' }, { op: 'party.kick', user: 'u', message: 'm' }, { op: 'party.leave', message: 'm' },
    { op: 'party.promote', user: 'u' }, { op: 'party.disband', message: 'm' }, { op: 'party.set_data', data: { a: 1 } },
    { op: 'party.go', params: { b: 1 } }, { op: 'party.cancel_go' }, { op: 'party.ready', go_id: 3 }, { op: 'party.block', user: 'u' },
    { op: 'party.unblock', user: 'u' }, { op: 'party.say', data: 'hi' },
  ]);
  assert.equal(new Set(sent.slice(1).map(({ rid }) => rid)).size, 15);
  tavern.suspend();
});
