// Presence on Socket.IO with its Redis adapter, in the way of its documentation: a user is online while `fetchSockets` finds one of
// their sockets. `node socketio_server.cjs PORT REDIS_PORT MODULES`
const [port, redisPort, modules] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
const { Redis } = load('ioredis')
const redis = () => new Redis(Number(redisPort), '127.0.0.1').on('error', () => {})
const http = require('node:http').createServer((_, response) => response.end('ok'))
const io = new (load('socket.io').Server)(http, {
  adapter: load('@socket.io/redis-adapter').createAdapter(redis(), redis()), pingInterval: 3000, pingTimeout: 3000
})
const users = async (room) => new Set((await io.in(room).fetchSockets()).map((socket) => socket.data.user))

io.on('connection', async (socket) => {
  const { user, room, watch } = socket.handshake.auth
  if (watch) {
    socket.join(`watchers of ${room}`)
    return socket.emit('snapshot', [...(await users(room))])
  }
  socket.data.user = user
  socket.on('disconnect', async () => (await users(room)).has(user) || io.to(`watchers of ${room}`).emit('offline', user))
  const before = await users(room)
  socket.join(room)
  if (!before.has(user)) io.to(`watchers of ${room}`).emit('online', user)
})
// A server that does not answer in time.
process.on('unhandledRejection', (error) => console.error(String(error)))
http.listen(Number(port), '127.0.0.1')
