// Headless Chromium with several users, each in their own context; reads one JSON action per line and prints one result per line.
// Console errors are collected, except those that a cut network must cause.
import readline from 'node:readline';
import { createRequire } from 'node:module';

const [modules] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)('playwright-core');
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--force-color-profile=srgb', '--hide-scrollbars', '--js-flags=--expose-gc',
  ],
});
const WAIT = 15_000;
const NETWORK = /net::ERR_|WebSocket connection to .* failed|Failed to load resource: .*50[234]/;
const contexts = new Map();
const pages = new Map();
let complaints = [];

function attend(who, page) {
  page.on('console', (message) => {
    const text = message.text();
    if (message.type() === 'error' && !NETWORK.test(text)) complaints.push(`${who}: ${text}`);
  });
  page.on('pageerror', (fault) => complaints.push(`${who}: ${fault}`));
  page.on('dialog', (dialog) => {
    complaints.push(`${who}: dialog ${dialog.message()}`);
    dialog.dismiss();
  });
  return page;
}

/** Uses the debugger, because the content security policy forbids eval in the page. */
async function ask(page, expression) {
  page.debug ??= await page.context().newCDPSession(page);
  const { result, exceptionDetails } = await page.debug.send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

const acts = {
  async open({ who, url, tab = who, width = 1280, height = 900, scheme = 'light', scale = 1, locale = 'en-GB', sockets = true }) {
    let context = contexts.get(who);
    if (!context) {
      context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: scale, locale });
      context.setDefaultTimeout(WAIT);
      // Reports policy violations as console errors.
      await context.addInitScript(() => {
        document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
      });
      // Each attempt fails at once, as behind a proxy that refuses upgrades.
      if (!sockets) await context.routeWebSocket(/./, (socket) => socket.close());
      contexts.set(who, context);
    }
    const page = attend(tab, await context.newPage());
    pages.set(tab, page);
    await page.goto(url);
  },
  async close({ tab }) {
    await pages.get(tab).close();
    pages.delete(tab);
  },
  async leave({ who }) {
    await contexts.get(who).close();
    contexts.delete(who);
  },
  async empty() {
    await Promise.all([...contexts.values()].map((context) => context.close()));
    contexts.clear();
    pages.clear();
  },
  goto: ({ tab, url }) => pages.get(tab).goto(url).then(() => null),
  reload: ({ tab }) => pages.get(tab).reload().then(() => null),
  network: ({ who, on }) => contexts.get(who).setOffline(!on),
  eval: ({ tab, js }) => ask(pages.get(tab), js),
  async wait({ tab, js, ms = WAIT }) {
    const end = Date.now() + ms;
    // Evaluation fails while a page is loading.
    while (!(await ask(pages.get(tab), js).catch(() => false))) {
      if (Date.now() > end) throw new Error(`not true after ${ms} ms: ${js}`);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  },
  sees: ({ tab, text, at, ms = WAIT }) => pages.get(tab).locator(at).getByText(text, { exact: false }).first().waitFor({ timeout: ms }),
  text: ({ tab, at }) => pages.get(tab).innerText(at),
  async opens({ tab, at, opened }) {
    const [page] = await Promise.all([pages.get(tab).context().waitForEvent('page'), pages.get(tab).click(at)]);
    pages.set(opened, attend(opened, page));
  },
  click: ({ tab, at }) => pages.get(tab).click(at),
  fill: ({ tab, at, text }) => pages.get(tab).fill(at, text),
  async press({ tab, keys }) {
    for (const key of keys) await pages.get(tab).keyboard.press(key);
  },
  type: ({ tab, text }) => pages.get(tab).keyboard.type(text),
  async heap({ tab }) {
    const session = await pages.get(tab).context().newCDPSession(pages.get(tab));
    await session.send('HeapProfiler.enable');
    for (let round = 0; round < 3; round++) await session.send('HeapProfiler.collectGarbage');
    const { usedSize } = await session.send('Runtime.getHeapUsage');
    const { nodes } = await session.send('Memory.getDOMCounters');
    await session.detach();
    return { bytes: usedSize, nodes };
  },
  shot: ({ tab, path, whole = false }) => pages.get(tab).screenshot({ path, fullPage: whole, animations: 'disabled' }).then(() => null),
  complaints: () => complaints.splice(0),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const act = JSON.parse(line);
  try {
    console.log(JSON.stringify({ ok: (await acts[act.do](act)) ?? null }));
  } catch (fault) {
    const seen = await pages.get(act.tab)?.innerText('body').catch(() => '');
    console.log(JSON.stringify({ fault: String(fault).slice(0, 1000), seen: seen?.slice(0, 3000), complaints }));
  }
}
await browser.close();
