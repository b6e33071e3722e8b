// Charts of a subscription: its last attempts over time, and its queue since the page was opened.
import { h } from './dom.js';
import { chart } from './charts.js';
import { brief, latency, now } from './format.js';

const STEPS = 40;
const SHORTEST_MS = 60_000;
const SAMPLES_MAX = 300;
const SAMPLE_MS = 2000;

export function attemptCharts() {
  const sent = chart({ title: 'Last attempts', lines: [['delivered', 'delivered'], ['failed', 'failed']], format: brief, least: 4, hint: 'Of the last 200 attempts: events that were delivered, and attempts that failed' });
  const took = chart({ title: 'Time of the endpoint', lines: [['longest', 'longest'], ['shortest', 'shortest']], format: latency, unit: 'ms', least: 1, hint: 'Of the last 200 attempts: from the request to the answer' });
  const waiting = chart({ title: 'Queued', lines: [['queued', '']], format: brief, least: 4, hint: 'Since this page was opened' });
  const queue = [];
  /** The newest attempts; those of a filter are not all. */
  const update = ({ queued }, attempts, isFiltered) => {
    queue.push(queued);
    if (queue.length > SAMPLES_MAX) queue.shift();
    waiting.update({ series: { queued: queue }, start: now() - (queue.length - 1) * SAMPLE_MS, step_ms: SAMPLE_MS }, { queued });
    if (isFiltered) return;
    const { start, step, series } = spread(attempts, now());
    for (const one of [sent, took]) one.update({ series, start, step_ms: step }, {});
  };
  return { node: h('div', { class: 'charts three' }, [sent, took, waiting].map(({ node }) => node)), update };
}

/** Attempts in steps of equal length up to now. */
export function spread(attempts, end) {
  const begin = attempts.reduce((least, { at }) => Math.min(least, at), end - SHORTEST_MS);
  const step = (end - begin) / STEPS;
  const series = { delivered: Array(STEPS).fill(0), failed: Array(STEPS).fill(0), longest: Array(STEPS).fill(null), shortest: Array(STEPS).fill(null) };
  for (const { at, outcome, first_seq: first, last_seq: last, duration_ms: ms } of attempts) {
    const place = Math.max(0, Math.min(STEPS - 1, Math.floor((at - begin) / step)));
    if (outcome === 'delivered') series.delivered[place] += last - first + 1;
    else series.failed[place] += 1;
    series.longest[place] = Math.max(series.longest[place] ?? 0, ms);
    series.shortest[place] = Math.min(series.shortest[place] ?? ms, ms);
  }
  return { start: begin + step, step, series };
}
