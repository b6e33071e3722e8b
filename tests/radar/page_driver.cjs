// Runs radarActions in a page in Chromium, with the bundle that radar_client publishes for pages. node page_driver.cjs MODULES
'use strict'

const [modules] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
const { chromium } = load('playwright-core')
const path = require('node:path')

async function main () {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync']
  })
  let page
  const complaints = []
  const acts = {
    // A page of this origin, with the client in it. It comes from the server: Chromium lets no page without an address open a
    // socket to this machine.
    async open ({ url }) {
      page = await (await browser.newContext()).newPage()
      page.on('pageerror', (fault) => complaints.push(String(fault)))
      const file = (name) => path.join(modules, 'node_modules', name)
      const engine = file('engine.io-client/dist/engine.io.esm.min.js')
      await page.route('**/engine.io.js', (route) => route.fulfill({ contentType: 'text/javascript', path: engine }))
      await page.goto(`${url}/livez`)
      await page.addScriptTag({ path: file('minilog/dist/minilog.js') })
      await page.addScriptTag({ type: 'module', content: "import * as eio from '/engine.io.js'; globalThis.eio = eio" })
      await page.waitForFunction(() => globalThis.eio)
      await page.addScriptTag({ path: file('radar_client/dist/radar_client.js') })
      await page.addScriptTag({ path: path.join(__dirname, 'radar_actions.cjs') })
      await page.evaluate(() => {
        globalThis.actions = globalThis.radarActions(globalThis.RadarClient.constructor, globalThis.RadarClient.Backoff)
      })
    },
    complaints: () => complaints.splice(0)
  }
  require('node:readline').createInterface({ input: process.stdin }).on('line', async (line) => {
    const action = JSON.parse(line)
    try {
      const act = acts[action.do]
      const result = act ? await act(action) : await page.evaluate((one) => globalThis.actions[one.do](one), action)
      console.log(JSON.stringify({ ok: result ?? null }))
    } catch (fault) {
      console.log(JSON.stringify({ fault: String(fault), complaints }))
    }
  }).on('close', async () => {
    await browser.close()
    process.exit(0)
  })
}

main()
