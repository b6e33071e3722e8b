// The dashboard: which page is shown, the key that opens it, and the numbers that come each second.
import { h, put, trouble, heading, code, note } from './dom.js';
import { setClock, span } from './format.js';
import { get, hasKey, setKey, forgetKey, Trouble } from './server.js';
import { overview } from './overview.js';
import { channels, channel } from './channels.js';
import { users, user, session } from './users.js';
import { topics, subscriptions, subscription } from './events.js';
import { parties, party } from './parties.js';
import { nodes, settings } from './nodes.js';
import { tryIt } from './tryit.js';
import { listenToKeys, PAGES } from './keys.js';
import { listenToSearch } from './search.js';

const ROUTES = {
  '': [overview], channels: [channels, channel], users: [users, user], sessions: [users, session], topics: [topics, topics],
  subscriptions: [subscriptions, subscription], parties: [parties, party], nodes: [nodes], settings: [settings], try: [tryIt, tryIt],
};
const BEAT_MS = 1000;

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const menu = document.getElementById('menu');
const banner = document.getElementById('banner');
const about = document.getElementById('about');

let leaving = new AbortController();
let latest;
let lost = false;
let beating = false;
const hearers = new Set();

/** Where we are: the parts of the address, decoded. Whatever cannot be decoded is shown as it is. */
function place() {
  const [path] = location.hash.replace(/^#\/?/, '').split('?');
  return path.split('/').map((text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  });
}

function show() {
  leaving.abort();
  leaving = new AbortController();
  hearers.clear();
  if (!hasKey()) return gate();
  const [name, ...args] = place();
  const pages = ROUTES[name];
  const page = pages?.[args.length && args[0] ? 1 : 0];
  for (const one of nav.querySelectorAll('a')) {
    const here = one.getAttribute('href') === `#/${name}` || (name === 'sessions' && one.getAttribute('href') === '#/users');
    if (here) one.setAttribute('aria-current', 'page');
    else one.removeAttribute('aria-current');
  }
  document.title = `${[args[0], PAGES.find((page) => page.path === name)?.title].filter(Boolean).join(' · ') || 'Not here'} · Tavern`;
  fold(true);
  if (!page) return put(main, heading('There is no such page'), h('p', {}, 'Choose one from the menu, or search with /.'));
  main.dataset.page = name || 'overview';
  put(main, h('p', { class: 'loading' }, 'Looking …'));
  page(visit(args, leaving.signal));
}

/** What a page may use for as long as it is shown. */
function visit(args, signal) {
  const each = (ms, act) => {
    const timer = setInterval(() => document.hidden || act(), ms);
    signal.addEventListener('abort', () => clearInterval(timer));
  };
  return {
    args, signal, each,
    mode: () => latest?.mode,
    draw: (...children) => signal.aborted || put(main, ...children),
    /** Each second, and at once when something is known. */
    beat(act) {
      hearers.add(act);
      if (latest) act(latest);
    },
    /** Reads and shows, again and again. What is shown stays when the server is lost. */
    watch(ms, read, draw) {
      let shown = false;
      let busy = false;
      let covered;
      const turn = async () => {
        if (busy || signal.aborted) return;
        busy = true;
        try {
          const found = await read(signal);
          if (signal.aborted) return;
          if (covered) put(main, covered);
          covered = undefined;
          draw(found);
          shown = true;
        } catch (error) {
          if (signal.aborted) return;
          if (!(error instanceof Trouble)) throw error;
          if (error.status === 401) return gate(error);
          if (shown && error.code === 'lost') return;
          covered ??= [...main.childNodes];
          put(main, trouble(error, turn));
        } finally {
          busy = false;
        }
      };
      each(ms, turn);
      document.addEventListener('visibilitychange', () => document.hidden || turn(), { signal });
      addEventListener('found', turn, { signal });
      turn();
      return turn;
    },
    /** Does something and says so; then looks again. */
    async act(what, said, again) {
      try {
        const answer = await what();
        note(typeof said === 'function' ? said(answer) : said);
      } catch (error) {
        note(error.message, true);
      }
      again?.();
    },
  };
}

async function beat() {
  if (document.hidden || !hasKey() || beating) return;
  beating = true;
  try {
    latest = await get('overview');
    setClock(latest.now);
    if (lost) {
      lost = false;
      delete banner.dataset.lost;
      banner.hidden = true;
      dispatchEvent(new Event('found'));
    }
    about.textContent = `${latest.node} · ${latest.mode} · ${latest.version} · up ${span(latest.uptime_ms)}`;
    for (const hearer of hearers) hearer(latest);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    if (error.status === 401) return gate(error);
    if (error.code !== 'lost') return;
    lost = true;
    banner.dataset.lost = '';
    banner.className = 'bad';
    banner.textContent = 'The server does not answer. Trying again …';
    banner.hidden = false;
  } finally {
    beating = false;
  }
}

/** No key, or a wrong one. */
function gate(error) {
  if (error) forgetKey();
  if (main.dataset.page === 'gate' && !error) return;
  leaving.abort();
  document.body.classList.add('closed');
  main.dataset.page = 'gate';
  document.title = 'Key · Tavern';
  const input = h('input', { type: 'password', name: 'key', required: true, autocomplete: 'off', maxlength: 4096, 'aria-describedby': 'where' });
  const enter = (event) => {
    event.preventDefault();
    setKey(input.value.trim());
    document.body.classList.remove('closed');
    main.dataset.page = '';
    document.getElementById('forget').hidden = false;
    show();
    beat();
  };
  put(main, h('form', { class: 'gate', onsubmit: enter },
    h('h1', {}, 'Tavern'),
    h('p', {}, 'This page needs an API key with the scope admin. It is kept in this tab and forgotten when the tab is closed.'),
    error && h('p', { class: 'bad', role: 'alert' }, `${error.title}: ${error.message}`),
    h('label', {}, 'API key', input),
    h('button', { class: 'main' }, 'Open'),
    h('div', { id: 'where', class: 'hint' },
      h('p', {}, 'In dev mode: open the address that ', h('code', {}, 'tavern dev'), ' printed as Dashboard. It carries the key.'),
      h('p', {}, 'Otherwise make one beside the server:'),
      code('tavern key create --name dashboard \\\n  --scopes admin,presence,publish,events,subscriptions,parties'))));
  input.focus();
}

function fold(closed) {
  document.body.classList.toggle('unfolded', !closed);
  menu.setAttribute('aria-expanded', String(!closed));
}

put(nav, PAGES.map(({ path, title, key }) => h('a', { href: `#/${path}`, title: `g ${key}` }, title)));
menu.addEventListener('click', () => fold(document.body.classList.contains('unfolded')));
const forget = document.getElementById('forget');
forget.hidden = !hasKey();
forget.addEventListener('click', () => {
  forgetKey();
  forget.hidden = true;
  show();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener('hashchange', () => {
  if (!location.hash.startsWith('#key=')) show();
  else location.reload();
  scrollTo(0, 0);
});
listenToKeys();
listenToSearch();
show();
beat();
setInterval(beat, BEAT_MS);
document.addEventListener('visibilitychange', beat);
