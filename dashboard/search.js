// Global search: users and channels by prefix, everything else by substring.
import { h, put, to } from './dom.js';
import { get, may } from './server.js';
import { pages } from './keys.js';

const LIMIT = 6;
const PAUSE_MS = 120;
const FRESH_MS = 5000;

export function listenToSearch() {
  const input = /** @type {HTMLInputElement} */ (document.getElementById('search'));
  const list = document.getElementById('found');
  let asked = new AbortController();
  let timer;
  let options = [];
  let at = -1;

  const close = () => {
    asked.abort();
    list.hidden = true;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  };

  const choose = (index) => {
    at = index;
    options.forEach((option, place) => option.setAttribute('aria-selected', String(place === at)));
    if (options[at]) {
      input.setAttribute('aria-activedescendant', options[at].id);
      options[at].scrollIntoView({ block: 'nearest' });
    }
  };

  const open = (option) => {
    if (!option) return;
    location.hash = option.dataset.to;
    input.value = '';
    input.blur();
    close();
  };

  const show = (found) => {
    options = found.map(({ kind, name, address }, index) => h('li', { role: 'option', id: `found-${index}`, 'data-to': address }, h('span', { class: 'name' }, name), h('span', { class: 'kind' }, kind)));
    put(list, options.length ? options : h('li', { class: 'none' }, 'No results. Users and channels are found by the start of their names.'));
    list.hidden = false;
    input.setAttribute('aria-expanded', 'true');
    choose(0);
  };

  const look = async () => {
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    const text = input.value.trim();
    if (!text) return close();
    const found = await search(text, signal);
    if (!signal.aborted) show(found);
  };

  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  });
  input.addEventListener('keydown', async (event) => {
    if (event.key === 'ArrowDown') choose(Math.min(options.length - 1, at + 1));
    else if (event.key === 'ArrowUp') choose(Math.max(0, at - 1));
    else if (event.key === 'Enter') {
      clearTimeout(timer);
      if (list.hidden || !options.length) await look();
      open(options[at]);
    } else if (event.key === 'Escape') {
      input.value = '';
      return close();
    } else return;
    event.preventDefault();
  });
  list.addEventListener('pointerdown', (event) => {
    event.preventDefault();
    open(/** @type {HTMLElement} */ (event.target).closest('[role=option]'));
  });
  input.addEventListener('blur', () => setTimeout(close, 100));
}

// Complete lists, cached so that they are not loaded on every key press.
const kept = new Map();

function whole(path, query) {
  const known = kept.get(path);
  if (known && Date.now() - known.at < FRESH_MS) return known.answer;
  const answer = get(path, query).catch(() => ({}));
  kept.set(path, { at: Date.now(), answer });
  return answer;
}

/** Results that the key may not see are omitted. */
async function search(text, signal) {
  const ask = (path, query) => (may('presence') ? get(path, query, signal).catch(() => ({})) : {});
  const [users, channels, topics, subscriptions, settings] = await Promise.all([
    ask('users', { prefix: text, limit: LIMIT }),
    ask('channels', { prefix: text, present: true, limit: LIMIT }),
    may('events', 'subscriptions') ? whole('topics', { limit: 1000 }) : {},
    may('subscriptions') ? whole('subscriptions', { limit: 1000 }) : {},
    may('admin') ? whole('settings') : {},
  ]);
  const low = text.toLowerCase();
  const holds = (name) => name.toLowerCase().includes(low);
  const some = (list) => (list ?? []).slice(0, LIMIT);
  return [
    ...pages().filter(({ title }) => holds(title)).map(({ path, title }) => ({ kind: 'page', name: title, address: `#/${path}` })),
    ...some(users.users).map(({ user }) => ({ kind: 'user', name: user, address: to('users', user) })),
    ...some(channels.channels).map(({ channel }) => ({ kind: 'channel', name: channel, address: to('channels', channel) })),
    ...some((topics.topics ?? []).filter(({ topic }) => holds(topic))).map(({ topic }) => ({ kind: 'topic', name: topic, address: to('topics', topic) })),
    ...some((subscriptions.subscriptions ?? []).filter(({ name }) => holds(name))).map(({ name }) => ({ kind: 'subscription', name, address: to('subscriptions', name) })),
    ...(/^\d+$/.test(text) ? [{ kind: 'party', name: `Party ${text}`, address: to('parties', text) }] : []),
    ...some((settings.values ?? []).filter(({ key }) => holds(key))).map(({ key }) => ({ kind: 'setting', name: key, address: to('settings') })),
  ];
}
