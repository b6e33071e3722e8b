// The documentation: search, menu on small screens, copy buttons, language tabs. Every page can be read without it.

const make = (tag, properties = {}, ...inside) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
};

document.documentElement.classList.add('js');

// The menu.
const menu = document.querySelector('nav.pages button');
menu.hidden = false;
menu.onclick = () => {
  const open = menu.getAttribute('aria-expanded') !== 'true';
  menu.setAttribute('aria-expanded', String(open));
  document.body.classList.toggle('menu', open);
};

// Copy buttons. Prompts and comments are copied as they are shown.
for (const block of document.querySelectorAll('main pre:not(.output)')) {
  const button = make('button', { type: 'button', className: 'copy', textContent: 'Copy' });
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector('code').textContent.replace(/\n$/, ''));
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Press Ctrl-C';
      getSelection().selectAllChildren(block.querySelector('code'));
    }
    setTimeout(() => (button.textContent = 'Copy'), 2000);
  };
  const frame = make('div', { className: 'code' });
  block.replaceWith(frame);
  frame.append(block, button);
}

// Tabs. The choice is kept, and applies to all tabs with the same name.
const CHOICE = 'docs-tab';
const groups = [];
let serial = 0;

function choose(name) {
  for (const group of groups) {
    const wanted = group.some((tab) => tab.name === name) ? name : group.find((tab) => tab.chosen)?.name ?? group[0].name;
    for (const tab of group) {
      tab.chosen = tab.name === wanted;
      tab.button.setAttribute('aria-selected', String(tab.chosen));
      tab.button.tabIndex = tab.chosen ? 0 : -1;
      tab.panel.hidden = !tab.chosen;
    }
  }
}

for (const tabs of document.querySelectorAll('.tabs')) {
  const list = make('div', { className: 'tablist', role: 'tablist' });
  list.setAttribute('aria-label', 'Language');
  const group = [...tabs.querySelectorAll('section[data-tab]')].map((panel) => {
    const name = panel.dataset.tab;
    const button = make('button', { type: 'button', role: 'tab', textContent: name, id: `tab-${++serial}` });
    panel.id ||= `panel-${serial}`;
    panel.setAttribute('role', 'tabpanel');
    panel.setAttribute('aria-labelledby', button.id);
    button.setAttribute('aria-controls', panel.id);
    button.onclick = () => {
      choose(name);
      try {
        localStorage.setItem(CHOICE, name);
      } catch {
        // Without storage the choice ends with the page.
      }
    };
    list.append(button);
    return { name, panel, button };
  });
  list.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = group.findIndex((tab) => tab.chosen);
    const next = group[(at + step + group.length) % group.length];
    next.button.click();
    next.button.focus();
  };
  tabs.prepend(list);
  groups.push(group);
}
if (groups.length) {
  let kept = null;
  try {
    kept = localStorage.getItem(CHOICE);
  } catch {
    // Without storage the first tab is shown.
  }
  choose(kept);
  // A link to a heading inside a tab opens it.
  const reveal = () => {
    const panel = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest('section[data-tab]');
    if (panel) choose(panel.dataset.tab);
  };
  addEventListener('hashchange', reveal);
  reveal();
}

// The search: every word must occur; titles count more than text.
const form = document.querySelector('.search');
const input = form.querySelector('input');
const list = form.querySelector('#found');
const MOST = 12;
let index = null;
let selected = -1;
form.hidden = false;

async function load() {
  index ??= fetch(document.querySelector('script[src$="docs.js"]').src.replace(/docs\.js$/, 'search.json'))
    .then((response) => response.json())
    .then((entries) => entries.map((entry) => ({ ...entry, low: [entry.title, entry.page, entry.text].map((part) => part.toLowerCase()) })));
  return index;
}

function score(entry, words) {
  let sum = 0;
  for (const word of words) {
    const [title, page, text] = entry.low;
    const at = text.indexOf(word);
    if (title === word) sum += 20;
    else if (title.startsWith(word)) sum += 12;
    else if (title.includes(word)) sum += 8;
    else if (page.includes(word)) sum += 4;
    else if (at >= 0) sum += at < 200 ? 2 : 1;
    else return 0;
  }
  // A page about the words rather than one of its parts.
  return entry.title === entry.page ? sum * 1.5 : sum;
}

/** The text around the first word, with the word marked. */
function excerpt(entry, words) {
  const at = Math.max(0, entry.low[2].indexOf(words[0]));
  const start = Math.max(0, at - 40);
  const text = entry.text.slice(start, at + 100);
  const where = entry.low[2].indexOf(words[0]) - start;
  if (where < 0) return [text];
  return [text.slice(0, where), make('mark', { textContent: text.slice(where, where + words[0].length) }), text.slice(where + words[0].length)];
}

function show(entries, words) {
  selected = -1;
  list.replaceChildren();
  if (words.length && !entries.length) list.append(make('div', { className: 'none', role: 'option', textContent: 'Nothing found' }));
  for (const [number, entry] of entries.entries()) {
    const where = entry.title === entry.page ? '' : `${entry.page.split(': ')[0]} › `;
    list.append(make('a', { href: address(entry.address), tabIndex: -1, role: 'option', id: `found-${number}` },
      make('b', {}, where, entry.title), make('span', {}, ...excerpt(entry, words))));
  }
  list.hidden = !words.length;
  input.setAttribute('aria-expanded', String(!list.hidden));
  input.removeAttribute('aria-activedescendant');
}

/** Addresses in the index are those of a server; a copy on another site has its pages beside the script. */
function address(path) {
  const base = document.querySelector('script[src$="docs.js"]').dataset.base;
  if (base === undefined) return path;
  const [page, part] = path.replace(/^\/docs\/?/, '').split('#');
  return `${base}${page ? `${page}.html` : 'index.html'}${part ? `#${part}` : ''}`;
}

async function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const entries = words.length ? await load() : [];
  if (words.join(' ') !== input.value.toLowerCase().split(/\s+/).filter(Boolean).join(' ')) return;
  const found = entries.map((entry) => [score(entry, words), entry]).filter(([points]) => points > 0);
  found.sort(([a], [b]) => b - a);
  show(found.slice(0, MOST).map(([, entry]) => entry), words);
}

function select(step) {
  const options = [...list.querySelectorAll('a')];
  if (!options.length) return;
  selected = (selected + step + options.length) % options.length;
  for (const [number, option] of options.entries()) option.setAttribute('aria-selected', String(number === selected));
  options[selected].scrollIntoView({ block: 'nearest' });
  input.setAttribute('aria-activedescendant', options[selected].id);
}

input.onfocus = load;
input.oninput = search;
input.onkeydown = (event) => {
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    event.preventDefault();
    select(event.key === 'ArrowDown' ? 1 : -1);
  } else if (event.key === 'Escape') {
    input.value = '';
    show([], []);
  }
};
form.onsubmit = (event) => {
  event.preventDefault();
  const options = list.querySelectorAll('a');
  options[Math.max(0, selected)]?.click();
};
list.onclick = (event) => event.target.closest('a') && show([], []);
addEventListener('click', (event) => !form.contains(event.target) && show([], []));
addEventListener('keydown', (event) => {
  if (event.key === '/' && !event.target.closest('input, textarea, [contenteditable]')) {
    event.preventDefault();
    input.focus();
  }
});
