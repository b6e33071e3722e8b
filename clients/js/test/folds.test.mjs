// Presence maps and parties, folded from literal events.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Presence, fold } from '../tavern.js';
import { HELLO, House, until } from './house.mjs';

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

test('a snapshot', () => {
  const { presence, shown } = room();
  assert.deepEqual(shown(), { ann: { a1: 1, a2: 2 }, bob: {} });
  assert.equal(presence.count, 3);
  assert.equal(presence.get('bob')?.leaving, true);
  assert.deepEqual([presence.get('ann')?.name, presence.get('ann')?.state], ['Ann', 2]);
});

test('every change, in order; old ones are nothing', () => {
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
  ]) presence.hear(event);
  assert.deepEqual(shown(), { ann: { a1: { x: 1 } }, cid: { c1: null } });
  assert.deepEqual([presence.count, presence.version, changes], [4, 17, 7]);
  presence.hear({ event: 'client_offline', version: 18, user: 'cid', client: 'c1' });
  assert.equal(presence.get('cid')?.leaving, true);
});

test('the sum of a tick', () => {
  const { presence, shown } = room();
  presence.hear({
    event: 'presence', from_version: 10, version: 20, count: 3,
    left: [{ user: 'bob' }, { user: 'ann', client: 'a1' }, { user: null, client: 'x' }],
    joined: [{ user: 'cid', client: 'c1', state: 5 }, { user: 'dan' }],
    updated: [{ user: 'ann', client: 'a2', state: 6 }],
  });
  assert.deepEqual(shown(), { ann: { a2: 6 }, cid: { c1: 5 }, dan: {} });
  assert.deepEqual([presence.count, presence.mode, presence.get('dan')?.leaving], [3, 'coalesced', true]);
});

test('a crowd is counted', () => {
  const { presence, shown } = room({ version: 5, count: 7000 });
  assert.deepEqual([presence.count, presence.mode], [7000, 'counts']);
  presence.hear({ event: 'presence', from_version: 5, version: 9, count: 7002, joined: [{ user: 'ann', client: 'a', state: 1 }], updated: [], left: [] });
  presence.hear({ event: 'presence', from_version: 9, version: 12, count: 6999 });
  assert.deepEqual(shown(), { ann: { a: 1 } });
  assert.deepEqual([presence.count, presence.mode], [6999, 'counts']);
  presence.hear({ event: 'presence_mode', mode: 'coalesced', version: 12 });
  assert.equal(presence.mode, 'coalesced');
});

test('a hole asks for another snapshot, and what comes meanwhile waits for it', () => {
  const { presence, shown, refreshed } = room();
  presence.hear({ event: 'client_online', version: 12, user: 'cid', client: 'c1', state: 1 });
  presence.hear({ event: 'client_updated', version: 13, user: 'cid', client: 'c1', state: 2 });
  assert.equal(refreshed(), 1);
  presence.snapshot({ version: 12, count: 1, users: [{ user: 'cid', name: null, clients: [{ client: 'c1', state: 1 }] }] });
  assert.deepEqual(shown(), { cid: { c1: 2 } });
  assert.deepEqual([presence.version, refreshed()], [13, 1]);
});

test('an emptied channel may count as it likes', () => {
  const { presence, shown, refreshed } = room({ version: 40, count: 0, users: [] });
  presence.hear({ event: 'user_online', version: 90, user: 'ann', name: null });
  presence.hear({ event: 'client_online', version: 91, user: 'ann', client: 'a', state: null });
  assert.deepEqual([shown(), refreshed()], [{ ann: { a: null } }, 0]);
});

// Parties.

const PARTY = {
  party_id: 7, version: 4, state: 'idle', data: {},
  members: [{ user: 'ann', name: 'Ann', online: true, since: 1 }, { user: 'bob', name: 'Bob', online: true, since: 2 }],
  pending: [{ user: 'cid', by: 'ann', expires_at: 99 }],
};
const letter = (cmd, uid, more) => ({ event: 'party', cmd, uid, party_id: 7, version: 5, user: `name of ${uid}`, ts: 50, ...more });
const names = (party) => party?.members.map(({ user }) => user);

for (const [what, given, me, expected] of [
  ['accept', letter('accept', 'cid'), 'ann', { members: ['ann', 'bob', 'cid'], pending: 0, state: 'idle' }],
  ['join', letter('join', 'cid'), 'bob', { members: ['ann', 'bob', 'cid'], pending: 0, state: 'idle' }],
  ['decline', letter('decline', 'cid', { reason: 'declined' }), 'ann', { members: ['ann', 'bob'], pending: 0, state: 'idle' }],
  ['invited', letter('invited', 'ann', { invitee: 'dan', expires_at: 60 }), 'bob', { members: ['ann', 'bob'], pending: 2, state: 'idle' }],
  ['ready', letter('ready', 'bob', { go_id: 5, state: 'queued' }), 'ann', { members: ['ann', 'bob'], pending: 1, state: 'queued', go_id: 5 }],
  ['uninvited', letter('uninvited', 'cid'), 'bob', { members: ['ann', 'bob'], pending: 0, state: 'idle' }],
  ['leave', letter('leave', 'bob'), 'ann', { members: ['ann'], pending: 1, state: 'forming' }],
  ['leader', letter('leader', 'bob'), 'ann', { members: ['bob', 'ann'], pending: 1, state: 'idle' }],
  ['party_go', letter('party_go', 'ann', { go_id: 5, state: 'gathering' }), 'bob', { members: ['ann', 'bob'], pending: 1, state: 'gathering', go_id: 5 }],
  ['party_go at once', letter('party_go', 'ann', { go_id: 5, state: 'queued' }), 'bob', { members: ['ann', 'bob'], pending: 1, state: 'queued', go_id: 5 }],
  ['go_cancel', letter('go_cancel', 'ann', { go_id: 5 }), 'bob', { members: ['ann', 'bob'], pending: 1, state: 'idle' }],
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

test('party: its end, one\'s own going, data, who is away', () => {
  assert.equal(fold(PARTY, letter('disband', 'ann'), 'bob'), null);
  assert.equal(fold(PARTY, letter('kick', 'bob'), 'bob'), null);
  assert.equal(fold(PARTY, letter('leave', 'bob', { reason: 'timeout' }), 'bob'), null);
  assert.deepEqual(fold(PARTY, letter('data', 'ann', { data: { map: 'x' } }), 'bob')?.data, { map: 'x' });
  assert.deepEqual(fold(PARTY, letter('offline', 'bob'), 'ann')?.members.map(({ online }) => online), [true, false]);
  assert.equal(fold(PARTY, letter('something new', 'bob'), 'ann'), undefined);
  assert.deepEqual(names(PARTY), ['ann', 'bob'], 'the old one is as it was');
});

test('a party is kept by hello, answers, letters and refusals', async () => {
  const house = new House();
  let truth = { ...PARTY };
  house.ok = ({ op }) => (op === 'party.get' ? { party: truth } : {});
  const tavern = await house.open({}, { ...HELLO, party: truth });
  await until(() => tavern.party.current);
  assert.deepEqual(tavern.party.current, PARTY);
  const told = [];
  for (const cmd of ['decline', 'change', 'leader', 'invite']) tavern.party.on(cmd, () => told.push(cmd));
  house.last.say({ seq: 1, letter: 1, ...letter('decline', 'cid') });
  assert.deepEqual([tavern.party.current.pending, tavern.party.current.version], [[], 5]);
  // Version 6 was missed: the party is read.
  truth = { ...PARTY, version: 7, members: [...PARTY.members].reverse() };
  house.last.say({ seq: 2, letter: 2, ...letter('leader', 'bob', { version: 7 }) });
  await until(() => tavern.party.current.version === 7);
  assert.deepEqual(names(tavern.party.current), ['bob', 'ann']);
  assert.deepEqual(told, ['change', 'decline', 'leader', 'change']);
  // An old letter changes nothing.
  house.last.say({ seq: 3, letter: 3, ...letter('disband', 'ann', { version: 6 }) });
  assert.equal(tavern.party.current.version, 7);
  // Somebody else's party is an invite.
  house.last.say({ seq: 4, letter: 4, ...letter('invite', 'eve', { party_id: 9, version: 1 }) });
  assert.equal(tavern.party.invites.get(9).uid, 'eve');
  house.last.say({ seq: 5, letter: 5, ...letter('invite_cancel', 'eve', { party_id: 9, version: 2 }) });
  assert.equal(tavern.party.invites.size, 0);
  const said = tavern.party.once('say');
  house.last.say({ seq: 6, event: 'message', channel: 'party#7', data: 'hi', from: { user: 'bob', client: 'b' } });
  assert.equal((await said).data, 'hi');
  // A refusal repairs.
  house.heard = (socket, { id }) => queueMicrotask(() => socket.say({ id, error: { code: 'not_member', message: 'no', party: null } }));
  await assert.rejects(tavern.party.kick('bob', 'out'), { code: 'not_member', party: null });
  assert.equal(tavern.party.current, null);
  const { op, user, message, rid } = house.last.sent.at(-1);
  assert.deepEqual([op, user, message, typeof rid], ['party.kick', 'bob', 'out', 'string']);
  tavern.suspend();
});

test('every party command has the name and the members of the protocol', async () => {
  const house = new House();
  house.ok = () => ({ party: null });
  const tavern = await house.open();
  const { party } = tavern;
  const sent = house.last.sent;
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
