// A page in headless Chromium on its own origin that opens a WebSocket or an EventSource.
import fs from 'node:fs';
import http from 'node:http';
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules, server, channel, kind] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)('playwright-core');
const page_file = new URL('../page/page.html', import.meta.url);
const print = (message) => console.log(JSON.stringify(message));

const site = http.createServer((request, response) => {
  response.setHeader('content-type', 'text/html');
  response.end(fs.readFileSync(page_file));
});
await new Promise((listening) => site.listen(0, '127.0.0.1', listening));

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});
const page = await browser.newPage();
page.on('console', (message) => {
  const text = message.text();
  if (text.startsWith('client ')) print(JSON.parse(text.slice(7)));
  else console.error(text);
});
page.on('pageerror', (error) => console.error(error));
const query = new URLSearchParams({ kind, server, channel });
await page.goto(`http://127.0.0.1:${site.address().port}/page.html?${query}`);
for await (const line of readline.createInterface({ input: process.stdin })) {
  await page.evaluate((data) => window.publish(data), JSON.parse(line));
}
await browser.close();
site.close();
