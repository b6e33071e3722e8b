// Presence as people write it: a counter of connections per user in a Redis hash, and pub/sub to the other servers.
// `node homemade_server.cjs PORT REDIS_PORT MODULES`
const [port, redisPort, modules] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
const { Redis } = load('ioredis')
const connect = () => new Redis(Number(redisPort), '127.0.0.1').on('error', () => {})
const [redis, subscriber] = [connect(), connect()]
const http = require('node:http').createServer((_, response) => response.end('ok'))
const sockets = new (load('ws').WebSocketServer)({ server: http })
const watchers = new Map()

subscriber.psubscribe('room:*')
subscriber.on('pmessage', (_, room, text) => watchers.get(room)?.forEach((socket) => socket.send(text)))

sockets.on('connection', async (socket, request) => {
  const asked = new URL(request.url, 'http://host').searchParams
  const [user, room] = [asked.get('user'), `room:${asked.get('room')}`]
  socket.isAlive = true
  socket.on('pong', () => (socket.isAlive = true)).on('error', () => {})
  if (asked.get('watch')) {
    watchers.set(room, (watchers.get(room) ?? new Set()).add(socket))
    socket.on('close', () => watchers.get(room).delete(socket))
    return socket.send(JSON.stringify({ snapshot: await redis.hkeys(room) }))
  }
  socket.on('close', async () => {
    if ((await redis.hincrby(room, user, -1)) > 0) return
    await redis.hdel(room, user)
    redis.publish(room, JSON.stringify({ offline: user }))
  })
  if ((await redis.hincrby(room, user, 1)) === 1) redis.publish(room, JSON.stringify({ online: user }))
})

// From the documentation of `ws`: how to detect broken connections.
setInterval(() => sockets.clients.forEach((socket) => {
  if (!socket.isAlive) return socket.terminate()
  socket.isAlive = false
  socket.ping()
}), 3000)
process.on('unhandledRejection', (error) => console.error(String(error)))
http.listen(Number(port), '127.0.0.1')
