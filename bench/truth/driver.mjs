// The clients of one system, in one process: `node driver.mjs SYSTEM MODULES TAVERN_CLIENT`. Reads one JSON object per line: {"open": id,
// host, port, user, room, watch} or {"close": id}. Prints one per line, with the time of the monotonic clock: {"id", "what": "up" |
// "down" | "snapshot" | "online" | "offline", "user" | "users"}. Each system is driven by its own client library.
import { createHmac } from 'node:crypto'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const [system, modules, tavernJs] = process.argv.slice(2)
const load = createRequire(`${modules}/`)

async function tavern({ host, port, user, room, watch }, tell) {
  const { Tavern } = await import(pathToFileURL(tavernJs))
  const client = new Tavern(`http://${host}:${port}`, { user, WebSocket: load('ws'), transports: ['websocket'], connectTimeoutMs: 3000 })
  let presence
  for (const event of ['open', 'resumed', 'reset']) client.on(event, () => {
    tell.up()
    // A resumed session goes on with what it shows.
    if (presence) tell.snapshot([...presence.users.keys()])
  })
  for (const event of ['reconnecting', 'closed']) client.on(event, tell.down)
  await client.connect()
  const channel = client.channel(`room#${room}`)
  if (!watch) {
    // While the store cannot be reached, the server says when to try again.
    const join = () => channel.join({}).catch((error) => error.code === 'unavailable' && setTimeout(join, error.retryAfterMs ?? 250))
    join()
  }
  if (watch) {
    let shown = new Set()
    presence = await channel.presence()
    const snapshot = () => tell.snapshot([...(shown = new Set(presence.users.keys()))])
    presence.on('change', ({ event, user: who }) => {
      if (event === 'snapshot') return snapshot()
      if (event === 'user_online') tell.online(who)
      else if (event === 'user_offline') tell.offline(who)
      else if (event === 'presence') {
        // Several changes together.
        for (const one of presence.users.keys()) if (!shown.has(one)) tell.online(one)
        for (const one of shown) if (!presence.users.has(one)) tell.offline(one)
      }
      shown = new Set(presence.users.keys())
    })
    snapshot()
  }
  return () => client.close()
}

function radar({ host, port, user, room, watch }, tell) {
  load('minilog').disable()
  const { constructor: Client, Backoff } = load('radar_client')
  Backoff.durations = [500, 500, 1000, 1000, 2000, 2000]
  Backoff.fallback = 2000
  Backoff.maxSplay = 500
  const client = new Client()
  // First: the names of scopes begin with the account.
  client.configure({ host, port, secure: false, accountName: 'truth', userId: user, userType: 2, upgrade: false, transports: ['websocket'] })
  const scope = () => client.presence(room)
  client.on('disconnected', tell.down)
  client.on('ready', () => {
    tell.up()
    if (watch) scope().sync({ version: 2 }, ({ value }) => tell.snapshot(Object.keys(value)))
  })
  if (watch) scope().on(({ op, value }) => (op === 'online' || op === 'offline') && Object.keys(value).forEach(tell[op]))
  client.alloc('truth', () => watch || scope().set('online'))
  return () => scope().set('offline', () => client.dealloc('truth'))
}

function socketio({ host, port, user, room, watch }, tell) {
  const socket = load('socket.io-client').io(`http://${host}:${port}`, {
    transports: ['websocket'], forceNew: true, reconnectionDelay: 500, reconnectionDelayMax: 2000, timeout: 3000, auth: { user, room, watch }
  })
  socket.on('connect', tell.up).on('disconnect', tell.down)
  for (const event of ['snapshot', 'online', 'offline']) socket.on(event, tell[event])
  return () => socket.disconnect()
}

// What people write: a WebSocket that is opened again, and taken for dead when it is silent.
function homemade({ host, port, user, room, watch }, tell) {
  const WebSocket = load('ws')
  let socket, silence, closed
  const connect = () => {
    socket = new WebSocket(`ws://${host}:${port}/?user=${user}&room=${room}&watch=${watch ? 1 : ''}`, { handshakeTimeout: 3000 })
    const alive = () => {
      clearTimeout(silence)
      silence = setTimeout(() => socket.terminate(), 7000)
    }
    socket.on('open', () => { tell.up(); alive() }).on('ping', alive).on('error', () => {})
    socket.on('message', (text) => Object.entries(JSON.parse(text)).forEach(([what, about]) => tell[what](about)))
    socket.on('close', () => { tell.down(); clearTimeout(silence); closed || setTimeout(connect, 500) })
  }
  connect()
  return () => { closed = true; socket.close() }
}

function pusher({ host, port, user, room, watch }, tell) {
  const Pusher = load('pusher-js')
  const client = new Pusher('app-key', {
    wsHost: host, wsPort: port, forceTLS: false, enabledTransports: ['ws'], cluster: '', disableStats: true, activityTimeout: 3000, pongTimeout: 3000,
    channelAuthorization: {
      customHandler({ socketId, channelName }, done) {
        const channel_data = JSON.stringify({ user_id: user, user_info: {} })
        const signed = createHmac('sha256', 'app-secret').update(`${socketId}:${channelName}:${channel_data}`).digest('hex')
        done(null, { auth: `app-key:${signed}`, channel_data })
      }
    }
  })
  client.connection.bind('state_change', ({ current }) => (current === 'connected' ? tell.up() : tell.down()))
  const channel = client.subscribe(`presence-${room}`)
  if (watch) {
    channel.bind('pusher:subscription_succeeded', (members) => tell.snapshot(Object.keys(members.members)))
    channel.bind('pusher:member_added', ({ id }) => tell.online(id))
    channel.bind('pusher:member_removed', ({ id }) => tell.offline(id))
  }
  return () => client.disconnect()
}

const open = { tavern, radar, socketio, homemade, pusher }[system]
const closers = new Map()
const now = () => Number(process.hrtime.bigint()) / 1e9

function tellOf(id) {
  const say = (what, more) => process.stdout.write(`${JSON.stringify({ at: now(), id, what, ...more })}\n`)
  let isUp = false
  const turn = (to) => () => {
    if (isUp !== to) say((isUp = to) ? 'up' : 'down')
  }
  return {
    up: turn(true),
    down: turn(false),
    snapshot: (users) => say('snapshot', { users }),
    online: (user) => say('online', { user }),
    offline: (user) => say('offline', { user })
  }
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const asked = JSON.parse(line)
  if (asked.open) {
    closers.set(asked.open, Promise.resolve(open(asked, tellOf(asked.open))).catch((error) => console.error(asked.open, String(error))))
  } else {
    closers.get(asked.close)?.then((close) => close?.())
    closers.delete(asked.close)
  }
}).on('close', () => process.exit(0))
process.on('unhandledRejection', (error) => console.error(String(error)))
