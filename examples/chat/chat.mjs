// A chat in a terminal: prints the messages of a channel and publishes what you type. `node chat.mjs NAME`
import { createInterface } from 'node:readline';
import { Tavern } from '../../clients/js/src/index.js';

const tavern = new Tavern(process.env.TAVERN_URL ?? 'http://127.0.0.1:7400', { user: process.argv[2] ?? 'ann' });
await tavern.connect();
const room = tavern.channel('room#chat');
await room.subscribe(({ from, data }) => console.log(`${from.user}: ${data}`));
console.log('connected');
for await (const line of createInterface({ input: process.stdin })) await room.publish(line);
await tavern.close();
