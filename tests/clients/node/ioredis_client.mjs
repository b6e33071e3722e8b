// ioredis: one connection subscribes, another publishes, as its documentation requires. RESP2 is its default, RESP3 an option.
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules, port, channel, protocol] = process.argv.slice(2);
const { Redis } = createRequire(`${modules}/`)('ioredis');
const options = { port: Number(port), host: '127.0.0.1' };
if (protocol !== 'default') options.protocol = Number(protocol);

const subscriber = new Redis(options);
const publisher = new Redis(options);
const print = (message) => console.log(JSON.stringify(message));

subscriber.on('message', (from, text) => {
  if (from === channel) print({ received: JSON.parse(text) });
});
await subscriber.subscribe(channel);
await publisher.ping();
print({ ready: true });
for await (const line of readline.createInterface({ input: process.stdin })) await publisher.publish(channel, line);
