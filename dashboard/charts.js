// Line charts over time: axes with units, a crosshair by pointer, finger or arrow keys. Text is in HTML, so that it keeps its size.
import { h, svg, put } from './dom.js';
import { clock, dayClock } from './format.js';

const HEIGHT = 120;
const TALL = 170;
const TOP = 6;
const BOTTOM = 18;
const LEFT = 54;
const RIGHT = 6;
// Round durations: a minute is not a hundred seconds.
const SPANS_MS = [1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000, 7_200_000, 18_000_000, 43_200_000, 86_400_000];
const X_STEPS_MS = [60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000];

/** A round step, so that three or four of them reach the top. `unit`: bytes, ms or none. */
export function niceStep(most, unit) {
  const raw = Math.max(most, 1e-9) / 3;
  const binary = unit === 'bytes';
  if (unit === 'ms' && raw > 500) return SPANS_MS.find((step) => step >= raw * 0.999) ?? Math.ceil(raw / 86_400_000) * 86_400_000;
  const base = binary ? 2 ** Math.floor(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
  return (binary ? [1, 2] : [1, 2, 2.5, 5, 10]).map((times) => times * base).find((step) => step >= raw * 0.999);
}

const known = (value) => value !== null && value !== undefined;

/**
 * @param {{title: string, lines: [string, string][], format: (value: number) => string, unit?: string, tall?: boolean, least?: number, hint?: string}} how
 * `lines`: names of series with their labels. `least`: the least top of the axis.
 */
export function chart({ title, lines, format, unit, tall = false, least = 0, hint }) {
  const height = tall ? TALL : HEIGHT;
  const grid = svg('g', { class: 'grid' });
  const paths = lines.map((_, at) => svg('path', { class: `line l${at}` }));
  const area = svg('path', { class: 'area' });
  const cross = svg('path', { class: 'cross' });
  const dots = lines.map((_, at) => svg('circle', { class: `dot l${at}`, r: 3.5 }));
  const when = svg('text', { class: 'when', y: TOP + 10 });
  const picture = svg('svg', { class: 'plot', height, tabindex: '0', role: 'img' }, area, grid, paths, cross, dots, when);
  const values = lines.map(() => h('strong', {}, '–'));
  const legend = h('p', { class: 'legend' }, lines.map(([, label], at) => h('span', {}, lines.length > 1 && h('i', { class: `key l${at}` }), label && `${label} `, values[at])));
  const node = h('figure', { class: tall ? 'chart tall' : 'chart', 'data-chart': lines[0][0] }, h('figcaption', {}, h('h3', { title: hint }, title), legend), picture);
  let found;
  let at = null;
  let width = 0;

  const x = (point) => LEFT + (found.count > 1 ? (point / (found.count - 1)) * (width - LEFT - RIGHT) : 0);
  const y = (value) => TOP + (1 - value / found.top) * (height - TOP - BOTTOM);
  const moment = (point) => found.start + point * found.step;

  function path(points) {
    let line = '';
    let open = false;
    points.forEach((value, point) => {
      if (!known(value)) return void (open = false);
      line += `${open ? 'L' : 'M'}${x(point).toFixed(1)} ${y(value).toFixed(1)}`;
      // A point alone is a dot.
      if (!open && !known(points[point + 1])) line += 'h0.01';
      open = true;
    });
    return line;
  }

  function axes() {
    const marks = [];
    for (let value = 0; value <= found.top * 1.001; value += found.unit) {
      marks.push(svg('path', { d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` }), svg('text', { x: LEFT - 6, y: (y(value) + 3.5).toFixed(1), 'text-anchor': 'end' }, format(value)));
    }
    const length = (found.count - 1) * found.step;
    const step = X_STEPS_MS.find((one) => length / one <= Math.max(2, (width - LEFT) / 90)) ?? X_STEPS_MS.at(-1);
    // Round times of the reader's own time zone.
    const shift = new Date(found.start).getTimezoneOffset() * 60_000;
    for (let time = Math.ceil((found.start - shift) / step) * step + shift; time <= moment(found.count - 1); time += step) {
      const left = x((time - found.start) / found.step);
      if (left > width - 20) break;
      marks.push(svg('text', { x: left.toFixed(1), y: height - 4, 'text-anchor': left < LEFT + 16 ? 'start' : 'middle' }, clock(time, step < 60_000)));
    }
    put(grid, marks);
  }

  function show() {
    const point = at ?? found.count - 1;
    const shown = lines.map(([name]) => (at === null ? found.now[name] ?? found.series[name]?.[point] : found.series[name]?.[point]));
    values.forEach((value, line) => (value.textContent = known(shown[line]) ? format(shown[line], true) : '–'));
    node.classList.toggle('pointed', at !== null);
    when.textContent = at === null ? '' : dayClock(moment(point), found.step < 60_000);
    const left = x(point) < width / 2;
    when.setAttribute('x', (x(point) + (left ? 6 : -6)).toFixed(1));
    when.setAttribute('text-anchor', left ? 'start' : 'end');
    cross.setAttribute('d', at === null ? '' : `M${x(point).toFixed(1)} ${TOP}V${height - BOTTOM}`);
    dots.forEach((dot, line) => {
      const seen = at !== null && known(shown[line]);
      dot.setAttribute('visibility', seen ? 'visible' : 'hidden');
      if (!seen) return;
      dot.setAttribute('cx', x(point).toFixed(1));
      dot.setAttribute('cy', y(shown[line]).toFixed(1));
    });
  }

  function draw() {
    width = Math.round(picture.clientWidth);
    if (!found || !width) return;
    const all = lines.map(([name]) => found.series[name] ?? []);
    const most = Math.max(least, ...all.flat().filter(known));
    found.unit = niceStep(most, unit);
    found.top = Math.max(1, Math.ceil((most / found.unit) * 0.999)) * found.unit;
    picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
    axes();
    all.forEach((points, line) => paths[line].setAttribute('d', path(points)));
    const first = all[0].findIndex(known);
    const whole = lines.length === 1 && first >= 0 && all[0].slice(first).every(known);
    area.setAttribute('d', whole ? `${path(all[0])}L${x(all[0].length - 1).toFixed(1)} ${y(0)}L${x(first).toFixed(1)} ${y(0)}Z` : '');
    picture.setAttribute('aria-label', summary(all));
    show();
  }

  function summary(all) {
    const said = lines.map(([name, label], line) => {
      const points = all[line].filter(known);
      if (!points.length) return `${label || title}: nothing known`;
      const now = found.now[name] ?? points.at(-1);
      return `${label || title}: now ${format(now, true)}, from ${format(Math.min(...points), true)} to ${format(Math.max(...points), true)}`;
    });
    return `${title}. ${said.join('; ')}. Arrow keys show single times.`;
  }

  const point = (event) => {
    const part = (event.clientX - picture.getBoundingClientRect().left - LEFT) / Math.max(1, width - LEFT - RIGHT);
    return Math.max(0, Math.min(found.count - 1, Math.round(part * (found.count - 1))));
  };
  const move = (to) => {
    if (!found) return;
    at = to;
    show();
  };
  picture.addEventListener('pointermove', (event) => found && move(point(event)));
  picture.addEventListener('pointerdown', (event) => found && move(point(event)));
  for (const end of ['pointerleave', 'blur']) picture.addEventListener(end, () => move(null));
  picture.addEventListener('keydown', (event) => {
    const last = (found?.count ?? 1) - 1;
    const to = { ArrowLeft: Math.max(0, (at ?? last) - 1), ArrowRight: Math.min(last, (at ?? last) + 1), Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  });
  new ResizeObserver(() => Math.round(picture.clientWidth) !== width && draw()).observe(picture);
  return {
    node,
    /** `now`: the figures of this moment; the series may end earlier. */
    update({ series, start, step_ms: step }, now) {
      const count = Math.max(1, ...lines.map(([name]) => series[name]?.length ?? 0));
      found = { series, start, step, count, now };
      if (at !== null) at = Math.min(at, count - 1);
      draw();
    },
  };
}
