// Draws what the daemon tells, second by second. Texts go in as text: nothing that is told becomes markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg"; // A name; nothing is fetched.
/** So far back charts go: as far as anything is known, at most as far as daemons remember. */
const SPANS_S = [60, 120, 300];
const SPAN_MAX_MS = 300 * 1000;
const GONE_AFTER_MS = 4000;
const SILENT_AFTER_MS = 3500;
const COLOURS = 8;

/** Seconds of each daemon by its number, what was told last, and when. */
const seconds = new Map();
let told = null;
let toldAt = 0;

const byId = (id) => document.getElementById(id);

function make(kind, className, text) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Words for numbers.

function short(value, digits = 3) {
  if (value === 0) return "0";
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return String(Number(value.toFixed(Math.min(places, 2))));
}

function amount(value) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return [short(value / size), unit];
  }
  return [short(value), ""];
}

const count = (value) => amount(value).join(" ").trim();
const bytes = (value) => { const [number, unit] = amount(value); return `${number} ${unit}B`; };

function time(micros) {
  if (micros >= 1e6) return `${short(micros / 1e6)} s`;
  if (micros >= 1e3) return `${short(micros / 1e3)} ms`;
  return `${Math.round(micros)} µs`;
}

function lasting(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const files = (n) => (n === 1 ? "1 file" : `${n} files`);
const colour = (daemons, node) => Math.max(0, daemons.findIndex((daemon) => daemon.node === node)) % COLOURS;

// What is told.

function take(view) {
  for (const daemon of view.daemons) {
    const known = seconds.get(daemon.node) || [];
    const last = known.length ? known[known.length - 1].at_ms : 0;
    known.push(...daemon.seconds.filter((second) => second.at_ms > last));
    const from = known.findIndex((second) => second.at_ms > view.now_ms - SPAN_MAX_MS - 5000);
    seconds.set(daemon.node, from < 0 ? [] : known.slice(from));
  }
  told = view;
  toldAt = performance.now();
}

/** How a daemon is: a word, its tone, and what else there is to say. */
function standing(daemon, view) {
  const status = daemon.status;
  const server = view.daemons.find((other) => other.node === view.served_by);
  const peer = server?.status?.peers.find((other) => other.node === daemon.node);
  const isSelf = daemon.node === view.served_by;
  if (!isSelf && peer && !peer.connected) return ["not connected", "bad"];
  if (!status) return isSelf ? ["starting", "warn"] : ["not heard yet", "warn"];
  if (daemon.age_ms > SILENT_AFTER_MS) return ["does not answer", "bad"];
  if (status.clock.state === "off") return ["clock is off", "bad"];
  if (status.quarantine_ms > 0) return [`votes in ${lasting(status.quarantine_ms + 999)}`, "warn"];
  if (status.clock.state === "joining") return ["joining", "warn"];
  const drain = String(status.drain).toLowerCase();
  if (drain !== "no") return [drain, "warn"];
  return ["ok", "good"];
}

function faults(daemon, status) {
  const said = [];
  if (status.disk_is_full) said.push("its disk is nearly full");
  if (status.deny_list_is_stale) said.push("its deny list cannot be read");
  if (status.supervisor?.crash_looping) said.push("it ends again and again");
  if (status.page?.fault) said.push(`its own page: ${status.page.fault}`);
  const lost = status.peers.filter((peer) => !peer.connected).map((peer) => peer.node);
  if (lost.length) said.push(`no connection to daemon ${lost.join(", ")}`);
  return said;
}

function showMembers(view) {
  const cards = view.daemons.map((daemon) => {
    const card = make("div", `member b${colour(view.daemons, daemon.node)}`);
    card.dataset.node = daemon.node;
    const [word, tone] = standing(daemon, view);
    card.dataset.state = word;
    const top = make("div", "top");
    const badge = make("span", "badge", word);
    badge.dataset.tone = tone;
    top.append(make("span", "name", `Daemon ${daemon.node}`), make("span", "where", daemon.address), badge);
    card.append(top);
    const status = daemon.status;
    if (status && tone !== "bad") {
      card.dataset.start = status.daemon.process.incarnation;
      card.dataset.primaries = status.leases.primaries;
      const list = make("dl");
      const facts = [["primary of", count(status.leases.primaries)], ["clients", count(status.locks.sessions)],
        ["start", status.daemon.process.incarnation], ["up", lasting(status.daemon.uptime_ms)]];
      for (const [name, value] of facts) {
        const fact = make("div");
        fact.append(make("dt", "", name), make("dd", "", value));
        list.append(fact);
      }
      card.append(list);
      for (const fault of faults(daemon, status)) card.append(make("p", "", fault));
    }
    return card;
  });
  byId("members").replaceChildren(...cards);
}

function showClocks(view) {
  byId("epsilon").textContent = time(view.epsilon_us);
  const table = make("div", "clocks");
  for (const daemon of view.daemons) {
    const offset = daemon.status?.clock.offset_max_us;
    const isKnown = offset !== undefined && offset !== null && standing(daemon, view)[1] !== "bad";
    table.append(make("span", "name", `Daemon ${daemon.node}`));
    const part = isKnown ? Math.min(1, offset / view.epsilon_us) : 0;
    const tone = part > 0.9 ? "bad" : part > 0.5 ? "warn" : "good";
    const bar = make("div", "bar");
    const svg = draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    svg.append(draw("rect", { x: 0, y: 0, width: part * 100, height: 10, rx: 1, class: tone }));
    svg.append(draw("line", { x1: 50, x2: 50, y1: 0, y2: 10, class: "half", "vector-effect": "non-scaling-stroke" }));
    bar.append(svg);
    const value = make("span", "value", isKnown ? `${time(offset)} · ${Math.round(part * 100)} % of ε` : "unknown");
    value.dataset.node = daemon.node;
    table.append(bar, value);
  }
  byId("clocks").replaceChildren(table);
}

// What happened: what several daemons saw of one thing is one line.

const ENDINGS = {
  died: ["died", "its supervisor or its next start reported the death", "bad"],
  expired: ["fell silent", "its leases ran out: nobody renewed them", "bad"],
  handed_over: ["handed over", "it was drained, stopped, or another one had more of the files", "good"],
};

function grouped(view) {
  const rows = [];
  const row = (at, key, within, begin) => {
    let found = rows.find((other) => other.key === key && Math.abs(other.at - at) <= within);
    if (!found) rows.push(found = { at, key, takers: new Map(), ...begin });
    found.at = Math.min(found.at, at);
    return found;
  };
  for (const daemon of view.daemons) {
    for (const { at, what } of daemon.happened) {
      const ms = at / 1000;
      const [kind, data] = typeof what === "string" ? [what, null] : Object.entries(what)[0];
      if (kind === "started") {
        rows.push({ at: ms, key: kind, node: daemon.node, what: `Daemon ${daemon.node} started`,
          why: daemon.status ? `start ${daemon.status.daemon.process.incarnation}` : "", tone: "good", takers: new Map() });
      } else if (kind === "died" || kind === "took_over") {
        const process = kind === "died" ? data.process : data.from;
        const ending = kind === "died" ? "died" : data.ended;
        const [word, why, tone] = ENDINGS[ending] || ["ended", "nobody remembers how", "warn"];
        const key = `${ending}/${process.node}/${process.incarnation}`;
        const found = row(ms, key, ending === "died" ? Infinity : 15000, { node: process.node, what: `Daemon ${process.node} ${word}`,
          why, tone, cause: ending, start: process.incarnation });
        if (kind === "took_over") found.takers.set(daemon.node, { files: data.files, stall: data.stall_us_max });
      } else if (kind === "lost") {
        rows.push({ at: ms, key: kind, node: daemon.node, what: `Daemon ${daemon.node} lost leases`, tone: "bad",
          why: `${data.leases} ran out before it could renew them`, takers: new Map() });
      } else if (kind === "clock") {
        const [word, tone] = { sound: ["trusts its clock again", "good"], joining: ["hears no majority", "warn"],
          off: ["stands down: its clock is off", "bad"] }[data] || [data, "warn"];
        rows.push({ at: ms, key: kind, node: daemon.node, what: `Daemon ${daemon.node} ${word}`, why: "", tone, takers: new Map() });
      }
    }
  }
  return rows.sort((a, b) => b.at - a.at).slice(0, 60);
}

function showTimeline(rows) {
  const lines = rows.map((row) => {
    const line = make("li");
    line.dataset.tone = row.tone;
    line.dataset.kind = row.key.split("/")[0];
    line.dataset.node = row.node;
    if (row.start !== undefined) line.dataset.start = row.start;
    const what = make("span", "what");
    what.append(make("span", "dot"), row.what);
    const stall = make("span", "stall");
    let why = row.why;
    if (row.takers.size) {
      const longest = Math.max(...[...row.takers.values()].map((taker) => taker.stall));
      line.dataset.stallUs = longest;
      line.dataset.files = [...row.takers.values()].reduce((sum, taker) => sum + taker.files, 0);
      stall.append(time(longest), make("small", "", " stall"));
      const takers = [...row.takers].map(([node, taker]) => `daemon ${node} took over ${files(taker.files)}`);
      why = `${why}; ${takers.join(", ")}`;
    }
    line.append(make("time", "", clock(row.at)), what, stall, make("span", "why", why));
    return line;
  });
  byId("timeline").replaceChildren(...lines);
  byId("nothing").hidden = lines.length > 0;
}

// Charts.

const HEIGHT = 150, LEFT = 50, BOTTOM = 18, TOP = 6;
/** As wide as it is shown, so that texts keep their form. */
let width = 520;
let slots = SPANS_S[0];

function measure(view) {
  const oldest = Math.min(view.now_ms, ...[...seconds.values()].filter((known) => known.length).map((known) => known[0].at_ms));
  slots = SPANS_S.find((span) => view.now_ms - oldest <= span * 1000) || SPANS_S[SPANS_S.length - 1];
  const columns = matchMedia("(max-width: 760px)").matches ? 1 : 2;
  width = Math.max(200, (byId("charts").clientWidth - 12 * (columns - 1)) / columns - 26);
}

/** The values of every daemon in seconds from now: index 0 is the oldest. */
function table(view, of) {
  return view.daemons.map((daemon) => {
    const values = new Array(slots).fill(null);
    for (const second of seconds.get(daemon.node) || []) {
      const slot = slots - 1 - Math.round((view.now_ms - second.at_ms) / 1000);
      if (slot >= 0 && slot < slots) values[slot] = of(second);
    }
    // Seconds are not all equally long, so one may fall between two others.
    for (let slot = 1; slot + 1 < slots; slot++) {
      if (values[slot] === null && values[slot + 1] !== null) values[slot] = values[slot - 1];
    }
    return values;
  });
}

const perSecond = (value, second) => value * 1000 / Math.max(1, second.length_ms);

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function frame(id, title, legend, name) {
  const chart = make("div", "chart");
  chart.dataset.chart = id;
  const head = make("div", "head");
  const note = make("span");
  for (const part of legend) note.append(part);
  head.append(make("b", "", title), note);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": name });
  chart.append(head, svg);
  return [chart, svg];
}

function axes(svg, labels, view, rows) {
  const right = width - 2;
  for (const [y, text] of labels) {
    svg.append(draw("line", { x1: LEFT, x2: right, y1: y, y2: y, class: "grid" }));
    svg.append(draw("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, text));
  }
  const step = slots / (slots === 300 && width > 420 ? 5 : slots === 300 ? 2.5 : 4);
  for (let ago = 0; ago < slots; ago += step) {
    const x = right - (ago / slots) * (right - LEFT);
    const text = ago === 0 ? "now" : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
    svg.append(draw("text", { x, y: HEIGHT - 3, "text-anchor": ago ? "middle" : "end" }, text));
  }
  svg.append(draw("line", { x1: LEFT, x2: right, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM, class: "axis" }));
  for (const row of rows.filter((other) => other.tone === "bad" && view.now_ms - other.at < slots * 1000)) {
    const x = right - ((view.now_ms - row.at) / 1000 / slots) * (right - LEFT);
    svg.append(draw("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: "mark" }));
  }
}

const xOf = (slot) => LEFT + (slot + 0.5) / slots * (width - 2 - LEFT);

/** Daemons on top of each other. */
function stacked(id, title, view, rows, of, words) {
  const values = table(view, of);
  const sums = new Array(slots).fill(0);
  const layers = values.map((line) => {
    const lower = sums.slice();
    line.forEach((value, slot) => { sums[slot] += value || 0; });
    return [lower, sums.slice(), line];
  });
  const top = niceTop(Math.max(0, ...sums));
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const latest = values.reduce((sum, line) => sum + (line[slots - 1] ?? line[slots - 2] ?? line[slots - 3] ?? 0), 0);
  const [chart, svg] = frame(id, title, [words(latest)], `${title}, now ${words(latest)}`);
  chart.dataset.sum = sums.reduce((sum, value) => sum + value, 0);
  axes(svg, [[y(top), words(top)], [y(top / 2), words(top / 2)], [y(0), "0"]], view, rows);
  layers.forEach(([lower, upper, line], index) => {
    const parts = [];
    for (let slot = 0; slot < slots; slot++) {
      if (line[slot] === null) continue;
      let end = slot;
      while (end + 1 < slots && line[end + 1] !== null) end++;
      const points = [];
      for (let i = slot; i <= end; i++) points.push(`${xOf(i).toFixed(1)},${y(upper[i]).toFixed(1)}`);
      for (let i = end; i >= slot; i--) points.push(`${xOf(i).toFixed(1)},${y(lower[i]).toFixed(1)}`);
      parts.push(`M${points.join("L")}Z`);
      slot = end;
    }
    svg.append(draw("path", { d: parts.join("") || "M0,0", class: `area f${index % COLOURS}` }));
  });
  return chart;
}

/** How long replies took, over all daemons, on a scale of powers of ten. */
function latencies(view, rows) {
  const took = table(view, (second) => second.took);
  const curves = [["half_us", "half within"], ["most_us", "99 % within"], ["longest_us", "longest"]].map(([key, name]) => {
    const line = new Array(slots).fill(null);
    for (let slot = 0; slot < slots; slot++) {
      const parts = took.map((values) => values[slot]).filter((value) => value && value.replies > 0);
      if (!parts.length) continue;
      const replies = parts.reduce((sum, part) => sum + part.replies, 0);
      line[slot] = key === "half_us" ? parts.reduce((sum, part) => sum + part[key] * part.replies, 0) / replies
        : Math.max(...parts.map((part) => part[key]));
    }
    return [line, name];
  });
  const all = curves.flatMap(([line]) => line.filter((value) => value !== null));
  const low = all.length ? Math.floor(Math.log10(Math.max(1, Math.min(...all)))) : 2;
  const high = Math.max(low + 1, all.length ? Math.ceil(Math.log10(Math.max(10, ...all))) : 5);
  const y = (value) => HEIGHT - BOTTOM - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low) * (HEIGHT - BOTTOM - TOP);
  const legend = curves.flatMap(([, name], index) => [make("i", `key t${index}`), name]);
  const [chart, svg] = frame("latency", "Reply time", legend, "How long replies took");
  const labels = [];
  for (let power = low; power <= high; power++) labels.push([y(10 ** power), time(10 ** power)]);
  axes(svg, labels, view, rows);
  curves.forEach(([line], index) => {
    let path = "";
    line.forEach((value, slot) => {
      if (value === null) return;
      const isNext = slot > 0 && line[slot - 1] !== null;
      path += `${isNext ? "L" : "M"}${xOf(slot).toFixed(1)},${y(value).toFixed(1)}${isNext ? "" : "h.5"}`;
    });
    svg.append(draw("path", { d: path || "M0,0", class: `curve s${index}` }));
  });
  return chart;
}

function showCharts(view, rows) {
  measure(view);
  byId("charts").replaceChildren(
    stacked("requests", "Requests a second", view, rows, (second) => perSecond(second.requests, second), count),
    latencies(view, rows),
    stacked("data", "Data a second, written and read", view, rows,
      (second) => perSecond(second.written_bytes + second.read_bytes, second), bytes),
    stacked("primaries", "Primary of so many files", view, rows, (second) => second.primaries, count),
  );
  const keys = view.daemons.map((daemon, index) => {
    const key = make("span");
    key.append(make("i", `key k${index % COLOURS}`), `daemon ${daemon.node}`);
    return key;
  });
  const mark = make("span", "", "┆ a daemon died or fell silent");
  byId("legend").replaceChildren(...keys, mark);
}

function showFigures(view, rows) {
  let requests = 0, data = 0, most = 0, primaries = 0;
  // What an operator has drained is as it is meant to be.
  const ok = view.daemons.filter((daemon) => ["ok", "drained"].includes(standing(daemon, view)[0])).length;
  for (const daemon of view.daemons) {
    const known = seconds.get(daemon.node) || [];
    const last = known[known.length - 1];
    if (!last || view.now_ms - last.at_ms > SILENT_AFTER_MS) continue;
    requests += perSecond(last.requests, last);
    data += perSecond(last.written_bytes + last.read_bytes, last);
    most = Math.max(most, last.took.most_us);
    primaries += last.primaries;
  }
  const stalls = rows.filter((row) => row.takers.size && view.now_ms - row.at < SPAN_MAX_MS)
    .flatMap((row) => [...row.takers.values()].map((taker) => taker.stall));
  const figures = [
    ["members", `${ok} of ${view.daemons.length}`, "", "daemons are well"],
    ["requests", ...amount(requests), "requests a second"],
    ["data", ...bytes(data).split(" "), "data a second"],
    ["latency", ...(most ? time(most).split(" ") : ["–", ""]), "99 % of replies within"],
    ["stall", ...(stalls.length ? time(Math.max(...stalls)).split(" ") : ["none", ""]), "longest stall in 5 min"],
  ];
  byId("figures").replaceChildren(...figures.map(([id, value, unit, name]) => {
    const figure = make("div", "figure");
    figure.dataset.figure = id;
    const number = make("b", "", value);
    if (unit) number.append(make("small", "", unit));
    figure.append(number, make("span", "", name));
    return figure;
  }));
  byId("figures").dataset.primaries = primaries;
}

function showState(isGone) {
  const state = byId("state");
  const [word, text] = !told ? ["waiting", "connecting …"]
    : isGone ? ["gone", `daemon ${told.served_by} does not answer since ${clock(Date.now() - (performance.now() - toldAt))}; trying again`]
    : ["live", `live from daemon ${told.served_by}`];
  if (state.dataset.state !== word || !isGone) {
    state.dataset.state = word;
    state.textContent = text;
  }
}

function showFoot(view) {
  const server = view.daemons.find((daemon) => daemon.node === view.served_by);
  const foot = [`Served by daemon ${view.served_by}${server?.status ? `, fleasefs ${server.status.daemon.version}` : ""} · leases of ${short(view.t_max_ms / 1000)} s · `];
  const link = make("a", "", "metrics");
  link.href = "metrics";
  foot.push(link, " · a stall is counted from the last sign of life of a primary, or from when a file was first wanted if that was later");
  byId("foot").replaceChildren(...foot);
}

function show() {
  const view = told;
  const rows = grouped(view);
  byId("cluster").textContent = view.cluster;
  showFigures(view, rows);
  showMembers(view);
  showCharts(view, rows);
  showTimeline(rows);
  showClocks(view);
  showFoot(view);
}

function watch() {
  const source = new EventSource("events");
  source.onmessage = (event) => {
    take(JSON.parse(event.data));
    show();
    showState(false);
  };
  source.onerror = () => {
    // A browser gives up for good when it is refused instead of cut off.
    if (source.readyState === EventSource.CLOSED) {
      source.close();
      setTimeout(watch, 1000);
    }
  };
}

setInterval(() => showState(!told || performance.now() - toldAt > GONE_AFTER_MS), 500);
watch();
