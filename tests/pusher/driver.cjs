// Runs pusher-js and the server library `pusher` in Node: one JSON action per line, one result per line. node driver.cjs MODULES
'use strict'

const [modules] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
const server = require('./server_actions.cjs')(load('pusher'))
require('./client_actions.cjs')

// Its package says that it is a module, so its file for `require` does not load.
const loadEcho = async () => (await import(`${modules}/node_modules/laravel-echo/dist/echo.js`)).default
// What Echo looks for when it makes the client itself.
globalThis.Pusher = load('pusher-js')
const actions = { ...server.actions, ...globalThis.pusherActions({ PusherClient: globalThis.Pusher, loadEcho, sign: server.sign }) }

require('node:readline').createInterface({ input: process.stdin }).on('line', async (line) => {
  const action = JSON.parse(line)
  try {
    console.log(JSON.stringify({ ok: (await actions[action.do](action)) ?? null }))
  } catch (fault) {
    console.log(JSON.stringify({ fault: String(fault.stack) }))
  }
}).on('close', () => process.exit(0))
