// Runs pusher-js and Laravel Echo in a page in Chromium, from the files that they publish for pages, and the server library in Node.
// node page_driver.cjs MODULES
'use strict'

const [modules] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
const { chromium } = load('playwright-core')
const path = require('node:path')
const server = require('./server_actions.cjs')(load('pusher'))

async function main () {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync']
  })
  let page
  const complaints = []
  const acts = {
    ...server.actions,
    // A page of this origin, with the libraries in it. Chromium lets no page without an address open a socket to this machine.
    async open ({ url }) {
      page = await (await browser.newContext()).newPage()
      page.on('pageerror', (fault) => complaints.push(String(fault)))
      await page.exposeFunction('sign', server.sign)
      await page.goto(url)
      const file = (name) => path.join(modules, 'node_modules', name)
      for (const script of [file('pusher-js/dist/web/pusher-with-encryption.js'), file('laravel-echo/dist/echo.iife.js'), path.join(__dirname, 'client_actions.cjs')]) {
        await page.addScriptTag({ path: script })
      }
      await page.evaluate(() => {
        const { Pusher, Echo, sign } = globalThis
        globalThis.actions = globalThis.pusherActions({ PusherClient: Pusher, loadEcho: async () => Echo.default ?? Echo, sign })
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
