// Damaged files through the page's worker, without a browser: each is answered or refused in words, and none ends the module.
//
//     node damaged.mjs PAGE-FOLDER FOLDER-OF-WHOLE-FILES FAILED
//
// NEARPAGE_FUZZ_SEED says where it begins, NEARPAGE_INPUTS how many there are. `cargo xtask web --damaged` calls it.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';

/** What one input may take before it counts as one that never ends. */
const SECONDS_MOST = 120;
/** Nobody allocates so much of a memory of 32 bits: the module ends in a trap. */
const TOO_LARGE_BYTES = 2 ** 31;
const BYTES_MOST = 8 << 20;
const NUMBERS = ['0', '1', '7', '-1', '65536', '4294967295', '4294967296', '9223372036854775807', '18446744073709551615', '99999999999999999999', '1e99'];
const SETTINGS = [
  'vm.min_free_kbytes=18446744073709551615', 'vm.min_free_kbytes=0', 'vm.watermark_scale_factor=3000', 'vm.lowmem_reserve_ratio=0',
  'vm.percpu_pagelist_high_fraction=8', 'pcp.batch=0', 'pcp.batch=1', 'pcp.batch_scale_max=6', 'pcp.high_max=18446744073709551615',
  'zone.instances=64', 'zone.instances=18446744073709551615', 'x', '=',
];
const MACHINES = ['--numa 2G,cpus=0-1', '--numa 0,cpus=0 --numa 64M,cpus=1-3 --numa-distance 0,1=254', '--numa 99999999999T,cpus=0-9999999', 'x'];
const MODELS = ['linux-6.18', 'linux-6.12', 'linux-6.1', 'nearpage', 'auto', 'x'];

if (isMainThread) await main();
else await beTheWorker();

/** What a browser gives to a worker; then the page's own. */
async function beTheWorker() {
  globalThis.self = globalThis;
  self.postMessage = (message) => parentPort.postMessage(message);
  self.fetch = async (url) => new Response(readFileSync(fileURLToPath(url)), { headers: { 'content-type': 'application/wasm' } });
  await import(workerData);
  parentPort.on('message', ({ bytes, isTrap, ...data }) => {
    const blob = isTrap ? { arrayBuffer: async () => new ArrayBuffer(TOO_LARGE_BYTES) } : new Blob([bytes]);
    self.onmessage({ data: { ...data, blob } });
  });
}

async function main() {
  const [pages, wholes, failed] = process.argv.slice(2);
  const count = Number(process.env.NEARPAGE_INPUTS ?? 500);
  const seed = Number(process.env.NEARPAGE_FUZZ_SEED ?? 1);
  const again = (from, inputs) => `NEARPAGE_FUZZ_SEED=${from} NEARPAGE_INPUTS=${inputs} cargo xtask web --damaged`;
  console.log(`seed ${seed}; the same again: ${again(seed, count)}`);
  // Node takes a file for a module if its package says so.
  const folder = mkdtempSync(join(tmpdir(), 'nearpage-damaged-'));
  cpSync(pages, folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const files = new Map(readdirSync(wholes).map((kind) => [kind, readdirSync(join(wholes, kind)).sort().map((name) => readFileSync(join(wholes, kind, name)))]));
  const kinds = [...files.keys()].sort();
  const told = { answered: 0, refused: 0 };
  let worker = null;
  try {
    worker = new Worker(new URL(import.meta.url), { workerData: pathToFileURL(join(folder, 'worker.js')).href });
    worker.setMaxListeners(0);
    for (let id = 0; id < count; id += 1) {
      const { bytes, question } = damaged(files, kinds, seed + id);
      const answer = await ask(worker, { id, question, bytes });
      const problem = unsound(answer);
      if (problem) {
        writeFileSync(failed, bytes);
        throw new Error(`input ${id}, asked ${JSON.stringify(question)}, now in ${failed}: ${problem}\nreplay: ${again(seed + id, 1)}`);
      }
      told[answer.error === undefined ? 'answered' : 'refused'] += 1;
    }
    // What this is about is seen where it happens.
    const trap = await ask(worker, { id: count, question: { name: 'trap' }, isTrap: true });
    assert.match(unsound(trap) ?? '', /^the module ended: nearpage itself failed on this input/, 'a trap is seen');
    assert.ok(count < 100 || (told.answered > 0 && told.refused > 0), 'some are whole enough to be answered, and some are not');
    console.log(`${count} damaged files of ${kinds.join(', ')}: ${told.answered} answered, ${told.refused} refused; none ended the module, and a trap on purpose was seen`);
  } finally {
    await worker?.terminate();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What is wrong with an answer, if something is. */
function unsound(answer) {
  if (answer.ended) return `the module ended: ${answer.error}`;
  if (answer.error !== undefined) return answer.error.length > 3 ? null : 'it is refused without a word';
  const { document, view } = JSON.parse(answer.answer);
  JSON.parse(document);
  JSON.parse(view);
  return null;
}

function ask(worker, message) {
  return new Promise((done, fail) => {
    const timer = setTimeout(() => done({ ended: true, error: `no answer within ${SECONDS_MOST} s` }), SECONDS_MOST * 1000);
    const over = (how, value) => { clearTimeout(timer); worker.off('message', hear); worker.off('error', broke); how(value); };
    const hear = (data) => {
      if (data.id === message.id) over(done, data);
      else if (data.broken) over(fail, new Error(data.broken));
    };
    const broke = (error) => over(fail, error);
    worker.on('message', hear);
    worker.on('error', broke);
    worker.postMessage(message);
  });
}

/** Input number `seed`: the same each time. */
function damaged(files, kinds, seed) {
  let state = seed >>> 0;
  const random = (most) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor(((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32 * most);
  };
  const one = (list) => list[random(list.length)];
  // A recording takes longest.
  const kind = one(random(12) ? kinds.filter((kind) => kind !== 'recording') : kinds);
  let bytes = Uint8Array.from(one(files.get(kind)));
  for (let left = random(8); left >= 0 && bytes.length; left -= 1) {
    // Heads say how the rest is read.
    const at = random(random(2) ? bytes.length : Math.min(bytes.length, 4096));
    const spliced = (put, from) => { bytes = Uint8Array.from(Buffer.concat([bytes.subarray(0, at), put, bytes.subarray(from)])).subarray(0, BYTES_MOST); };
    switch (random(8)) {
      case 0: bytes = bytes.slice(0, at); break;
      case 1: spliced(bytes.subarray(at, at + random(300)), at); break;
      case 2: spliced(new Uint8Array(0), at + random(300)); break;
      case 3: {
        const other = one(files.get(one(kinds.filter((kind) => kind !== 'recording'))));
        const from = random(other.length);
        spliced(other.subarray(from, from + random(4096)), at);
        break;
      }
      case 4: case 5: {
        const isDigit = (byte) => byte >= 48 && byte <= 57;
        let from = at;
        while (from < bytes.length && !isDigit(bytes[from])) from += 1;
        let to = from;
        while (to < bytes.length && isDigit(bytes[to])) to += 1;
        bytes = Uint8Array.from(Buffer.concat([bytes.subarray(0, from), Buffer.from(one(NUMBERS)), bytes.subarray(to)]));
        break;
      }
      default: bytes[at] = random(256);
    }
  }
  const question = { name: `damaged-${seed}` };
  if (!random(8)) question.kind = one(['machine', 'log', 'recording', 'trace']);
  if (random(2)) question.model = one(MODELS);
  if (!random(4)) question.set = [one(SETTINGS), one(SETTINGS)].slice(random(2));
  if (random(kind === 'trace' ? 8 : 2)) question.machine = random(8) ? MACHINES[0] : one(MACHINES);
  if (!random(8)) question.rebuilt = true;
  if (!random(8)) question.map_cpus = one(['comm', 'round-robin']);
  return { bytes, question };
}
