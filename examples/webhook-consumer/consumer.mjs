// An endpoint for webhooks: checks the signature, skips repetitions, prints the events. `WEBHOOK_SECRET=whsec_… node consumer.mjs PORT`
import { createServer } from 'node:http';
import { verifyWebhook } from '../../clients/js/backend.js';

let lastSeq = 0; // a real service keeps this in its database, with what it did

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  // The bytes as they arrived are what is signed.
  const body = Buffer.concat(parts).toString();
  if (!(await verifyWebhook(process.env.WEBHOOK_SECRET, request.headers, body))) return response.writeHead(401).end();
  for (const { seq, type, data } of JSON.parse(body).events) {
    if (seq <= lastSeq) continue; // the same event may come twice
    console.log(type, JSON.stringify(data));
    lastSeq = seq;
  }
  response.writeHead(204).end();
});
server.listen(Number(process.argv[2] ?? 8080), '127.0.0.1', () => console.log('listening'));
