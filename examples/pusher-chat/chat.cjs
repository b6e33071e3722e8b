#!/usr/bin/env node
// A chat with Pusher's libraries, unmodified, on a Tavern server: a page with pusher-js, and a server that signs for it, sends
// messages and gets webhooks. Start `tavern dev`, which prints the secret, then this:
//
//     npm install pusher pusher-js
//     TAVERN_URL=http://127.0.0.1:7400 PUSHER_SECRET=… node chat.cjs
//
// and open http://127.0.0.1:7420 in two windows.
'use strict'

const fs = require('node:fs')
const http = require('node:http')
const load = require('node:module').createRequire(`${process.env.MODULES ?? process.cwd()}/`)
const Pusher = load('pusher')

const tavern = new URL(process.env.TAVERN_URL ?? 'http://127.0.0.1:7400')
const app = { id: process.env.PUSHER_APP_ID ?? '1', key: process.env.PUSHER_KEY ?? 'dev', secret: process.env.PUSHER_SECRET }
const useTLS = tavern.protocol === 'https:'
const pusher = new Pusher({ appId: app.id, key: app.key, secret: app.secret, host: tavern.hostname, port: tavern.port || (useTLS ? 443 : 80), useTLS })
const CHANNEL = 'presence-chat'

const page = () => `<!doctype html>
<title>Chat</title>
<h1>Chat</h1>
<p>Here: <b id="here"></b></p>
<ul id="messages"></ul>
<form><input id="text" autofocus placeholder="Say something"></form>
<script src="/pusher.js"></script>
<script>
const name = new URLSearchParams(location.search).get('name') ?? 'guest-' + Math.floor(Math.random() * 1000)
const pusher = new Pusher(${JSON.stringify(app.key)}, {
  wsHost: ${JSON.stringify(tavern.hostname)}, wsPort: ${tavern.port || 80}, wssPort: ${tavern.port || 443}, forceTLS: ${useTLS},
  enabledTransports: ['ws', 'wss'], cluster: 'none',
  channelAuthorization: { endpoint: '/auth', params: { name } },
})
const channel = pusher.subscribe(${JSON.stringify(CHANNEL)})
const show = (text) => { document.querySelector('#messages').append(Object.assign(document.createElement('li'), { textContent: text })) }
const here = () => {
  const names = []
  channel.members.each((member) => names.push(member.id))
  document.querySelector('#here').textContent = names.sort().join(', ')
}
for (const event of ['pusher:subscription_succeeded', 'pusher:member_added', 'pusher:member_removed']) channel.bind(event, here)
channel.bind('message', ({ from, text }) => show(from + ': ' + text))
document.querySelector('form').onsubmit = (event) => {
  event.preventDefault()
  fetch('/messages', { method: 'POST', body: new URLSearchParams({ from: name, text: event.target.text.value }) })
  event.target.reset()
}
</script>`

const routes = {
  'GET /': () => ['text/html; charset=utf-8', page()],
  'GET /pusher.js': () => ['text/javascript', fs.readFileSync(load.resolve('pusher-js/dist/web/pusher.js'))],
  // A real application checks who the user is before it signs.
  'POST /auth': (form) => ['application/json', JSON.stringify(pusher.authorizeChannel(form.get('socket_id'), form.get('channel_name'), { user_id: form.get('name') }))],
  'POST /messages': async (form) => {
    await pusher.trigger(CHANNEL, 'message', { from: form.get('from'), text: form.get('text') })
    return ['text/plain', 'sent']
  },
  // What [[pusher.apps.webhooks]] posts.
  'POST /webhooks': (_, headers, rawBody) => {
    const webhook = pusher.webhook({ headers, rawBody })
    if (!webhook.isValid()) throw new Error('the signature is not valid')
    for (const { name, channel, user_id: user } of webhook.getEvents()) console.log(name, channel, user ?? '')
    return ['text/plain', 'thanks']
  },
}

http.createServer(async (request, response) => {
  let body = ''
  for await (const piece of request) body += piece
  const route = routes[`${request.method} ${request.url.split('?')[0]}`]
  try {
    if (!route) return response.writeHead(404).end()
    const [type, content] = await route(new URLSearchParams(body), request.headers, body)
    response.writeHead(200, { 'content-type': type }).end(content)
  } catch (error) {
    response.writeHead(400, { 'content-type': 'text/plain' }).end(error.message)
  }
}).listen(Number(process.env.PORT ?? 7420), '127.0.0.1', function () {
  console.log(`http://127.0.0.1:${this.address().port}`)
})
