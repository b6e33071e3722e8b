// Redis globs over bytes. A message names its channel, not the pattern that matched.
// Must hold: the result of the server for every pattern and name; no exponential time.

const [STAR, ANY, OPEN, CLOSE, ESCAPE, NOT, TO] = [...'*?[]\\^-'].map((character) => character.charCodeAt(0));
const encoder = new TextEncoder();

/** @param {string} pattern @param {string} name */
export function matches(pattern, name) {
  const glob = encoder.encode(pattern);
  const text = encoder.encode(name);
  let [p, t, star, reached] = [0, 0, -1, 0];
  while (t < text.length) {
    if (glob[p] === STAR) {
      [star, reached] = [p++, t];
      continue;
    }
    const next = p < glob.length ? one(glob, p, text[t]) : 0;
    if (next) [p, t] = [next, t + 1];
    // Only the last star is extended.
    else if (star >= 0) [p, t] = [star + 1, ++reached];
    else return false;
  }
  return glob.subarray(p).every((byte) => byte === STAR);
}

/** The position after the element at `p` if it matches this byte, else 0. @param {Uint8Array} glob @param {number} p @param {number} byte */
function one(glob, p, byte) {
  if (glob[p] === ANY) return p + 1;
  if (glob[p] !== OPEN) {
    if (glob[p] === ESCAPE && p + 1 < glob.length) p++;
    return glob[p] === byte ? p + 1 : 0;
  }
  const inverted = glob[++p] === NOT;
  if (inverted) p++;
  let found = false;
  // An unclosed class ends with the pattern, as in Redis.
  for (; p < glob.length && glob[p] !== CLOSE; p++) {
    if (glob[p] === ESCAPE && p + 1 < glob.length) found ||= glob[++p] === byte;
    else if (glob[p + 1] === TO && p + 2 < glob.length) {
      const [from, to] = [glob[p], glob[(p += 2)]].sort((a, b) => a - b);
      found ||= from <= byte && byte <= to;
    } else found ||= glob[p] === byte;
  }
  return found === inverted ? 0 : Math.min(p + 1, glob.length);
}
