// Builds DOM nodes. Text always becomes text nodes, never markup, so any user name is safe.

/** @param {string} tag @param {Record<string, any>} [props] @param {...any} children */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

export const $ = (id) => document.getElementById(id);

/** A button that is disabled while its action runs and shows errors. */
export function button(text, act, props = {}) {
  const node = h('button', { type: 'button', ...props, onclick: () => attempt(node, act) }, text);
  return node;
}

/** @param {HTMLButtonElement} node @param {() => any} act */
export async function attempt(node, act) {
  if (node.dataset.busy) return;
  node.dataset.busy = 'yes';
  try {
    await act();
  } catch (error) {
    note(describe(error), true);
  } finally {
    delete node.dataset.busy;
  }
}

/** The text of an error. */
export const describe = (error) => (error?.code ? `${error.code}: ${error.message}` : String(error?.message ?? error));

let fading;
/** Shows a banner for a few seconds. */
export function note(text, bad = false) {
  const banner = $('banner');
  banner.className = bad ? 'bad' : 'good';
  banner.textContent = text;
  banner.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => (banner.hidden = true), 5000);
}

/** A round avatar with the first letter, coloured by name. */
export function face(name) {
  const node = h('span', { class: 'face', 'aria-hidden': 'true' }, first(name));
  node.style.setProperty('--hue', hue(name));
  return node;
}

export const first = (name) => [...new Intl.Segmenter().segment(name.trim() || '?')][0].segment.toUpperCase();
export const hue = (name) => [...name].reduce((sum, character) => (sum * 31 + character.codePointAt(0)) % 360, 7);

/** Replaces the children only when `key` has changed, and keeps the focus. */
export function refill(node, key, make) {
  const text = JSON.stringify(key);
  if (node.dataset.key === text) return;
  node.dataset.key = text;
  const held = node.contains(document.activeElement) ? document.activeElement.dataset.act : undefined;
  node.replaceChildren(...make().filter(Boolean));
  if (held) node.querySelector(`[data-act="${CSS.escape(held)}"]`)?.focus();
}

/** Limits calls to one per `ms`; the last call is never lost. */
export function throttle(act, ms = 40) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      act();
    }, ms);
  };
}

const CLOCK = { hour: '2-digit', minute: '2-digit', second: '2-digit' };
/** The time, with the date if it was another day. */
export function time(ms) {
  const at = new Date(ms);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString([], CLOCK) : at.toLocaleString([], { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' });
}
export const seconds = (ms) => `${Math.max(0, Math.ceil(ms / 1000))} s`;
