// The client under test: the sources, or the file that TAVERN_CLIENT names, as the server serves it.
import { pathToFileURL } from 'node:url';

const { TAVERN_CLIENT } = process.env;
export const { Tavern, TavernError } = await import(TAVERN_CLIENT ? pathToFileURL(TAVERN_CLIENT) : '../src/index.js');
