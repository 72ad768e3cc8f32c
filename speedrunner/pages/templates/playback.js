"use strict";
// An episode's page: keys for other episodes, and playback of every primitive.

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
  if (link) link.click();
});

const player = document.getElementById("playback");
const data = player && JSON.parse(document.getElementById("playback-data").textContent);
const last = player && data.positions.length - 1;
let at = 0; // the position that is shown
let timer = 0;

function goToStep(position) {
  at = Math.min(Math.max(position, 0), last);
  const now = data.positions[at];
  showWorld(now);
  const where = player.querySelector(".where");
  where.replaceChildren(at ? `Step ${at} of ${last}, in ` : "The start. The first step is below, in ");
  const link = document.createElement("a");
  link.href = `#turn-${now.turn}`;
  link.textContent = `turn ${now.turn}`;
  where.append(link);
  showStack(now);
  player.querySelector(".result-title").textContent = now.failed ? "Error" : "Result";
  const result = player.querySelector("pre.result");
  result.textContent = at ? now.result : "";
  result.hidden = player.querySelector(".result-title").hidden = !at;
  result.classList.toggle("failed", Boolean(now.failed));
  const slider = player.querySelector("input[type=range]");
  slider.value = at;
  slider.setAttribute("aria-valuetext", at ? `step ${at} of ${last}, turn ${now.turn}: ${now.call}` : "start");
  player.querySelector("output").textContent = `${at} / ${last}`;
}

function showWorld(now) {
  const image = player.querySelector(".world img");
  if (!image) return;
  image.hidden = now.image === undefined;
  if (!image.hidden) image.src = data.images[now.image];
  const text = at ? "The world after this step" : "The world at the start";
  player.querySelector("figcaption").textContent = image.hidden ? "This step has no picture." : text;
}

function showStack(now) {
  const frames = [];
  if (!at) now = data.positions[Math.min(1, last)]; // before it plays, the first step is shown
  for (let frame = data.frames[now.frame]; frame; frame = data.frames[frame.up]) frames.unshift(frame);
  const calls = [...frames, { call: now.call, line: now.line, failed: now.failed }];
  const items = calls.map((call, depth) => {
    const item = document.createElement("li");
    const code = document.createElement("code");
    code.textContent = call.call;
    item.append(code);
    const caller = frames[depth - 1];
    if (caller && call.line) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `line ${call.line}`;
      button.setAttribute("aria-label", `Show line ${call.line} of the caller`);
      button.addEventListener("click", () => showSource(caller, call.line));
      item.append(" ", button);
    }
    if (call.failed) item.classList.add("failed");
    return item;
  });
  player.querySelector(".stack").replaceChildren(...items);
  const caller = frames[frames.length - 1];
  showSource(caller, now.line);
}

function showSource(caller, line) {
  const box = player.querySelector("pre.source");
  const source = caller && data.sources[caller.source];
  box.hidden = !source;
  if (!source) return;
  if (box.source !== source) {
    box.innerHTML = source.lines.map((text) => `<span>${text}\n</span>`).join(""); // highlighted by the server
    box.source = source;
  }
  box.setAttribute("aria-label", `Source of ${source.name}${line ? `, line ${line} makes the call` : ""}`);
  box.querySelector(".now")?.classList.remove("now");
  const marked = line && box.children[line - 1];
  if (!marked) return;
  marked.classList.add("now");
  box.scrollTop = Math.max(marked.offsetTop - box.clientHeight / 2, 0);
}

function pause() {
  clearTimeout(timer);
  timer = 0;
  const button = player.querySelector("[data-do=play]");
  button.textContent = "Play";
  button.setAttribute("aria-pressed", "false");
  player.querySelector("output").setAttribute("aria-live", "polite");
}

function play() {
  if (at >= last) goToStep(0);
  const button = player.querySelector("[data-do=play]");
  button.textContent = "Pause";
  button.setAttribute("aria-pressed", "true");
  player.querySelector("output").removeAttribute("aria-live"); // not at every step
  tick();
}

function tick() {
  timer = setTimeout(() => {
    goToStep(at + 1);
    if (at < last) tick();
    else pause();
  }, 1000 / Number(player.querySelector("select").value));
}

function startPlayback() {
  const actions = {
    back: () => (pause(), goToStep(at - 1)),
    forward: () => (pause(), goToStep(at + 1)),
    play: () => (timer ? pause() : play()),
    error: (button) => (pause(), goToStep(Number(button.dataset.step))),
  };
  player.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (button) actions[button.dataset.do](button);
  });
  player.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, pre")) return;
    const slides = event.target.closest("input");
    const keys = { ArrowLeft: "back", ArrowRight: "forward", " ": event.target.closest("button, a") ? "" : "play" };
    const action = keys[event.key];
    if (!action || (slides && event.key !== " ")) return;
    event.preventDefault();
    actions[action]();
  });
  player.querySelector("input[type=range]").addEventListener("input", (event) => {
    pause();
    goToStep(Number(event.target.value));
  });
  for (const link of document.querySelectorAll("a[data-step]")) {
    link.hidden = false;
    link.addEventListener("click", () => {
      pause();
      goToStep(Number(link.dataset.step));
      player.querySelector("input[type=range]").focus({ preventScroll: true });
    });
  }
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) player.querySelector("select").value = "1";
  player.hidden = false;
  goToStep(0);
}

if (player) startPlayback();
