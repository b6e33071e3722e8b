// For backends on Node: the server API with an API key, signing tokens, verifying webhooks. Uses Web Crypto and fetch only.
// Must hold: every request has a timeout; signatures are compared by Web Crypto.

const TIMEOUT_MS = 30_000;
const PULL_WAIT_MS = 10_000;
const PULL_LIMIT = 100;
/** How far the clocks of sender and receiver may differ. */
const WEBHOOK_TOLERANCE_S = 300;
const encoder = new TextEncoder();

/** A refusal of the server. */
export class BackendError extends Error {
  /** @param {string} code @param {string} message @param {number} [retryAfterMs] */
  constructor(code, message, retryAfterMs) {
    super(message);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The server API with an API key. */
export class Backend {
  #url;
  #key;

  /** @param {string} url @param {{key: string}} options */
  constructor(url, { key }) {
    this.#url = url.replace(/\/+$/, '');
    this.#key = key;
  }

  /** Publishes one message. @param {string} channel @param {unknown} data */
  publish(channel, data) {
    return this.#call('POST', ['channels', channel, 'messages'], { data });
  }

  /** Publishes the same data to several channels; gives a result for each. @param {string[]} channels @param {unknown} data */
  async broadcast(channels, data) {
    return (await this.#call('POST', ['broadcast'], { channels, data })).results;
  }

  /** Publishes several messages; gives a result for each. @param {{channel: string, data: unknown}[]} messages */
  async publishMany(messages) {
    return (await this.#call('POST', ['publish'], { messages })).results;
  }

  /** Sends an inbox message to a user. @param {string} user @param {unknown} data */
  async sendToInbox(user, data) {
    await this.#call('POST', ['users', user, 'messages'], { data });
  }

  /** A page of who is present in a channel. @param {string} channel @param {{after?: string, limit?: number}} [part] */
  who(channel, { after, limit } = {}) {
    return this.#call('GET', ['channels', channel, 'presence'], undefined, { after, limit });
  }

  /** Posts events to a topic: all of them are stored, or none. @param {string} topic @param {object | object[]} events */
  postEvents(topic, events) {
    return this.#call('POST', ['topics', topic, 'events'], events);
  }

  /**
   * The next events of a subscription. `after` acknowledges all events up to it.
   * @param {string} subscription @param {{after?: number, waitMs?: number, limit?: number}} [options]
   */
  pullEvents(subscription, { after, waitMs, limit } = {}) {
    return this.#call('GET', ['subscriptions', subscription, 'events'], undefined, { after, wait_ms: waitMs, limit }, waitMs);
  }

  /** Every event of a subscription, as they come. A batch is acknowledged when all its events were taken. @param {string} subscription */
  async *events(subscription) {
    let after = 0;
    for (;;) {
      const { events, next_after } = await this.pullEvents(subscription, { after, waitMs: PULL_WAIT_MS, limit: PULL_LIMIT });
      for (const event of events) {
        yield event;
      }
      after = next_after;
    }
  }

  /**
   * Any request of the server API, by its method and path: `request('GET /v1/users/{user}/sessions', { params: { user: 'ann' } })`.
   * @param {string} operation @param {{params?: Record<string, string | number>, query?: Record<string, any>, body?: unknown}} [given] @returns {Promise<any>}
   */
  request(operation, { params = {}, query, body } = {}) {
    const [method, path] = operation.split(' ');
    const named = path.replace('/v1/', '').split('/').map((part) => (part.startsWith('{') ? String(params[part.slice(1, -1)]) : part));
    return this.#call(method, named, body, query, query?.wait_ms);
  }

  /** How many users, sessions and connections there are. */
  stats() {
    return this.#call('GET', ['stats']);
  }

  /** The sessions of a user on all servers. @param {string} user */
  async sessions(user) {
    return (await this.#call('GET', ['users', user, 'sessions'])).sessions;
  }

  /**
   * Ends the sessions of a user.
   * @param {string} user
   * @param {{code?: number, reason?: string, except?: string[], allow_resume?: boolean}} [options]
   */
  disconnect(user, options = {}) {
    return this.#call('POST', ['users', user, 'disconnect'], options);
  }

  /** Lets a user open no session. @param {string} user @param {{reason?: string, until?: number}} [options] */
  ban(user, options = {}) {
    return this.#call('PUT', ['users', user, 'ban'], options);
  }

  /** Lifts the ban of a user. @param {string} user */
  async unban(user) {
    await this.#call('DELETE', ['users', user, 'ban']);
  }

  /** @param {string} method @param {string[]} path @param {unknown} [body] @param {Record<string, number | string | undefined>} [query] @param {number} [waitMs] how long the server may wait @returns {Promise<any>} */
  async #call(method, path, body, query = {}, waitMs = 0) {
    const pairs = Object.entries(query).filter(([, value]) => value !== undefined);
    const target = path.map(encodeURIComponent).join('/') + (pairs.length ? `?${new URLSearchParams(/** @type {any} */ (pairs))}` : '');
    const answer = await fetch(`${this.#url}/v1/${target}`, {
      method,
      headers: { authorization: `Bearer ${this.#key}`, 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS + waitMs),
    });
    const content = await answer.json().catch(() => ({}));
    if (answer.ok) return content;
    const { code = 'internal', message = `answered ${answer.status}; is this a Tavern server?`, retry_after_ms } = content.error ?? {};
    throw new BackendError(code, message, retry_after_ms);
  }
}

/**
 * A token for a user, signed with the server's secret (HS256).
 * @param {string} secret
 * @param {string} user
 * @param {{ttlS?: number, allow?: Record<string, string[]>, name?: string}} [options]
 */
export async function signToken(secret, user, { ttlS = 3600, allow, name } = {}) {
  const claims = { sub: user, exp: Math.floor(Date.now() / 1000) + ttlS, allow, name };
  const text = [{ alg: 'HS256', typ: 'JWT' }, claims].map((part) => base64Url(encoder.encode(JSON.stringify(part)))).join('.');
  const key = await hmacKey(encoder.encode(secret), 'sign');
  return `${text}.${base64Url(new Uint8Array(await crypto.subtle.sign('HMAC', key, encoder.encode(text))))}`;
}

/**
 * Whether a webhook is signed with this secret (`whsec_…`) and not too old.
 * @param {string} secret
 * @param {Record<string, string>} headers with names in lower case
 * @param {string} body as it was received
 */
export async function verifyWebhook(secret, headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': sent = '', 'webhook-signature': signatures = '' } = headers;
  if (!/^\d+$/.test(sent) || Math.abs(Date.now() / 1000 - Number(sent)) > WEBHOOK_TOLERANCE_S) return false;
  const key = await hmacKey(bytes(secret.replace(/^whsec_/, '')), 'verify');
  const content = encoder.encode(`${id}.${sent}.${body}`);
  for (const signature of signatures.split(' ')) {
    // Base64 of 32 bytes: what anybody may send is checked before it is decoded.
    if (!/^v1,[A-Za-z0-9+/]{43}=$/.test(signature)) continue;
    if (await crypto.subtle.verify('HMAC', key, bytes(signature.slice(3)), content)) return true;
  }
  return false;
}

/** @param {Uint8Array<ArrayBuffer>} secret @param {'sign' | 'verify'} use */
function hmacKey(secret, use) {
  return crypto.subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, [use]);
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** @param {Uint8Array} content */
function base64Url(content) {
  return btoa(String.fromCharCode(...content)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}
