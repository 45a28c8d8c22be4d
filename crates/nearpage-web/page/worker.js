// The libraries, in a thread of their own: the page stays alive whatever they do, and ends them by ending the thread.

import init, { about, answer } from './nearpage_web.js';

/** Nothing in a memory of 32 bits is larger. */
const BYTES_MOST = 2 ** 31;

let told = 0;
let panic = '';

// What the module calls.
self.nearpageProgress = (done, all) => {
  const now = performance.now();
  if (now - told > 60) {
    told = now;
    self.postMessage({ progress: all > 0 ? Math.min(done / all, 1) : 0 });
  }
};
self.nearpagePanic = (text) => { panic = text; };

const ready = init().then(() => self.postMessage({ about: about() }));
ready.catch((error) => self.postMessage({ broken: String(error) }));

// A file is read once; the questions that follow are about the same bytes.
let content = new Uint8Array();

self.onmessage = async ({ data }) => {
  try {
    await ready;
  } catch {
    return;
  }
  if (data.blob?.size >= BYTES_MOST) {
    self.postMessage({ id: data.id, error: 'it has 2 GiB or more, which a page cannot hold: the command line takes it' });
    return;
  }
  try {
    if (data.blob) content = new Uint8Array(await data.blob.arrayBuffer());
  } catch (error) {
    self.postMessage({ id: data.id, error: `the browser cannot read it: ${error.message}` });
    return;
  }
  try {
    const begun = performance.now();
    const text = answer(JSON.stringify(data.question), content);
    self.postMessage({ id: data.id, answer: text, ms: performance.now() - begun });
  } catch (error) {
    // An error of the libraries is a text. Anything else ended the module: a trap, or no memory.
    const ended = typeof error !== 'string';
    const why = panic || (ended ? String(error) : '');
    const text = ended ? `nearpage itself failed on this input, please report it: ${why}` : error;
    self.postMessage({ id: data.id, error: text, ended });
  }
};
