// Formats numbers and times.

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (number) => (number === undefined || number === null ? '–' : whole.format(number));
export const brief = (number) => (number === undefined || number === null ? '–' : number < 10_000 ? whole.format(number) : short.format(number));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

const UNITS = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']];

/** 90061000 → "1 d 1 h" */
export function span(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const parts = [];
  for (const [size, unit] of UNITS) {
    const number = Math.floor(ms / size);
    ms -= number * size;
    if (number > 0) parts.push(`${number} ${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

// Times are relative to the server's clock.
let ahead = 0;
export const setClock = (serverMs) => (ahead = serverMs - Date.now());
export const now = () => Date.now() + ahead;

export function ago(ms) {
  if (ms === undefined || ms === null) return undefined;
  const since = now() - ms;
  if (since < 0) return `in ${span(-since)}`;
  return since < 2000 ? 'just now' : `${span(since).split(' ').slice(0, 2).join(' ')} ago`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
export const moment = (ms) => new Date(ms).toLocaleString([], { dateStyle: 'medium', timeStyle: 'medium' });

/** JSON on one line, truncated. */
export function text(value, most = 200) {
  const whole = typeof value === 'string' ? value : JSON.stringify(value) ?? '';
  return whole.length > most ? `${whole.slice(0, most)}…` : whole;
}
