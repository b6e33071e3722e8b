// Builds DOM nodes. Text always becomes text nodes and attributes, never markup; links stay on this server.

/** @param {string} tag @param {Record<string, any>} [props] @param {...any} children */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'href' && !/^(#|\/(?!\/))/.test(value)) throw new Error('external links are not allowed');
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...flat(children));
  return node;
}

const flat = (children) => children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false);

/** Replaces the children of a node. */
export function put(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

/** The hash route of a page; parts are arbitrary names. */
export const to = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join('/')}`;

export const link = (text, ...parts) => h('a', { href: to(...parts), class: 'name', title: text.length > 40 ? text : undefined }, text);

export const badge = (text, kind) => h('span', { class: `badge ${kind}` }, text);

export function heading(title, sub, ...actions) {
  return h('div', { class: 'heading' }, h('div', {}, h('h1', {}, title), sub && h('p', { class: 'sub' }, sub)), actions.length > 0 && h('div', { class: 'actions' }, actions));
}

export function section(title, ...children) {
  return h('section', {}, h('h2', {}, title), children);
}

/** Shown instead of an empty list: the reason, and what to do. */
export function empty(title, ...hints) {
  return h('div', { class: 'empty' }, h('p', { class: 'lead' }, title), hints.map((hint) => (typeof hint === 'string' ? h('p', {}, hint) : hint)));
}

export const code = (text) => h('pre', { class: 'command', tabindex: '0' }, h('code', {}, text));

/** An error: the message of the server, and what to do. */
export function errorBox(error, again) {
  const retry = again && h('button', { onclick: again }, 'Try again');
  return h('div', { class: 'empty bad', role: 'alert' }, h('p', { class: 'lead' }, error.title ?? 'The request failed'), h('p', {}, error.message), error.advice && h('p', {}, error.advice), retry);
}

/** A list of [name, value, wide?]. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return h('dl', { class: 'facts' }, shown.map(([name, value, broad]) => h('div', { class: broad && 'broad' }, h('dt', {}, name), h('dd', {}, value))));
}

/**
 * A table that updates its rows in place, so that the focus is kept.
 * Columns: {name, cell(row), number, wide, still, sort(row), first, hint}. The first cell is the row header; `wide` breaks anywhere,
 * `still` never. A click on the header sorts by `sort`; `first`, 'up' or 'down', is the order in the beginning. Rows without a
 * value come last.
 */
export function table(label, columns, keyOf) {
  const body = h('tbody');
  let shown = [];
  let by = columns.find(({ first }) => first);
  let down = by?.first === 'down';
  const order = (column) => (column === by ? (down ? 'descending' : 'ascending') : 'none');
  const sort = (column) => {
    [by, down] = [column, column === by ? !down : Boolean(column.number)];
    heads.forEach((one, at) => columns[at].sort && one.setAttribute('aria-sort', order(columns[at])));
    update(shown);
  };
  const heads = columns.map((column) => h('th', { scope: 'col', class: column.number && 'number', title: column.hint, 'aria-sort': column.sort && order(column) },
    column.sort ? h('button', { class: 'link', onclick: () => sort(column) }, column.name) : column.name));
  const head = h('tr', {}, heads);
  const node = h('div', { class: 'table' }, h('table', { 'aria-label': label }, h('thead', {}, head), body));
  const known = new Map();
  body.addEventListener('keydown', (event) => move(event, body));
  const cells = (row) => columns.map(({ name, cell, number, wide, still }, at) => {
    const content = cell(row);
    return h(at === 0 ? 'th' : 'td', { scope: at === 0 && 'row', 'data-name': name, class: number ? 'number' : wide ? 'wide' : still && 'still' }, h('div', {}, content ?? '–'));
  });
  const update = (given) => {
    shown = given;
    const rows = by ? sorted(given, by.sort, down) : given;
    const seen = new Set();
    let before = null;
    for (const row of rows) {
      const key = String(keyOf(row));
      seen.add(key);
      const sign = JSON.stringify(row);
      let kept = known.get(key);
      if (!kept) known.set(key, (kept = { line: h('tr', {}, cells(row)), sign }));
      else if (kept.sign !== sign) refresh(kept, cells(row), sign);
      const next = before ? before.nextSibling : body.firstChild;
      if (next !== kept.line) body.insertBefore(kept.line, next);
      before = kept.line;
    }
    for (const [key, { line }] of known) {
      if (seen.has(key)) continue;
      line.remove();
      known.delete(key);
    }
  };
  return { node, update };
}

function sorted(rows, value, down) {
  const known = (one) => one !== undefined && one !== null;
  const compare = (a, b) => (typeof a === 'string' ? a.localeCompare(b) : a - b);
  return rows.map((row) => [value(row), row])
    .sort(([a], [b]) => (known(a) && known(b) ? compare(a, b) * (down ? -1 : 1) : known(b) - known(a)))
    .map(([, row]) => row);
}

const FOCUS = 'a, button, input, summary';

function refresh(kept, cells, sign) {
  const at = [...kept.line.querySelectorAll(FOCUS)].indexOf(document.activeElement);
  kept.line.replaceChildren(...cells);
  kept.sign = sign;
  if (at >= 0) kept.line.querySelectorAll(FOCUS)[at]?.focus();
}

/** Arrow keys, j and k move between rows; Home and End go to the first and last. */
function move(event, body) {
  if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!step) return;
  const lines = [...body.rows].filter((line) => line.querySelector(FOCUS));
  const at = lines.indexOf(event.target.closest('tr'));
  const next = lines[Math.max(0, Math.min(lines.length - 1, at + step))];
  event.preventDefault();
  next?.querySelector(FOCUS).focus();
}

/** Focuses the first row of the first table on the page. */
export function firstRow() {
  document.querySelector('main tbody tr :is(a, button)')?.focus();
}

/** A filter field, debounced. */
export function filter(label, value, changed) {
  let timer;
  const input = h('input', { type: 'search', class: 'filter', placeholder: label, 'aria-label': label, value, autocomplete: 'off', spellcheck: 'false', maxlength: 255, 'data-filter': true });
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => changed(input.value.trim()), 150);
  });
  return input;
}

/** Shows a dialog; resolves to its form data, or null. */
export function ask(title, fields, action) {
  const sheet = /** @type {HTMLDialogElement} */ (document.getElementById('sheet'));
  return new Promise((resolve) => {
    const form = h('form', { method: 'dialog' }, h('h2', { id: 'sheet-title' }, title), fields, h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => sheet.close('no') }, 'Cancel'), h('button', { value: 'yes', class: 'main' }, action)));
    put(sheet, form);
    sheet.onclose = () => resolve(sheet.returnValue === 'yes' ? new FormData(form) : null);
    sheet.returnValue = 'no';
    sheet.showModal();
    form.querySelector('input, button.main')?.focus({ preventScroll: true });
    // A long dialog begins at its beginning.
    sheet.scrollTop = 0;
  });
}

let fading;
/** Shows a banner for a few seconds. */
export function note(text, bad = false) {
  const banner = document.getElementById('banner');
  banner.className = bad ? 'bad' : 'good';
  banner.textContent = text;
  banner.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => (banner.hidden = banner.dataset.lost === undefined), 4000);
}
