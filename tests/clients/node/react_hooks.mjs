// React hooks in StrictMode, which mounts every component twice, with a real server: url as argument, facts as JSON on stdout.
import { createElement as h, StrictMode, useState } from 'react';
import { act, create } from 'react-test-renderer';
import { Tavern } from '@tavern/client';
import { TavernProvider, useChannel, useConnection, useParty, usePresence, useStatus } from '@tavern/client/react';

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
// react-test-renderer says on each run that other tools are preferred.
console.error = () => {};
const url = process.argv[2];
const tell = (fact) => console.log(JSON.stringify(fact));
const seen = {};
let show;

function Room({ seat }) {
  seen.channel = useChannel('room#react', { keep: 2 });
  seen.presence = usePresence('room#react', { seat });
  seen.status = useStatus('bob');
  seen.party = useParty();
  seen.connection = useConnection();
  return null;
}

/** A second component that uses the same channel. */
function Other() {
  seen.other = useChannel('room#react');
  return null;
}

function App() {
  const [shown, set] = useState({ room: true, other: true, seat: 1 });
  show = (next) => act(async () => set(next));
  return [shown.room && h(Room, { key: 1, seat: shown.seat }), shown.other && h(Other, { key: 2 })];
}

async function until(fact) {
  const end = Date.now() + 20_000;
  while (!fact()) {
    if (Date.now() > end) throw new Error(`waited for ${fact}`);
    await act(() => new Promise((resolve) => setTimeout(resolve, 10)));
  }
}

const client = new Tavern(url, { user: 'ann' });
const bob = new Tavern(url, { user: 'bob' });
await Promise.all([client.connect(), bob.connect()]);
let root;
await act(async () => (root = create(h(StrictMode, null, h(TavernProvider, { client }, h(App))))));
await until(() => seen.channel.ready && seen.presence.users.some(({ state }) => state?.seat === 1));
tell({ connection: seen.connection });
for (const text of ['one', 'two', 'three']) await bob.channel('room#react').publish(text);
await until(() => seen.channel.messages.length === 2 && seen.other.messages.length === 3);
tell({ messages: seen.channel.messages.map(({ data }) => data), others: seen.other.messages.map(({ data }) => data) });
await show({ room: true, other: true, seat: 2 });
await until(() => seen.presence.users[0]?.state?.seat === 2);
await client.me.follow('bob');
await until(() => seen.status?.user === 'bob' && seen.status.online);
await bob.party.invite('ann');
await until(() => seen.party.invites.length === 1);
await seen.party.commands.accept(seen.party.invites[0].party_id);
await until(() => seen.party.party?.members.length === 2 && seen.party.invites.length === 0);
tell({ party: seen.party.party.members.map(({ user }) => user) });
// A page that changes and comes back at once leaves nothing.
await show({ room: false, other: true, seat: 2 });
await show({ room: true, other: true, seat: 2 });
await until(() => seen.presence.users[0]?.state?.seat === 2);
tell({ done: true });
// The room goes: the user leaves, the other component still hears messages.
await show({ room: false, other: true, seat: 2 });
await until(() => globalThis.setTimeout);
await act(() => new Promise((resolve) => setTimeout(resolve, 600)));
await bob.channel('room#react').publish('four');
await until(() => seen.other.messages.at(-1)?.data === 'four');
await act(async () => root.unmount());
await act(() => new Promise((resolve) => setTimeout(resolve, 600)));
const { receivers } = await bob.channel('room#react').publish('five');
tell({ receivers });
await Promise.all([client.close(), bob.close()]);
process.exit(0);
