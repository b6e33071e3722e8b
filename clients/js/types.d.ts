/** Types of the client's inputs and outputs. Not part of the module at run time. */
import type { TavernError } from './tavern.js';

export type TransportName = 'websocket' | 'sse' | 'poll';
export type State = 'idle' | 'connecting' | 'open' | 'suspended' | 'closed';

/** Keeps the session across page loads, like sessionStorage. */
export interface SessionStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface Ticket {
  session: string;
  seq: number;
}

export interface Options {
  /** A fixed token. The client closes when it expires. */
  token?: string;
  /** Called for the first token and again before or after it expires. */
  getToken?: () => string | Promise<string>;
  /** Dev mode only: a user name instead of a token. */
  user?: string;
  /** Default: sessionStorage where it exists; null: none. */
  storage?: SessionStorage | null;
  /** In the order in which they are tried. Default: all. */
  transports?: TransportName[];
  /** Request the statuses of all followed users whenever a session starts. */
  statuses?: boolean;
  /** Timeout of a command, reconnects included. Default: 30,000. */
  commandTimeoutMs?: number;
  /** Timeout for opening a transport. Default: 10,000. */
  connectTimeoutMs?: number;
  /** A session to resume. */
  resume?: Ticket;
  /** A WebSocket class, where no global one exists. */
  WebSocket?: any;
  fetch?: typeof fetch;
}

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

export interface Message {
  channel: string;
  data: any;
  from?: { user: string | null; client: string };
  encoding?: string;
  /** Its place in the history of the channel, and when it was stored. */
  epoch?: number;
  offset?: number;
  at?: number;
}

/** A place in the history of a channel: everything up to it is known. */
export interface Position {
  epoch: number;
  offset: number;
}

/** Where a subscription begins: with so many of the last messages, or after a position. */
export interface From {
  last?: number;
  since?: Position;
}

/** The reply to a publish. The position is there if the channel has history. */
export interface Published extends Partial<Position> {
  receivers: number;
  /** The id was published before: it is not delivered again. */
  duplicate?: boolean;
}

/** A part of the history of a channel, the oldest message first. `epoch` and `offset` are the end of the history. */
export interface HistoryPage extends Position {
  messages: { offset: number; at: number; data: any; from?: Message['from']; encoding?: string; message_id?: string }[];
  more: boolean;
}

/** A user in a channel. `state` is the one set last by any of their clients; `clients` holds the state of each. */
export interface PresenceUser {
  user: string;
  name: string | null;
  clients: Map<string, any>;
  state: any;
  leaving: boolean;
}

export interface Status {
  user: string;
  name: string | null;
  online: boolean;
  leaving?: boolean;
  last_seen: number | null;
  channels: string[];
  activities: { activity: string; channel: string; since: number }[];
}

/** Which page of a list: pass `next` of the previous page as `after`. */
export interface Part {
  after?: string;
  limit?: number;
  /** `who` only. */
  counts_only?: boolean;
}

export interface Users {
  users: string[];
  next?: string;
}

/** A party. The first member is the leader. */
export interface Party {
  party_id: number;
  version: number;
  members: { user: string; name?: string | null; online: boolean; since: number }[];
  pending: { user: string; by: string; expires_at: number }[];
  state: string;
  go_id?: any;
  data: any;
}

export interface PartyCommands {
  invite(user: string): Promise<any>;
  cancelInvite(user: string): Promise<any>;
  accept(party_id: number): Promise<any>;
  decline(party_id: number, message?: string): Promise<any>;
  kick(user: string, message?: string): Promise<any>;
  leave(message?: string): Promise<any>;
  promote(user: string): Promise<any>;
  disband(message?: string): Promise<any>;
  setData(data: any): Promise<any>;
  go(params?: any): Promise<any>;
  cancelGo(): Promise<any>;
  ready(go_id: any): Promise<any>;
  block(user: string): Promise<any>;
  unblock(user: string): Promise<any>;
  say(data: any): Promise<any>;
}

/** An attempt to connect or to renew the token failed. `retryInMs`: when the client connects again. */
export interface Failed {
  error: TavernError;
  retryInMs?: number;
}

/** Why a link ended. `reached`: something answered. */
export interface Ending {
  code?: number;
  error?: TavernError;
  reached?: boolean;
  cause?: unknown;
}

/** How a link reports to its client. */
export interface LinkEvents {
  hello(ok: Hello): void;
  frame(frame: any): void;
  party(party?: Party | null): void;
  alive(): void;
  end(why: Ending): void;
}

/** One connection over one transport. */
export interface Link {
  send(frame: any): void;
  close(): void;
}

/** What a link uses of its client. */
export interface LinkIo {
  token?: string;
  socket(url: string): WebSocket;
  ticket(): Ticket | undefined;
  pollMs(): number;
  address(path: string, query?: Record<string, any>): string;
  get(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response>;
  post(path: string, body: any, ms: number, signal: AbortSignal): Promise<any>;
}

/** A command waiting for its reply. */
export interface Pending {
  id: number;
  frame: any;
  safe: boolean;
  sent: boolean;
  tries: number;
  timer: any;
  resolve(ok: any): void;
  reject(error: TavernError): void;
}

export type Listener = (event: any) => void;
