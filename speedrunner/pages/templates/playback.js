"use strict";
// An episode's page: keys for other episodes, and playback of every primitive.

const tiles = document.querySelector("svg.symbols");

function addTiles(images) {
  for (const [name, image] of Object.entries(images)) {
    if (document.getElementById(`w-${name}`)) continue;
    tiles.insertAdjacentHTML("beforeend", `<symbol id="w-${name}"><image width="10.25" height="10.25" href="${image}"/></symbol>`);
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
  if (link) link.click();
});

const player = document.getElementById("playback");
const pieces = new Map(); // by number: what has arrived, or what is called when it arrives
let at = -1; // the position that is shown, and the one that is wanted
let wanted = 0;
let drawn = { piece: 0, index: -1 }; // what the picture shows
let timer = 0;

function addPlayback(number, piece) {
  const waiting = pieces.get(number);
  pieces.set(number, piece);
  if (typeof waiting === "function") waiting();
}

function load(number, arrived) {
  if (pieces.has(number)) {
    if (typeof pieces.get(number) === "function") pieces.set(number, arrived);
    return;
  }
  const source = player.querySelector(`[data-piece="playback-${number}.js"]`);
  if (!source) return;
  pieces.set(number, arrived);
  const script = document.createElement("script");
  script.src = source.dataset.piece;
  script.addEventListener("error", () => {
    pieces.delete(number);
    player.querySelector("output").textContent = "The data of this part did not load.";
    pause();
  });
  document.head.append(script);
}

function goToStep(position) {
  wanted = Math.min(Math.max(position, 0), Number(player.dataset.last));
  const size = Number(player.dataset.size);
  const number = Math.floor(wanted / size) + 1;
  const piece = pieces.get(number);
  if (!piece || typeof piece === "function") {
    player.setAttribute("aria-busy", "true");
    player.querySelector("output").textContent = "Loading …";
    load(number, () => goToStep(wanted));
    return;
  }
  player.removeAttribute("aria-busy");
  at = wanted;
  show(piece, number, at % size);
  if (at % size > size * 0.6) load(number + 1, () => {});
}

function show(piece, number, index) {
  const now = piece.positions[index];
  const last = Number(player.dataset.last);
  drawWorld(piece, number, index);
  const turns = Number(player.dataset.turns);
  const where = player.querySelector(".where");
  where.replaceChildren(at ? `Step ${at} of ${last}, in ` : "The start of the episode: press Play, move the slider, or go to ");
  const link = document.createElement("a");
  const page = Math.floor((now.turn - 1) / turns) + 1;
  link.href = String(page) === player.dataset.page ? `#turn-${now.turn}` : `${page}.html#turn-${now.turn}`;
  link.textContent = `turn ${now.turn}`;
  where.append(link);
  showStack(piece, now);
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

function drawWorld(piece, number, index) {
  const screen = player.querySelector(".screen");
  if (!screen) return;
  const caption = player.querySelector("figcaption");
  if (!piece.positions[index].parts) {
    screen.replaceChildren();
    drawn = { piece: 0, index: -1 };
    caption.textContent = "No picture: the replay of the record ends before this step.";
    return;
  }
  if (drawn.piece !== number || drawn.index > index) {
    addTiles(piece.tiles);
    screen.innerHTML = piece.picture; // drawn by the server: shapes, and texts that it has escaped
    drawn = { piece: number, index: 0 };
  }
  const picture = screen.firstElementChild;
  for (let step = drawn.index + 1; step <= index; step++) {
    const { parts } = piece.positions[step];
    for (let n = 0; n < parts.length; n += 2) {
      const text = piece.texts[parts[n + 1]];
      if (parts[n] < 0) picture.setAttribute("aria-label", text);
      else picture.children[parts[n]].innerHTML = text;
    }
  }
  drawn.index = index;
  caption.textContent = at ? "The world after this step" : "The world at the start";
}

function showStack(piece, now) {
  const frames = [];
  for (let frame = piece.frames[now.frame]; frame; frame = piece.frames[frame.up]) frames.unshift(frame);
  const calls = at ? [...frames, { call: now.call, line: now.line, failed: now.failed }] : [];
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
      button.addEventListener("click", () => showSource(piece, caller, call.line));
      item.append(" ", button);
    }
    if (call.failed) item.classList.add("failed");
    return item;
  });
  player.querySelector(".stack").replaceChildren(...items);
  const caller = frames[frames.length - 1];
  showSource(piece, at ? caller : undefined, now.line);
}

function showSource(piece, caller, line) {
  const box = player.querySelector("pre.source");
  const source = caller && piece.sources[caller.source];
  box.hidden = !source;
  if (!source) return;
  const key = `${source.name} ${source.lines.length} ${caller.source}`;
  if (box.dataset.key !== key || box.piece !== piece) {
    box.innerHTML = source.lines.map((text) => `<span>${text}\n</span>`).join(""); // highlighted by the server
    box.dataset.key = key;
    box.piece = piece;
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
  if (wanted >= Number(player.dataset.last)) goToStep(0);
  const button = player.querySelector("[data-do=play]");
  button.textContent = "Pause";
  button.setAttribute("aria-pressed", "true");
  player.querySelector("output").removeAttribute("aria-live"); // not at every step
  tick();
}

function tick() {
  timer = setTimeout(() => {
    if (at === wanted) goToStep(at + 1);
    if (wanted < Number(player.dataset.last) || at !== wanted) tick();
    else pause();
  }, 1000 / Number(player.querySelector("select").value));
}

function startPlayback() {
  const actions = {
    back: () => (pause(), goToStep(wanted - 1)),
    forward: () => (pause(), goToStep(wanted + 1)),
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
  goToStep(Number(player.dataset.start));
}

if (player) startPlayback();
