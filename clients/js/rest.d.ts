// Written by `make reference` from crates/server/assets/openapi.json. Do not edit.

/** The requests of the server API: what each takes, and what it answers. */
export interface Operations {
  /** Wait for events; the cursor acknowledges earlier ones */
  'POST /v1/poll': { query?: { /** A JWT, when no Authorization header is sent */ token?: string; /** A user name instead of a token; dev mode only */ user?: string }; body?: Poll; reply: PollAnswer };
  /** Run one command of the JSON protocol */
  'POST /v1/command': { query?: { /** A JWT, when no Authorization header is sent */ token?: string; /** A user name instead of a token; dev mode only */ user?: string }; body: Command; reply: Reply };
  /** Read the history of a channel (scope admin) */
  'GET /v1/channels/{channel}/history': { params: { /** The channel name, percent-encoded */ channel: ChannelName }; query?: { /** Messages after this offset */ after?: Number; /** Messages before this offset */ before?: Number; /** At most so many messages */ limit?: number }; reply: { /** Another one when the history was cleared or lost and begins again; 0: there is no message */ epoch: number; /** Of the last message */ offset: number; messages: HistoryMessage[]; /** There are more in the same direction */ more: boolean } };
  /** Clear the history of a channel (scope admin) */
  'DELETE /v1/channels/{channel}/history': { params: { /** The channel name, percent-encoded */ channel: ChannelName }; reply: Record<string, unknown> };
  /** Publish to a channel (scope publish) */
  'POST /v1/channels/{channel}/messages': { params: { /** The channel name, percent-encoded */ channel: ChannelName }; body: { /** Any JSON, at most 64 KiB (limits.message_bytes) */ data: unknown; /** Keep it as the last value of a channel without history */ retain?: boolean | null; /** Makes a message to a channel with history once-only among those of this API key, as long as it is stored */ message_id?: string | null }; reply: { receivers: number; /** Channels with history only */ epoch?: number; /** Channels with history only */ offset?: number; /** A message with this key is stored already: this is its place */ duplicate?: boolean } };
  /** List channels with subscriptions on this node (scope presence) */
  'GET /v1/channels': { query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number; /** Only names with this prefix */ prefix?: string; /** `true`: also channels with present users, and how many; users' own channels only if the prefix begins with user# */ present?: boolean }; reply: { channels: { channel: string; subscriptions: number; /** Present users on all nodes; only with `present=true` */ present?: number }[]; next: string | null } };
  /** One session, and why it counts as online (scope presence) */
  'GET /v1/sessions/{client}': { params: { /** The public id of the session */ client: ClientId }; reply: Session };
  /** List the nodes of the cluster with epoch and lease; `here` marks the answering one (scope admin) */
  'GET /v1/nodes': { reply: { nodes: { node: string; epoch: number; alive: boolean; lease_ms: number; opened_at: number; closed_at: number | null; clean: boolean; here?: Record<string, unknown> }[]; next?: string | null } };
  /** This document */
  'GET /openapi.json': { reply: Record<string, unknown> };
  /** List who is in a channel (scope presence) */
  'GET /v1/channels/{channel}/presence': { params: { /** The channel name, percent-encoded */ channel: ChannelName }; query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number; /** Only the version and the number of users */ counts_only?: boolean }; reply: { version: number; /** All users present */ count: number; users?: { /** null: an anonymous user */ user: string | null; name: string | null; since: number; /** In the grace period: no client is connected */ leaving?: boolean; clients: { client: string; /** Any JSON */ state: unknown; since: number }[] }[]; /** Pass it as `after` */ next?: string } };
  /** One user: where they are, and why they count as online (scope presence) */
  'GET /v1/users/{user}': { params: { /** The user id, percent-encoded */ user: UserId }; reply: { user: string; online: boolean; leaving: boolean; why: string; last_seen: number | null; activities: Record<string, unknown>[]; channels: Record<string, unknown>[]; visibility: 'everyone' | 'followers_i_follow' | 'nobody'; /** The id of their party */ party: number | null; /** Parties that have invited them */ invites: number[]; /** They cannot connect; see /v1/users/{user}/ban */ banned: boolean } };
  /** Erase what is stored about a user (scope users) */
  'DELETE /v1/users/{user}': { params: { /** The user id, percent-encoded */ user: UserId }; reply: Record<string, unknown> };
  /** List the users that a user follows (scope presence) */
  'GET /v1/users/{user}/following': { params: { /** The user id, percent-encoded */ user: UserId }; query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number }; reply: { users: string[]; /** Pass it as `after` */ next?: string } };
  /** List the followers of a user (scope presence) */
  'GET /v1/users/{user}/followers': { params: { /** The user id, percent-encoded */ user: UserId }; query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number }; reply: { users: string[]; /** Pass it as `after` */ next?: string } };
  /** Add a follow (scope presence) */
  'PUT /v1/users/{user}/following/{whom}': { params: { /** The user id, percent-encoded */ user: UserId; /** The id of the followed user, percent-encoded */ whom: UserId }; reply: Record<string, unknown> };
  /** Remove a follow (scope presence) */
  'DELETE /v1/users/{user}/following/{whom}': { params: { /** The user id, percent-encoded */ user: UserId; /** The id of the followed user, percent-encoded */ whom: UserId }; reply: Record<string, unknown> };
  /** Set who sees a user online (scope presence) */
  'PUT /v1/users/{user}/visibility': { params: { /** The user id, percent-encoded */ user: UserId }; body: { value: 'everyone' | 'followers_i_follow' | 'nobody' }; reply: Record<string, unknown> };
  /** The key of the request and its scopes */
  'GET /v1/whoami': { reply: { /** Its id; `admin`: the admin_key of the configuration; `proxy:NAME`: a user whom a proxy named; null: none */ key: string | null; scopes: ('publish' | 'events' | 'subscriptions' | 'presence' | 'parties' | 'users' | 'admin')[] } };
  /** Make a user present in a channel (scope presence) */
  'PUT /v1/channels/{channel}/presence/{user}': { params: { /** The channel name, percent-encoded */ channel: ChannelName; /** The user id, percent-encoded */ user: UserId }; body?: { /** Present while clients of the user are in this channel; while they are online if it is absent */ with?: ChannelName | null; /** Present for so many seconds; without `with`, also without any client */ ttl_s?: number | null }; reply: Record<string, unknown> };
  /** Remove a user from a channel (scope presence) */
  'DELETE /v1/channels/{channel}/presence/{user}': { params: { /** The channel name, percent-encoded */ channel: ChannelName; /** The user id, percent-encoded */ user: UserId }; reply: Record<string, unknown> };
  /** List topics with publisher, events and subscriptions (scope events or subscriptions) */
  'GET /v1/topics': { query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number }; reply: { topics: Topic[]; next: string | null } };
  /** One topic (scope events or subscriptions) */
  'GET /v1/topics/{topic}': { params: { /** The topic */ topic: TopicName }; reply: Topic };
  /** Move the claim on a topic to another key, or clear it (scope admin) */
  'PUT /v1/topics/{topic}': { params: { /** The topic */ topic: TopicName }; body: { /** The id of an API key; null: the next publisher claims the topic */ publisher: string | null }; reply: Topic };
  /** Delete a topic and remove it from every subscription (scope events and its publisher, or scope admin) */
  'DELETE /v1/topics/{topic}': { params: { /** The topic */ topic: TopicName }; reply: { deleted: string } };
  /** List the stored events of a topic (scope subscriptions) */
  'GET /v1/topics/{topic}/events': { params: { /** The topic */ topic: TopicName }; query?: { /** The `seq` of the last event that is known: the page begins after it; the `next` of a page is one */ after?: Number; /** The events before this `seq`, the newest first; a number beyond the last event begins with that. The `next` of a page is one. Not together with `after` */ before?: number; /** Rows of the page */ limit?: number }; reply: { events: (Event & { /** The id of the key that published it; null: not known, or the server itself */ publisher: string | null })[]; /** Pass it as `after`, or as `before`, to get the next page; null: this is the last */ next: string | null } };
  /** Publish one event or a list of up to 1,000 (scope events) */
  'POST /v1/topics/{topic}/events': { params: { /** The topic */ topic: TopicName }; body: NewEvent | NewEvent[]; reply: Published };
  /** List the subscriptions of this key, or all with the scope admin (scope subscriptions) */
  'GET /v1/subscriptions': { query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number }; reply: { subscriptions: Subscription[]; next: string | null } };
  /** Settings, queue and health (scope subscriptions) */
  'GET /v1/subscriptions/{name}': { params: { /** The subscription */ name: SubscriptionName }; reply: Subscription };
  /** Create a subscription, or change the given settings (scope subscriptions) */
  'PUT /v1/subscriptions/{name}': { params: { /** The subscription */ name: SubscriptionName }; body: SubscriptionWish; reply: SubscriptionPut };
  /** Delete a subscription with its queue (scope subscriptions) */
  'DELETE /v1/subscriptions/{name}': { params: { /** The subscription */ name: SubscriptionName }; reply: { deleted: string } };
  /** List the last attempts to deliver (scope subscriptions) */
  'GET /v1/subscriptions/{name}/attempts': { params: { /** The subscription */ name: SubscriptionName }; query?: { /** Only attempts that did not deliver the whole batch */ failed?: boolean; /** `next` of the previous page */ after?: Number; /** Rows of the page */ limit?: number }; reply: { attempts: Attempt[]; /** Pass it as `after` to get the next page; null: this is the last */ next: string | null } };
  /** Show one attempt with the request that was sent (scope subscriptions) */
  'GET /v1/subscriptions/{name}/attempts/{number}': { params: { /** The subscription */ name: SubscriptionName; /** The number of the attempt */ number: Number }; reply: Attempt };
  /** Send a test event now (scope subscriptions) */
  'POST /v1/subscriptions/{name}/test': { params: { /** The subscription */ name: SubscriptionName }; reply: Attempt };
  /** Replace the secret that signs (scope subscriptions) */
  'POST /v1/subscriptions/{name}/rotate': { params: { /** The subscription */ name: SubscriptionName }; body?: { /** `whsec_` and 24 to 64 bytes in base64; the previous secret signs too for events.rotation_ms */ secret?: string | null }; reply: SubscriptionPut };
  /** Pull events; `after` acknowledges (scope subscriptions) */
  'GET /v1/subscriptions/{name}/events': { params: { /** The subscription */ name: SubscriptionName }; query?: { /** Acknowledges the events up to this seq */ after?: Number; /** How long to wait for the first event */ wait_ms?: number; /** The largest number of events */ limit?: number }; reply: Pulled };
  /** Deliver again from an event on, with the same numbers (scope subscriptions) */
  'POST /v1/subscriptions/{name}/replay': { params: { /** The subscription */ name: SubscriptionName }; body: { from_seq: number; from_time?: null } | { /** Milliseconds since 1970, or RFC 3339 */ from_time: number | string; from_seq?: null }; reply: { from_seq: number; rewound: boolean } };
  /** Deliver again, at once (scope subscriptions) */
  'POST /v1/subscriptions/{name}/enable': { params: { /** The subscription */ name: SubscriptionName }; reply: Subscription };
  /** Stop delivering; events are kept (scope subscriptions) */
  'POST /v1/subscriptions/{name}/disable': { params: { /** The subscription */ name: SubscriptionName }; reply: Subscription };
  /** List events that the endpoint rejected (scope subscriptions) */
  'GET /v1/subscriptions/{name}/dead-letters': { params: { /** The subscription */ name: SubscriptionName }; query?: { /** `next` of the previous page */ after?: Number; /** Rows of the page */ limit?: number }; reply: { dead_letters: DeadLetter[]; next: string | null } };
  /** Deliver dead letters again, up to 1,000 at once (scope subscriptions) */
  'POST /v1/subscriptions/{name}/dead-letters/retry': { params: { /** The subscription */ name: SubscriptionName }; body?: { /** Ids or seqs; all if it is absent */ ids?: (number | string)[] | null }; reply: { retried: number; more: boolean } };
  /** Send a durable inbox message to a user (scope publish) */
  'POST /v1/users/{user}/messages': { params: { /** The user id, percent-encoded */ user: UserId }; body: { /** Any JSON, at most 64 KiB (limits.message_bytes) */ data: unknown }; reply: { message_id: number | null; duplicate?: boolean } };
  /** List parties by id (scope parties) */
  'GET /v1/parties': { query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number }; reply: { parties: Party[]; next: string | null } };
  /** One party (scope parties) */
  'GET /v1/parties/{id}': { params: { /** The id of the party */ id: Number }; reply: { party: Party } };
  /** Answer a ticket as the matchmaker (scope parties) */
  'POST /v1/parties/{id}/go/{go_id}': { params: { /** The id of the party */ id: Number; /** The id of the ticket */ go_id: Number }; body: { result: 'matched' | 'failed' }; reply: Record<string, unknown> };
  /** The party of a user (scope parties) */
  'GET /v1/users/{user}/party': { params: { /** The user id, percent-encoded */ user: UserId }; reply: { party: Party } };
  /** Run a party command on behalf of a user (scope parties) */
  'POST /v1/users/{user}/party': { params: { /** The user id, percent-encoded */ user: UserId }; body: PartyCommand; reply: Record<string, unknown> };
  /** Wait for party events */
  'GET /party/ping': { query?: { /** A JWT, when no Authorization header is sent */ token?: string; /** A user name instead of a token; dev mode only */ user?: string }; reply: { party: Party; party_events: Record<string, unknown>[] } };
  /** Wait for party events */
  'POST /party/ping': { query?: { /** A JWT, when no Authorization header is sent */ token?: string; /** A user name instead of a token; dev mode only */ user?: string }; reply: { party: Party; party_events: Record<string, unknown>[] } };
  /** The load of all nodes now, and of the cluster over a range of time (scope admin) */
  'GET /v1/load': { query?: { /** How far the series go back; without it there are none */ range?: '5m' | '1h' | '24h' }; reply: { cluster: { /** All nodes that answer together, now */ figures: Record<string, number | null>; /** One line for each figure, the oldest point first */ series: Record<string, (number | null)[]>; /** When the step of the first point ends */ start: number; /** The time between two points; 0 without series */ step_ms: number }; /** The node that answers first, then the others, also those that answered within the last day */ nodes: { node: string; /** Its lease runs */ alive: boolean; /** For how long it has not answered; null: it answers */ silent_ms: number | null; bus_up: boolean; epoch: number; /** As it last told */ figures: Record<string, number | null>; shards: number; stopping: boolean; store_up: boolean; uptime_ms: number; version: string }[]; /** The node that answers */ node: string; now: number; /** Nodes that started or ended in the last day, the last start first; at most 200 */ runs: { node: string; epoch: number; started_at: number; /** null: it runs */ ended_at: number | null; /** It ended with a clean stop */ clean: boolean }[] } };
  /** The metrics and the state of this node (scope admin) */
  'GET /v1/overview': { reply: { node: string; version: string; mode: 'dev' | 'serve'; now: number; uptime_ms: number; store_up: boolean; bus_up: boolean; /** How the clock compares with node time. A jump is not accepted before it has held for `clock.confirm_ms`. */ clock: { /** Whether events may be deleted by age. */ confirmed: boolean; /** How far the clock is ahead of node time because of a jump that is not accepted; negative: behind. */ jump_ms: number; /** Jumps since the start. */ jumps: number; warning: string | null }; stopping: boolean; metrics: Record<string, number>; /** All topics and subscriptions together, since the start */ events: Record<string, number> } };
  /** Every setting in effect and its origin (scope admin) */
  'GET /v1/settings': { reply: { mode: 'dev' | 'serve'; values: { key: string; value: unknown; origin: string }[] } };
  /** List the bans (scope users) */
  'GET /v1/bans': { query?: { /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number }; reply: { bans: { /** The user id */ user: string; /** When it ends; null: when it is lifted */ until: number | null; /** Shown to the user */ reason: string; /** When it began */ at: number }[]; next: string | null } };
  /** List users by id: who is online, and who was (scope presence) */
  'GET /v1/users': { query?: { /** Only names with this prefix */ prefix?: string; /** `next` of the previous page */ after?: string; /** Rows of the page */ limit?: number; /** Only users who are online */ online?: boolean }; reply: { users: { user: string; name: string | null; online: boolean; leaving: boolean; last_seen: number | null }[]; next: string | null } };
  /** List the messages in a user's inbox (scope admin) */
  'GET /v1/users/{user}/inbox': { params: { /** The user id, percent-encoded */ user: UserId }; query?: { /** `next` of the page before */ after?: Number; /** Rows of the page */ limit?: number }; reply: { messages: { message_id: number; at: number; /** As sessions receive it */ event: Record<string, unknown> | null }[]; /** The highest number that was dropped unread; 0: none */ dropped_through: number; next: number | null } };
  /** How many users, sessions and connections there are (scope presence) */
  'GET /v1/stats': { reply: { /** All living nodes together */ cluster: { /** Users online, with those in their grace period */ users_online: number; /** Sessions with or without a connection */ sessions: number; connections: TransportCounts; /** Channels with a subscriber, counted once for each node */ channels: number; /** Users in channels, counted once for each channel, without their own channels */ presences: number; /** Parties */ parties: number; /** Nodes that were counted */ nodes: number }; /** The node that answers */ node: { /** Its name */ node: string; /** Users with a session on it */ users: number; /** Its sessions */ sessions: number; connections: TransportCounts; /** Channels with a subscriber on it */ channels: number } } };
  /** The sessions of a user on all nodes (scope users) */
  'GET /v1/users/{user}/sessions': { params: { /** The user id, percent-encoded */ user: UserId }; reply: { sessions: { client: ClientId; /** The node that has it */ node: string; /** Milliseconds since 1970 */ since: number; /** websocket, sse, poll, radar or pusher; null while nothing is attached */ transport: string | null; /** The last sign of life, to a few seconds */ heard_at: number; /** Channels it is subscribed to */ channels: number; /** It is on its way to another node */ moving: boolean }[]; /** Living nodes that did not answer: there may be more sessions */ missing_nodes: string[] } };
  /** End the sessions of a user on all nodes (scope users) */
  'POST /v1/users/{user}/disconnect': { params: { /** The user id, percent-encoded */ user: UserId }; body?: { /** The close code of WebSockets; clients reconnect by themselves after 4500 and above. Default 4006, with allow_resume 4504 */ code?: number | null; /** Shown to the client; at most 123 bytes */ reason?: string | null; /** Clients that stay */ except?: ClientId[] | null; /** Close connections only; clients may resume their sessions. `code` must then be 4500 or above */ allow_resume?: boolean | null }; reply: ReachedSessions };
  /** Subscribe all sessions of a user to a channel (scope users) */
  'POST /v1/users/{user}/subscribe': { params: { /** The user id, percent-encoded */ user: UserId }; body: { channel: ChannelName }; reply: ReachedSessions };
  /** End the subscriptions of all sessions of a user to a channel (scope users) */
  'POST /v1/users/{user}/unsubscribe': { params: { /** The user id, percent-encoded */ user: UserId }; body: { channel: ChannelName }; reply: ReachedSessions };
  /** The ban of a user (scope users) */
  'GET /v1/users/{user}/ban': { params: { /** The user id, percent-encoded */ user: UserId }; reply: { /** The user id */ user: string; /** When it ends; null: when it is lifted */ until: number | null; /** Shown to the user */ reason: string; /** When it began */ at: number } };
  /** Ban a user (scope users) */
  'PUT /v1/users/{user}/ban': { params: { /** The user id, percent-encoded */ user: UserId }; body?: { /** When the ban ends, in milliseconds since 1970; without it, when it is lifted */ until?: number | null; /** Shown to the user; at most 123 bytes */ reason?: string | null }; reply: ReachedSessions };
  /** Lift the ban of a user (scope users) */
  'DELETE /v1/users/{user}/ban': { params: { /** The user id, percent-encoded */ user: UserId }; reply: ReachedSessions };
  /** Publish the same data to several channels (scope publish) */
  'POST /v1/broadcast': { body: { /** The channels */ channels: string[]; /** Any JSON, at most 64 KiB (limits.message_bytes) */ data: unknown }; reply: { /** Messages that were refused */ failed: number; /** One for each message, in their order */ results: { /** The channel; empty if the item has none */ channel: string; /** Matching subscriptions on this node */ receivers?: number; /** Channels with history only */ epoch?: number; /** Channels with history only */ offset?: number; /** It was stored already */ duplicate?: boolean; /** Why this one was refused */ error?: { code: Code; /** For people */ message: string; /** When to try again */ retry_after_ms?: number } }[] } };
  /** Publish several messages (scope publish) */
  'POST /v1/publish': { body: { messages: { /** The channel */ channel: string; /** Any JSON, at most 64 KiB (limits.message_bytes) */ data: unknown; /** Makes a message to a channel with history once-only among those of this API key, as long as it is stored */ message_id?: string | null }[] }; reply: { /** Messages that were refused */ failed: number; /** One for each message, in their order */ results: { /** The channel; empty if the item has none */ channel: string; /** Matching subscriptions on this node */ receivers?: number; /** Channels with history only */ epoch?: number; /** Channels with history only */ offset?: number; /** It was stored already */ duplicate?: boolean; /** Why this one was refused */ error?: { code: Code; /** For people */ message: string; /** When to try again */ retry_after_ms?: number } }[] } };
  /** Create a code that opens the dashboard once (scope admin) */
  'POST /v1/dashboard/links': { reply: { /** The key, for the Authorization header */ key: string; id: KeyId; /** What the key is for */ name: string; /** What it may do */ scopes: string[]; /** Milliseconds since 1970 */ created_at: number; /** It is refused from then on */ expires_at: number | null; /** About when it was used last; written at most once a minute */ last_used_at: number | null; /** When it was revoked */ revoked_at: number | null } };
  /** Exchange the code of a dashboard link for a key */
  'POST /v1/dashboard/sign-in': { body: { code: string }; reply: { /** The key, for the Authorization header */ key: string; id: KeyId; /** What the key is for */ name: string; /** What it may do */ scopes: string[]; /** Milliseconds since 1970 */ created_at: number; /** It is refused from then on */ expires_at: number | null; /** About when it was used last; written at most once a minute */ last_used_at: number | null; /** When it was revoked */ revoked_at: number | null } };
  /** API keys (scope admin) */
  'GET /v1/keys': { query?: { /** The `next` of the page before */ after?: string; /** Rows in the page */ limit?: number }; reply: { keys: ApiKey[]; /** Give it as `after`; null: the last page */ next: string | null } };
  /** Create an API key (scope admin) */
  'POST /v1/keys': { body: { /** What the key is for; at most 128 bytes, no control characters */ name: string; /** What it may do */ scopes: ('publish' | 'events' | 'subscriptions' | 'presence' | 'parties' | 'users' | 'admin')[]; /** It is refused from then on, in milliseconds since 1970 */ expires_at?: number | null }; reply: { /** The key, for the Authorization header */ key: string; id: KeyId; /** What the key is for */ name: string; /** What it may do */ scopes: string[]; /** Milliseconds since 1970 */ created_at: number; /** It is refused from then on */ expires_at: number | null; /** About when it was used last; written at most once a minute */ last_used_at: number | null; /** When it was revoked */ revoked_at: number | null } };
  /** Revoke an API key (scope admin) */
  'DELETE /v1/keys/{id}': { params: { /** The id of the key */ id: KeyId }; reply: ApiKey };
}

/** `kind#rest`, at most 255 bytes; in a URL the `#` is written as `%23` or `:` */
export type ChannelName = string;

/** At most 128 bytes, no control characters */
export type UserId = string;

/** The name of a topic: letters, digits, `.`, `_` and `-` */
export type TopicName = string;

/** The name of a subscription: letters, digits, `.`, `_` and `-` */
export type SubscriptionName = string;

/** The public id of a session */
export type ClientId = string;

/** An unsigned 64-bit integer */
export type Number = number;

/** A message of the user, at most 256 bytes */
export type PartyMessage = string | null;

/** Names the command: repeated with the same `rid`, it runs once */
export type RequestId = string | null;

/** A stable name of the error; the error reference explains each */
export type Code = 'bad_request' | 'unauthenticated' | 'not_allowed' | 'not_found' | 'method_not_allowed' | 'conflict' | 'claimed' | 'too_large' | 'rate_limited' | 'blocked' | 'busy' | 'gone' | 'unavailable' | 'internal' | 'no_such_party' | 'not_member' | 'not_leader' | 'version_conflict' | 'no_such_go' | 'self_target' | 'no_such_user' | 'target_not_member' | 'user_not_logged' | 'already_member' | 'user_in_party' | 'no_invite' | 'party_full';

/** Why a request was refused */
export type Error = { id?: unknown; error: { code: Code; /** What is wrong and what to do */ message: string; retry_after_ms?: number; /** The caller's party, in errors about parties */ party?: Party } };

/** One command of the JSON protocol. Unknown members are refused */
export type Command = { op: 'hello'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; token?: string | null; seq?: number | null; status?: boolean | null } | { op: 'publish'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; /** Any JSON */ data: unknown; /** Published once as long as the message is stored */ message_id?: string | null; /** Keep it as the last value of a channel without history */ retain?: boolean | null } | { op: 'join'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; /** Any JSON of at most 4 KiB */ state?: unknown } | { op: 'update'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; /** Any JSON of at most 4 KiB */ state: unknown } | { op: 'leave'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName } | { op: 'who'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; counts_only?: boolean | null; after?: string | null; limit?: number | null } | { op: 'history'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; after?: number | null; before?: number | null; limit?: number | null } | { op: 'follow'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; user: UserId } | { op: 'unfollow'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; user: UserId } | { op: 'following'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; after?: string | null; limit?: number | null } | { op: 'followers'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; after?: string | null; limit?: number | null } | { op: 'status'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; users: UserId[] } | { op: 'visibility'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; value: 'everyone' | 'followers_i_follow' | 'nobody' } | { op: 'ack'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; seq: number } | { op: 'bye'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null } | { op: 'ping'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null } | { op: 'subscribe'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; pattern?: null; presence?: boolean | null; /** Recover the messages after this position */ since?: { epoch: number; offset: number } | null; /** So many of the last messages first */ last?: number | null } | { op: 'subscribe'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; pattern: string; channel?: null; /** Presence is watched per channel */ presence?: false | null; /** Recover the messages after this position */ since?: { epoch: number; offset: number } | null; /** So many of the last messages first */ last?: number | null } | { op: 'unsubscribe'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; channel: ChannelName; pattern?: null } | { op: 'unsubscribe'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; pattern: string; channel?: null } | { op: 'party.get'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId } | { op: 'party.invite'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { op: 'party.cancel_invite'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { op: 'party.accept'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id: number; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId } | { op: 'party.decline'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id: number; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; message?: PartyMessage } | { op: 'party.kick'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId; message?: PartyMessage } | { op: 'party.leave'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; message?: PartyMessage } | { op: 'party.promote'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { op: 'party.disband'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; message?: PartyMessage } | { op: 'party.set_data'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; /** At most 4 KiB */ data: Record<string, unknown> } | { op: 'party.go'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; /** For the matchmaker: any JSON of at most 4 KiB */ params?: unknown } | { op: 'party.cancel_go'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId } | { op: 'party.ready'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; go_id: number } | { op: 'party.block'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { op: 'party.unblock'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { op: 'party.say'; /** Repeated in the reply */ id?: number | string | null; /** The secret of the session; absent only in hello */ session?: string | null; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; /** Any JSON */ data: unknown };

/** The reply to a command */
export type Reply = { id?: number | string; ok: Record<string, unknown> };

/** What a long-poll asks for */
export type Poll = { /** The secret of a session; a new one if it is absent */ session?: string | null; /** The last event that the client has */ cursor?: number | null; /** 15000 if it is absent, at most 25000; 0 answers at once */ timeout_ms?: number | null; token?: string | null };

/** The events of a session and where they end */
export type PollAnswer = { session: string; cursor: number; events: Record<string, unknown>[]; more: boolean; gap?: boolean; reset?: boolean; superseded?: boolean; /** Not in an answer whose events are all messages of channels, and not while the store does not answer. */ party?: Record<string, unknown> | null };

/** One session on the answering node */
export type Session = { client: string; user?: string | null; name?: string | null; node: string; shard?: number; since?: number; transport?: 'websocket' | 'sse' | 'poll' | 'radar' | 'pusher' | null; online: boolean; why: string; heard_at?: number; expires_at?: number | null; token_expires_at?: number | null; channels?: string[]; patterns?: string[]; mailbox?: Record<string, unknown> };

/** One topic */
export type Topic = { topic: string; publisher: string | null; events: number; subscriptions: number; created_at?: number };

/** An event to publish */
export type NewEvent = { /** An event with the same id is stored once within a day */ id?: string | null; type: string; url?: string | null; /** Any JSON up to 64 KiB */ data?: unknown; /** Milliseconds since 1970, or RFC 3339; now if it is absent */ time?: number | string | null };

/** What became of the published events */
export type Published = { topic: string; first_seq: number; last_seq: number; accepted: number; duplicates: number };

/** A stored event with its number */
export type Event = { seq: number; id?: string; topic?: string; type: string; url?: string | null; time?: number; data?: unknown; /** The trace of the request that published it, if it had one */ traceparent?: string };

/** Events for a client that pulls */
export type Pulled = { events: Event[]; first_seq: number | null; last_seq: number | null; /** For the next `after` */ next_after: number };

/** A member that is absent or null stays as it is. A new subscription needs `topics`, and `callback` or `pull` */
export type SubscriptionWish = { topics?: TopicName[] | null; callback?: string | null; timeout_ms?: number | null; max_events?: number | null; max_bytes?: number | null; /** Bytes of events that may wait; beyond it the oldest become a gap. 0: no limit of its own, otherwise at least 65536 */ max_backlog_bytes?: number | (0 | null); format?: 'standard' | 'routemaster' | null; /** `whsec_` and 24 to 64 bytes in base64; the previous secret signs too for events.rotation_ms */ secret?: string | null; /** The user name of the routemaster format */ uuid?: string | null; /** Sent with every request. Names that the server sets itself are refused */ headers?: Record<string, string> | null; concurrency?: number | null; pull?: boolean | null };

/** The settings of a subscription */
export type SubscriptionSettings = { name: string; owner: string; topics: string[]; callback: string | null; pull: boolean; timeout_ms?: number; max_events?: number; max_bytes?: number; max_backlog_bytes?: number; /** pusher: the server's own, for a webhook of [[pusher.apps]] */ format?: 'standard' | 'routemaster' | 'pusher'; concurrency?: number; uuid?: string | null; headers?: Record<string, string>; former_secret_until?: number | null; created_at?: number };

/** The settings after the change; the secret only when it is new */
export type SubscriptionPut = SubscriptionSettings & { created: boolean; /** Generated just now; it is not shown again */ secret?: string };

/** Settings, queue and health of a subscription */
export type Subscription = SubscriptionSettings & { /** The seq of the last event */ seq: number; acknowledged: number; queued: number; /** How long the oldest event has waited; null: none waits */ oldest_ms?: number | null; /** `behind`: an event has waited for five minutes longer than its batch may take to fill, although no attempt fails; `why` says why */ health: 'healthy' | 'behind' | 'throttled' | 'failing' | 'disabled'; /** Of `behind`, `failing` and `disabled` */ why?: 'asked' | 'gone' | 'failing' | 'not pulled' | 'slow endpoint' | 'refuses everything' | null; failing_since?: number | null; failures?: number; retry_at?: number | null; /** The last attempt: when, why its batch was sent, the outcome */ last?: { at?: number; reason?: 'full' | 'bytes' | 'age' | 'recut' | 'retry' | 'probe'; outcome?: 'delivered' | 'partly' | 'gone' | 'too_large' | 'throttled' | 'refused' | 'failed' } | null; /** The last attempt that failed: when, and why in words. Stays after a recovery. */ last_error?: { at?: number; error?: string } | null; batches?: { number?: number; first_seq?: number; last_seq?: number; events?: number; reason?: string; attempts?: number; refusals?: number; accepted_at?: number }[]; /** Absent in lists */ dead_letters?: number };

/** An event that the endpoint refused repeatedly */
export type DeadLetter = { seq: number; id: string; topic: string; parked_at: number; reason: string; event: Record<string, unknown> };

/** A party, or null when there is none */
export type Party = { party_id?: number; version?: number; members?: { user?: string; name?: string | null; online?: boolean; since?: number }[]; pending?: { user?: string; by?: string; expires_at?: number }[]; state?: 'forming' | 'idle' | 'gathering' | 'queued'; go_id?: number; data?: Record<string, unknown> } | null;

/** A party command on behalf of a user */
export type PartyCommand = { cmd: 'get'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId } | { cmd: 'invite'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { cmd: 'cancel_invite'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { cmd: 'accept'; party_id: number; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId } | { cmd: 'decline'; party_id: number; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; message?: PartyMessage } | { cmd: 'kick'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId; message?: PartyMessage } | { cmd: 'leave'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; message?: PartyMessage } | { cmd: 'promote'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { cmd: 'disband'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; message?: PartyMessage } | { cmd: 'set_data'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; /** At most 4 KiB */ data: Record<string, unknown> } | { cmd: 'go'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; /** For the matchmaker: any JSON of at most 4 KiB */ params?: unknown } | { cmd: 'cancel_go'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId } | { cmd: 'ready'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; go_id: number } | { cmd: 'block'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId } | { cmd: 'unblock'; party_id?: number | null; /** Refused if the party has another version */ if_version?: number | null; rid?: RequestId; user: UserId };

/** An error in the form of older party servers */
export type FormError = { code: Code; error: string; party: Party; retry_after_ms?: number };

/** One attempt to deliver a batch to an endpoint */
export type Attempt = { /** Attempts of a subscription are numbered from 1; 0: a test */ number: number; /** When it began, in milliseconds since 1970 */ at: number; /** How long it took */ duration_ms: number; /** Scheme, host and path of the callback, without its query */ url: string; /** What it means for the batch */ outcome: 'delivered' | 'partly' | 'gone' | 'too_large' | 'throttled' | 'refused' | 'failed'; /** The status of the response; null: there was none */ status: number | null; /** Why it failed, in words: `connection refused`, `TLS: certificate expired`, `timeout after 20 s`, `redirect refused (302 Found)`, `500 Internal Server Error` */ error: string | null; /** The number of the batch */ batch: number; /** Which attempt of this batch it was, from 1 */ attempt: number; /** Why the batch was sent */ reason: 'full' | 'bytes' | 'age' | 'recut' | 'retry' | 'probe' | 'test'; /** Events in the batch */ events: number; /** The seq of its first event */ first_seq: number; /** The seq of its last event */ last_seq: number; /** Headers of the response: content-type, location, retry-after, server, via, www-authenticate, cf-ray, x-request-id */ headers: Record<string, string>; /** The first 2 KiB of the response */ body: string; /** The response was longer, or did not end */ body_truncated: boolean; /** What was sent */ request: { /** Its headers. `authorization` and the headers of the subscription are `(hidden)` */ headers: Record<string, string>; /** The format of the body */ format: 'standard' | 'routemaster' | 'pusher'; /** The size of the body */ bytes: number; /** The first 16 KiB of the body. Left out in a list, and when its events are no longer in the log */ body?: string } };

/** A stored message with its place */
export type HistoryMessage = { /** Counts by one within an epoch */ offset: number; /** When it was stored, in milliseconds since 1970 */ at: number; /** Given by the publisher */ message_id?: string; /** Any JSON */ data: unknown; /** Only if `data` is not text */ encoding?: 'base64'; /** Absent if it was published by a service */ from?: { user?: string; client?: string } };

/** Clients that are connected, by transport */
export type TransportCounts = { /** WebSockets */ websocket: number; /** Event streams */ sse: number; /** Long-polls that wait */ poll: number; /** Redis connections */ redis: number };

/** What an order about a user's sessions has done */
export type ReachedSessions = { /** Sessions that were concerned */ sessions: number; /** Sessions that could not be subscribed; only after subscribe */ failed?: number; /** Living nodes that did not answer within 2 seconds: send the request again */ missing_nodes: string[] };

/** The id of an API key, the part after `tvk_` */
export type KeyId = string;

/** An API key without the key itself, which is not stored */
export type ApiKey = { id: KeyId; /** What the key is for */ name: string; /** What it may do */ scopes: string[]; /** Milliseconds since 1970 */ created_at: number; /** It is refused from then on */ expires_at: number | null; /** About when it was used last; written at most once a minute */ last_used_at: number | null; /** When it was revoked */ revoked_at: number | null };
