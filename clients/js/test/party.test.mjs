// The party of a client: commands, and a snapshot that follows hello, replies, events and errors. Single events: clients/vectors.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, FakeServer, until } from './fake_server.mjs';

const PARTY = {
  party_id: 7, version: 4, state: 'idle', data: {},
  members: [{ user: 'ann', name: 'Ann', online: true, since: 1 }, { user: 'bob', name: 'Bob', online: true, since: 2 }],
  pending: [{ user: 'cid', by: 'ann', expires_at: 99 }],
};
const partyEvent = (cmd, uid, more) => ({ event: 'party', cmd, uid, party_id: 7, version: 5, user: `name of ${uid}`, ts: 50, ...more });
const names = (party) => party?.members.map(({ user }) => user);

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
