/** For backends on Node: the server API with an API key, tokens, webhooks. */

import type { Operations } from './rest.js';
import type { Members, Part } from './tavern.js';

export type { Operations };
/** What a request of the server API answers: `Reply<'GET /v1/stats'>`. */
export type Reply<Name extends keyof Operations> = Operations[Name]['reply'];
/** What it takes. */
export type Given<Name extends keyof Operations> = Omit<Operations[Name], 'reply'>;

/** A refusal of the server. */
export class BackendError extends Error {
  constructor(code: string, message: string, retryAfterMs?: number);
  readonly code: string;
  readonly retryAfterMs: number | undefined;
}

/** What became of one message of several. */
export interface Result {
  channel: string;
  receivers?: number;
  error?: { code: string; message: string };
}

/** A session of a user. */
export type SessionInfo = Reply<'GET /v1/users/{user}/sessions'>['sessions'][number];

/** An event of a topic. `seq` counts the events of a subscription's topic. */
export interface TopicEvent<Data = unknown> {
  seq: number;
  id: string | null;
  topic: string;
  type: string;
  url: string | null;
  time: number;
  data?: Data;
}

export interface NewEvent {
  /** Used to drop duplicates. */
  id?: string;
  type: string;
  url?: string;
  data?: unknown;
  time?: number | string;
}

/** The server API with an API key. Each request fails after 30 seconds, and after the time that it lets the server wait. */
export class Backend {
  constructor(url: string, options: { key: string });
  /** Publishes one message. */
  publish(channel: string, data: unknown): Promise<{ receivers: number; epoch?: number; offset?: number }>;
  /** Publishes the same data to several channels; gives a result for each. */
  broadcast(channels: string[], data: unknown): Promise<Result[]>;
  /** Publishes several messages; gives a result for each. */
  publishMany(messages: { channel: string; data: unknown }[]): Promise<Result[]>;
  /** Sends an inbox message to a user. */
  sendToInbox(user: string, data: unknown): Promise<void>;
  /** A page of who is present in a channel. */
  who<State = unknown>(channel: string, part?: Part): Promise<Members<State>>;
  /** Posts events to a topic: all of them are stored, or none. */
  postEvents(topic: string, events: NewEvent | NewEvent[]): Promise<{ topic: string; first_seq: number; last_seq: number; accepted: number; duplicates: number }>;
  /** The next events of a subscription. `after` acknowledges all events up to it. */
  pullEvents<Data = unknown>(subscription: string, options?: { after?: number; waitMs?: number; limit?: number }): Promise<{ events: TopicEvent<Data>[]; next_after: number }>;
  /** Every event of a subscription, as they come. A batch is acknowledged when all its events were taken. */
  events<Data = unknown>(subscription: string): AsyncGenerator<TopicEvent<Data>, void, void>;
  /** Any request of the server API, by its method and path: `request('GET /v1/users/{user}/sessions', { params: { user: 'ann' } })`. */
  request<Name extends keyof Operations>(operation: Name, ...given: {} extends Given<Name> ? [Given<Name>?] : [Given<Name>]): Promise<Reply<Name>>;
  /** How many users, sessions and connections there are. */
  stats(): Promise<Reply<'GET /v1/stats'>>;
  /** The sessions of a user on all servers. */
  sessions(user: string): Promise<SessionInfo[]>;
  /** Ends the sessions of a user. */
  disconnect(user: string, options?: { code?: number; reason?: string; except?: string[]; allow_resume?: boolean }): Promise<Reply<'POST /v1/users/{user}/disconnect'>>;
  /** Lets a user open no session. */
  ban(user: string, options?: { reason?: string; until?: number }): Promise<Reply<'PUT /v1/users/{user}/ban'>>;
  /** Lifts the ban of a user. */
  unban(user: string): Promise<void>;
}

/** A token for a user, signed with the server's secret (HS256). */
export function signToken(secret: string, user: string, options?: { ttlS?: number; allow?: Record<string, string[]>; name?: string }): Promise<string>;

/** Whether a webhook is signed with this secret (`whsec_…`) and not too old. Names of headers are in lower case; `body` is as it was received. */
export function verifyWebhook(secret: string, headers: Record<string, string | undefined>, body: string): Promise<boolean>;
