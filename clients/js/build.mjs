// Writes dist/: the same modules for `require`, with their types. Needs nothing but Node.
import fs from 'node:fs';
import path from 'node:path';

const home = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const dist = path.join(home, 'dist');
fs.rmSync(dist, { recursive: true, force: true });
fs.mkdirSync(path.join(dist, 'src'), { recursive: true });

/** A module for `require`: the imports and exports are those that these sources use, one a line. */
function commonJs(text) {
  const exported = [];
  const code = text
    .replace(/^import (\{.*\}) from '(.*?)(\.js)?';$/gm, (_, names, source, own) => `const ${names.replaceAll(' as ', ': ')} = require('${source}${own ? '.cjs' : ''}');`)
    .replace(/^export \{ (.*) \} from '(.*)\.js';$/gm, (_, names, source) => {
      exported.push(...names.split(', '));
      return `const { ${names} } = require('${source}.cjs');`;
    })
    .replace(/^export ((?:async )?(?:class|function|const) (\w+))/gm, (_, declaration, name) => {
      exported.push(name);
      return declaration;
    });
  return `'use strict';\n${code}\nmodule.exports = { ${exported.join(', ')} };\n`;
}

for (const name of [...fs.readdirSync(path.join(home, 'src')).filter((file) => file.endsWith('.js')).map((file) => `src/${file}`), 'backend.js', 'react.js']) {
  fs.writeFileSync(path.join(dist, name.replace(/js$/, 'cjs')), commonJs(fs.readFileSync(path.join(home, name), 'utf8')));
}
for (const name of ['tavern', 'backend', 'react', 'rest']) {
  const types = fs.readFileSync(path.join(home, `${name}.d.ts`), 'utf8').replace(/'(\.\/\w+)\.js'/g, "'$1.cjs'");
  fs.writeFileSync(path.join(dist, `${name}.d.cts`), types);
}
fs.writeFileSync(path.join(dist, 'tavern.cjs'), "'use strict';\nmodule.exports = require('./src/index.cjs');\n");
