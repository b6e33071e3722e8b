/** The shapes of what goes in and out of the client. Types only: nothing of this is in the module that runs. */
import type { TavernError } from './tavern.js';

export type TransportName = 'websocket' | 'sse' | 'poll';
export type State = 'idle' | 'connecting' | 'open' | 'suspended' | 'closed';

/** Where the session waits for the next page load, as sessionStorage does. */
export interface Keeper {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface Ticket {
  session: string;
  seq: number;
}

export interface Options {
  /** A token that is used as long as it lasts. */
  token?: string;
  /** Asked for a token at first, and again when it has expired or is about to. */
  getToken?: () => string | Promise<string>;
  /** Dev mode only: a name instead of a token. */
  user?: string;
  /** sessionStorage where there is one; null for none. */
  storage?: Keeper | null;
  /** In the order they are tried. */
  transports?: TransportName[];
  /** Ask for the status of everybody one follows whenever a session begins. */
  statuses?: boolean;
  /** How long a command may wait for its answer, reconnects included; 30,000. */
  commandTimeoutMs?: number;
  /** How long a transport may take to open; 10,000. */
  connectTimeoutMs?: number;
  /** A session to come back to. */
  resume?: Ticket;
  /** A WebSocket class where there is no global one. */
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
  /** Absent: the server does not know at the moment. */
  party?: Party | null;
}

export interface Message {
  channel: string;
  data: any;
  from?: { user: string | null; client: string };
  encoding?: string;
}

/** Somebody in a channel. `state` is that of the client who said one last; `clients` holds them all. */
export interface Person {
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

/** A page of a list: `next` goes into `after`. */
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

/** The leader is the first member. */
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

/** Why a link ended. `reached`: a server answered. */
export interface Ending {
  code?: number;
  error?: TavernError;
  reached?: boolean;
}

/** What a link tells its client. */
export interface Ear {
  hello(ok: Hello): void;
  frame(frame: any): void;
  party(party?: Party | null): void;
  alive(): void;
  end(why: Ending): void;
}

/** A transport under way. */
export interface Link {
  send(frame: any): void;
  close(): void;
}

/** What a link knows of its client. */
export interface House {
  token?: string;
  socket(url: string): WebSocket;
  ticket(): Ticket | undefined;
  pollMs(): number;
  address(path: string, query?: Record<string, any>): string;
  get(path: string, query: any, signal: AbortSignal): Promise<Response>;
  post(path: string, body: any, ms: number, signal: AbortSignal): Promise<any>;
}

/** A command that waits for its answer. */
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
