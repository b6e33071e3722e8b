// A sparkline of the last two minutes.
import { svg } from './dom.js';
import { brief } from './format.js';

const WIDTH = 240;
const HEIGHT = 48;
const POINTS = 120;

export function sparkline(label) {
  const area = svg('path', { class: 'area' });
  const line = svg('path', { class: 'line' });
  const title = svg('title', {}, label);
  const node = svg('svg', { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, title, area, line);
  return {
    node,
    update(points) {
      const most = Math.max(1, ...points);
      const x = (at) => WIDTH - (points.length - 1 - at) * (WIDTH / (POINTS - 1));
      const y = (value) => HEIGHT - 3 - (value / most) * (HEIGHT - 8);
      const path = points.map((value, at) => `${at ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('');
      line.setAttribute('d', path);
      area.setAttribute('d', points.length ? `${path}L${WIDTH} ${HEIGHT}L${x(0).toFixed(1)} ${HEIGHT}Z` : '');
      const summary = `${label}: now ${brief(points.at(-1) ?? 0)}, at most ${brief(points.length ? Math.max(...points) : 0)} in the last two minutes`;
      title.textContent = summary;
      node.setAttribute('aria-label', summary);
    },
  };
}
