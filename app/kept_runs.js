// The table of runs: kept in this browser only. props.value is the newest run's row; any two rows
// that are ticked are compared. All text goes in through textContent.
const KEY = "dflash-playground-runs-1";
const LIMIT = 50;
const box = element.querySelector(".kept");
const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined) node.textContent = text;
  return node;
};
// A lane that failed has a word in the place of its number.
const known = (x, digits, unit) => (typeof x === "number" ? x.toFixed(digits) + unit : typeof x === "string" ? x : "–");
const named = (r) => (r.block ? `block ${r.block}` : String(r.pair ?? "")); // a server may not tell its block
const columns = [
  ["when", (r) => String(r.date ?? "")],
  ["pair", (r) => String(r.pair ?? "")],
  ["block", (r) => String(r.block ?? "")],
  ["prompt", (r) => String(r.prompt ?? "")],
  ["speedup", (r) => known(r.speedup, 2, "×")],
  ["end to end", (r) => known(r.end_to_end, 2, "×")],
  ["τ", (r) => known(r.tau, 2, "")],
  ["DFlash", (r) => known(r.dflash_tps, 0, " tok/s")],
  ["one at a time", (r) => known(r.baseline_tps, 0, " tok/s")],
  ["text", (r) => String(r.lossless ?? "") + (r.stopped ? ", stopped" : "")],
  ["source", (r) => String(r.source ?? "")],
];
const numbers = [["speedup", "speedup", "×"], ["end to end", "end_to_end", "×"], ["tokens per cycle", "tau", ""], ["DFlash tok/s", "dflash_tps", ""], ["one-at-a-time tok/s", "baseline_tps", ""]];
let rows = [];
try { const read = JSON.parse(localStorage.getItem(KEY) ?? "[]"); rows = Array.isArray(read) ? read.filter((r) => r && typeof r === "object") : []; } catch { rows = []; }
let ticked = [];
const ticks = new Map();
const outcome = make("div", "compared");
outcome.setAttribute("role", "status");
const keep = () => { try { localStorage.setItem(KEY, JSON.stringify(rows)); } catch { /* a full or blocked storage keeps only this visit's rows */ } };

function draw() {
  box.replaceChildren(); ticks.clear();
  if (!rows.length) { box.append(make("p", "caption", "Your runs will be listed here, in this browser only.")); return; }
  const scroller = make("div", "kept-scroll");
  scroller.tabIndex = 0;
  const table = make("table", "data");
  const head = make("tr");
  head.append(make("th", "", "compare"), ...columns.map(([name]) => make("th", "", name)), make("th", "", ""));
  const body = make("tbody");
  for (const r of rows) {
    const line = make("tr");
    const tick = make("input");
    tick.type = "checkbox"; tick.checked = ticked.includes(r.id);
    tick.setAttribute("aria-label", `compare the run of ${r.date}, ${named(r)}`);
    tick.addEventListener("change", () => {
      ticked = tick.checked ? [...ticked, r.id].slice(-2) : ticked.filter((id) => id !== r.id);
      for (const [id, node] of ticks) node.checked = ticked.includes(id);
      outcome.replaceChildren(...compared());
    });
    ticks.set(r.id, tick);
    const first = make("td"); first.append(tick);
    const show = make("button", "tbtn", "show");
    show.type = "button";
    show.addEventListener("click", () => trigger("select", { id: r.id }));
    const last = make("td"); last.append(show);
    line.append(first, ...columns.map(([, cell]) => make("td", "", cell(r))), last);
    body.append(line);
  }
  const thead = make("thead"); thead.append(head);
  table.append(thead, body); scroller.append(table);
  const clear = make("button", "tbtn", "Forget all");
  clear.type = "button";
  clear.addEventListener("click", () => { rows = []; ticked = []; keep(); draw(); });
  outcome.replaceChildren(...compared());
  box.append(scroller, outcome, clear);
}
function compared() {
  const [a, b] = ticked.map((id) => rows.find((r) => r.id === id));
  if (!a || !b) return [document.createTextNode(rows.length > 1 ? "Tick two runs to compare them." : "")];
  const list = make("ul");
  for (const [name, key, unit] of numbers) {
    if (typeof a[key] !== "number" || typeof b[key] !== "number" || !(a[key] > 0)) continue;
    const change = (b[key] / a[key] - 1) * 100;
    list.append(make("li", "", `${name}: ${a[key].toFixed(2)}${unit} → ${b[key].toFixed(2)}${unit} (${change >= 0 ? "+" : ""}${change.toFixed(0)} %)`));
  }
  const out = [make("b", "", `${named(a)} (${a.date}) → ${named(b)} (${b.date})`), list];
  if (a.machine !== b.machine) out.push(make("p", "caption", "These two were measured on different machines."));
  if (a.prompt !== b.prompt) out.push(make("p", "caption", "These two had different prompts."));
  return out;
}
function take() {
  if (!props.value) return;
  const row = JSON.parse(props.value);
  rows = [row, ...rows.filter((r) => r.id !== row.id)].slice(0, LIMIT);
  keep(); draw();
}
draw();
take();
watch("value", take);
