// What a test can do with clients of Radar, in Node and in a page. `Client` is the constructor of the unmodified radar_client.
function radarActions (Client, Backoff) {
  // A client that lost its connection comes back soon.
  Backoff.durations = [100, 100, 100, 100, 100, 100]
  Backoff.fallback = 200
  Backoff.maxSplay = 50
  const clients = {}
  const WAIT = 20000

  function inTime (what, begin) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no answer: ${what}`)), WAIT)
      begin((value) => {
        clearTimeout(timer)
        resolve(JSON.parse(JSON.stringify(value ?? null)))
      })
    })
  }

  function connect ({ name, config }) {
    const client = new Client()
    const frames = []
    const states = []
    clients[name] = { client, frames, states }
    client.on('message:in', (message) => frames.push(JSON.parse(JSON.stringify(message))))
    client.on('enterState', (state) => states.push(state))
    return inTime('connect', (done) => client.configure(config).alloc('test', () => done(client.currentClientId())))
  }

  return {
    connect,
    // Calls an operation of a scope. With `answer` its callback must come.
    call ({ name, kind, scope, op, args = [], answer = true }) {
      const on = clients[name].client[kind](scope)
      if (!answer) {
        on[op](...args)
        return null
      }
      return inTime(`${kind} ${op}`, (done) => on[op](...args, done))
    },
    // The messages that the handlers of a scope get.
    listen ({ name, kind, scope }) {
      const got = (clients[name].got ??= [])
      clients[name].client[kind](scope).on((message) => got.push(JSON.parse(JSON.stringify(message))))
      return null
    },
    got: ({ name }) => clients[name].got ?? [],
    frames: ({ name }) => clients[name].frames,
    send ({ name, text }) {
      clients[name].client._socket.send(text)
      return null
    },
    id: ({ name }) => clients[name].client.currentClientId() ?? null,
    transport: ({ name }) => clients[name].client._socket?.transport.name ?? null,
    state: ({ name }) => clients[name].client.currentState(),
    // Says goodbye.
    close ({ name }) {
      clients[name].client.dealloc('test')
      return null
    },
    // The network is gone; the client does not know yet.
    cut ({ name }) {
      const transport = clients[name].client._socket.transport
      if (transport.ws?.terminate) transport.ws.terminate()
      else transport.ws.close()
      return null
    }
  }
}

if (typeof module !== 'undefined') module.exports = { radarActions }
