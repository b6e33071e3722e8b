// The dashboard: routing, the API key, and the overview numbers that arrive each second.
import { h, put, errorBox, heading, code, note } from './dom.js';
import { setClock, span } from './format.js';
import { get, hasKey, learnRights, may, redeem, setKey, forgetKey, ServerError } from './server.js';
import { overview } from './overview.js';
import { channels, channel } from './channels.js';
import { users, user, session } from './users.js';
import { subscriptions, subscription } from './events.js';
import { topics, topic } from './topics.js';
import { audit } from './audit.js';
import { bans } from './bans.js';
import { apiKeys } from './api_keys.js';
import { parties, party } from './parties.js';
import { nodes, settings } from './nodes.js';
import { traffic } from './traffic.js';
import { tryIt } from './tryit.js';
import { listenToKeys, pages, PAGES } from './keys.js';
import { listenToSearch } from './search.js';

const ROUTES = {
  '': [overview], channels: [channels, channel], users: [users, user], sessions: [users, session], topics: [topics, topic],
  subscriptions: [subscriptions, subscription], parties: [parties, party], nodes: [nodes], keys: [apiKeys], audit: [audit, audit], bans: [bans], traffic: [traffic], settings: [settings], try: [tryIt, tryIt],
};
const TICK_MS = 1000;
// After this time what is shown is called old.
const OLD_MS = 4000;

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const menu = document.getElementById('menu');
const banner = document.getElementById('banner');
const footer = document.getElementById('about');
const explain = document.getElementById('explain');

let leaving = new AbortController();
let latest;
let lost = false;
let polling = false;
// What the key may do is known.
let entered = false;
// When the overview numbers last came, and when they were asked for.
let answered = Date.now();
let asked;
const listeners = new Set();

/** The parts of the hash route, decoded; parts that cannot be decoded are kept as they are. */
function route() {
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
  listeners.clear();
  const [name, ...args] = route();
  const page = ROUTES[name]?.[args.length && args[0] ? 1 : 0];
  const about = PAGES.find(({ path }) => path === (name === 'sessions' ? 'users' : name));
  for (const one of nav.querySelectorAll('a')) {
    const here = one.getAttribute('href') === `#/${about?.path}`;
    if (here) one.setAttribute('aria-current', 'page');
    else one.removeAttribute('aria-current');
  }
  document.title = `${[args[0], about?.title].filter(Boolean).join(' · ') || 'Not found'} · Tavern`;
  setMenu(true);
  explain.hidden = !about;
  if (about) explain.href = `/docs/${about.docs}`;
  if (!page) return put(main, heading('Page not found'), h('p', {}, 'Choose a page from the menu, or search with /.'));
  if (about.scope && !may(...about.scope)) {
    // The first page is the overview, which needs more than others.
    if (!name) return void location.replace(`#/${pages()[0].path}`);
    return put(main, heading(about.title), h('p', {}, `This page needs an API key with the scope ${about.scope.join(' or ')}.`));
  }
  main.dataset.page = name || 'overview';
  put(main, h('p', { class: 'loading' }, 'Loading …'));
  page(visit(args, leaving.signal));
}

/** What a page can use while it is shown. */
function visit(args, signal) {
  const each = (ms, act) => {
    const timer = setInterval(() => document.hidden || act(), ms);
    signal.addEventListener('abort', () => clearInterval(timer));
  };
  return {
    args, signal, each,
    mode: () => latest?.mode,
    node: () => latest?.node,
    draw: (...children) => signal.aborted || put(main, ...children),
    /** Calls `act` with the overview numbers now and each second. */
    tick(act) {
      listeners.add(act);
      if (latest) act(latest);
    },
    /** Loads and draws periodically. The last content stays while the server is unreachable. */
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
          if (!(error instanceof ServerError)) throw error;
          if (error.status === 401) return keyForm(error);
          if (shown && error.code === 'lost') return;
          covered ??= [...main.childNodes];
          put(main, errorBox(error, turn));
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
    /** Runs an action, shows its result, then reloads. Returns the result; undefined if it failed. */
    async act(what, said, again) {
      try {
        const answer = await what();
        if (said) note(typeof said === 'function' ? said(answer) : said);
        again?.();
        return answer;
      } catch (error) {
        note(error.message, true);
        again?.();
        return undefined;
      }
    },
  };
}

/** Learns what the key may do, then shows the page. */
async function enter() {
  try {
    await redeem();
    // Without a key a proxy may have signed the user in.
    if (!(await learnRights()).scopes.length && !hasKey()) return keyForm();
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return error.status === 401 ? keyForm(error) : put(main, errorBox(error, enter));
  }
  put(nav, pages().map(({ path, title, key }) => h('a', { href: `#/${path}`, title: `g ${key}` }, title)));
  entered = true;
  forget.hidden = !hasKey();
  show();
  tick();
}

async function tick() {
  if (document.hidden || !entered) return;
  if (polling) return void (Date.now() - asked > OLD_MS && tellLost());
  polling = true;
  asked = Date.now();
  try {
    const found = await (may('admin') ? get('overview') : learnRights());
    answered = Date.now();
    if (lost) {
      lost = false;
      document.body.classList.remove('old');
      delete banner.dataset.lost;
      banner.hidden = true;
      dispatchEvent(new Event('found'));
    }
    if (!may('admin')) return;
    latest = found;
    setClock(latest.now);
    footer.textContent = `${latest.node} · ${latest.mode} · ${latest.version} · up ${span(latest.uptime_ms)}`;
    for (const listener of listeners) listener(latest);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    if (error.status === 401) return keyForm(error);
    if (error.code !== 'lost') return;
    tellLost();
  } finally {
    polling = false;
  }
}

/** Says that the server does not answer, and how old what is shown is; then it is greyed out. */
function tellLost() {
  lost = true;
  const age = Date.now() - answered;
  const old = age > OLD_MS;
  document.body.classList.toggle('old', old);
  banner.dataset.lost = '';
  banner.className = 'bad';
  banner.textContent = `The server does not answer. ${old ? `What you see is ${span(age)} old. ` : ''}Reconnecting …`;
  banner.hidden = false;
}

/** The form for the API key, shown without a key or after a wrong one. */
function keyForm(error) {
  if (error) forgetKey();
  entered = false;
  if (main.dataset.page === 'key' && !error) return;
  leaving.abort();
  document.body.classList.add('closed');
  main.dataset.page = 'key';
  document.title = 'Key · Tavern';
  const input = h('input', { type: 'password', name: 'key', required: true, autocomplete: 'off', maxlength: 4096, 'aria-describedby': 'where' });
  const submit = (event) => {
    event.preventDefault();
    setKey(input.value.trim());
    document.body.classList.remove('closed');
    main.dataset.page = '';
    enter();
  };
  put(main, h('form', { class: 'key-form', onsubmit: submit },
    h('h1', {}, 'Tavern'),
    h('p', {}, 'The dashboard needs an API key; with the scope admin it shows everything. The key is kept in this tab until the tab is closed.'),
    error && h('p', { class: 'bad', role: 'alert' }, `${error.title}: ${error.message}`),
    h('label', {}, 'API key', input),
    h('button', { class: 'main' }, 'Open'),
    h('div', { id: 'where', class: 'hint' },
      h('p', {}, 'In dev mode: open the Dashboard address that ', h('code', {}, 'tavern dev'), ' prints. It contains the key.'),
      h('p', {}, 'With a key in a terminal: ', h('code', {}, 'tavern dashboard'), ' prints a link that works once.'),
      h('p', {}, 'Otherwise create one on the server:'),
      code('tavern key create --name dashboard \\\n  --scopes admin,presence,publish,events,subscriptions,parties,users'))));
  input.focus();
}

function setMenu(closed) {
  document.body.classList.toggle('unfolded', !closed);
  menu.setAttribute('aria-expanded', String(!closed));
}

menu.addEventListener('click', () => setMenu(document.body.classList.contains('unfolded')));
const forget = document.getElementById('forget');
forget.addEventListener('click', () => {
  forgetKey();
  forget.hidden = true;
  keyForm();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener('hashchange', () => {
  if (/^#(key|code)=/.test(location.hash)) location.reload();
  else if (entered) show();
  scrollTo(0, 0);
});
listenToKeys();
listenToSearch();
enter();
setInterval(tick, TICK_MS);
document.addEventListener('visibilitychange', tick);
