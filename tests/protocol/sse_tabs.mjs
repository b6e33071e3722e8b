// Opens tabs with one SSE stream each in one Chromium, over TLS; prints what they got as JSON.
import { createRequire } from 'node:module';

const [modules, url, key, count] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)('playwright-core');
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic'] });
const context = await browser.newContext({ ignoreHTTPSErrors: true });
const pages = [];
for (let number = 0; number < Number(count); number += 1) {
  const page = await context.newPage();
  await page.goto(`${url}/docs`);
  await page.evaluate((user) => {
    window.got = [];
    window.source = new EventSource(`/v1/stream?user=${user}&channel=game:tabs`);
    window.source.onmessage = ({ data }) => window.got.push(data);
    return new Promise((resolve) => (window.source.onopen = resolve));
  }, `tab${number}`);
  pages.push(page);
}
// With HTTP/1.1 a browser opens six connections, and this would wait.
const published = await pages[0].evaluate(async (bearer) => {
  const headers = { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' };
  const answer = await fetch('/v1/channels/game:tabs/messages', { method: 'POST', headers, body: JSON.stringify({ data: 'to all tabs' }) });
  return answer.status;
}, key);
const received = [];
for (const page of pages) {
  const deadline = Date.now() + 8000;
  let got = [];
  while (Date.now() < deadline && !got.some((data) => data.includes('to all tabs'))) {
    got = await page.evaluate(() => window.got);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  received.push(got.some((data) => data.includes('to all tabs')));
}
const protocols = await pages[0].evaluate(() => performance.getEntriesByType('navigation').map((entry) => entry.nextHopProtocol));
console.log(JSON.stringify({ published, received, protocols }));
await browser.close();
