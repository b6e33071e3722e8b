// The vectors that every client runs (clients/vectors), against the pure parts of this one.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import * as bounds from '../src/bounds.js';
import { matches } from '../src/glob.js';
import { HistoryCursor } from '../src/history_cursor.js';
import { Statuses } from '../src/me.js';
import { fold } from '../src/party.js';
import { Presence } from '../src/presence.js';
import { afterClose, afterHello, afterLoss, afterReply, backoff, isRepeatable, renewAfter } from '../src/rules.js';

const FOLDER = new URL('../../vectors/', import.meta.url);

/** Checks the members that are given. */
function fits(actual, given, at = '') {
  for (const [name, value] of Object.entries(given)) assert.deepEqual(actual?.[name], value, `${at}${name}`);
}

const RUN = {
  presence({ steps, gives }) {
    let asks = 0;
    const presence = new Presence(() => asks++);
    for (const { snapshot, event } of steps) {
      if (snapshot) presence.snapshot(snapshot);
      else if (event) presence.receive(event);
      else presence.lose();
    }
    const { users, anonymous, version, ...rest } = gives;
    fits({ asks, count: presence.count, mode: presence.mode }, rest);
    if (version !== undefined && !asks) assert.equal(presence.version, version);
    if (anonymous) assert.deepEqual(Object.fromEntries(presence.anonymous), anonymous);
    if (!users) return;
    assert.deepEqual([...presence.users.keys()].sort(), Object.keys(users).sort());
    for (const [user, expected] of Object.entries(users)) {
      const entry = presence.get(user);
      fits({ ...entry, clients: Object.fromEntries(entry.clients) }, expected, `${user}.`);
    }
  },
  party: ({ party, me, event, gives, asks }) => assert.deepEqual(fold(party, event, me), { party: gives, asks }),
  status({ steps, gives }) {
    const statuses = new Statuses();
    for (const { statuses: all, status, unfollowed } of steps) {
      if (all) statuses.replace(all);
      else if (status) statuses.receive(status);
      else statuses.unfollowed(unfollowed);
    }
    assert.deepEqual(Object.fromEntries(statuses.users), gives);
  },
  replies: ({ error, then, wait_ms, ...command }) => fits(afterReply(command, error), { then, ...(wait_ms === undefined ? {} : { wait_ms }) }),
  lost: ({ then, ...command }) => assert.equal(afterLoss(command), then),
  hello: ({ error, then, wait_ms, ...token }) => fits(afterHello(error, token), { then, ...(wait_ms === undefined ? {} : { wait_ms }) }),
  close: ({ code, renews, ...expected }) => assert.deepEqual(afterClose(code, renews), expected),
  backoff: ({ attempt, chance, retry_after_ms, wait_ms }) => assert.equal(backoff(attempt, chance, retry_after_ms ?? 0), wait_ms),
  gaps({ steps, position }) {
    const cursor = new HistoryCursor();
    for (const { reply, message, gap, restart, since, then } of steps) {
      const before = cursor.position;
      if (reply) cursor.replied(reply);
      else if (gap) cursor.announceGap();
      else if (restart) assert.deepEqual(cursor.restart() ?? null, since);
      else assert.equal(cursor.take(message ?? {}), then);
      if (then === 'heal') assert.deepEqual(before, since);
    }
    assert.deepEqual(cursor.position ?? null, position);
  },
  bounds({ name, value }) {
    const { PENDING_MAX, UNREAD_MAX, KEPT_MAX, ANSWER_MAX, COMMAND_MS, CONNECT_MS, BYE_MS, TOKEN_MS, STABLE_MS, UPGRADE_MS, SECOND_MS, FAILURES, FAILURES_WORKED } = bounds;
    const own = {
      waiting_commands: PENDING_MAX, unread_events: UNREAD_MAX, kept_changes: KEPT_MAX, answer_bytes: ANSWER_MAX, command_ms: COMMAND_MS, connect_ms: CONNECT_MS,
      bye_ms: BYE_MS, token_ms: TOKEN_MS, steady_ms: STABLE_MS, stand_in_ms: UPGRADE_MS, second_half_ms: SECOND_MS, failures: FAILURES, failures_worked: FAILURES_WORKED,
    };
    assert.equal(own[name], value);
  },
  glob: ({ pattern, name, matches: expected }) => assert.equal(matches(pattern, name), expected),
  repeatable: ({ op, members, repeatable }) => assert.equal(isRepeatable(op, members), repeatable),
  token: ({ left_ms, renew_after_ms }) => assert.equal(renewAfter(left_ms), renew_after_ms),
};

test('every file of vectors has a runner', () => {
  assert.deepEqual(fs.readdirSync(FOLDER).sort(), Object.keys(RUN).map((name) => `${name}.json`).sort());
});

for (const [name, run] of Object.entries(RUN)) {
  const { cases } = JSON.parse(fs.readFileSync(new URL(`${name}.json`, FOLDER), 'utf8'));
  for (const [at, one] of cases.entries()) test(`${name}: ${one.says ?? at}`, () => run(one));
}
