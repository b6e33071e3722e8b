// The original Radar server on Redis: `node radar_server.cjs PORT REDIS_PORT MODULES GRACE_SECONDS`
const [port, redisPort, modules, graceSeconds] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
load('minilog').disable()
const Type = load('radar/src/core/type.js')
const Radar = load('radar/src/server/server.js')

Type.add([{ name: 'presence', type: 'Presence', expression: /^presence:/, policy: { userExpirySeconds: Number(graceSeconds) } }])
const server = require('node:http').createServer((_, response) => response.end('ok'))
const engineio = { module: load('engine.io'), conf: { pingInterval: 3000, pingTimeout: 3000 } }
const sentry = { expiryOffset: 4000, refreshInterval: 1000, checkInterval: 1000 }
const persistence = { redis_host: '127.0.0.1', redis_port: Number(redisPort) }
new Radar().attach(server, { persistence, port: Number(port), sentry, engineio }).then(() => server.listen(Number(port), '127.0.0.1'))
