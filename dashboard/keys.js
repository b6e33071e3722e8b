// Keyboard shortcuts: `/` searches, `g` and a letter opens a page, `?` shows all.
import { h, put, firstRow } from './dom.js';
import { may } from './server.js';

// `scope`: one of them is needed; `docs`: the page that explains it.
export const PAGES = [
  { path: '', title: 'Overview', key: 'o', scope: ['admin'], docs: 'operate/dashboard' },
  { path: 'channels', title: 'Channels', key: 'c', scope: ['presence'], docs: 'guides/channels' },
  { path: 'users', title: 'Users', key: 'u', scope: ['presence'], docs: 'guides/presence' },
  { path: 'bans', title: 'Bans', key: 'b', scope: ['users'], docs: 'guides/users' },
  { path: 'parties', title: 'Parties', key: 'p', scope: ['parties'], docs: 'guides/parties' },
  { path: 'topics', title: 'Topics', key: 't', scope: ['events', 'subscriptions'], docs: 'guides/events' },
  { path: 'subscriptions', title: 'Subscriptions', key: 's', scope: ['subscriptions'], docs: 'guides/webhooks' },
  { path: 'traffic', title: 'Live traffic', key: 'l', scope: ['admin'], docs: 'operate/dashboard' },
  { path: 'nodes', title: 'Nodes', key: 'n', scope: ['admin'], docs: 'operate/failures' },
  { path: 'keys', title: 'API keys', key: 'k', scope: ['admin'], docs: 'guides/authentication' },
  { path: 'audit', title: 'Audit', key: 'a', scope: ['admin'], docs: 'guides/users' },
  { path: 'settings', title: 'Settings', key: 'e', scope: ['admin'], docs: 'reference/configuration' },
  { path: 'try', title: 'Try it', key: 'y', docs: 'get-started/quickstart' },
];
/** The pages that the key may see. */
export const pages = () => PAGES.filter(({ scope }) => !scope || may(...scope));
const WAIT_MS = 1500;

const OTHERS = [
  ['/', 'Search everything'],
  ['f', 'Filter this list'],
  ['j  k  ↓  ↑', 'Move between rows'],
  ['Enter', 'Open the row'],
  ['Backspace', 'Back'],
  ['?', 'Show shortcuts'],
  ['Esc', 'Close a dialog or leave a field'],
];

let waiting = 0;

export function listenToKeys() {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = event.target.matches('input, textarea, select');
    if (document.querySelector('dialog[open]')) return;
    if (typing) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const act = pick(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.getElementById('help').addEventListener('click', help);
}

function pick(key) {
  const going = Date.now() < waiting;
  waiting = 0;
  if (going) {
    const page = pages().find((one) => one.key === key);
    return page && (() => (location.hash = `#/${page.path}`));
  }
  switch (key) {
    case 'g': return () => (waiting = Date.now() + WAIT_MS);
    case '/': return () => document.getElementById('search').focus();
    case '?': return help;
    case 'f': return focusFilter();
    case 'Backspace': return () => history.back();
    case 'j': case 'ArrowDown': return document.querySelector('main tbody') && document.activeElement === document.body ? firstRow : undefined;
  }
  return undefined;
}

function focusFilter() {
  const box = document.querySelector('main [data-filter]');
  return box && (() => box.focus());
}

function help() {
  const sheet = /** @type {HTMLDialogElement} */ (document.getElementById('sheet'));
  const row = ([keys, what]) => h('div', {}, h('dt', {}, keys.split('  ').map((key) => h('kbd', {}, key))), h('dd', {}, what));
  const known = pages().map(({ title, key }) => [`g  ${key}`, title]);
  sheet.onclose = null;
  put(sheet, h('form', { method: 'dialog' }, h('h2', { id: 'sheet-title' }, 'Keyboard shortcuts'), h('div', { class: 'columns' }, h('dl', { class: 'keys' }, known.map(row)), h('dl', { class: 'keys' }, OTHERS.map(row))), h('div', { class: 'actions' }, h('button', { class: 'main', autofocus: true }, 'Close'))));
  sheet.showModal();
}
