// Runs a program of WebAssembly that is compiled for WASI: the libraries' own tests. `cargo xtask web --libraries` calls it.

import { readFileSync } from 'node:fs';
import { WASI } from 'node:wasi';

const [program, ...words] = process.argv.slice(2);
const wasi = new WASI({ version: 'preview1', args: [program, ...words], env: process.env, preopens: { '/': '/' }, returnOnExit: true });
const { instance } = await WebAssembly.instantiate(readFileSync(program), wasi.getImportObject());
process.exitCode = wasi.start(instance);
