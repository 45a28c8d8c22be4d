// The page: takes what is dropped, asks the worker, shows the answer, and keeps its state in the address.

import { EMPTY, read, write } from './state.js';
import { bytes, distances, element, explained, fallbackMap, live, page, study, zones } from './view.js';

const get = (id) => document.getElementById(id);
const EXAMPLES = ['two-sockets.numactl', 'refused.log', 'q612-n2-mixed.tar.zst'];
const KINDS = { machine: 'a machine', log: "a kernel's log", recording: 'a recording', trace: 'a trace' };
/** The rules that a machine is shown by, unless others are asked for. */
const MACHINE_MODEL = 'linux-6.18';
/** Work that takes longer than this is ended when something else is asked. */
const PATIENCE_MS = 400;

/** Settings that have a slider: from, to, and whether it is logarithmic. */
const SLIDERS = {
  'vm.min_free_kbytes': { from: 1024, to: 1 << 26, log: true },
  'vm.watermark_scale_factor': { from: 1, to: 3000, log: true },
  'vm.percpu_pagelist_high_fraction': { from: 0, to: 128 },
  'pcp.batch_scale_max': { from: 0, to: 6 },
  'pcp.batch': { from: 1, to: 1024, log: true },
  'pcp.high_min': { from: 1, to: 65536, log: true },
  'pcp.high_max': { from: 1, to: 262144, log: true },
  'zone.instances': { from: 1, to: 64, log: true },
};
const SWITCHES = ['pcp.tunes_high', 'pcp.below_high', 'pcp.free_high'];

let state = read(location.hash);
let about = null;
/** What is asked about: its name and its bytes. */
let source = null;
let shown = null;
/** Whether nothing was shown of the source yet. */
let isNew = false;
/** The machine that was shown last, in the short form: a load can be played on it. */
let earlier = '';
let worker = null;
let asked = 0;
/** The question that is being answered, and the one to ask when it is. */
let busy = null;
let waiting = false;
/** Whether the worker has the bytes of the source. */
let given = false;

function say(text, isError = false) {
  get('said').textContent = text;
  get('status').classList.toggle('error', isError);
}

function start() {
  worker?.terminate();
  worker = new Worker('worker.js', { type: 'module' });
  given = false;
  busy = null;
  worker.onmessage = ({ data }) => {
    if (data.about) begin(JSON.parse(data.about));
    else if (data.broken) say(`The libraries cannot be loaded: ${data.broken}`, true);
    else if (data.progress !== undefined) get('progress').value = data.progress;
    else if (data.id === busy?.id) finish(data);
  };
  worker.onerror = (event) => say(`The libraries cannot be loaded: ${event.message ?? 'no worker'}`, true);
}

function begin(told) {
  if (about) return;
  about = told;
  get('version').textContent = about.version;
  get('machines').replaceChildren(...about.machines.map((name) => element('option', { value: name })));
  document.documentElement.dataset.ready = 'true';
  say('Ready.');
  adopt();
}

/** Makes the page what its address says. */
async function adopt() {
  get('kind').value = state.kind;
  if (state.example) await example(state.example);
  else if (state.numa) take(state.numa, new Blob([state.numa]));
  else if (source) ask();
  else if (state.kind || state.set.length || state.machine) {
    say('This link is about something that somebody has: drop it here, and its settings are asked about.');
  }
}

async function example(name) {
  if (!EXAMPLES.includes(name)) {
    say(`No such example: ${name}`, true);
    return;
  }
  say('Loading the example …');
  const answer = await fetch(`examples/${name}`);
  if (!answer.ok) {
    say(`The example cannot be loaded: ${answer.status}`, true);
    return;
  }
  state.example = name;
  take(name, await answer.blob());
}

/** Takes a content, and asks about it. */
function take(name, blob) {
  source = { name, blob };
  shown = null;
  isNew = true;
  given = false;
  ask();
}

/** Takes what somebody brought. A link has settings for it; those of another input that was shown before are none of its own. */
function bring(name, blob) {
  const before = shown ? EMPTY : state;
  state = { ...structuredClone(before), example: '', numa: '', kind: get('kind').value };
  // Nothing in a name commands anything.
  take(name.replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, '?'), blob);
}

function question() {
  const isMachine = (shown?.kind ?? state.kind) === 'machine';
  const asks = { name: source.name, set: state.set };
  if (state.kind) asks.kind = state.kind;
  else if (state.numa) asks.kind = 'machine';
  if (state.model) asks.model = state.model;
  else if (isMachine) asks.model = MACHINE_MODEL;
  if (state.rebuilt) asks.rebuilt = true;
  if (state.machine) asks.machine = state.machine;
  if (state.map_cpus !== EMPTY.map_cpus) asks.map_cpus = state.map_cpus;
  return asks;
}

function ask() {
  history.replaceState(null, '', write(state));
  if (!about || !source) return;
  if (busy) {
    if (performance.now() - busy.begun < PATIENCE_MS) {
      waiting = true;
      return;
    }
    start();
  }
  asked += 1;
  busy = { id: asked, begun: performance.now() };
  waiting = false;
  get('cancel').disabled = false;
  get('answer').setAttribute('aria-busy', 'true');
  say(`Reading ${source.name.slice(0, 80)} (${bytes(source.blob.size)}) …`);
  get('progress').value = 0;
  // What is answered at once shows no bar.
  setTimeout(() => { if (busy) get('progress').hidden = false; }, 150);
  worker.postMessage({ id: asked, question: question(), blob: given ? null : source.blob });
  given = true;
}

function idle() {
  busy = null;
  get('cancel').disabled = true;
  get('progress').hidden = true;
  get('answer').removeAttribute('aria-busy');
}

function finish(data) {
  idle();
  if (data.ended) start();
  if (waiting) {
    ask();
    return;
  }
  if (data.error !== undefined) {
    say(data.error, true);
    if (shown === null) {
      get('tabs').replaceChildren();
      get('panels').replaceChildren();
      // A trace alone needs a machine to play it on: the field for it is shown.
      if (data.error.includes('machine')) settings(state.kind || 'trace', null);
    }
    return;
  }
  const answer = JSON.parse(data.answer);
  const { kind, document: text, page: html, command, view } = answer;
  const parsed = JSON.parse(text);
  const isFirst = shown === null;
  shown = { kind, text, html, command, document: parsed, view: JSON.parse(view) };
  if (kind === 'machine' && isFirst && !state.model && parsed.model !== MACHINE_MODEL) {
    // Its kind was not known when it was asked: once more, by a kernel's rules.
    ask();
    return;
  }
  if (kind === 'machine') earlier = shown.view.short_form ?? '';
  if (kind === 'machine' && !state.example) {
    // The machine itself goes into the address, where it is short enough.
    state.numa = shown.view.short_form ?? '';
    history.replaceState(null, '', write(state));
  }
  settings(kind, shown);
  show();
  if (isNew) reveal();
  isNew = false;
  const took = data.ms < 1000 ? `${Math.round(data.ms)} ms` : `${(data.ms / 1000).toFixed(1)} s`;
  say(`${source.name.slice(0, 80)}: ${KINDS[kind]}, answered in ${took}.`);
}

/** Brings the answer into view, where it begins far below. */
function reveal() {
  if (get('answer').getBoundingClientRect().top > innerHeight / 2) get('status').scrollIntoView();
}

/** The parts of an answer, by kind: id, name, and what they show. */
function parts() {
  const { kind, document: told, view, html } = shown;
  const json = ['json', 'JSON', () => [downloads(), element('pre', { tabindex: '0' }, shown.text.slice(0, 1 << 20))]];
  if (kind === 'machine') {
    const warnings = told.warnings.map((warning) => element('p', { class: 'known' }, warning));
    const set = told.set.map((one) => element('li', {}, `${one.key}: ${one.before} → ${one.after}${one.no_effect ? `; ${one.no_effect}` : ''}`));
    const facts = () => element('p', {}, `Rules ${told.model}; min_free_kbytes ${told.settings.min_free_kbytes}, `
      + `watermark_scale_factor ${told.settings.watermark_scale_factor}, addresses ${told.addresses}.`);
    return [
      ['map', 'Nodes', () => [facts(), ...warnings, fallbackMap(told), distances(told)]],
      ['zones', 'Zones', () => [facts(), set.length ? element('ul', {}, ...set) : null, ...zones(told, view.before)]],
      ['zoneinfo', 'zoneinfo', () => [element('pre', { tabindex: '0' }, `${view.fallback}\n${view.zoneinfo}`)]],
      json,
    ];
  }
  if (kind === 'log') return [['says', 'What it says', () => explained(told, view)], json];
  if (kind === 'trace') return [['study', 'What it comes to', () => study(told)], json];
  return [['report', 'Report', () => [page(html)]], json];
}

function show() {
  const all = parts();
  const ids = all.map(([id]) => id);
  const chosen = ids.includes(state.tab) ? state.tab : ids[0];
  get('tabs').replaceChildren(...all.map(([id, name]) => element('button', {
    type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': 'panel', 'aria-selected': String(id === chosen),
    tabindex: id === chosen ? '0' : '-1',
  }, name)));
  const [, , contents] = all.find(([id]) => id === chosen);
  get('panels').replaceChildren(element('div', { class: 'panel', role: 'tabpanel', id: 'panel', 'aria-labelledby': `tab-${chosen}` },
    ...contents(), element('p', { class: 'faint' }, 'On the command line: ', element('code', {}, shown.command))));
  live();
}

function choose(tab) {
  state.tab = tab;
  history.replaceState(null, '', write(state));
  show();
  get(`tab-${tab}`).focus();
}

get('tabs').addEventListener('click', (event) => {
  const tab = event.target.closest('[role=tab]');
  if (tab) choose(tab.id.slice(4));
});
get('tabs').addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const ids = parts().map(([id]) => id);
  const at = ids.indexOf(document.activeElement.id.slice(4));
  choose(ids[(at + step + ids.length) % ids.length]);
});

function downloads() {
  const file = (name, type, text) => {
    const button = element('button', { type: 'button' }, `Save ${name}`);
    button.addEventListener('click', () => {
      const link = element('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    });
    return button;
  };
  const page = shown.html ? file('nearpage.html', 'text/html', shown.html) : null;
  return element('p', { class: 'row' }, file('nearpage.json', 'application/json', shown.text), page);
}

/** The settings of a kind of content. They are made anew when the kind is another one: a slider keeps the focus. */
function settings(kind, answer) {
  const form = get('settings');
  form.hidden = kind === 'log';
  const isLoad = kind !== 'machine';
  for (const [name, wanted] of [['machine', !isLoad], ['load', isLoad], ['recording', kind === 'recording']]) {
    for (const field of form.querySelectorAll(`.only-${name}`)) field.hidden = !wanted;
  }
  get('settings-title').textContent = isLoad ? 'What if' : 'Rules and settings';
  get('settings-about').textContent = isLoad ? 'Change something: the load is played again.' : 'Change something: figures that move are marked under Zones.';
  get('earlier').hidden = !earlier;
  const models = isLoad ? [['', 'those of the recorded kernel'], ...about.models] : about.models;
  if (form.dataset.kind !== kind) {
    form.dataset.kind = kind;
    get('model').replaceChildren(...models.map(([name, text]) => element('option', { value: name }, name || text)));
    const keys = isLoad ? about.tunables : about.settings;
    get('sliders').replaceChildren(...keys.map(control));
  }
  get('model').value = state.model || (isLoad ? '' : MACHINE_MODEL);
  get('model-about').textContent = models.find(([name]) => name === get('model').value)?.[1] ?? '';
  get('rebuilt').checked = state.rebuilt;
  get('machine').value = state.machine;
  get('map_cpus').value = state.map_cpus;
  const unset = new Map(answer?.view?.unset ?? []);
  const set = new Map(state.set.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)]));
  for (const input of get('sliders').querySelectorAll('[data-key]')) {
    const key = input.dataset.key;
    if (document.activeElement !== input || !set.has(key)) input.value = set.get(key) ?? '';
    if (unset.has(key)) input.placeholder = unset.get(key);
    const slider = document.querySelector(`[data-slides="${CSS.escape(key)}"]`);
    if (slider && document.activeElement !== slider) slider.value = toSlider(SLIDERS[key], Number(set.get(key) ?? unset.get(key) ?? NaN));
  }
}

const toSlider = ({ from, to, log }, value) => {
  if (!Number.isFinite(value)) return 0;
  if (!log) return Math.round((value - from) / (to - from) * 1000);
  return Math.round(Math.log(Math.max(value, from) / from) / Math.log(to / from) * 1000);
};
const fromSlider = ({ from, to, log }, place) => Math.round(log ? from * (to / from) ** (place / 1000) : from + (to - from) * place / 1000);

function control({ name, values, meaning }) {
  const id = `set-${name}`;
  const about = element('small', { id: `${id}-about` }, `${meaning} (${values})`);
  const label = element('label', { for: id }, element('code', {}, name));
  if (SWITCHES.includes(name)) {
    const options = [['', 'as it is'], ['on', 'on'], ['off', 'off']].map(([value, text]) => element('option', { value }, text));
    return element('p', { class: 'field' }, label, element('select', { id, 'data-key': name, 'aria-describedby': about.id }, ...options), about);
  }
  const input = element('input', { id, 'data-key': name, placeholder: 'as it is', autocomplete: 'off', spellcheck: 'false', inputmode: 'numeric', 'aria-describedby': about.id });
  const scale = SLIDERS[name];
  if (!scale) return element('p', { class: 'field' }, label, input, about);
  const slider = element('input', { type: 'range', min: 0, max: 1000, value: 0, 'data-slides': name, 'aria-label': `${name}, slider` });
  slider.addEventListener('input', () => {
    let value = fromSlider(scale, Number(slider.value));
    // The kernel takes no fraction between 1 and 7.
    if (name === 'vm.percpu_pagelist_high_fraction' && value > 0) value = Math.max(value, 8);
    input.value = value;
    slider.setAttribute('aria-valuetext', String(value));
  });
  // What is not set stands at the left end: a click there, or the key for it, moves nothing and still means it.
  for (const type of ['pointerup', 'keyup']) {
    slider.addEventListener(type, ({ key }) => {
      const isMeant = type === 'pointerup' || /^(Arrow|Home|End|Page)/.test(key);
      if (isMeant && input.value === '') slider.dispatchEvent(new Event('input', { bubbles: true }));
    });
  }
  return element('p', { class: 'field' }, label, element('span', { class: 'slider' }, slider, input), about);
}

/** Reads the settings from their form. */
function gather() {
  state.set = [...get('sliders').querySelectorAll('[data-key]')].filter((input) => input.value.trim() !== '')
    .map((input) => `${input.dataset.key}=${input.value.trim()}`);
  const isMachine = get('settings').dataset.kind === 'machine';
  state.model = get('model').value === MACHINE_MODEL && isMachine ? '' : get('model').value;
  state.rebuilt = get('rebuilt').checked && isMachine;
  state.machine = isMachine ? '' : get('machine').value.trim();
  state.map_cpus = get('map_cpus').value;
}

let timer = 0;
get('settings').addEventListener('input', (event) => {
  // A machine is answered at once; a replay waits for the end of a movement.
  const isQuick = shown?.kind === 'machine';
  if (!isQuick && event.target.type !== 'range' && event.target.tagName !== 'SELECT') return;
  clearTimeout(timer);
  timer = setTimeout(() => { gather(); ask(); }, isQuick ? 60 : 500);
});
document.addEventListener('click', (event) => {
  const link = event.target.closest('[data-to]');
  if (!link) return;
  // The fragment of the address is the state: a jump within the page leaves it alone.
  event.preventDefault();
  const target = get(link.dataset.to);
  target.scrollIntoView();
  target.focus({ preventScroll: true });
});
get('earlier').addEventListener('click', () => {
  get('machine').value = earlier;
  gather();
  ask();
});
get('settings').addEventListener('submit', (event) => {
  event.preventDefault();
  clearTimeout(timer);
  gather();
  ask();
});
get('settings').addEventListener('reset', (event) => {
  event.preventDefault();
  Object.assign(state, { set: [], model: '', rebuilt: false, machine: '', map_cpus: EMPTY.map_cpus });
  for (const slider of document.querySelectorAll('[data-slides]')) slider.removeAttribute('aria-valuetext');
  ask();
});

get('input').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = get('text').value;
  if (text.trim()) paste(text);
  else say('Nothing is pasted yet: paste a text, drop a file, or look at an example.');
});
function paste(text) {
  // A machine in the short form is named by it.
  const short = text.trim().replace(/\s+/g, ' ');
  bring(/^--numa/.test(short) && short.length < 4096 ? short : 'pasted', new Blob([text]));
}
get('text').addEventListener('paste', (event) => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    const [file] = event.clipboardData.files;
    bring(file.name, file);
    return;
  }
  setTimeout(() => { if (get('text').value.trim()) paste(get('text').value); });
});
get('file').addEventListener('change', () => {
  const [file] = get('file').files;
  if (file) bring(file.name, file);
});
get('kind').addEventListener('change', () => {
  state.kind = get('kind').value;
  shown = null;
  ask();
});
get('cancel').addEventListener('click', () => {
  start();
  idle();
  waiting = false;
  say('Cancelled.');
});
get('examples').addEventListener('click', (event) => {
  const button = event.target.closest('[data-example]');
  if (!button) return;
  state = structuredClone(EMPTY);
  get('kind').value = '';
  example(button.dataset.example);
});

document.addEventListener('dragover', (event) => {
  event.preventDefault();
  document.body.classList.add('dropping');
});
document.addEventListener('dragleave', (event) => {
  if (!event.relatedTarget) document.body.classList.remove('dropping');
});
document.addEventListener('drop', (event) => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  const [file] = event.dataTransfer.files;
  if (file) {
    bring(file.name, file);
    return;
  }
  const text = event.dataTransfer.getData('text/plain');
  if (text) {
    get('text').value = text;
    paste(text);
  }
});
addEventListener('hashchange', () => {
  state = read(location.hash);
  source = null;
  shown = null;
  adopt();
});

start();
