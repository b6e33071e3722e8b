// Try it: a session in this page that can subscribe, publish and join.
import { Tavern } from '/client.js';
import { h, put, heading, badge, section, empty, note } from './dom.js';
import { clock, text } from './format.js';

const LINES_MAX = 200;
let kept = { user: 'ann', token: '', channel: 'room#tour' };

export function tryIt(visit) {
  if (visit.args[0]) kept.channel = visit.args[0];
  let client;
  let room;
  const dev = () => visit.mode() === 'dev';
  const state = h('span', { id: 'state' }, badge('not connected', 'plain'));
  const log = h('ol', { class: 'log', 'aria-label': 'Messages', tabindex: '0' });
  const hint = empty('No messages yet.', 'Connect, then send a message. Open this page twice, or publish from a terminal.');
  const who = h('input', { name: 'user', value: kept.user, maxlength: 128, autocomplete: 'off', required: true });
  const token = h('input', { name: 'token', value: kept.token, maxlength: 8192, autocomplete: 'off', placeholder: 'tavern token --user ann --allow "*=subscribe,publish,join,presence"' });
  const where = h('input', { name: 'channel', value: kept.channel, maxlength: 255, autocomplete: 'off', required: true });
  const message = h('input', { name: 'text', maxlength: 65536, autocomplete: 'off', placeholder: 'hello, or any JSON', disabled: true });
  const send = h('button', { disabled: true }, 'Send');
  const join = h('button', { disabled: true, type: 'button', class: 'quiet' }, 'Join');

  const line = (kind, from, said) => {
    hint.hidden = true;
    log.append(h('li', { class: kind }, h('time', {}, clock(Date.now())), h('b', {}, from), h('span', {}, text(said, 2000))));
    while (log.children.length > LINES_MAX) log.firstChild.remove();
    log.scrollTop = log.scrollHeight;
  };
  const ready = (on) => {
    for (const one of [message, send, join]) one.disabled = !on;
  };
  const end = () => {
    client?.close().catch(() => {});
    client = undefined;
    ready(false);
  };
  const enter = async (event) => {
    event.preventDefault();
    end();
    kept = { user: who.value, token: token.value, channel: where.value };
    const own = (client = new Tavern(location.origin, { storage: null, ...(dev() ? { user: kept.user } : { token: kept.token }) }));
    put(state, badge('connecting …', 'warn'));
    own.on('open', ({ resumed }) => {
      put(state, badge(`${own.user ?? 'anonymous'} over ${own.transport}${resumed ? ', resumed' : ''}`, 'good'));
      ready(true);
    });
    own.on('reconnecting', () => put(state, badge('connection lost, reconnecting …', 'warn')));
    own.on('closed', ({ error }) => {
      if (own !== client) return;
      ready(false);
      put(state, badge(error?.code === 'closed' ? 'closed' : `closed: ${error?.message ?? ''}`, 'bad'));
    });
    own.on('gap', () => line('note', 'server', 'some messages were dropped'));
    own.me.on('inbox', ({ data }) => line('note', 'inbox', data));
    room = own.channel(kept.channel);
    join.textContent = 'Join';
    try {
      await Promise.all([own.connect(), room.subscribe(({ data, from }) => line('message', from?.user ?? from?.client ?? 'a service', data))]);
      message.focus();
    } catch (error) {
      if (own === client) line('note', error.code ?? 'error', error.message);
    }
  };
  const publish = async (event) => {
    event.preventDefault();
    if (!message.value || !room) return;
    const given = message.value;
    message.value = '';
    try {
      await room.publish(parse(given));
    } catch (error) {
      line('note', error.code ?? 'error', error.message);
    }
  };
  join.addEventListener('click', async () => {
    const joins = join.textContent === 'Join';
    try {
      await (joins ? room.join({}) : room.leave());
      join.textContent = joins ? 'Leave' : 'Join';
      note(joins ? `Present in ${kept.channel}.` : `Left ${kept.channel}.`);
    } catch (error) {
      line('note', error.code ?? 'error', error.message);
    }
  });
  const name = h('label', {}, 'User', who);
  const pass = h('label', { class: 'wide' }, 'Token', token);
  visit.draw(
    heading('Try it', state),
    h('form', { class: 'row', onsubmit: enter }, name, pass, h('label', {}, 'Channel', where), h('button', { class: 'main' }, 'Connect')),
    section('Messages', log, hint, h('form', { class: 'row send', onsubmit: publish }, h('label', { class: 'wide' }, 'Message', message), send, join)),
  );
  visit.tick(() => {
    name.hidden = !dev();
    pass.hidden = dev();
  });
  visit.signal.addEventListener('abort', end);
}

function parse(given) {
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}
