// The page in Chromium: three ways at two widths, answers beside the command's, and what hostile files do to it.
//
//     node browser.mjs PAGE-FOLDER OUTPUT-FOLDER TRACE-MB
//
// It speaks the DevTools protocol over a pipe, so it needs no package. `cargo xtask web --test` calls it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { extname, join, normalize, resolve as absolute } from 'node:path';

const [folder, out] = process.argv.slice(2, 4).map((path) => absolute(path));
const traceMb = Number(process.argv[4]);
/** A time is judged by the long test alone, which has the machine for itself. */
const isTimed = traceMb >= 100;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm' };
const asked = [];
/** Whether the next worker hands more to the module than it can hold. */
let isTrapping = false;

const server = createServer((request, response) => {
  const path = normalize(new URL(request.url, 'http://x').pathname);
  asked.push(path);
  try {
    let content = readFileSync(join(folder, path === '/' ? 'index.html' : path));
    if (isTrapping && path === '/worker.js') {
      const whole = String(content);
      content = whole.replace('(JSON.stringify(data.question), content)', '(JSON.stringify(data.question), { length: 2 ** 31 })');
      assert.notEqual(content, whole);
      isTrapping = false;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(path === '/' ? 'x.html' : path)] ?? 'application/octet-stream' });
    response.end(content);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const origin = `http://127.0.0.1:${server.address().port}`;

const profile = mkdtempSync(join(tmpdir(), 'nearpage-web-'));
const chromium = spawn('chromium', [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--remote-debugging-pipe',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1', `--user-data-dir=${profile}`, 'about:blank',
], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });

let last = 0;
const open = new Map();
const heard = [];
let rest = '';
chromium.stdio[4].on('data', (data) => {
  const parts = (rest + data).split('\0');
  rest = parts.pop();
  for (const message of parts.map((text) => JSON.parse(text))) {
    if (message.id) {
      const { resolve, reject } = open.get(message.id);
      open.delete(message.id);
      if (message.error) reject(new Error(message.error.message)); else resolve(message.result);
    } else heard.push(message);
  }
});
let session;
const send = (method, params = {}) => new Promise((resolve, reject) => {
  last += 1;
  open.set(last, { resolve, reject });
  chromium.stdio[3].write(`${JSON.stringify({ id: last, method, params, sessionId: session })}\0`);
});
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function run(expression) {
  const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}
async function until(expression, what, seconds = 90) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await pause(50)) {
    if (await run(expression)) return;
  }
  throw new Error(`${what}: not within ${seconds} s; the page says: ${await said()}`);
}
const said = () => run("document.getElementById('said').textContent");
const answered = (what) => until("/answered in/.test(document.getElementById('said').textContent)", what);
async function click(selector) {
  const at = await run(`(() => { const found = document.querySelector(${JSON.stringify(selector)}); found.scrollIntoView({ block: 'center' });
    const box = found.getBoundingClientRect(); return { x: box.x + box.width / 2, y: box.y + box.height / 2 }; })()`);
  for (const type of ['mousePressed', 'mouseReleased']) await send('Input.dispatchMouseEvent', { type, ...at, button: 'left', clickCount: 1 });
}
async function key(name, code = name, modifiers = 0) {
  const codes = { Tab: 9, Enter: 13, ArrowRight: 39, ArrowLeft: 37, ' ': 32, a: 65, Delete: 46, Home: 36 };
  const text = { Enter: '\r', ' ': ' ' }[name];
  for (const type of ['keyDown', 'keyUp']) {
    await send('Input.dispatchKeyEvent', { type, key: name, code, modifiers, windowsVirtualKeyCode: codes[name], text: type === 'keyDown' ? text : undefined });
  }
}
async function drop(path) {
  const data = { items: [], files: [path], dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'drop']) await send('Input.dispatchDragEvent', { type, x: 100, y: 200, data });
}
async function picture(name) {
  await pause(200);
  const height = Math.min(await run('document.documentElement.scrollHeight'), 6000);
  const width = await run('innerWidth');
  const { data } = await send('Page.captureScreenshot', { captureBeyondViewport: true, clip: { x: 0, y: 0, width, height, scale: 1 } });
  writeFileSync(join(out, `${name}.png`), Buffer.from(data, 'base64'));
}
async function answer() {
  const tab = await run("document.querySelector('[role=tab][aria-selected=true]').id");
  await click('#tab-json');
  const text = await run("document.querySelector('#panel pre').textContent");
  await click(`#${tab}`);
  return JSON.parse(text);
}
const expected = (name) => JSON.parse(readFileSync(join(out, name)));

/** What must hold of any state of the page. */
async function sound(where) {
  const [wide, inner] = await run('[document.documentElement.scrollWidth, innerWidth]');
  assert.ok(wide <= inner, `${where}: ${wide} pixels wide in ${inner}`);
  const { nodes } = await send('Accessibility.getFullAXTree');
  const roles = ['button', 'textbox', 'combobox', 'slider', 'checkbox', 'tab', 'link', 'progressbar'];
  for (const node of nodes.filter((node) => !node.ignored && roles.includes(node.role?.value))) {
    assert.ok(node.name?.value, `${where}: a ${node.role.value} without a name`);
  }
  // What a person moved may move the page; nothing else does.
  const jumped = await run('((jumped) => { window.jumped = 0; return jumped; })(window.jumped ?? 0)');
  assert.ok(jumped < 0.1, `${where}: the layout jumped by ${jumped}`);
}

async function visit(fragment = '') {
  await send('Page.navigate', { url: 'about:blank' });
  await send('Page.navigate', { url: `${origin}/${fragment}` });
  await until("document.documentElement?.dataset.ready === 'true'", 'the libraries are loaded');
}

async function look(width, scheme) {
  const name = (what) => `${what}-${width}-${scheme}`;
  await send('Emulation.setDeviceMetricsOverride', { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 });
  await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  await visit();
  const paint = await run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0");
  assert.ok(paint <= 1000 || !isTimed, `first paint after ${paint} ms`);
  await sound('empty');
  await picture(name('empty'));

  // A machine, pasted; then a setting, by the keyboard.
  await run("document.getElementById('text').focus()");
  await send('Input.insertText', { text: readFileSync(join(folder, 'examples/two-sockets.numactl'), 'utf8') });
  await click('#go');
  await answered('a machine');
  const machine = { ...await answer(), source: 'two-sockets.numactl' };
  const { storage, binding, ...topo } = expected('topo.json');
  assert.deepEqual(machine, topo, 'the machine is as `nearpage topo` prints it');
  assert.match(await run('location.hash'), /numa=/, 'the machine is in the address');
  await sound('machine');
  await picture(name('machine'));
  // A jump within the page is no other state.
  await run("document.querySelector('.skip').focus()");
  await key('Enter');
  assert.deepEqual(await run("[document.activeElement.id, location.hash.includes('numa=')]"), ['answer', true]);
  await run("document.querySelector('.map [data-node=\"2\"]').focus()");
  await key('Enter');
  assert.match(await run("document.querySelector('ol.orders .picked').textContent"), /^node 2: 2 \(10\) → 0 \(24\) → 1 \(34\)$/);
  await run("document.getElementById('tab-map').focus()");
  await key('ArrowRight');
  assert.equal(await run('document.activeElement.id'), 'tab-zones');
  await run("document.querySelector('[data-slides=\"vm.watermark_scale_factor\"]').focus()");
  for (let at = 0; at < 40; at += 1) await key('ArrowRight');
  await until("document.querySelector('.changed')", 'the slider changes figures');
  assert.match(await run('location.hash'), /set=vm.watermark_scale_factor/);
  await sound('settings');
  await picture(name('settings'));

  // A log, dropped.
  await drop(join(folder, 'examples/refused.log'));
  await until("/refused.log: .*answered in/.test(document.getElementById('said').textContent)", 'a log');
  assert.deepEqual(await answer(), expected('explain.json'), 'the log is as `nearpage explain` prints it');
  assert.equal(await run('location.hash.includes("numa=")'), false, 'another input leaves no machine in the address');
  await sound('log');
  await picture(name('log'));

  // The recording that comes along; then a what-if by a link.
  await click('[data-example="q612-n2-mixed.tar.zst"]');
  await until("/q612.*answered in/.test(document.getElementById('said').textContent)", 'a recording');
  assert.deepEqual(await answer(), expected('replay.json'), 'the replay is as `nearpage replay` prints it');
  const took = (await said()).match(/answered in (.*)\./)[1];
  // The left end of a slider that nobody set is a value, too.
  await run("document.querySelector('[data-slides=\"pcp.batch_scale_max\"]').focus()");
  await key('Home');
  await until("[...document.querySelectorAll('#panel h2')].some((head) => head.textContent.startsWith('What if'))", 'a what-if by a key');
  assert.match(await run('location.hash'), /set=pcp.batch_scale_max%3D0/);
  await sound('recording');
  await picture(name('recording'));
  await visit('#example=q612-n2-mixed.tar.zst&model=linux-6.1&set=pcp.batch_scale_max%3D0');
  await answered('a link');
  assert.deepEqual(await answer(), expected('replay-set.json'), 'settings and rules are as the command has them');
  await picture(name('what-if'));
  console.log(`${width} ${scheme}: first paint ${Math.round(paint)} ms, replay ${took}`);
}

async function links() {
  await visit('#example=two-sockets.numactl&tab=zones&set=vm.watermark_scale_factor%3D200');
  await answered('a machine by a link');
  const { storage, binding, ...topo } = expected('topo-set.json');
  assert.deepEqual(await answer(), topo);
  assert.equal(await run("document.querySelector('[aria-selected=true]').id"), 'tab-zones');
  const other = encodeURIComponent('--numa 2G,cpus=0-3 --numa 0,cpus=4-7 --numa 2G');
  await visit(`#example=q612-n2-mixed.tar.zst&machine=${other}&map_cpus=round-robin`);
  await answered('another machine by a link');
  assert.deepEqual(await answer(), expected('replay-machine.json'));
  assert.equal(await run("document.getElementById('earlier').hidden"), true, 'no machine was shown');
  // The machine of a link is the whole of it.
  await visit(`#numa=${encodeURIComponent('--numa 2G,cpus=0-1 --numa 0,cpus=2 --numa-distance 0,1=31')}`);
  await answered('a short form by a link');
  assert.equal((await answer()).distances[0][1], 31);
  // A load is played on the machine that was shown.
  await click('[data-example="q612-n2-mixed.tar.zst"]');
  await answered('a recording after a machine');
  await click('#earlier');
  await answered('the recording on that machine');
  assert.equal((await answer()).what_if.changes.machine.nodes.after, 2);
}

async function hostile() {
  await visit();
  const evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e';
  const whole = readFileSync(join(folder, 'examples/q612-n2-mixed.tar.zst'));
  const log = readFileSync(join(folder, 'examples/refused.log'), 'utf8');
  const cases = [
    ['empty', Buffer.alloc(0)], ['zeros', Buffer.alloc(4096)], ['half.tar.zst', whole.subarray(0, whole.length >> 1)],
    [`${'x'.repeat(120)}.tar`, Buffer.from(evil)], ['evil.log', Buffer.from(log.replaceAll('node', evil))],
    // What a file is called is said, shown and part of the command's page.
    [`<img src=x onerror="window.hacked=1">\u202egol.log`, Buffer.from(log)], ['<img src=x onerror=window.hacked=1>.tar.zst', whole],
    ['evil.numactl', Buffer.from(`available: 1 nodes (0)\nnode 0 cpus: ${evil}\n`)],
    ['evil.xml', Buffer.from('<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "&b;&b;">]><topology>&b;</topology>')],
    ['bomb.zst', Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58]), ...Array(2000).fill(Buffer.from([2, 0, 16, 120]))])],
  ];
  for (const [name, content] of cases) {
    const path = join(out, name);
    writeFileSync(path, content);
    await run("document.getElementById('said').textContent = ''");
    await drop(path);
    await until("(() => { const text = document.getElementById('said').textContent; return text && !/^(Reading|Loading)/.test(text); })()", name);
    const text = await said();
    assert.ok(text.length > 8, `${name}: ${text}`);
    assert.ok(!text.includes('\u202e'), `${name}: turned around`);
    assert.equal(await run('window.hacked'), undefined, name);
    assert.equal(await run(`document.querySelectorAll('#said *, #panels img:not([src^="data:"]), #panels script:not([type="application/json"])').length`), 0, name);
    rmSync(path);
  }
  // A link is anybody's, too.
  await visit(`#numa=${encodeURIComponent(evil)}&tab=${encodeURIComponent(evil)}&model=${encodeURIComponent(evil)}&set=${encodeURIComponent(evil)}`);
  await until("document.getElementById('status').classList.contains('error')", 'a hostile link');
  assert.equal(await run('window.hacked'), undefined);
  await picture('hostile');
}

/** A trap on purpose: nobody allocates 2 GiB of a memory of 32 bits. The page tells it, and goes on with a new module. */
async function trap() {
  isTrapping = true;
  await visit('#example=refused.log');
  await until("document.getElementById('status').classList.contains('error')", 'a trap');
  assert.match(await said(), /^nearpage itself failed on this input, please report it: /);
  await click('[data-example="two-sockets.numactl"]');
  await answered('what is asked after a trap');
}

/** A long trace: the page stays alive, and its end is a click away. */
async function long() {
  await visit(`#kind=trace&machine=${encodeURIComponent('--numa 4G,cpus=0-1')}`);
  const path = join(out, 'long.txt');
  const lines = ['# tracer: nop'];
  for (let at = 0, bytes = 0; bytes < traceMb * 1e6; at += 1) {
    const time = (100 + at / 1e5).toFixed(6);
    const pfn = (0x1000 + (at % 4096) * 8).toString(16);
    lines.push(` load-71      [00${at % 2}] ..... ${time}: mm_page_alloc: page=0x${pfn} pfn=0x${pfn} order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE`);
    bytes += lines.at(-1).length + 1;
    if (at >= 2048) {
      const old = (0x1000 + ((at - 2048) % 4096) * 8).toString(16);
      lines.push(` load-71      [00${at % 2}] ..... ${time}: mm_page_free: page=0x${old} pfn=0x${old} order=0`);
      bytes += lines.at(-1).length + 1;
    }
  }
  writeFileSync(path, `${lines.join('\n')}\n`);
  await run(`(() => { let last = performance.now(); window.gap = 0;
    const tick = (now) => { window.gap = Math.max(window.gap, now - last); last = now; requestAnimationFrame(tick); }; requestAnimationFrame(tick); })()`);
  await drop(path);
  await until("!document.getElementById('progress').hidden && document.getElementById('progress').value > 0", 'progress');
  const begun = Date.now();
  await click('#cancel');
  assert.equal(await said(), 'Cancelled.');
  const cancelled = Date.now() - begun;
  await drop(path);
  await until("/answered in/.test(document.getElementById('said').textContent)", 'a long trace', 600);
  const gap = await run('window.gap');
  assert.ok(gap < 1000, `nothing was drawn for ${gap} ms`);
  console.log(`a trace of ${traceMb} MB: ${await said()} longest pause of the page ${Math.round(gap)} ms; cancelled in ${cancelled} ms`);
  await picture('long');
  rmSync(path);
}

try {
  const { targetInfos } = await send('Target.getTargets');
  const target = targetInfos.find((info) => info.type === 'page');
  ({ sessionId: session } = await send('Target.attachToTarget', { targetId: target.targetId, flatten: true }));
  for (const domain of ['Page', 'Runtime', 'Network', 'Log', 'Accessibility']) await send(`${domain}.enable`);
  await send('Page.addScriptToEvaluateOnNewDocument', {
    source: "new PerformanceObserver((list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) window.jumped = (window.jumped ?? 0) + one.value; }).observe({ type: 'layout-shift', buffered: true });",
  });
  for (const width of [390, 1440]) await look(width, width === 390 ? 'light' : 'dark');
  await send('Emulation.setDeviceMetricsOverride', { width: 2560, height: 1300, deviceScaleFactor: 1, mobile: false });
  await links();
  await picture('short-form-2560');
  await hostile();
  await trap();
  await long();
  const urls = heard.filter((message) => message.method === 'Network.requestWillBeSent').map((message) => message.params.request.url);
  const strange = urls.filter((url) => !url.startsWith(`${origin}/`) && !/^(about|data|blob):/.test(url));
  assert.deepEqual(strange, [], 'nothing is asked of anybody else');
  const complaints = heard.filter((message) => message.method === 'Log.entryAdded' && message.params.entry.level === 'error')
    .map((message) => message.params.entry.text).filter((text) => !text.includes('404'));
  assert.deepEqual(complaints, [], 'the browser complains of nothing');
  assert.deepEqual([...new Set(asked)].filter((path) => path.includes('favicon')), []);
  console.log(`${asked.length} requests, all to the page's own folder; pictures are in ${out}`);
} catch (error) {
  console.error(error);
  try { await picture('failed'); } catch { /* There may be no page. */ }
  process.exitCode = 1;
} finally {
  chromium.kill();
  server.close();
  await new Promise((done) => chromium.once('exit', done));
  rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
}
