// Marks under the block slider's own track: the advised value and the trained block, as shapes at
// their places, as words below, and as the slider's description for a screen reader. props.value is
// one JSON {advised, trained, rung}. Gradio owns the slider: nodes of our own are put inside it, and
// its range is read at every change.
const make = (cls, text) => {
  const node = document.createElement("span");
  node.className = cls;
  if (text !== undefined) node.textContent = text;
  return node;
};
const box = make("block-marks");
const track = make("marks-track");
track.setAttribute("aria-hidden", "true");
const words = make("marks-words");
words.id = "block-marks-words";
box.append(track, words);

function marks() {
  const said = props.value ? JSON.parse(props.value) : {};
  const found = [];
  if (said.advised) found.push({ at: said.advised, shape: "▲", cls: "mark-advised", word: `advised ${said.advised}${said.rung ? ` (${said.rung})` : ""}` });
  if (said.trained) found.push({ at: said.trained, shape: "◆", cls: "mark-trained", word: `trained ${said.trained}` });
  return found;
}
function draw() {
  const holder = document.querySelector("#block");
  const slider = holder?.querySelector('input[type="range"]');
  if (!slider) return;
  if (!box.isConnected) slider.parentElement.after(box);
  for (const input of holder.querySelectorAll("input")) input.setAttribute("aria-describedby", words.id);
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const around = box.getBoundingClientRect(), line = slider.getBoundingClientRect();
  const thumb = 16; // the knob's middle never reaches the track's ends
  const found = marks();
  const same = found.length === 2 && found[0].at === found[1].at;
  track.replaceChildren(...found.filter((m) => m.at >= low && m.at <= high).map((m, k) => {
    const node = make(`tick ${m.cls}`, m.shape);
    const share = high > low ? (m.at - low) / (high - low) : 0;
    const aside = same ? (k ? 6 : -6) : 0; // two marks at one place stand side by side
    node.style.left = `${line.left - around.left + thumb / 2 + share * (line.width - thumb) + aside}px`;
    return node;
  }));
  words.replaceChildren(...found.map((m) => {
    const item = make("marks-word");
    const shape = make(m.cls, m.shape);
    shape.setAttribute("aria-hidden", "true");
    item.append(shape, document.createTextNode(` ${m.word}`));
    return item;
  }));
}
function settle() { // Gradio mounts its slider in its own time
  const holder = document.querySelector("#block");
  if (!holder?.querySelector('input[type="range"]')) { setTimeout(settle, 100); return; }
  draw();
  new ResizeObserver(draw).observe(holder);
  new MutationObserver(draw).observe(holder, { subtree: true, attributeFilter: ["min", "max"] });
}
settle();
watch("value", draw);
