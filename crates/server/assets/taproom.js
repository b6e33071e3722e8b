// The taproom: one channel in a browser, to try the server. It resumes its session after a lost connection.
const $ = id => document.getElementById(id)
const dev = document.documentElement.dataset.mode === 'dev'
const KEEP = 500

let socket, session, seq = 0, nextId = 1, delay = 500, channel = ''

function state(text, kind = '') {
  $('state').textContent = text
  $('state').className = kind
}

function line(kind, who, text) {
  const item = document.createElement('li')
  item.className = kind
  const add = (name, value) => {
    const span = document.createElement('span')
    span.className = name
    span.textContent = value
    item.append(span)
  }
  add('at', new Date().toLocaleTimeString())
  if (who) add('who', who)
  add('text', text)
  const log = $('log')
  log.querySelector('.hint')?.remove()
  log.append(item)
  while (log.children.length > KEEP) log.firstChild.remove()
  log.scrollTop = log.scrollHeight
}

function send(command) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ id: nextId++, ...command }))
}

function connect() {
  const who = dev ? `user=${encodeURIComponent($('user').value)}` : `token=${encodeURIComponent($('token').value)}`
  const resume = session ? `&session=${encodeURIComponent(session)}&seq=${seq}` : ''
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:'
  const mine = socket = new WebSocket(`${scheme}//${location.host}/v1/connect?${who}${resume}`)
  state('connecting…')
  mine.onmessage = event => hear(JSON.parse(event.data))
  mine.onclose = event => {
    if (mine !== socket) return
    $('text').disabled = $('say').querySelector('button').disabled = true
    const stop = event.code === 1000 || (event.code >= 4000 && event.code < 4500)
    state(stop ? `closed: ${event.reason || event.code}` : 'connection lost, trying again…', 'bad')
    if (!stop) setTimeout(connect, delay *= 1.5 + Math.random())
    delay = Math.min(delay, 10000)
  }
}

function hear(frame) {
  if (frame.seq) seq = frame.seq
  if (frame.ok?.session) {
    delay = 500
    if (!frame.ok.resumed) {
      seq = 0
      send({ op: 'subscribe', channel })
    }
    session = frame.ok.session
    state(`${frame.ok.user ?? 'anonymous'} on ${frame.ok.node}${frame.ok.resumed ? ', resumed' : ''}`, 'good')
    $('text').disabled = $('say').querySelector('button').disabled = false
    $('text').focus()
  } else if (frame.error) {
    line('note', '', `${frame.error.code}: ${frame.error.message}`)
  } else if (frame.event === 'message') {
    const text = typeof frame.data === 'string' ? frame.data : JSON.stringify(frame.data)
    line('message', frame.from?.user ?? frame.from?.client ?? 'somebody', text)
  } else if (frame.event === 'gap') {
    line('note', '', 'some messages were missed')
  } else if (frame.event === 'superseded') {
    line('note', '', 'this session was opened elsewhere')
  }
}

$('door').onsubmit = event => {
  event.preventDefault()
  channel = $('channel').value
  session = undefined
  seq = 0
  const old = socket
  socket = undefined
  old?.close()
  connect()
}

$('say').onsubmit = event => {
  event.preventDefault()
  const text = $('text').value
  if (!text) return
  let data = text
  try { data = JSON.parse(text) } catch { /* plain text */ }
  send({ op: 'publish', channel, data })
  $('text').value = ''
}

setInterval(() => seq && send({ op: 'ack', seq }), 15000)
