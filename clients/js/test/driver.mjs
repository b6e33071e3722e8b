// Drives the client for clients/scenarios: reads commands as JSON lines from stdin, writes replies and events to stdout.
import readline from 'node:readline';
import { Tavern, TavernError } from './client.mjs';

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const tell = (type, event = {}) => write({ event: { ...event, type } });

/** @type {Tavern | undefined} */
let tavern;
/** @type {boolean | undefined} */
let echo;
const asked = new Map();

function make({ url, user, tokens, transports, resume, options = {} }) {
  echo = options.echo;
  const debug = process.env.TAVERN_DEBUG ? (what, detail) => console.error(what, detail) : false;
  const getToken = () => new Promise((resolve, reject) => {
    const n = asked.size + 1;
    asked.set(n, ({ token, error }) => (error === undefined ? resolve(token) : reject(new Error(error))));
    write({ ask: 'token', n });
  });
  tavern = new Tavern(url, { user, transports, resume, getToken: tokens ? getToken : undefined, commandTimeoutMs: options.command_timeout_ms, connectTimeoutMs: options.connect_timeout_ms, debug });
  for (const type of ['open', 'reconnecting', 'resumed', 'reset', 'closing', 'superseded']) tavern.on(type, () => tell(type));
  tavern.on('gap', (event) => tell('gap', event));
  tavern.on('revoked', (event) => tell('revoked', event));
  tavern.on('closed', ({ code }) => tell('closed', { code }));
  tavern.on('error', ({ error }) => tell('error', { code: error.code }));
  tavern.me.on('status', (event) => tell('status', event));
  tavern.me.on('inbox', (event) => tell('inbox', event));
  for (const cmd of ['invite', 'invite_cancel', 'invited', 'uninvited', 'accept', 'decline', 'join', 'kick', 'leave', 'leader', 'disband',
    'data', 'party_go', 'ready', 'party_matched', 'go_failed', 'go_cancel', 'offline', 'online', 'say']) {
    tavern.party.on(cmd, (event) => tell('party', { cmd, ...event }));
  }
}

const listening = new Set();
const watching = new Map();

async function watch(name) {
  const presence = await tavern.channel(name).presence();
  if (watching.get(name) === presence) return;
  watching.set(name, presence);
  presence.on('change', () => tell('presence', { channel: name }));
}

async function all(page) {
  const users = [];
  let after;
  do {
    const part = await page({ after });
    users.push(...part.users);
    after = part.next;
  } while (after !== undefined);
  return { users };
}

async function burst({ channel, from, count }) {
  const flying = [];
  for (let n = from; n < from + count; n++) {
    if (flying.length >= 64) await flying.shift();
    flying.push(tavern.channel(channel).publish(n));
  }
  await Promise.all(flying);
}

const PARTY = {
  get: (p) => p.get().then((party) => ({ party })),
  invite: (p, { user }) => p.invite(user),
  cancel_invite: (p, { user }) => p.cancelInvite(user),
  accept: (p, { party_id }) => p.accept(party_id),
  decline: (p, { party_id, message }) => p.decline(party_id, message),
  kick: (p, { user, message }) => p.kick(user, message),
  leave: (p, { message }) => p.leave(message),
  promote: (p, { user }) => p.promote(user),
  disband: (p, { message }) => p.disband(message),
  set_data: (p, { data }) => p.setData(data),
  go: (p, { params }) => p.go(params),
  cancel_go: (p) => p.cancelGo(),
  ready: (p, { go_id }) => p.ready(go_id),
  block: (p, { user }) => p.block(user),
  unblock: (p, { user }) => p.unblock(user),
  say: (p, { data }) => p.say(data),
};

const COMMANDS = {
  connect(command) {
    if (command.url) make(command);
    return tavern.connect();
  },
  suspend: () => tavern.suspend(),
  close: () => tavern.close(),
  ticket: () => tavern.ticket,
  state: () => ({
    state: tavern.state, transport: tavern.transport, user: tavern.user, client: tavern.client, node: tavern.node,
  }),
  async subscribe({ channel, pattern, presence, last, since }) {
    if (pattern) return tavern.pattern(pattern).subscribe((message) => tell('message', message), { echo });
    const fresh = !listening.has(channel);
    listening.add(channel);
    if (fresh) tavern.channel(channel).on('recovered', ({ recovered }) => tell('recovered', { channel, recovered }));
    await tavern.channel(channel).subscribe(fresh ? (message) => tell('message', message) : undefined, { last, since, echo });
    if (presence) await watch(channel);
  },
  unsubscribe: ({ channel, pattern }) => (pattern ? tavern.pattern(pattern) : tavern.channel(channel)).unsubscribe(),
  publish: ({ channel, data, message_id, retain }) => tavern.channel(channel).publish(data, { id: message_id, retain }),
  history: ({ channel, after, before, limit }) => tavern.channel(channel).history({ after, before, limit }),
  position: ({ channel }) => tavern.channel(channel).position,
  burst,
  join: ({ channel, state }) => tavern.channel(channel).join(state),
  update: ({ channel, state }) => tavern.channel(channel).update(state),
  leave: ({ channel }) => tavern.channel(channel).leave(),
  who: ({ channel }) => tavern.channel(channel).who(),
  async presence({ channel }) {
    const { users, count, mode } = await tavern.channel(channel).presence();
    const shown = [...users.values()].map(({ user, name, clients }) => [user, { name, clients: Object.fromEntries(clients) }]);
    return { users: Object.fromEntries(shown), count, mode };
  },
  status: async ({ users }) => ({ statuses: await tavern.me.status(users) }),
  follow: ({ user }) => tavern.me.follow(user),
  unfollow: ({ user }) => tavern.me.unfollow(user),
  following: () => all((part) => tavern.me.following(part)),
  followers: () => all((part) => tavern.me.followers(part)),
  visibility: ({ value }) => tavern.me.visibility(value),
  party: (command) => PARTY[command.cmd](tavern.party, command),
  party_current: () => ({ party: tavern.party.current }),
};

async function run(command) {
  try {
    write({ id: command.id, ok: (await COMMANDS[command.do](command)) ?? {} });
  } catch (error) {
    const code = error instanceof TavernError ? error.code : 'driver';
    write({ id: command.id, error: { code, message: String(error?.stack ?? error) } });
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.answer !== undefined) asked.get(command.answer)?.(command);
  else run(command);
}
process.exit(0);
