// Uses that the types must reject: each line below a comment `@ts-expect-error` is an error, or tsc fails.
import { Tavern, TavernError, type Message, type Presence, type Status } from '../tavern.js';
import { Backend, signToken } from '../backend.js';

const tavern = new Tavern('http://localhost:7400', { user: 'ann', transports: ['websocket', 'poll'] });
const room = tavern.channel<{ text: string }, { seat: number }>('game#1');

// Right uses: the types must accept these.
room.on('message', ({ data, from }) => console.log(data.text.length, from?.user?.length));
const presence: Presence<{ seat: number }> = await room.presence();
const seats: (number | undefined)[] = [...presence.users.values()].map(({ state }) => state?.seat);
presence.on('change', (change) => change.event === 'user_online' && change.state?.seat.toFixed());
for await (const { data } of room) console.log(data.text);
const page = await room.history({ limit: 10 });
console.log(page.messages[0].data.text, seats);
tavern.on('closed', ({ error }) => console.log(error.retryAfterMs?.toFixed()));
tavern.on('error', ({ error, retryInMs = 0 }) => console.log(error.code, retryInMs + 1));
tavern.party.on('invite', ({ party_id }) => tavern.party.accept(party_id));
const statuses: Status[] = await tavern.me.status(['ann']);
const reply = await tavern.call<{ users: string[] }>('following', { limit: 1 });
console.log(statuses, reply.users, (await tavern.once('open')).resumed);
await tavern.pattern<number>('score#*').subscribe(({ data }) => data.toFixed(), { echo: false });
await room.subscribe(({ data }) => console.log(data.text), { last: 50, echo: false });
await room.publish({ text: 'hello' }).catch((error: TavernError) => error.code === 'unknown_outcome');
const unknown: Message = await tavern.channel('x').once('message');

const backend = new Backend('http://localhost', { key: 'tvk_x' });
const online: number = (await backend.stats()).cluster.users_online;
const sessions: string[] = (await backend.request('GET /v1/users/{user}/sessions', { params: { user: 'ann' } })).sessions.map(({ client }) => client);
await backend.request('PUT /v1/subscriptions/{name}', { params: { name: 'mail' }, body: { topics: ['orders'], pull: true } });
await backend.request('GET /v1/bans', { query: { limit: 10 } });
console.log(online, sessions, (await backend.request('GET /v1/stats')).node.node);

// @ts-expect-error: no such event
tavern.on('mesage', () => {});
// @ts-expect-error: no such event of a channel
room.on('join', () => {});
// @ts-expect-error: the data of this channel has a text
room.publish('hello');
// @ts-expect-error: the text is a string
room.publish({ text: 7 });
// @ts-expect-error: the state of this channel has a seat
room.join({ place: 1 });
// @ts-expect-error: update needs a state
room.update();
// @ts-expect-error: messages of this channel have no title
room.on('message', ({ data }) => data.title);
// @ts-expect-error: the data of a channel without a type is unknown
tavern.channel('x').on('message', ({ data }) => data.text);
// @ts-expect-error: unknown is not a string
const text: string = unknown.data;
// @ts-expect-error: a service is no user
room.on('message', ({ from }) => from.user);
// @ts-expect-error: no such transport
new Tavern('http://localhost', { transports: ['carrier pigeon'] });
// @ts-expect-error: no such option
new Tavern('http://localhost', { tokens: 'x' });
// @ts-expect-error: a token is a string
new Tavern('http://localhost', { getToken: () => 7 });
// @ts-expect-error: the state is read only
tavern.state = 'open';
// @ts-expect-error: internals are private
tavern.session;
// @ts-expect-error: channels are made by the client
new room.constructor(tavern, 'x').name.length;
// @ts-expect-error: the map is read only
presence.users.set('bob', undefined);
// @ts-expect-error: a state may be missing
presence.get('bob').state;
// @ts-expect-error: a user is a string
tavern.me.follow(7);
// @ts-expect-error: a list of users
tavern.me.status('ann');
// @ts-expect-error: no such visibility
tavern.me.visibility('friends');
// @ts-expect-error: a party id is a number
tavern.party.accept('7');
// @ts-expect-error: the data of a party is an object
tavern.party.setData('x');
// @ts-expect-error: no such event of a party
tavern.party.on('promoted', () => {});
// @ts-expect-error: a position is an epoch and an offset
room.subscribe({ since: 7 });
// @ts-expect-error: patterns have no history
tavern.pattern('x#*').subscribe({ last: 5 });
// @ts-expect-error: a backend needs a key
new Backend('http://localhost', {});
// @ts-expect-error: rights are lists of verbs
signToken('secret', 'ann', { allow: { '*': 'subscribe' } });
// @ts-expect-error: no such request
backend.request('GET /v1/stat');
// @ts-expect-error: it needs the user
backend.request('GET /v1/users/{user}/sessions');
// @ts-expect-error: no such member
backend.request('PUT /v1/users/{user}/ban', { params: { user: 'ann' }, body: { why: 'spam' } });
// @ts-expect-error: until is a number
backend.request('PUT /v1/users/{user}/ban', { params: { user: 'ann' }, body: { until: 'noon' } });
// @ts-expect-error: no such member of the reply
(await backend.stats()).users;
export { text };
