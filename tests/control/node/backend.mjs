// Uses the backend client: url, key, secret and webhook as JSON on stdin, what it saw as JSON on stdout.
import { Backend, signToken, verifyWebhook } from '../../../clients/js/backend.js';

let input = '';
for await (const piece of process.stdin) input += piece;
const { url, key, secret, user, webhook } = JSON.parse(input);
const backend = new Backend(url, { key });
const results = await backend.broadcast(['game#js', 'user#x'], { x: 1 });
const { receivers } = await backend.publish('game#js', 2);
const { sessions } = await backend.request('GET /v1/users/{user}/sessions', { params: { user } });
await backend.request('PUT /v1/subscriptions/{name}', { params: { name: 'typed' }, body: { topics: ['none'], pull: true } });
const { topics } = await backend.request('GET /v1/subscriptions/{name}', { params: { name: 'typed' } });
const present = (await backend.who('game#js', { limit: 1 })).users.map((one) => one.user);
await backend.sendToInbox(user, { gift: 1 });
const disconnected = await backend.disconnect(user, { reason: 'by node' });
const refused = await backend.unban(user).catch((error) => error.code);
const verified = [await verifyWebhook(webhook.secret, webhook.headers, webhook.body), await verifyWebhook(webhook.secret, webhook.headers, webhook.body + ' ')];
// What is no signature is refused, not an exception.
for (const one of ['v1,!', 'v1,AAAA', 'v2,x', '']) verified.push(await verifyWebhook(webhook.secret, { ...webhook.headers, 'webhook-signature': one }, webhook.body));
const pulled = [];
await backend.postEvents('orders', [{ type: 'a', data: 1 }, { type: 'b' }]);
for await (const { type, data } of backend.events('audit')) {
  pulled.push([type, data ?? null]);
  if (pulled.length === 2) await backend.postEvents('orders', { type: 'c' });
  if (pulled.length === 3) break;
}
console.log(JSON.stringify({ results, receivers, present, sessions: sessions.length, topics, disconnected, refused, verified, pulled, token: await signToken(secret, 'node', { allow: { '*': ['subscribe'] } }) }));
