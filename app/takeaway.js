// The take-away buttons: hand out what the server prepared once (props.value, one JSON). Files are
// made in the browser; nothing is kept on the server.
const box = element.querySelector(".takeaway");
const said = document.createElement("span");
said.className = "said";
said.setAttribute("role", "status");
const CSV = "Cycles (CSV)";
let pack = null;
const save = (blob, ending) => {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(blob);
  a.download = `${pack.name}.${ending}`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
  said.textContent = `saved ${a.download}`;
};
const text = (kind, type) => () => save(new Blob([pack[kind]], { type }), kind);
const png = () => {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([pack.svg], { type: "image/svg+xml" }));
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = image.width * 2; canvas.height = image.height * 2;
    const pen = canvas.getContext("2d");
    pen.scale(2, 2); pen.drawImage(image, 0, 0);
    canvas.toBlob((blob) => save(blob, "png"), "image/png");
    URL.revokeObjectURL(url);
  };
  image.onerror = () => { said.textContent = "this browser cannot turn the card into a PNG; save it as SVG"; };
  image.src = url;
};
const link = async () => {
  if (!pack.query) { said.textContent = "the prompt is too long for a link; save the run as JSON"; return; }
  const url = `${location.origin}${location.pathname}?${pack.query}`;
  try { await navigator.clipboard.writeText(url); said.textContent = "link copied"; }
  catch { said.textContent = url; }
};
const buttons = [
  ["Save run (JSON)", text("json", "application/json")],
  [CSV, text("csv", "text/csv")],
  ["Card (HTML)", text("html", "text/html")],
  ["Card (SVG)", text("svg", "image/svg+xml")],
  ["Card (PNG)", png],
  ["Copy link", link],
].map(([name, act]) => {
  const b = document.createElement("button");
  b.type = "button"; b.className = "tbtn"; b.textContent = name; b.disabled = true;
  b.addEventListener("click", act);
  return b;
});
box.append(...buttons, said);
const refresh = () => {
  pack = props.value ? JSON.parse(props.value) : null;
  for (const b of buttons) b.disabled = !pack || (b.textContent === CSV && !pack.csv);
  said.textContent = pack?.no_csv ?? "";
};
refresh();
watch("value", refresh);
