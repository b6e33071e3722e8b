// ioredis: one connection listens, another says, as its manual asks for. Protocol 2 is its default, 3 its option.
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules, port, channel, protocol] = process.argv.slice(2);
const { Redis } = createRequire(`${modules}/`)('ioredis');
const options = { port: Number(port), host: '127.0.0.1' };
if (protocol !== 'default') options.protocol = Number(protocol);

const listener = new Redis(options);
const speaker = new Redis(options);
const say = (word) => console.log(JSON.stringify(word));

listener.on('message', (from, text) => {
  if (from === channel) say({ heard: JSON.parse(text) });
});
await listener.subscribe(channel);
await speaker.ping();
say({ ready: true });
for await (const line of readline.createInterface({ input: process.stdin })) await speaker.publish(channel, line);
