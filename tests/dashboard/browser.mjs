// Headless Chromium; reads one JSON action per line and prints one result per line. Console errors are collected.
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)('playwright-core');
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--force-color-profile=srgb', '--hide-scrollbars',
  ],
});
const WAIT = 8000;
let context;
let had;
let page;
let complaints = [];

const acts = {
  // A new tab; `fresh`: in a new browser context.
  async open({ url, width = 1280, height = 900, scheme = 'light', scale = 1, locale = 'en-GB', headers, fresh = false }) {
    const wanted = JSON.stringify([width, height, scheme, scale, locale, headers]);
    await page?.close();
    if (fresh || wanted !== had) {
      await context?.close();
      context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: scale, locale, extraHTTPHeaders: headers });
      context.setDefaultTimeout(WAIT);
      had = wanted;
    }
    page = await context.newPage();
    complaints = [];
    // Reports policy violations as console errors.
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', (fault) => complaints.push(String(fault)));
    page.on('dialog', (dialog) => {
      complaints.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    await page.goto(url);
  },
  goto: ({ hash }) => page.evaluate((to) => void (location.hash = to), hash),
  reload: () => page.reload(),
  eval: ({ js }) => page.evaluate(js),
  // Polled from here: the content security policy forbids eval in the page.
  async wait({ js, ms = WAIT }) {
    const end = Date.now() + ms;
    // An element that is not there yet is waited for like a fact that is not true yet.
    const isTrue = () => page.evaluate(js).catch((fault) => (/TypeError/.test(fault.message) ? false : Promise.reject(fault)));
    while (!(await isTrue())) {
      if (Date.now() > end) throw new Error(`not true after ${ms} ms: ${js}`);
      await new Promise((after) => setTimeout(after, 40));
    }
  },
  // Text in the page, or in a part of it.
  text: ({ at = 'body' }) => page.innerText(at),
  sees: ({ text, at = 'main' }) => page.locator(at).getByText(text, { exact: false }).locator('visible=true').first().waitFor(),
  click: ({ at }) => page.click(at),
  fill: ({ at, text }) => page.fill(at, text),
  type: ({ text }) => page.keyboard.type(text),
  async press({ keys }) {
    for (const key of keys) await page.keyboard.press(key);
  },
  // Bytes on the heap after a collection.
  async heap() {
    const session = await context.newCDPSession(page);
    await session.send('HeapProfiler.collectGarbage');
    const { usedSize } = await session.send('Runtime.getHeapUsage');
    await session.detach();
    return usedSize;
  },
  hover: ({ at, x, y }) => page.hover(at, { position: { x, y } }),
  complaints: () => complaints.splice(0),
  // Leaves a server that is about to stop; discards errors so far.
  async leave() {
    await page.goto('about:blank');
    complaints = [];
  },
  shot: ({ path, whole = false }) => page.screenshot({ path, fullPage: whole, animations: 'disabled' }).then(() => null),
  resize: ({ width, height }) => page.setViewportSize({ width, height }),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const act = JSON.parse(line);
  try {
    console.log(JSON.stringify({ ok: (await acts[act.do](act)) ?? null }));
  } catch (fault) {
    const seen = await page?.innerText('body').catch(() => '');
    console.log(JSON.stringify({ fault: String(fault).slice(0, 1000), seen: seen?.slice(0, 1500), complaints }));
  }
}
await browser.close();
