// What a page does beside what it shows without scripts: plots that zoom, tables that sort, sliders over a sweep that was
// computed before. It computes no figure and fetches no file.
(() => {
  "use strict";

  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const made = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const data = (within, kind) => JSON.parse(within.querySelector(`script[data-of="${kind}"]`).textContent);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Tables.

  const rank = cell => {
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = parseFloat(text.replace(/^−/, "-"));
    return Number.isNaN(number) ? [1, text] : [0, number];
  };
  const compare = ([kind, one], [other_kind, other]) =>
    kind - other_kind || (kind ? one.localeCompare(other, undefined, { numeric: true }) : one - other);
  const sort = (table, head, at) => {
    const descends = head.ariaSort === "ascending";
    all("th", table).forEach(other => { other.ariaSort = null; });
    head.ariaSort = descends ? "descending" : "ascending";
    const rows = all("tbody tr", table).map(row => [rank(row.cells[at]), row]);
    rows.sort(([one], [other]) => compare(one, other) * (descends ? -1 : 1));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  all("table").filter(table => table.tHead && all("tbody tr", table).length > 1).forEach(table => {
    all("thead th", table).forEach((head, at) => {
      if (!head.textContent) return;
      const button = made("button", { type: "button", title: "sort" }, ...head.childNodes);
      button.addEventListener("click", () => sort(table, head, at));
      head.replaceChildren(button);
    });
  });

  // Plots of lines.

  const plots = [];
  const short = value => {
    const size = Math.abs(value);
    for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= unit && (size >= 1e4 || unit > 1e3)) return `${+(value / unit).toPrecision(4)}${name}`;
    }
    return `${+value.toPrecision(5)}`;
  };
  const zoom = (from, least, most) => plots.filter(of => of.moments === from.moments && of.plot).forEach(of => {
    const { min, max } = of.plot.scales.x;
    if (min !== least || max !== most) of.plot.setScale("x", { min: least, max: most });
  });
  const whole = from => {
    const of_axis = plots.filter(of => of.moments === from.moments);
    zoom(from, Math.min(...of_axis.map(of => of.least)), Math.max(...of_axis.map(of => of.most)));
  };
  const draw = of => {
    const box = of.figure.querySelector("[role=img]");
    const width = Math.max(200, box.clientWidth);
    const range = of.plot ? { ...of.plot.scales.x } : null;
    of.plot?.destroy();
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const value = (_, shown) => shown == null ? "–" : short(shown);
    const series = of.series.map(line => ({
      label: line.name, stroke: line.colour, width: line.width, spanGaps: true, value, points: { show: line.x.length < 2 },
    }));
    const options = {
      width, height: Math.max(180, Math.round(width * 0.45)), series: [{ label: of.moments, value }, ...series],
      scales: { x: { time: false }, y: { range: (_, least, most) => [Math.min(0, least), most > 0 ? most * 1.05 : 1] } },
      axes: [{ ...axis, label: of.moments, values: (_, ticks) => ticks.map(short) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
      cursor: { sync: { key: of.moments }, drag: { x: true, y: false } },
      hooks: { setScale: [(plot, key) => { if (key === "x" && of.plot === plot) zoom(of, plot.scales.x.min, plot.scales.x.max); }] },
    };
    of.figure.classList.add("live");
    box.replaceChildren();
    const joined = uPlot.join(of.series.map(line => [line.x, line.y]));
    of.plot = new uPlot(options, joined, box);
    if (range && range.min != null) of.plot.setScale("x", { min: range.min, max: range.max });
    of.plot.over.addEventListener("dblclick", () => whole(of));
  };
  const keys = (event, of) => {
    if (!of.plot) return;
    const { min, max } = of.plot.scales.x;
    const step = (max - min) / 4;
    const moved = {
      "+": [min + step, max - step], "=": [min + step, max - step], "-": [min - 2 * step, max + 2 * step],
      ArrowLeft: [min - step, max - step], ArrowRight: [min + step, max + step],
    }[event.key];
    if (moved) zoom(of, ...moved);
    else if (event.key === "0") whole(of);
    else return;
    event.preventDefault();
  };
  all("figure.lines").forEach(figure => {
    const { moments, series } = data(figure, "lines");
    const drawn = series.filter(line => line.x.length);
    if (!drawn.length) return;
    const least = Math.min(...drawn.map(line => line.x[0]));
    const most = Math.max(...drawn.map(line => line.x[line.x.length - 1]));
    const of = { figure, moments, series: drawn, plot: null, least, most };
    plots.push(of);
    figure.tabIndex = 0;
    figure.title = "Drag to zoom; double click or 0 for all; + - and arrows, too";
    figure.addEventListener("keydown", event => keys(event, of));
  });
  const again = () => plots.filter(of => of.figure.clientWidth).forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });

  // Places of a timeline: one at a time.

  all(".timeline").forEach(timeline => {
    const places = all(".place", timeline);
    if (places.length < 2) return;
    const options = places.map((place, at) => made("option", { value: at, textContent: place.dataset.place }));
    const select = made("select", {}, ...options);
    const choose = () => places.forEach((place, at) => { place.hidden = at !== +select.value; });
    select.addEventListener("change", () => { choose(); again(); });
    timeline.prepend(made("label", { className: "chooser" }, "Show ", select));
    choose();
  });

  // Sliders over a sweep.

  const distinct = values => [...new Set(values)];
  const keyed = point => new Map([
    ["machine", point.machine ?? "recorded"], ["rules", point.rules],
    ...point.settings.map(text => { const at = text.indexOf("="); return [text.slice(0, at), text.slice(at + 1)]; }),
  ]);
  all(".sweep").forEach(sweep => {
    const { points, now, figures } = data(sweep, "sweep");
    const places = points.map(keyed);
    const dimensions = [...places[0].keys()].map(key => ({ key, values: distinct(places.map(of => of.get(key))) }))
      .filter(of => of.values.length > 1);
    if (!dimensions.length) return;
    const rows = all("tr[data-point]", document);
    const asked = new URLSearchParams(location.hash.slice(1));
    const show = changed => {
      const at = places.findIndex(of => dimensions.every(({ key, values, input }) => of.get(key) === values[input.value]));
      dimensions.forEach(({ values, input, output }) => {
        output.value = values[input.value];
        input.setAttribute("aria-valuetext", output.value);
      });
      if (at < 0) return;
      const before = now.find(of => of.machine === points[at].machine) ?? points[0];
      shown.replaceChildren(...figures.map(({ key, name, unit }) => {
        const [value, first] = [points[at][key], before[key]];
        const ratio = value != null && first ? (value / first).toFixed(2) : "–";
        const human = unit === "bytes" && value != null ? ` (${(value / 2 ** 20).toPrecision(3)} MiB)` : "";
        const exact = made("output", { textContent: value == null ? "unknown" : `${Number.isInteger(value) ? value : +value.toPrecision(6)}` });
        Object.assign(exact.dataset, { figure: key, value });
        const part = made("meter", { min: 0, max: Math.max(...points.map(point => point[key] ?? 0), 1e-9), value: value ?? 0 });
        part.setAttribute("aria-hidden", "true");
        return made("tr", {}, made("th", { scope: "row", textContent: name }), made("td", { className: "number" }, exact, human),
          made("td", { className: "number", textContent: ratio }), made("td", {}, part));
      }));
      rows.forEach(row => row.classList.toggle("chosen", +row.dataset.point === at));
      marks.forEach(mark => mark(points[at]));
      const state = new URLSearchParams(dimensions.map(({ key, values, input }) => [key, values[input.value]]));
      if (changed) history.replaceState(null, "", `#${state}`);
    };
    const controls = dimensions.map(of => {
      const input = made("input", { type: "range", min: 0, max: of.values.length - 1, step: 1, value: Math.max(0, of.values.indexOf(asked.get(of.key))) });
      input.addEventListener("input", () => show(true));
      Object.assign(of, { input, output: made("output", {}) });
      return made("label", {}, made("span", { textContent: of.key }), input, of.output);
    });
    const shown = made("tbody");
    const heads = ["figure", "value", "to now", ""].map((textContent, at) => made("th", { textContent, className: at % 3 ? "number" : "" }));
    const marks = all("figure.scatter").map(figure => {
      const svg = figure.querySelector("svg");
      const [x0, x1, left, right, y0, y1, bottom, top] = figure.dataset.axes.split(" ").map(Number);
      const circle = document.createElementNS(svg.namespaceURI, "circle");
      circle.setAttribute("class", "chosen");
      circle.setAttribute("r", 9);
      svg.append(circle);
      const place = (value, low, high, from, to) => from + (to - from) * Math.log(value / low) / Math.log(high / low);
      return point => {
        const [x, y] = [figure.dataset.x, figure.dataset.y].map(key => Math.max(1, point[key] ?? 0));
        circle.setAttribute("cx", place(x, x0, x1, left, right));
        circle.setAttribute("cy", place(y, y0, y1, bottom, top));
      };
    });
    const table = made("table", {}, made("thead", {}, made("tr", {}, ...heads)), shown);
    sweep.append(made("div", { className: "sliders" }, ...controls), made("div", { className: "scroll" }, table));
    show(false);
  });
  again();
})();
