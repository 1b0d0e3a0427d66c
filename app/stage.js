// The stage: two lanes, the block strip and the replay controls, drawn from one growing string of
// JSON lines (app/stage.py writes them). Runs as the body of a gr.HTML js_on_load, so `element`,
// `props` and `watch` are given. All text goes in through textContent: nothing here parses markup.
const root = element.querySelector(".stage");
const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined) node.textContent = text;
  return node;
};
const visible = (text) => (text === "" ? "…" : text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥"));
const ms = (s) => (s * 1e3 < 10 ? (s * 1e3).toFixed(1) : (s * 1e3).toFixed(0)) + " ms";
const clock = (s) => (s < 10 ? s.toFixed(2) : s.toFixed(1)) + " s";
const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const rate = (x) => (x >= 99.95 ? Math.round(x).toLocaleString("en-US") : x.toFixed(1)) + " tok/s";
const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

// ---------------------------------------------------------------- the frame, built once
function buildLane(title, cls) {
  const box = make("section", `lane ${cls}`);
  const head = make("header", "lane-head");
  const name = make("h3", "lane-name", title);
  const gauge = make("span", "gauge", "");
  const meta = make("span", "lane-meta", "");
  head.append(name, gauge, meta);
  // Reversed, so that the newest line stays in sight without asking for the layout.
  const scroller = make("div", "lane-text");
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", `${title}: text`);
  const text = make("div", "lane-words");
  scroller.append(text);
  // Lines are blocks of their own (a long text is not laid out again per token), which must not
  // double the line breaks of what is copied.
  text.addEventListener("copy", (e) => {
    const picked = document.getSelection();
    if (!picked.rangeCount) return;
    e.clipboardData.setData("text/plain", picked.getRangeAt(0).cloneContents().textContent);
    e.preventDefault();
  });
  const note = make("p", "lane-note", "");
  box.append(head, scroller, note);
  return { box, name, gauge, meta, text, note };
}
const lanes = [buildLane("Autoregressive", "lane-ar"), buildLane("DFlash", "lane-df")];
const gap = make("div", "gap");
const pair = make("div", "lanes");
pair.append(lanes[0].box, lanes[1].box);

const player = make("div", "player");
player.setAttribute("role", "group");
player.setAttribute("aria-label", "Replay");
function control(label, glyph, act) {
  const b = make("button", "pbtn", glyph);
  b.type = "button";
  b.setAttribute("aria-label", label);
  b.title = label;
  b.addEventListener("click", act);
  player.append(b);
  return b;
}
control("To the start", "|◂", () => seek(0));
control("One cycle back", "◂", () => step(-1));
const playBtn = control("Play", "▶", () => (playing ? pause() : play()));
control("One cycle forward", "▸", () => step(1));
control("To the end", "▸|", () => seek(duration()));
const scrub = make("input", "scrub");
Object.assign(scrub, { type: "range", min: 0, max: 1000, value: 1000 });
scrub.setAttribute("aria-label", "Time in the replay");
scrub.addEventListener("input", () => seek((scrub.value / 1000) * duration()));
const timeLabel = make("span", "ptime", "");
const speedPick = make("select", "pspeed");
speedPick.setAttribute("aria-label", "Replay speed");
for (const [v, t] of [[1, "real speed"], [0.5, "½ speed"], [0.2, "⅕ speed"], [0.05, "1/20 speed"], [3, "3× speed"]]) {
  const o = make("option", "", t);
  o.value = v;
  speedPick.append(o);
}
const playerNote = make("span", "pnote", "");
player.append(scrub, timeLabel, speedPick, playerNote);

const legend = make("div", "legend");
for (const [cls, word] of [["acc", "accepted draft"], ["bon", "the target's own token (bonus)"], ["rej", "rejected, target's token below"], ["unj", "never judged"], ["anc", "anchor"]]) {
  const item = make("span", "legend-item");
  item.append(make("i", `key k-${cls}`), document.createTextNode(word));
  legend.append(item);
}
const stripBox = make("div", "strip-box");
const stripHead = make("div", "strip-title");
const strip = make("div", "strip");
strip.setAttribute("role", "grid");
strip.setAttribute("aria-label", "Blocks, newest first. Arrow keys move between slots.");
const detail = make("div", "slot-detail");
detail.setAttribute("aria-live", "polite");
stripBox.append(stripHead, legend, strip, detail);
const live = make("div", "sr-only");
live.setAttribute("role", "status");
root.append(gap, pair, player, stripBox, live);

// ---------------------------------------------------------------- what is known about the run
let run, vocab, timeline, burst, lines, cycles, ended, playhead, shown, playing, lastTick, consumed, source;
function reset() {
  pause();
  run = null; vocab = {}; ended = null; playhead = Infinity;
  timeline = [[], []]; // per lane: {t, nodes, row, total}
  burst = [1, 1]; // per lane: entries that came at once, in the beginning
  lines = [0, 0]; // the line block that the next token of each lane belongs to
  shown = [0, 0]; // how many timeline entries are on screen
  cycles = []; consumed = 0; source = ""; asked = null;
  for (const lane of lanes) {
    lane.text.replaceChildren(); lane.note.textContent = ""; lane.gauge.textContent = ""; lane.meta.textContent = "";
    lane.box.classList.remove("failed"); lane.done = null;
  }
  strip.replaceChildren(); detail.textContent = ""; gap.textContent = ""; stripHead.textContent = "";
  root.dataset.state = "empty";
}

function tokenNode(text, cls, title) {
  const node = make("span", `tok ${cls}${text.startsWith("\n") ? " nl" : ""}`, text);
  node.title = title;
  return node;
}

function addEntry(l, t, nodes, row, counted) {
  const before = timeline[l].length ? timeline[l][timeline[l].length - 1].total : 0;
  for (const node of nodes) {
    node._line = lines[l];
    if (node.textContent.endsWith("\n")) lines[l] += 1;
  }
  timeline[l].push({ t, nodes, row, total: counted ?? before + nodes.length });
}
function lineBlock(l, index) {
  const box = lanes[l].text;
  while (box.children.length <= index) box.append(make("div", "line"));
  return box.children[index];
}

function slotNode(cycle, index, kind, main, under, label) {
  const cell = make("span", `slot s-${kind}`);
  cell.setAttribute("role", "gridcell");
  cell.tabIndex = -1;
  cell.append(make("span", "slot-main", visible(main)));
  if (under !== null) cell.append(make("span", "slot-under", visible(under)));
  cell.setAttribute("aria-label", label);
  cell._info = { cycle, index, kind };
  return cell;
}

function rowNode(cycle) {
  const row = make("div", "blk");
  row.setAttribute("role", "row");
  const head = make("span", "blk-head", String(cycle.number));
  head.setAttribute("role", "rowheader");
  const cells = make("span", "cells");
  cells.setAttribute("role", "presentation");
  const word = (id) => vocab[id] ?? `#${id}`;
  cells.append(slotNode(cycle, 0, "anc", word(cycle.anchor), null, `Cycle ${cycle.number}, anchor ${word(cycle.anchor)}`));
  cycle.d.forEach((id, k) => {
    const kind = k < cycle.a ? "acc" : k === cycle.a ? "rej" : "unj";
    const under = kind === "rej" ? word(cycle.b) : null;
    const says = { acc: "accepted", rej: `rejected, the target wanted ${word(cycle.b)}`, unj: "never judged" }[kind];
    cells.append(slotNode(cycle, k + 1, kind, word(id), under, `Cycle ${cycle.number}, position ${k + 1}, ${word(id)}, ${says}`));
  });
  if (cycle.a >= cycle.d.length) {
    cells.append(slotNode(cycle, cycle.d.length + 1, "bon", word(cycle.b), null, `Cycle ${cycle.number}, bonus ${word(cycle.b)}`));
  }
  const tail = make("span", "blk-tail");
  const bar = make("span", "blk-bar");
  const d = make("i", "b-draft");
  const v = make("i", "b-verify");
  d.style.flexGrow = cycle.ds * 1e6; v.style.flexGrow = cycle.vs * 1e6;
  bar.append(d, v);
  tail.append(make("b", "", `+${cycle.e.length}`), bar, make("span", "blk-ms", ms(cycle.ds + cycle.vs)));
  tail.title = `draft ${ms(cycle.ds)}, verify ${ms(cycle.vs)}`;
  row.append(head, cells, tail);
  return row;
}

function describe(info) {
  const c = info.cycle;
  const word = (id) => `“${visible(vocab[id] ?? "")}” (id ${id})`;
  const bits = [`Cycle ${c.number}`];
  if (info.kind === "anc") bits.push(`anchor ${word(c.anchor)}: the last token already agreed on; the block starts from it`);
  else {
    const k = info.index - 1;
    if (info.kind === "bon") bits.push(`bonus ${word(c.b)}: all ${c.d.length} drafts were right, and the target's pass gives one more token for free`);
    else {
      bits.push(`position ${info.index}, the draft proposed ${word(c.d[k])}`);
      if (info.kind === "acc") bits.push("accepted: it is exactly what the target chose");
      if (info.kind === "rej") bits.push(`rejected: the target wanted ${word(c.b)}, which was taken instead`);
      if (info.kind === "unj") {
        bits.push("never judged: an earlier position was rejected");
      }
      if (c.x && c.x[k]) {
        const [own, wanted, rank] = c.x[k];
        bits.push(`draft probability ${(100 * own).toFixed(1)} %`);
        if (wanted !== null) bits.push(`target probability ${(100 * wanted).toFixed(1)} %`);
        if (rank !== null) bits.push(`the target's token was number ${rank} in the draft's list`);
      } else {
        bits.push(ended ? "probabilities not looked up yet" : "probabilities follow after the race");
      }
    }
  }
  bits.push(`draft ${ms(c.ds)}, verify ${ms(c.vs)}, ${many(c.e.length, "token")} for one target pass`);
  return bits.join(" · ");
}
const HOW = "Hover, tap or move with the arrow keys: every slot tells its token, what became of it, its probabilities and times.";
let asked = null; // the slot that is described
function tell(cell) {
  if (cell) asked = cell;
  const said = asked ? describe(asked._info) : HOW;
  if (detail.textContent !== said) detail.textContent = said; // a live region speaks at every change
}
for (const kind of ["pointerover", "focusin", "click"]) {
  strip.addEventListener(kind, (e) => { const cell = e.target.closest(".slot"); if (cell) tell(cell); });
}
strip.addEventListener("keydown", (e) => {
  const cell = e.target.closest(".slot");
  if (!cell) return;
  const row = cell.closest(".blk");
  const at = Array.prototype.indexOf.call(cell.parentNode.children, cell);
  let next = null;
  if (e.key === "ArrowRight") next = cell.nextElementSibling;
  if (e.key === "ArrowLeft") next = cell.previousElementSibling;
  if (e.key === "Home") next = cell.parentNode.firstElementChild;
  if (e.key === "End") next = cell.parentNode.lastElementChild;
  const other = e.key === "ArrowDown" ? row.nextElementSibling : e.key === "ArrowUp" ? row.previousElementSibling : null;
  if (other) next = other.querySelector(".cells").children[Math.min(at, other.querySelector(".cells").children.length - 1)];
  if (next) {
    e.preventDefault();
    cell.tabIndex = -1; next.tabIndex = 0; next.focus();
  }
});

// ---------------------------------------------------------------- taking lines in
const take = {
  wait() { root.dataset.state = "waiting"; lanes[1].name.textContent = "DFlash"; },
  run(o) {
    run = o;
    strip.style.setProperty("--slots", o.block + 1);
    lanes[1].name.textContent = o.block ? `DFlash, block ${o.block}` : "DFlash";
    root.dataset.state = "running";
    root.dataset.run = o.id;
    playerNote.textContent = o.where ? `${o.source} on ${o.where}` : "";
  },
  v(o) { Object.assign(vocab, o.t); },
  p(o) {
    const cls = o.l === 0 ? "ar" : "bon";
    addEntry(o.l, o.t, [tokenNode(o.p, cls, "first token, from reading the prompt")], null);
    if (o.l === 1) cycles.anchor = o.i;
    lanes[o.l].prompt = o.n;
  },
  c(o) {
    if (o.l === 0) {
      addEntry(0, o.t, o.p.map((text) => tokenNode(text, "ar", "one target pass, one token")), null);
      return;
    }
    const cycle = { ...o, number: cycles.length + 1, anchor: cycles.anchor };
    cycles.push(cycle);
    cycles.anchor = o.e.length ? o.e[o.e.length - 1] : o.b;
    const nodes = o.p.map((text, k) =>
      k < o.a ? tokenNode(text, "acc", `accepted draft, position ${k + 1} of cycle ${cycle.number}`)
              : tokenNode(text, "bon", `the target's own token, cycle ${cycle.number}`));
    addEntry(1, o.t, nodes, o.d.length ? rowNode(cycle) : null);
  },
  o(o) {
    const cycle = cycles.filter((c) => c.d.length)[o.c];
    if (!cycle) return;
    cycle.x = o.x;
    if (asked && asked._info.cycle === cycle) tell();
  },
  // A server's piece of text is no token: it counts what the server counted, or it is not known.
  // Pieces of one burst were held up on the way, so they tell no pace (as in dflash/metrics.py).
  h(o) {
    const came = timeline[o.l].length;
    if (came && burst[o.l] === came && o.t - lastT(o.l) <= BURST_S) burst[o.l] += 1;
    addEntry(o.l, o.t, [tokenNode(o.p, o.l === 0 ? "ar" : "any", "text from the server")], null, o.n ?? NaN);
  },
  f(o) { lanes[o.l].done = o; timeline[o.l].end = Math.max(o.t, lastT(o.l)); },
  x(o) {
    const hit = o.l < 0 ? lanes : [lanes[o.l]];
    for (const lane of hit) { lane.note.textContent = o.m; }
    if (o.l >= 0) lanes[o.l].box.classList.add("failed");
  },
  end(o) {
    ended = o;
    root.dataset.state = "ended";
    gap.textContent = o.say;
    lanes[0].note.textContent ||= o.notes[0];
    lanes[1].note.textContent ||= o.notes[1];
    lanes[1].text.querySelectorAll(".differs").forEach((n) => n.classList.remove("differs"));
    if (o.differs !== null) markDifference(o.differs);
    if (run.source === "measured here") live.textContent = o.aloud;
    const first = strip.querySelector(".slot");
    if (first) first.tabIndex = 0;
  },
};
function markDifference(index) {
  for (const lane of lanes) {
    const nodes = lane.text.querySelectorAll(".tok");
    if (nodes[index]) { nodes[index].classList.add("differs"); nodes[index].title += "; the two texts differ from here"; }
  }
}

const BURST_S = 0.001;
const failed = (l) => lanes[l].box.classList.contains("failed");
const lastT = (l) => (timeline[l].length ? timeline[l][timeline[l].length - 1].t : 0);
const duration = () => Math.max(timeline[0].end ?? lastT(0), timeline[1].end ?? lastT(1), 1e-3);

function consume(text) {
  if (!text.startsWith(source)) { reset(); }
  const from = consumed;
  const before = ended;
  source = text.slice(0, Math.min(text.length, 120));
  const upto = text.lastIndexOf("\n") + 1;
  if (upto <= from) return;
  consumed = upto;
  for (const line of text.slice(from, upto).split("\n")) {
    if (line) { const o = JSON.parse(line); take[o.k](o); }
  }
  if (ended !== before && ended) {
    pickSpeed();
    if (run.autoplay && !calm()) { play(true); return; }
  }
  render();
}

// ---------------------------------------------------------------- drawing what the playhead allows
function sync(l) {
  const list = timeline[l];
  const box = lanes[l].text;
  while (shown[l] < list.length && list[shown[l]].t <= playhead) {
    const entry = list[shown[l]++];
    for (const node of entry.nodes) lineBlock(l, node._line).append(node);
    if (entry.row) strip.prepend(entry.row);
  }
  while (shown[l] > 0 && list[shown[l] - 1].t > playhead) {
    const entry = list[--shown[l]];
    for (const n of entry.nodes) n.remove();
    if (entry.row) entry.row.remove();
  }
  while (box.lastElementChild && !box.lastElementChild.firstChild) box.lastElementChild.remove();
}
function countAt(l, t) {
  const list = timeline[l];
  let low = 0, high = list.length;
  while (low < high) { const mid = (low + high) >> 1; if (list[mid].t <= t) low = mid + 1; else high = mid; }
  return low ? list[low - 1].total : 0;
}
function render() {
  if (!run) return;
  sync(0); sync(1);
  const at = [0, 1].map((l) => Math.min(playhead, timeline[l].end ?? lastT(l)));
  for (const l of [0, 1]) {
    const list = timeline[l];
    const whole = shown[l] === list.length && lanes[l].done?.n; // a server may count at its end only
    const n = whole || (shown[l] ? list[shown[l] - 1].total : 0);
    const t = shown[l] ? list[shown[l] - 1].t : 0;
    const [first, start] = list.length ? [list[0].t, list[burst[l] - 1].total || 1] : [0, 1];
    const pace = n > start && t > first ? rate((n - start) / (t - first)) : "";
    lanes[l].gauge.textContent = failed(l) ? "failed" : pace;
    const spent = shown[l] && !failed(l) ? clock(at[l]) : "";
    lanes[l].meta.textContent = [n ? many(n, "token") : "", spent].filter(Boolean).join(" · ");
    lanes[l].box.classList.toggle("finished", Boolean(lanes[l].done) && shown[l] === list.length);
  }
  const atEnd = ended && playhead >= duration();
  if (atEnd) gap.textContent = ended.say;
  else {
    const t = ended ? playhead : fairNow();
    const lead = countAt(1, t) - countAt(0, t);
    gap.textContent = t <= 0 || Number.isNaN(lead) || failed(0) || failed(1) ? "" : lead > 0 ? `DFlash is ${many(lead, "token")} ahead` : lead < 0 ? `DFlash is ${many(-lead, "token")} behind` : "level";
  }
  stripHead.textContent = cycles.length ? `Blocks of the DFlash lane: ${many(cycles.filter((c) => c.t <= playhead).length, "cycle")}, newest on top` : "";
  if (!asked) tell();
  root.classList.toggle("has-strip", cycles.some((c) => c.d.length));
  player.classList.toggle("ready", Boolean(ended) && duration() > 1e-3);
  scrub.value = Math.round((1000 * Math.min(playhead, duration())) / duration());
  timeLabel.textContent = `${clock(Math.min(playhead, duration()))} of ${clock(duration())}`;
  scrub.setAttribute("aria-valuetext", timeLabel.textContent);
}
function fairNow() {
  const open = [0, 1].filter((l) => timeline[l].end === undefined);
  return open.length ? Math.min(...open.map(lastT)) : duration();
}

// ---------------------------------------------------------------- replay
// A race that is over before the eye has seen it is replayed slowed down; the label says so.
function pickSpeed() {
  const speeds = [...speedPick.options].map((o) => Number(o.value)).filter((v) => v <= 1);
  const slow = speeds.sort((a, b) => b - a).find((v) => duration() / v >= 2.5) ?? Math.min(...speeds);
  speedPick.value = String(slow);
}
function seek(t) { pause(); playhead = Math.max(0, Math.min(t, duration())); render(); }
function step(by) {
  pause();
  const now = Math.min(playhead, duration());
  const stops = [0, ...timeline[1].map((e) => e.t), duration()];
  const next = by > 0 ? stops.find((t) => t > now + 1e-9) : [...stops].reverse().find((t) => t < now - 1e-9);
  if (next !== undefined) { playhead = next; render(); }
}
function play(fromStart) {
  if (!ended) return;
  if (fromStart === true || playhead >= duration()) playhead = 0;
  playing = true; lastTick = performance.now();
  playBtn.textContent = "❚❚"; playBtn.setAttribute("aria-label", "Pause"); playBtn.title = "Pause";
  requestAnimationFrame(tick);
}
function pause() {
  playing = false;
  playBtn.textContent = "▶"; playBtn.setAttribute("aria-label", "Play"); playBtn.title = "Play";
}
function tick(now) {
  if (!playing) return;
  playhead += ((now - lastTick) / 1e3) * Number(speedPick.value);
  lastTick = now;
  if (playhead >= duration()) { playhead = Infinity; pause(); render(); return; }
  render();
  requestAnimationFrame(tick);
}
player.addEventListener("keydown", (e) => {
  if (e.target === scrub && (e.key === "ArrowLeft" || e.key === "ArrowRight")) {
    e.preventDefault(); step(e.key === "ArrowRight" ? 1 : -1);
  }
});

reset();
consume(props.value || "");
watch("value", () => consume(props.value || ""));
