// The churn of `tavern-bench presence` on Radar with its own client: each connection goes online in every room, then offline in
// every room, repeatedly, with DEPTH requests in flight; one watcher. A change counts when it is acknowledged.
// Usage: node churn.js PORT CONNECTIONS DEPTH ROOMS SECONDS, with NODE_PATH to its modules.
// Prints "warm" when the measurement starts, then one line of JSON.
'use strict'

require('minilog').disable()
const Client = require('radar_client').constructor

const [port, connections, depth, rooms, seconds] = process.argv.slice(2).map(Number)
const WARMUP_MS = 1000
let changes = 0
let events = 0

function connect (userId) {
  const client = new Client()
  const configuration = { host: '127.0.0.1', port, secure: false, accountName: 'bench', userId, userType: 0, upgrade: false, transports: ['websocket'] }
  return new Promise(resolve => client.configure(configuration).alloc('churn', () => resolve(client)))
}

function walk (client) {
  let step = 0
  function next () {
    const room = step % rooms
    const value = step < rooms ? 'online' : 'offline'
    step = (step + 1) % (2 * rooms)
    client.presence(`room-${room}`).set(value, () => {
      changes++
      next()
    })
  }
  for (let begun = 0; begun < depth; begun++) next()
}

function later (ms) {
  return new Promise(resolve => setTimeout(resolve, ms))
}

async function main () {
  const watcher = await connect('watcher')
  for (let room = 0; room < rooms; room++) {
    await new Promise(resolve => watcher.presence(`room-${room}`).on(() => events++).subscribe(resolve))
  }
  for (let index = 0; index < connections; index++) walk(await connect(`walker-${index}`))
  await later(WARMUP_MS)
  const [from, eventsBefore, begun] = [changes, events, process.hrtime.bigint()]
  console.log('warm')
  await later(seconds * 1000)
  const took = Number(process.hrtime.bigint() - begun) / 1e9
  console.log(JSON.stringify({ changes: changes - from, events: events - eventsBefore, seconds: took }))
  process.exit(0)
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
