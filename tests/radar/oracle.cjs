// The original Radar server on Redis: node oracle.cjs MODULES PORT REDIS_PORT GRACE_SECONDS. Messages in scopes that begin with `kept`
// are cached, as an app would configure it.
'use strict'

const [modules, port, redisPort, graceSeconds] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
const http = require('node:http')
load('minilog').disable()
const Type = load('radar/src/core/type.js')
const Radar = load('radar/src/server/server.js')

Type.add([
  { name: 'kept', type: 'MessageList', expression: /^message:\/[^/]+\/kept/, policy: { cache: true, maxAgeSeconds: 300 } },
  { name: 'presence', type: 'Presence', expression: /^presence:/, policy: { userExpirySeconds: Number(graceSeconds) } }
])
const server = http.createServer((request, response) => response.end('ok'))
const radar = new Radar()
const sentry = { expiryOffset: 2000, refreshInterval: 500, checkInterval: 500 }
const persistence = { redis_host: '127.0.0.1', redis_port: Number(redisPort) }
radar.attach(server, { persistence, port: Number(port), sentry }).then(() => server.listen(Number(port), '127.0.0.1'))
