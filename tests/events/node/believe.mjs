// Whether the `standardwebhooks` library believes messages: reads a list of {secret, headers, body}, prints a list of answers.
import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';

const require = createRequire(process.argv[2] + '/');
const { Webhook } = require('standardwebhooks');

const believes = ({ secret, headers, body }) => {
    try {
        new Webhook(secret).verify(body, headers);
        return true;
    } catch {
        return false;
    }
};
console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map(believes)));
