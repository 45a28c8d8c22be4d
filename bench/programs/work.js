// Objects, text, buffers, compression and threads in node.
const { createHash } = require("node:crypto");
const zlib = require("node:zlib");
const { Worker, isMainThread, parentPort } = require("node:worker_threads");

function work(seed) {
  const hash = createHash("sha256");
  const map = new Map();
  for (let i = 0; i < 60000; i++) map.set(`key ${(i * 7919 + seed) % 50021}`, { i, text: String(i).repeat(3) });
  hash.update(JSON.stringify([...map.entries()].slice(0, 20000)));
  const buffers = [];
  for (let i = 0; i < 3000; i++) {
    const buffer = Buffer.alloc(1000 + ((i * 911) % 30000), i % 251);
    buffers.push(buffer);
    if (buffers.length > 200) hash.update(buffers.shift());
  }
  hash.update(zlib.gunzipSync(zlib.gzipSync(Buffer.concat(buffers))));
  return hash.digest("hex");
}

if (isMainThread) {
  const answers = [];
  const own = work(0);
  for (let at = 0; at < 2; at++) {
    new Worker(__filename).on("message", (answer) => {
      answers.push(answer);
      if (answers.length === 2) console.log(own, answers[0] === answers[1], answer);
    });
  }
} else {
  parentPort.postMessage(work(1));
}
