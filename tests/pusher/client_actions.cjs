// What one pusher-js client does, in Node and in a page: each action by its name. `sign` asks the server library of the app.
'use strict'

globalThis.pusherActions = function ({ PusherClient, loadEcho, sign }) {
  const clients = new Map()

  // What a listener got, without what belongs to the library.
  function note (client, event, data, channel) {
    client.seen.push({ event, data: data ?? null, ...(channel && { channel }) })
  }

  return {
    // The user of presence channels is in `user`, and of each channel in `users`; the one who signs in is in `account`.
    connect ({ name, app, port, user, users = {}, account, options = {} }) {
      const client = {
        seen: [], user, users, account,
        pusher: new PusherClient(app.key, {
          cluster: 'none', wsHost: '127.0.0.1', wsPort: port, forceTLS: false, enabledTransports: ['ws'], disableStats: true,
          channelAuthorization: { customHandler: async ({ socketId, channelName }, done) => {
            if (client.forged) return done(null, { auth: `${app.key}:${'0'.repeat(64)}`, channel_data: '{"user_id":"x"}' })
            const data = channelName.startsWith('presence-') ? client.users[channelName] ?? client.user : undefined
            done(null, await sign(app.id, 'authorizeChannel', [socketId, channelName, data]))
          } },
          userAuthentication: { customHandler: async ({ socketId }, done) => done(null, await sign(app.id, 'authenticateUser', [socketId, client.account])) },
          ...options,
        }),
      }
      clients.set(name, client)
      client.pusher.connection.bind('error', (error) => note(client, 'error', error.data ?? error.error?.data ?? error.type))
      client.pusher.connection.bind('state_change', ({ current }) => note(client, `state:${current}`, null))
      client.pusher.user.bind_global((event, data) => note(client, `user:${event}`, data))
      client.pusher.user.watchlist.bind('online', (data) => note(client, 'watchlist:online', data))
      client.pusher.user.watchlist.bind('offline', (data) => note(client, 'watchlist:offline', data))
    },

    forge ({ name, on }) { clients.get(name).forged = on },

    // Laravel Echo on top of the same client: `kind` is channel, private, join or encryptedPrivate.
    async echo ({ name, kind, channel, events = [], whispers = [] }) {
      const client = clients.get(name)
      const Echo = await loadEcho()
      client.echo ??= new Echo({ broadcaster: 'pusher', client: client.pusher })
      const listening = client.echo[kind](channel)
      listening.subscribed(() => note(client, 'subscribed', null, channel))
      for (const event of events) listening.listen(event, (data) => note(client, event, data, channel))
      for (const whisper of whispers) listening.listenForWhisper(whisper, (data) => note(client, `whisper ${whisper}`, data, channel))
      if (kind === 'join') {
        listening.here((users) => note(client, 'here', users, channel))
          .joining((user) => note(client, 'joining', user, channel))
          .leaving((user) => note(client, 'leaving', user, channel))
      }
    },

    // Echo makes the client itself, from settings as a Laravel project has them.
    async echoOf ({ name, settings }) {
      const Echo = await loadEcho()
      const echo = new Echo({ ...settings, Pusher: PusherClient })
      clients.set(name, { seen: [], echo, pusher: echo.connector.pusher })
    },

    whisper ({ name, kind, channel, event, data }) { clients.get(name).echo[kind](channel).whisper(event, data) },

    leave ({ name, channel }) { clients.get(name).echo.leave(channel) },

    subscribe ({ name, channel }) {
      const client = clients.get(name)
      client.pusher.subscribe(channel).unbind().bind_global((event, data) => {
        const members = event === 'pusher:subscription_succeeded' && channel.startsWith('presence-')
        note(client, event, members ? listed(data) : data, channel)
      })
    },

    // Who sends an event, which a listener to all events is not told.
    senders ({ name, channel, event }) {
      const client = clients.get(name)
      client.pusher.channel(channel).bind(event, (_, sender) => note(client, `sender of ${event}`, sender, channel))
    },

    unsubscribe ({ name, channel }) { clients.get(name).pusher.unsubscribe(channel) },

    trigger ({ name, channel, event, data }) { return clients.get(name).pusher.channel(channel).trigger(event, data) },

    signin ({ name }) { clients.get(name).pusher.signin() },

    send ({ name, frame }) { clients.get(name).pusher.connection.send(frame) },

    seen ({ name }) { return clients.get(name).seen },

    forget ({ name }) { clients.get(name).seen = [] },

    members ({ name, channel }) { return listed(clients.get(name).pusher.channel(channel).members) },

    count ({ name, channel }) { return clients.get(name).pusher.channel(channel).subscriptionCount ?? null },

    state ({ name }) {
      const { state, socket_id: id } = clients.get(name).pusher.connection
      return { state, id: id ?? null }
    },

    disconnect ({ name }) { clients.get(name).pusher.disconnect() },

    // As if the network was gone: the socket closes without a goodbye of the library.
    cut ({ name }) { clients.get(name).pusher.connection.connection.transport.socket._driver?.io?.destroy?.() ?? clients.get(name).pusher.connection.connection.close() },
  }

  function listed (members) {
    const users = {}
    members.each((member) => { users[member.id] = member.info ?? null })
    return { users, count: members.count, me: members.me?.id ?? null }
  }
}
