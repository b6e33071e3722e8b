// Node's `ws`: one WebSocket subscribes and publishes.
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules, url, channel] = process.argv.slice(2);
const WebSocket = createRequire(`${modules}/`)('ws');
const socket = new WebSocket(url);
const print = (message) => console.log(JSON.stringify(message));

socket.on('error', (error) => { console.error(error); process.exit(1); });
socket.on('message', (data) => {
  const frame = JSON.parse(data);
  if (frame.ok && frame.id === undefined) socket.send(JSON.stringify({ id: 1, op: 'subscribe', channel }));
  else if (frame.id === 1 && frame.ok) print({ ready: true });
  else if (frame.event === 'message') print({ received: frame.data });
  else if (frame.error) { console.error(frame); process.exit(1); }
});
for await (const line of readline.createInterface({ input: process.stdin })) {
  socket.send(JSON.stringify({ op: 'publish', channel, data: JSON.parse(line) }));
}
