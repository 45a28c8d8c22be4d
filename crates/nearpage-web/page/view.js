// Documents as elements. Whatever comes from outside goes through text nodes.

const SVG = 'http://www.w3.org/2000/svg';

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, '');
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function table(caption, header, rows) {
  const number = (cell) => typeof cell === 'number' || cell?.number;
  const first = rows[0] ?? [];
  const heads = header.map((text, at) => element('th', { scope: 'col', class: number(first[at]) ? 'number' : null }, text));
  const cell = (value) => {
    const { text, mark } = typeof value === 'object' && value !== null ? value : { text: value };
    const kinds = [number(value) ? 'number' : '', mark ?? ''].join(' ').trim();
    return element('td', { class: kinds || null }, String(text ?? '–'));
  };
  return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    element('table', {}, element('thead', {}, element('tr', {}, ...heads)),
      element('tbody', {}, ...rows.map((row) => element('tr', {}, ...row.map(cell))))));
}

export function bytes(count) {
  if (count == null) return 'unknown';
  if (count === 0) return 'no memory';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${Number.isInteger(count) ? count : count.toFixed(1)} ${units[at]}`;
}

/** Ids as ranges: 0-3,8. */
export function ranges(ids) {
  const parts = [];
  for (const id of ids) {
    const last = parts.at(-1);
    if (last && id === last[1] + 1) last[1] = id;
    else parts.push([id, id]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(',');
}

/** Rows that are shown of what grows with nodes and CPUs. */
const ROWS_MOST = 400;

export function zones(machine, before) {
  const old = new Map();
  for (const node of before?.nodes ?? []) for (const zone of node.zones) old.set(`${node.id} ${zone.name} ${zone.start_pfn}`, zone);
  const rows = [];
  for (const node of machine.nodes) {
    for (const zone of node.zones) {
      const was = old.get(`${node.id} ${zone.name} ${zone.start_pfn}`);
      const figure = (of) => {
        const [now, then] = [of(zone), was && of(was)];
        const moved = then !== undefined && then !== now;
        return { number: true, text: moved ? `${then} → ${now}` : now, mark: moved ? 'changed' : '' };
      };
      rows.push([node.id, zone.name, { number: true, text: zone.managed },
        figure((of) => of.watermarks.min), figure((of) => of.watermarks.low), figure((of) => of.watermarks.high),
        figure((of) => of.watermarks.promo), figure((of) => of.pageset.batch), figure((of) => of.pageset.high_min),
        figure((of) => of.pageset.high_max), { number: true, text: zone.protection.join(' ') }, figure((of) => of.stat_threshold)]);
    }
  }
  const header = ['node', 'zone', 'managed', 'min', 'low', 'high', 'promo', 'batch', 'high min', 'high max', 'protection', 'stat threshold'];
  const shown = table('Zones: watermarks and pagesets, in pages', header, rows.slice(0, ROWS_MOST));
  const more = rows.length - ROWS_MOST;
  return more > 0 ? [shown, element('p', { class: 'faint' }, `… and ${more} more zones: the JSON has all.`)] : [shown];
}

const BOX = { width: 150, height: 92, gap: 46 };
const NODES_MOST = 36;

/** The nodes, and in which order one of them goes to the others. */
export function fallbackMap(machine) {
  const shown = machine.nodes.slice(0, NODES_MOST);
  const columns = Math.max(1, Math.min(shown.length, shown.length <= 4 ? 2 : Math.ceil(Math.sqrt(shown.length))));
  const rows = Math.ceil(shown.length / columns);
  const [width, height] = [columns * (BOX.width + BOX.gap) + BOX.gap, rows * (BOX.height + BOX.gap) + BOX.gap];
  const place = (at) => ({
    x: BOX.gap + (at % columns) * (BOX.width + BOX.gap), y: BOX.gap + Math.floor(at / columns) * (BOX.height + BOX.gap),
  });
  const where = new Map(shown.map((node, at) => [node.id, at]));
  const picture = drawn('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': 'Map of nodes; choose one to see where its requests go' });
  picture.append(drawn('defs', {}, drawn('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: 'auto' },
    drawn('path', { class: 'arrow', d: 'M0 0 L8 4 L0 8 z' }))));
  const arcs = drawn('g', { 'aria-hidden': 'true' });
  const largest = Math.max(1, ...shown.map((node) => node.memory_bytes ?? 0));
  const boxes = shown.map((node, at) => {
    const { x, y } = place(at);
    const cpus = node.cpus.length ? `CPU ${ranges(node.cpus)}` : 'no CPUs';
    const text = (dy, content, size = 12) => drawn('text', { x: 10, y: dy, 'font-size': size }, content);
    const badge = drawn('g', { class: 'badge' });
    const box = drawn('g', { 'data-node': node.id, tabindex: 0, role: 'button', transform: `translate(${x} ${y})` },
      drawn('rect', { class: node.memory_bytes ? 'node' : 'node bare', width: BOX.width, height: BOX.height, rx: 6 }),
      text(20, `node ${node.id}`, 14), text(38, cpus.length > 21 ? `${node.cpus.length} CPUs` : cpus),
      text(55, bytes(node.memory_bytes)),
      drawn('rect', { class: 'memory', x: 10, y: 64, height: 5, width: Math.max(0, (node.memory_bytes ?? 0) / largest * (BOX.width - 20)).toFixed(1) }),
      badge);
    return { node, box, badge };
  });
  picture.append(arcs, ...boxes.map(({ box }) => box));
  const list = element('ol', { class: 'orders', 'aria-label': 'Fallback orders' });
  const items = machine.nodes.slice(0, ROWS_MOST).map((node) => {
    const distance = (to) => machine.distances[machine.nodes.indexOf(node)]?.[machine.nodes.findIndex((other) => other.id === to)];
    const order = node.fallback.slice(0, 64).map((to) => `${to} (${distance(to) ?? '?'})`).join(' → ');
    const rest = node.fallback.length > 64 ? ' → …' : '';
    return { node, item: element('li', {}, `node ${node.id}: ${order || 'nowhere'}${rest}`) };
  });
  list.append(...items.map(({ item }) => item));
  const choose = (id) => {
    const chosen = machine.nodes.find((node) => node.id === id);
    arcs.replaceChildren();
    for (const { node, box, badge } of boxes) {
      badge.replaceChildren();
      box.setAttribute('class', node.id === id ? 'picked' : '');
      box.setAttribute('aria-pressed', node.id === id);
      const rank = chosen.fallback.indexOf(node.id);
      box.setAttribute('aria-label', `node ${node.id}, ${node.cpus.length} CPUs, ${bytes(node.memory_bytes)}, ${rank < 0 ? 'not asked' : `asked as number ${rank + 1}`} by node ${id}`);
      if (rank >= 0) {
        badge.append(drawn('circle', { class: 'rank', cx: BOX.width - 16, cy: 18, r: 12 }),
          drawn('text', { class: 'rank-text', x: BOX.width - 16, y: 22.5, 'text-anchor': 'middle', 'font-size': 13 }, String(rank + 1)));
      }
    }
    const centre = (at) => { const { x, y } = place(at); return [x + BOX.width / 2, y + BOX.height / 2]; };
    let from = id;
    for (const to of chosen.fallback) {
      if (to !== from && where.has(from) && where.has(to)) {
        const [[x1, y1], [x2, y2]] = [centre(where.get(from)), centre(where.get(to))];
        // From edge to edge of the boxes.
        const [dx, dy] = [x2 - x1, y2 - y1];
        const edge = Math.min(Math.abs(dx) > 0 ? (BOX.width / 2 + 6) / Math.abs(dx) : Infinity, Math.abs(dy) > 0 ? (BOX.height / 2 + 6) / Math.abs(dy) : Infinity);
        if (edge < 0.5) {
          arcs.append(drawn('path', { class: 'arc', 'marker-end': 'url(#arrow)', d: `M${x1 + dx * edge} ${y1 + dy * edge} L${x2 - dx * edge} ${y2 - dy * edge}` }));
        }
      }
      from = to;
    }
    for (const { node, item } of items) {
      item.className = node.id === id ? 'picked' : '';
    }
  };
  picture.addEventListener('click', (event) => {
    const box = event.target.closest('[data-node]');
    if (box) choose(Number(box.dataset.node));
  });
  picture.addEventListener('keydown', (event) => {
    const box = event.target.closest('[data-node]');
    if (box && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      choose(Number(box.dataset.node));
    }
  });
  if (shown.length) choose(shown[0].id);
  const note = machine.nodes.length > NODES_MOST ? `The first ${NODES_MOST} of ${machine.nodes.length} nodes. ` : '';
  return element('div', { class: 'map' },
    element('figure', {}, element('figcaption', {}, element('b', {}, 'Where requests go, nearest first'), `${note}Choose a node: the numbers say in which order its requests ask the others.`), picture),
    element('figure', {}, element('figcaption', {}, element('b', {}, 'Fallback orders'), 'in brackets the distance'), list));
}

/** Distances, a row a node. */
export function distances(machine) {
  const nodes = machine.nodes.slice(0, 64);
  const rows = nodes.map((node, at) => [`node ${node.id}`, ...machine.distances[at].slice(0, 64)]);
  return table('Distances between nodes', ['', ...nodes.map((node) => String(node.id))], rows);
}

/** A figure that may be a range or unknown. */
const figure = (value) => {
  if (value === null || value === undefined) return 'unknown';
  if (typeof value !== 'object') return String(value);
  const { least, most } = value;
  return most == null ? `${least ?? 0} or more` : `${least ?? 0} to ${most}`;
};

export function explained(log, view) {
  const parts = [];
  if (log.error) parts.push(element('p', { class: 'bad' }, `Reading ended early: ${log.error}`));
  if (!log.reports.length) {
    parts.push(element('p', {}, `No report of refused memory in ${log.lines} lines.`));
  }
  view.reports.forEach(({ head, paragraphs }, at) => {
    const { verdict } = log.reports[at];
    const zones = verdict.zones ?? [];
    const list = ([label, lines]) => [element('h3', {}, label), element('ul', {}, ...lines.map((line) => element('li', {}, line)))];
    const rows = zones.slice(0, ROWS_MOST).map((zone) => {
      // The mark that the words are about.
      const told = verdict.mark === 'high' ? zone.at_high ?? zone : zone;
      const says = zone.excluded ? 'not asked' : told.answer;
      return [zone.node, zone.zone, { text: says, mark: says }, zone.excluded ? JSON.stringify(zone.excluded).replace(/["{}]/g, '').replaceAll('_', ' ') : told.rule.replaceAll('_', ' '),
        { number: true, text: figure(told.free) }, { number: true, text: figure(told.needed) }, { number: true, text: figure(told.mark) },
        { number: true, text: figure(zone.reserve) }, { number: true, text: figure(zone.managed) }];
    });
    parts.push(element('section', {}, element('h2', {}, head), ...paragraphs.flatMap(list),
      ...(rows.length ? [element('h3', {}, 'zone by zone, in pages'),
        table('Zones of the report, in pages', ['node', 'zone', 'answer', 'by', 'free', 'needed', 'mark', 'reserve', 'managed'], rows)] : [])));
  });
  if (view.more) parts.push(element('p', { class: 'faint' }, `… and ${view.more} more reports: the JSON has them.`));
  for (const { line, why } of log.unread.slice(0, 20)) {
    parts.push(element('p', { class: 'known' }, `Line ${line} looks like a report and cannot be read: ${why}`));
  }
  return parts;
}

/** The command's own page, as a part of this one. Its style sheet is this page's; `live` runs its script. */
export function page(html) {
  // The policy of this page refuses styles in a text, and the browser complains of each: they are set one by one.
  const plain = html.replace(/<style[^>]*>[^]*?<\/style>/g, '').replace(/<[a-z][^<>]*>/g, (tag) => tag.replaceAll(' style="', ' data-style="'));
  const parsed = new DOMParser().parseFromString(plain, 'text/html');
  parsed.querySelectorAll('script:not([type="application/json"]), style, link, meta, base, iframe, object, embed').forEach((found) => found.remove());
  for (const found of parsed.querySelectorAll('[data-style]')) found.style.cssText = found.dataset.style;
  const part = element('div', { class: 'answer-page' });
  const body = document.adoptNode(parsed.body);
  for (const heading of body.querySelectorAll('h1')) {
    const lower = element('h2', {}, heading.textContent);
    heading.replaceWith(lower);
  }
  for (const main of body.querySelectorAll('main')) main.replaceWith(...main.childNodes);
  part.append(...body.childNodes);
  return part;
}

const script = (src) => new Promise((done) => {
  const made = element('script', { src });
  made.onload = made.onerror = done;
  document.head.append(made);
});
let plots = null;

/** What the script of reports adds to elements that are new: plots that zoom, tables that sort. */
export async function live() {
  if (document.querySelector('figure.lines')) await (plots ??= script('uPlot.iife.min.js'));
  await script('report.js');
  document.querySelectorAll('head script[src="report.js"]').forEach((found) => found.remove());
}

/** A study of a trace alone: now and then. */
export function study(answer) {
  const columns = [['now', answer.now], ...answer.then.map((then) => [`${then.model}, then`, then.totals])];
  const keys = Object.keys(answer.now).filter((key) => columns.some(([, totals]) => typeof totals[key] === 'number'));
  const rows = keys.map((key) => [key.replaceAll('_', ' '), ...columns.map(([, totals]) => ({ number: true, text: totals[key] ?? '–' }))]);
  return [
    element('p', {}, `${answer.bundle}: ${answer.now_is}`),
    table('Totals', ['', ...columns.map(([name]) => name)], rows),
    element('ul', {}, ...answer.leaves_out.map((line) => element('li', { class: 'faint' }, line))),
  ];
}
