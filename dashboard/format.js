// Formats numbers and times, as the language of the browser does.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const tenth = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

const none = (number) => number === undefined || number === null;

export const count = (number) => (none(number) ? '–' : whole.format(number));
export const brief = (number) => (none(number) ? '–' : number < 10_000 ? (number < 10 ? fine : whole).format(number) : short.format(number));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
export const rate = (number) => `${brief(number)}/s`;
export const percent = (number) => (none(number) ? '–' : `${(number < 10 ? fine : whole).format(number)} %`);

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** 123456789 → "118 MiB" */
export function bytes(number) {
  if (none(number)) return '–';
  const size = Math.min(SIZES.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(number, 1)) / 10)));
  const value = number / 1024 ** size;
  return `${(value < 10 ? tenth : whole).format(value)} ${SIZES[size]}`;
}

/** A latency: 0.42 → "0.42 ms", 90061 → "1 min 30 s" */
export const latency = (ms) => (none(ms) ? '–' : ms < 1000 ? `${(ms < 10 ? fine : whole).format(ms)} ms` : span(ms));

const UNITS = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']];

/** 90061000 → "1 d 1 h" */
export function span(ms) {
  if (none(ms)) return '–';
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
  if (none(ms)) return undefined;
  const since = now() - ms;
  if (since < 0) return `in ${span(-since)}`;
  return since < 2000 ? 'just now' : `${span(since).split(' ').slice(0, 2).join(' ')} ago`;
}

// A formatter is made once: making one takes longer than using it.
const times = (fields) => {
  const made = new Intl.DateTimeFormat(undefined, fields);
  return (ms) => made.format(ms);
};
const MINUTE = { hour: '2-digit', minute: '2-digit' };
const SECOND = { ...MINUTE, second: '2-digit' };
const inMinutes = times(MINUTE);
const inSeconds = times(SECOND);
const inDays = times({ weekday: 'short', ...MINUTE });

export const clock = (ms, seconds = true) => (seconds ? inSeconds : inMinutes)(ms);
/** With the day, if that is not today. */
export const dayClock = (ms, seconds) => (new Date(ms).toDateString() === new Date(now()).toDateString() ? clock(ms, seconds) : inDays(ms));
export const moment = times({ dateStyle: 'medium', timeStyle: 'medium' });

/** JSON on one line, truncated. */
export function text(value, most = 200) {
  const whole = typeof value === 'string' ? value : JSON.stringify(value) ?? '';
  return whole.length > most ? `${whole.slice(0, most)}…` : whole;
}
