// The server library `pusher` in Node: each action by its name.
'use strict'

// For encrypted channels.
const MASTER_KEY = Buffer.from('0123456789abcdef0123456789abcdef').toString('base64')

module.exports = function (PusherServer) {
  const servers = new Map()
  const actions = {
    server ({ app, port }) {
      servers.set(app.id, new PusherServer({ appId: app.id, key: app.key, secret: app.secret, host: '127.0.0.1', port, useTLS: false, encryptionMasterKeyBase64: MASTER_KEY }))
    },

    async call ({ app, method, args }) {
      const result = await servers.get(app)[method](...args)
      return typeof result?.json === 'function' ? { status: result.status, body: await result.json() } : result
    },

    async refused ({ app, method, args }) {
      try {
        await servers.get(app)[method](...args)
      } catch (error) {
        return { status: error.status, body: error.body, message: error.message }
      }
      throw new Error('it was not refused')
    },

    webhook ({ app, headers, body }) {
      const webhook = servers.get(app).webhook({ headers, rawBody: body })
      return { valid: webhook.isValid(), events: webhook.isValid() ? webhook.getEvents() : null }
    },
  }
  return { actions, sign: (app, method, args) => servers.get(app)[method](...args) }
}
