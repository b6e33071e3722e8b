// A page with the client in headless Chromium on its own origin; executes commands from stdin.
import fs from 'node:fs';
import http from 'node:http';
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules, server] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)('playwright-core');
const site = http.createServer((request, response) => {
  response.setHeader('content-type', 'text/html');
  response.end(fs.readFileSync(new URL('../page/client.html', import.meta.url)));
});
await new Promise((listening) => site.listen(0, '127.0.0.1', listening));

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});
const context = await browser.newContext();
const address = `http://127.0.0.1:${site.address().port}/client.html?${new URLSearchParams({ server })}`;

function follow(page) {
  page.on('console', (message) => {
    const text = message.text();
    if (text.startsWith('client ')) console.log(text.slice(7));
    else console.error(text);
  });
  page.on('pageerror', (error) => console.error(error));
  return page;
}

const page = follow(await context.newPage());
await page.goto(address);
const acts = {
  reload: () => page.reload(),
  offline: () => context.setOffline(true),
  online: () => context.setOffline(false),
  publish: ({ data }) => page.evaluate((message) => void window.publish(message), data),
  async copy() {
    // A duplicated tab: the same URL with a copy of sessionStorage.
    const kept = await page.evaluate(() => JSON.stringify(sessionStorage));
    const other = follow(await context.newPage());
    await other.addInitScript((text) => {
      for (const [name, value] of Object.entries(JSON.parse(text))) sessionStorage.setItem(name, value);
    }, kept);
    await other.goto(address);
  },
};
for await (const line of readline.createInterface({ input: process.stdin })) {
  const act = JSON.parse(line);
  await acts[act.do](act);
}
await browser.close();
site.close();
