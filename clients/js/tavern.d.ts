/**
 * The Tavern client for browsers and Node.
 *
 * ```ts
 * import { Tavern } from '@tavern/client';
 * const tavern = new Tavern('https://tavern.example', { getToken: () => fetch('/my-token').then((answer) => answer.text()) });
 * await tavern.connect();
 * const room = tavern.channel<{ text: string }>('chat#1');
 * await room.subscribe(({ from, data }) => console.log(from?.user, data.text));
 * await room.publish({ text: 'hello' });
 * ```
 */

/** How a client is connected. */
export type TransportName = 'websocket' | 'sse' | 'poll';

/** What a client does at the moment. */
export type State = 'idle' | 'connecting' | 'open' | 'suspended' | 'closed';

/** Keeps the session across page loads, like `sessionStorage`. */
export interface Storage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/** What resumes a session. `session` is a secret. */
export interface Ticket {
  session: string;
  /** The number of the last event that was received. */
  seq: number;
}

/** A class like the global `WebSocket`, for platforms that have none. */
export interface WebSocketClass {
  new (url: string): unknown;
}

export interface Options {
  /** A fixed token. The client closes when it expires. */
  token?: string;
  /** Called for the first token, before it expires, and after it was refused. */
  getToken?: () => string | Promise<string>;
  /** Dev mode only: a user name instead of a token. */
  user?: string;
  /** Where the session is kept for the next page load. Default: `sessionStorage` where it exists; null: nowhere. */
  storage?: Storage | null;
  /** The transports to try, in this order. Default: all. */
  transports?: TransportName[];
  /** Each new session begins with the statuses of all users that this user follows. */
  statuses?: boolean;
  /** How long a command may take, reconnects included. Default: 30,000. */
  commandTimeoutMs?: number;
  /** How long opening a transport may take. Default: 10,000. */
  connectTimeoutMs?: number;
  /** A session to continue. */
  resume?: Ticket;
  /** Writes what the client sends, receives and decides to `console.debug`, or calls this function. Secrets are left out. */
  debug?: boolean | ((what: string, detail: string | undefined) => void);
  /** A WebSocket class, where no global one exists. */
  WebSocket?: WebSocketClass;
  /** An implementation of `fetch`, where no global one exists. */
  fetch?: typeof fetch;
}

/** The codes of errors: those of the server, and those of the client. */
export type ErrorCode =
  | 'bad_request' | 'unauthenticated' | 'not_allowed' | 'claimed' | 'blocked' | 'not_found' | 'method_not_allowed' | 'conflict' | 'gone'
  | 'too_large' | 'rate_limited' | 'internal' | 'busy' | 'unavailable'
  | 'closed' | 'superseded' | 'unknown_outcome' | 'timeout' | 'unreachable' | 'overflow' | 'failed'
  // Codes of parties, and of newer servers.
  | (string & {});

/** A refusal of the server, or a failure of the client. */
export class TavernError extends Error {
  constructor(code: ErrorCode, message?: string, more?: { retry_after_ms?: number; party?: Party | null; cause?: unknown });
  /** For programs. */
  readonly code: ErrorCode;
  /** When a retry may succeed. */
  readonly retryAfterMs: number | undefined;
  /** The user's party, when a party command was refused. */
  readonly party: Party | null | undefined;
}

/** A source of events. `Events` maps the name of each event to what a listener gets. */
export class Emitter<Events extends object = Record<string, unknown>> {
  /** Calls `listener` with each event from now on. */
  on<Type extends keyof Events & string>(type: Type, listener: (event: Events[Type]) => void): this;
  /** Removes a listener. */
  off<Type extends keyof Events & string>(type: Type, listener: (event: Events[Type]) => void): this;
  /** The next event. Fails when the client closes before. */
  once<Type extends keyof Events & string>(type: Type, listener?: (event: Events[Type]) => void): Promise<Events[Type]>;
}

/** Events were dropped: those from `from` to `to`, or some of a channel or pattern. */
export interface Gap {
  event: 'gap';
  channel?: string;
  pattern?: string;
  from?: number;
  to?: number;
}

/** A fresh token does not allow this any more. */
export interface Revoked {
  event: 'revoked';
  verb: 'subscribe' | 'presence' | 'join';
  channel?: string;
  pattern?: string;
}

/** An attempt to connect or to renew the token failed. `retryInMs`: when the client connects again. */
export interface Failed {
  error: TavernError;
  retryInMs?: number;
}

/** The events of a client. */
export interface TavernEvents {
  /** After `connect`: the session is open. */
  open: { resumed: boolean };
  /** The connection is lost. */
  reconnecting: { code?: number; error?: TavernError };
  /** The client is back, and nothing was lost. */
  resumed: void;
  /** The client is back with a new session, and has restored everything except `failed`. Messages may have been missed. */
  reset: { failed: { channel: string; error: TavernError }[] };
  /** Events were dropped. Presence maps, party and statuses are loaded again without help. */
  gap: Gap;
  revoked: Revoked;
  /** The server is stopping. The client reconnects after this time. */
  closing: { reconnectAfterMs: number };
  /** Another connection took over the session. The client does not retry. */
  superseded: void;
  /** The session has ended. */
  closed: { code: ErrorCode; error: TavernError };
  /** An attempt failed; the client tries again. */
  error: Failed;
  /** A message of any channel. */
  message: Message;
  /** A change of presence in any channel. */
  user_online: PresenceChange;
  user_offline: PresenceChange;
  client_online: PresenceChange;
  client_updated: PresenceChange;
  client_offline: PresenceChange;
  presence: PresenceChange;
  presence_mode: PresenceChange;
  /** The app subscribed this session to a channel, or ended a subscription. */
  subscribed: { event: 'subscribed'; channel: string };
  unsubscribed: { event: 'unsubscribed'; channel: string };
}

/** One session with a server or a cluster, over any number of connections. */
export class Tavern extends Emitter<TavernEvents> {
  /** Without `url`: the server of the page. */
  constructor(url?: string | URL, options?: Options);
  readonly state: State;
  /** The transport in use, while open. */
  readonly transport: TransportName | undefined;
  /** The public id of this session. */
  readonly client: string | undefined;
  /** The user; null: anonymous. */
  readonly user: string | null | undefined;
  /** The server that has the session. */
  readonly node: string | undefined;
  /** What continues this session elsewhere. */
  readonly ticket: Ticket | undefined;
  /** The user of this session: statuses, follows, inbox. */
  readonly me: Me;
  readonly party: PartyClient;
  /** Tries until the session is open. Fails only if trying again cannot help. */
  connect(): Promise<void>;
  /** Ends the session: the user leaves everything at once. */
  close(): Promise<void>;
  /** Closes the connection and keeps the session; `connect` resumes it. */
  suspend(): void;
  /** The same object for the same name. `Data` is what messages carry, `State` what present clients say about themselves. */
  channel<Data = unknown, State = unknown>(name: string): Channel<Data, State>;
  /** All channels whose names match a Redis glob, such as `game#*`. */
  pattern<Data = unknown>(glob: string): Pattern<Data>;
  /** Sends any command of the protocol. `repeatable`: it may be sent again when its outcome is unknown. */
  call<Reply = unknown>(op: string, members?: object, repeatable?: boolean): Promise<Reply>;
}

/** A place in the history of a channel: everything up to it is known. */
export interface Position {
  epoch: number;
  offset: number;
}

export interface Message<Data = unknown> {
  event: 'message';
  channel: string;
  data: Data;
  /** The publisher; absent: a service. */
  from?: { user: string | null; client: string };
  /** `base64`: the published bytes are not text. */
  encoding?: 'base64';
  /** Its place in the history of the channel, and when it was stored. */
  epoch?: number;
  offset?: number;
  at?: number;
  seq?: number;
}

export interface SubscribeOptions {
  /** Begin with so many of the last messages. */
  last?: number;
  /** Begin after a position. */
  since?: Position;
  /** false: messages that this client has published are not given to it. Default: true. */
  echo?: boolean;
}

/** The reply to a publish. It has a position if the channel has history. */
export interface Published extends Partial<Position> {
  /** How many subscriptions of the server that executed it received it. */
  receivers: number;
  /** The id was published before: it is not delivered again. */
  duplicate?: boolean;
}

/** A part of a history, the oldest message first. `epoch` and `offset` are its end. */
export interface HistoryPage<Data = unknown> extends Position {
  messages: { offset: number; at: number; data: Data; from?: Message['from']; encoding?: 'base64'; message_id?: string }[];
  more: boolean;
}

/** Which page of a list: pass `next` of the previous page as `after`. */
export interface Part {
  after?: string;
  limit?: number;
}

/** A page of who is in a channel, as the server says. */
export interface Members<State = unknown> {
  version: number;
  count: number;
  users?: {
    user: string | null;
    name: string | null;
    clients: { client: string; state: State; since: number }[];
    since: number;
    leaving?: boolean;
  }[];
  next?: string;
}

export interface PatternEvents<Data = unknown> {
  message: Message<Data>;
  gap: Gap;
  revoked: Revoked;
}

export interface ChannelEvents<Data = unknown> extends PatternEvents<Data> {
  /** A new session has asked for what was missed, and got everything or not. */
  recovered: { recovered: boolean };
}

/** All channels whose names match a glob. */
export class Pattern<Data = unknown> extends Emitter<PatternEvents<Data>> {
  protected constructor();
  readonly glob: string;
  readonly subscribed: boolean;
  subscribe(listener?: (message: Message<Data>) => void, options?: { echo?: boolean }): Promise<void>;
  subscribe(options: { echo?: boolean }): Promise<void>;
  unsubscribe(): Promise<void>;
  /** The messages from now on. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Message<Data>>;
}

/** A channel. Methods wait for a connection if there is none at the moment. */
export class Channel<Data = unknown, State = unknown> extends Emitter<ChannelEvents<Data>> {
  protected constructor();
  readonly name: string;
  /** The channel that the authorize hook chose; usually the same. */
  readonly actual: string;
  /** Where this client is in the history of the channel. */
  readonly position: Position | undefined;
  /** Messages arrive from then on. */
  subscribe(listener?: (message: Message<Data>) => void, options?: SubscribeOptions): Promise<void>;
  subscribe(options: SubscribeOptions): Promise<void>;
  /** Ends messages and watching presence. Own presence stays. */
  unsubscribe(): Promise<void>;
  /** With an `id` it is sent again after a lost connection, and published once if the channel has history. */
  publish(data: Data, options?: { id?: string; retain?: boolean }): Promise<Published>;
  /** The last messages, or those after or before an offset. */
  history(part?: { after?: number; before?: number; limit?: number }): Promise<HistoryPage<Data>>;
  /** Makes this client present, with a small state. */
  join(state?: State): Promise<void>;
  /** Replaces the state of this client. */
  update(state: State): Promise<void>;
  leave(): Promise<void>;
  /** One page of who is in the channel, from the server. */
  who(part?: Part & { counts_only?: boolean }): Promise<Members<State>>;
  /** A live map of who is in the channel. Subscribes to the channel with its presence. */
  presence(): Promise<Presence<State>>;
  /** The messages from now on. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Message<Data>>;
}

/** A user in a channel. */
export interface PresenceUser<State = unknown> {
  user: string;
  name: string | null;
  /** The state of each of the user's clients. */
  clients: Map<string, State>;
  /** The state that was set last. */
  state: State | undefined;
  /** All clients are lost, and may still come back. */
  leaving: boolean;
}

/** Why a presence map has changed. */
export type PresenceChange<State = unknown> =
  | { event: 'snapshot' }
  /** A user has arrived, as a rule with a client and its state. */
  | { event: 'user_online'; channel: string; version: number; user: string | null; name: string | null; client?: string | null; state?: State }
  | { event: 'client_online' | 'client_updated'; channel: string; version: number; user: string | null; client: string | null; state: State }
  | { event: 'client_offline'; channel: string; version: number; user: string | null; client: string | null; explicit: boolean; reason: string }
  | { event: 'user_offline'; channel: string; version: number; user: string | null; last_seen?: number | null; reason: string }
  | {
      event: 'presence';
      channel: string;
      version: number;
      from_version: number;
      count: number;
      joined?: { user: string | null; client?: string | null; state?: State }[];
      updated?: { user: string | null; client?: string | null; state?: State }[];
      left?: { user: string | null; client?: string | null }[];
    }
  | { event: 'presence_mode'; channel: string; version: number; mode: 'full' | 'coalesced' | 'counts' };

/** A live map of who is in a channel. */
export class Presence<State = unknown> extends Emitter<{ change: PresenceChange<State> }> {
  protected constructor();
  readonly users: ReadonlyMap<string, PresenceUser<State>>;
  /** The states of anonymous clients. */
  readonly anonymous: ReadonlyMap<string, State>;
  /** All users, anonymous ones included. */
  readonly count: number;
  /** In `counts` mode only users that this user follows are named. */
  readonly mode: 'full' | 'coalesced' | 'counts';
  /** undefined while the map is loaded again. */
  readonly version: number | undefined;
  get(user: string): PresenceUser<State> | undefined;
  /** The changes from now on. */
  [Symbol.asyncIterator](): AsyncIterableIterator<PresenceChange<State>>;
}

/** What followers see of a user. */
export interface Status {
  user: string;
  name: string | null;
  online: boolean;
  leaving?: boolean;
  last_seen: number | null;
  channels: string[];
  activities: { activity: string; channel: string; since: number }[];
}

/** A page of user ids. */
export interface Users {
  users: string[];
  next?: string;
}

export interface MeEvents {
  /** The status of a followed user has changed. `change` says what happened in `channel`. */
  status: { user: string; status: Status; change: string; channel?: string };
  /** A session has started, if the option `statuses` asks for it. */
  statuses: Status[];
  /** A message for this user, each once. */
  inbox: { event: 'inbox'; message_id: number; data: unknown };
}

/** The user of this session. */
export class Me extends Emitter<MeEvents> {
  protected constructor();
  /** The statuses of followed users that the server has sent so far. With the option `statuses`: of all. */
  readonly statuses: ReadonlyMap<string, Status>;
  /** The statuses of up to 100 users, in this order. */
  status(users: string[]): Promise<Status[]>;
  follow(user: string): Promise<void>;
  unfollow(user: string): Promise<void>;
  following(part?: Part): Promise<Users>;
  followers(part?: Part): Promise<Users>;
  visibility(value: 'everyone' | 'followers_i_follow' | 'nobody'): Promise<void>;
}

/** A party. The first member leads. */
export interface Party<Data = unknown> {
  party_id: number;
  version: number;
  members: { user: string; name?: string | null; online: boolean; since: number }[];
  pending: { user: string; by: string; expires_at: number }[];
  state: 'forming' | 'idle' | 'gathering' | 'queued' | (string & {});
  go_id?: number;
  data: Data;
}

/** An event of a party. Which members it has depends on `cmd`. */
export interface PartyEvent {
  event: 'party';
  cmd: string;
  party_id: number;
  version: number;
  message_id: number;
  ts: number;
  /** The user whom it is about, and their name. */
  uid?: string;
  user?: string;
  invitee?: string;
  expires_at?: number;
  reason?: string;
  message?: string;
  data?: unknown;
  go_id?: number;
  state?: Party['state'];
  params?: unknown;
  missing?: string[];
  [member: string]: unknown;
}

export interface PartyEvents {
  /** `current` has changed. */
  change: Party | null;
  /** A member says something. */
  say: Message;
  invite: PartyEvent;
  invite_cancel: PartyEvent;
  invited: PartyEvent;
  uninvited: PartyEvent;
  accept: PartyEvent;
  join: PartyEvent;
  decline: PartyEvent;
  leave: PartyEvent;
  kick: PartyEvent;
  disband: PartyEvent;
  leader: PartyEvent;
  online: PartyEvent;
  offline: PartyEvent;
  data: PartyEvent;
  party_go: PartyEvent;
  ready: PartyEvent;
  party_matched: PartyEvent;
  go_failed: PartyEvent;
  go_cancel: PartyEvent;
}

/** The user's party. Commands carry a request id, so they are executed once. */
export class PartyClient extends Emitter<PartyEvents> {
  protected constructor();
  /** The party, kept up to date. */
  readonly current: Party | null;
  /** Open invites by party. */
  readonly invites: ReadonlyMap<number, PartyEvent>;
  get(): Promise<Party | null>;
  /** The first invite creates the party. */
  invite(user: string): Promise<{ party_id: number }>;
  cancelInvite(user: string): Promise<object>;
  accept(party_id: number): Promise<{ party: Party }>;
  decline(party_id: number, message?: string): Promise<object>;
  kick(user: string, message?: string): Promise<object>;
  leave(message?: string): Promise<object>;
  promote(user: string): Promise<object>;
  disband(message?: string): Promise<object>;
  /** Replaces the data of the party. */
  setData(data: object): Promise<object>;
  /** Sends a ticket to the matchmaker. */
  go(params?: unknown): Promise<{ go_id: number }>;
  cancelGo(): Promise<object>;
  ready(go_id: number): Promise<object>;
  block(user: string): Promise<object>;
  unblock(user: string): Promise<object>;
  /** Sends a message to all members. */
  say(data: unknown): Promise<{ receivers: number }>;
}

/** The reply to `hello`. */
export interface Hello {
  session: string;
  client: string;
  user: string | null;
  node: string;
  resumed: boolean;
  reset?: boolean;
  seq: number;
  heartbeat_ms: number;
  frame_bytes?: number;
  /** Absent: the server does not know it at the moment. */
  party?: Party | null;
}
