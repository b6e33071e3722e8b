// The documentation: search, menu on small screens, copy buttons, language tabs, the place on the page. Every page can be
// read without it.

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

// The search: every word must occur; titles count more than text. A word that occurs nowhere stands for the words that are
// written almost like it.
const form = document.querySelector('.search');
const input = form.querySelector('input');
const list = form.querySelector('#found');
const MOST = 12;
/** How many words a mistyped one may stand for. */
const LIKE_MOST = 5;
let index = null;
let selected = -1;
form.hidden = false;

async function load() {
  index ??= fetch(document.querySelector('script[src$="docs.js"]').src.replace(/docs\.js$/, 'search.json'))
    .then((response) => response.json())
    .then((entries) => {
      const low = entries.map((entry) => ({ ...entry, low: [entry.title, entry.page, entry.text].map((part) => part.toLowerCase()) }));
      return { entries: low, words: vocabulary(low) };
    });
  return index;
}

/** All words of the index, and how much each is worth: words of titles first. */
function vocabulary(entries) {
  const words = new Map();
  for (const { low } of entries) {
    low.forEach((part, field) => {
      for (const word of part.match(/[\p{L}\p{N}_]{3,}/gu) ?? []) words.set(word, (words.get(word) ?? 0) + [100, 10, 1][field]);
    });
  }
  return words;
}

/** How many letters may be wrong: none in short words, which are too much alike. */
const mistakes = (word) => (word.length < 4 ? 0 : word.length < 8 ? 1 : 2);

/**
 * The letters to add, leave out, change or swap so that `word` becomes `known` or its beginning; `most` + 1 if there are more.
 * Two rows before the current one are kept, for swapped neighbours.
 */
function distance(word, known, most) {
  let before = [], row = Array.from({ length: known.length + 1 }, (_, at) => at);
  for (let i = 1; i <= word.length; i++) {
    const next = [i];
    for (let j = 1; j <= known.length; j++) {
      const changed = row[j - 1] + (word[i - 1] === known[j - 1] ? 0 : 1);
      next[j] = Math.min(changed, row[j] + 1, next[j - 1] + 1);
      if (i > 1 && j > 1 && word[i - 1] === known[j - 2] && word[i - 2] === known[j - 1]) next[j] = Math.min(next[j], before[j - 2] + 1);
    }
    if (Math.min(...next) > most) return most + 1;
    [before, row] = [row, next];
  }
  return Math.min(...row.slice(Math.max(0, word.length - most)));
}

/** What a typed word may mean: itself if it occurs, or else the words most like it, each with what is wrong. */
function meanings(word, words) {
  const itself = [{ known: word, wrong: 0 }];
  const most = mistakes(word);
  if (!most || words.has(word)) return itself;
  const like = [];
  for (const [known, worth] of words) {
    if (known.includes(word)) return itself;
    if (known.length < word.length - most) continue;
    const wrong = distance(word, known.slice(0, word.length + most), most);
    if (wrong <= most) like.push({ known, wrong, worth });
  }
  like.sort((a, b) => a.wrong - b.wrong || b.worth - a.worth);
  return like.length ? like.slice(0, LIKE_MOST) : itself;
}

/** The points of an entry and the words that it matched; undefined if one is missing. Each word is a list of what it may mean. */
function score(entry, words) {
  let sum = 0;
  const matched = [];
  for (const meant of words) {
    const [points, word] = meant.map(({ known, wrong }) => [pointsOf(entry, known) / (wrong + 1), known]).reduce((best, one) => (one[0] > best[0] ? one : best));
    if (!points) return undefined;
    sum += points;
    matched.push(word);
  }
  // A page about the words rather than one of its parts; a title with all of them.
  if (entry.title === entry.page) sum *= 1.5;
  if (matched.every((word) => entry.low[0].includes(word))) sum *= 1.5;
  return { entry, matched, points: sum };
}

function pointsOf({ low: [title, page, text] }, word) {
  const at = text.indexOf(word);
  if (title.split(': ')[0] === word) return 20;
  if (title.startsWith(word)) return 12;
  if (title.includes(word)) return 8;
  if (page.includes(word)) return 4;
  return at < 0 ? 0 : at < 200 ? 2 : 1;
}

/** The entries that fit, best first. */
function ranked({ entries, words }, typed) {
  const meant = typed.map((word) => meanings(word, words));
  const found = entries.map((entry) => score(entry, meant)).filter(Boolean);
  return found.sort((a, b) => b.points - a.points).slice(0, MOST);
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

function show(found, typed) {
  selected = -1;
  list.replaceChildren();
  if (typed.length && !found.length) list.append(make('div', { className: 'none', role: 'option', textContent: 'Nothing found' }));
  for (const [number, { entry, matched }] of found.entries()) {
    const where = entry.title === entry.page ? '' : `${entry.page} › `;
    list.append(make('a', { href: address(entry.address), tabIndex: -1, role: 'option', id: `found-${number}` },
      make('b', {}, where, entry.title), make('span', {}, ...excerpt(entry, matched))));
  }
  list.hidden = !typed.length;
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

const typed = () => input.value.toLowerCase().split(/\s+/).filter(Boolean);

async function search() {
  const words = typed();
  const known = words.length ? await load() : null;
  // Another letter was typed while the index was loading.
  if (words.join(' ') !== typed().join(' ')) return;
  show(known ? ranked(known, words) : [], words);
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

// The current page is in view in the menu.
const current = document.querySelector('nav.pages a[aria-current]');
const pages = document.querySelector('nav.pages');
if (current && pages.scrollHeight > pages.clientHeight) {
  pages.scrollTop = current.getBoundingClientRect().top - pages.getBoundingClientRect().top - pages.clientHeight / 3;
}

// The contents list marks the part that is being read: the last whose heading has reached the top, or the last of the page.
const parts = [...document.querySelectorAll('aside a')].map((link) => ({ link, heading: document.getElementById(decodeURIComponent(link.hash.slice(1))) }));
const NEAR_TOP_PX = 120;
let marking = false;

function mark() {
  marking = false;
  const ended = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const reached = parts.filter(({ heading }) => heading.getBoundingClientRect().top < NEAR_TOP_PX);
  const now = ended && scrollY > 0 ? parts.at(-1) : reached.at(-1);
  for (const part of parts) part === now ? part.link.setAttribute('aria-current', 'location') : part.link.removeAttribute('aria-current');
  const box = document.querySelector('aside');
  if (now && box.scrollHeight > box.clientHeight) box.scrollTop = now.link.offsetTop - box.clientHeight / 2;
}

if (parts.length) {
  addEventListener('scroll', () => {
    if (!marking) requestAnimationFrame(mark);
    marking = true;
  }, { passive: true });
  mark();
}
