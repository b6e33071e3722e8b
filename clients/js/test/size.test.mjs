// Size limit of the module that pages load.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import zlib from 'node:zlib';

const MOST = 14 * 1024;

test('the module is at most 14 KiB gzipped and imports nothing', () => {
  const text = fs.readFileSync(new URL('../tavern.js', import.meta.url));
  const size = zlib.gzipSync(text, { level: 9 }).length;
  assert.ok(size <= MOST, `${size} bytes`);
  assert.doesNotMatch(text.toString(), /^import |^export .* from |\bimport\(|\brequire\(/m);
});
