// Verifies messages with the `standardwebhooks` library: reads a list of {secret, headers, body}, prints a list of booleans.
import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';

const require = createRequire(process.argv[2] + '/');
const { Webhook } = require('standardwebhooks');

const verifies = ({ secret, headers, body }) => {
    try {
        new Webhook(secret).verify(body, headers);
        return true;
    } catch {
        return false;
    }
};
console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map(verifies)));
