"use strict";
// What pages do once they are there: pages that grow, tables that sort, rows that are looked for, keys.

function goTo(step) {
  const turns = [...document.querySelectorAll(".turn")];
  const at = turns.indexOf(document.activeElement.closest(".turn"));
  const seen = turns.findIndex((turn) => turn.getBoundingClientRect().bottom > 20);
  const next = turns[Math.min(Math.max(at < 0 ? seen : at + step, 0), turns.length - 1)];
  if (next) {
    next.scrollIntoView();
    next.focus({ preventScroll: true });
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "j") goTo(1);
  if (event.key === "k") goTo(-1);
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    const episodes = document.querySelector(".tabs a[href$='episodes.html']");
    if (search || episodes) event.preventDefault();
    if (search) search.focus();
    else if (episodes) location.assign(`${episodes.href}#search`);
  }
});

if (location.hash === "#search") document.querySelector("input[type=search]")?.focus();

// Library, sleeps and tasks: tables that sort by a column, and folded parts that a link leads to.

function sortRows(table, column, descending) {
  const value = (row) => {
    const cell = row.cells[column];
    const text = "value" in cell.dataset ? cell.dataset.value : cell.textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return text === "" || text === "–" ? null : Number.isNaN(number) ? text : number;
  };
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [value(row), row]);
  keyed.sort(([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null); // unknown values come last
    const order = typeof one === typeof other ? (one < other ? -1 : one > other ? 1 : 0) : typeof one === "number" ? -1 : 1;
    return descending ? -order : order;
  });
  body.append(...keyed.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const isNumber = heading.classList.contains("number");
      const current = heading.getAttribute("aria-sort") || (isNumber ? "ascending" : "descending");
      const descending = current === "ascending"; // numbers begin with the largest
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortRows(table, column, descending);
    });
  });
}

function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target.matches("details") ? target : target.querySelector(":scope > details"); part; part = part.parentElement.closest("details")) part.open = true;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
}
window.addEventListener("hashchange", unfold);
unfold();
// Updates: newer versions of a page arrive as server-sent events and change only what differs

const BASE = new URL(".", document.currentScript.src).href;
const OWN = ["open", "hidden", "value", "checked", "selected"]; // what a person may have changed

function isSame(now, then) {
  return now.nodeType === then.nodeType && now.nodeName === then.nodeName && (now.id || "") === (then.id || "");
}

function update(now, then) {
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.nodeValue !== then.nodeValue) now.nodeValue = then.nodeValue;
    return;
  }
  for (const { name, value } of [...then.attributes])
    if (!OWN.includes(name) && now.getAttribute(name) !== value) now.setAttribute(name, value);
  for (const { name } of [...now.attributes])
    if (!OWN.includes(name) && !then.hasAttribute(name)) now.removeAttribute(name);
  if (now.nodeName === "PROGRESS") now.value = then.value;
  let at = now.firstChild;
  for (const child of [...then.childNodes]) {
    const known = child.id && [...now.children].find((each) => each.id === child.id);
    if (known && known !== at) now.insertBefore(known, at);
    const match = known || (at && isSame(at, child) ? at : null);
    if (match) update(match, child);
    else now.insertBefore(child, at);
    if (match) at = match.nextSibling;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let updates = null;

function follow() {
  if (document.hidden || updates || !document.body.dataset.growing) return;
  updates = new EventSource(`${BASE}updates/${location.href.split("#")[0].slice(BASE.length)}`);
  updates.addEventListener("page", (event) => {
    const page = new DOMParser().parseFromString(JSON.parse(event.data), "text/html");
    for (const part of ["header", "main"]) {
      const then = page.querySelector(`body > ${part}`);
      if (then) update(document.querySelector(`body > ${part}`), then);
    }
    document.dispatchEvent(new Event("updated")); // filters apply to what is new
  });
  updates.addEventListener("end", unfollow);
}

function unfollow() {
  if (updates) updates.close();
  updates = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow())); // browsers allow six streams
follow();
// Search on static pages: rows by what they show, and texts by a word index that comes in small scripts

const rows = document.getElementById("rows"), texts = document.getElementById("texts");
const SHARDS = 64, TURNS = 100, shards = new Map();

function addShard(number, words) {
  shards.get(number).resolve(words);
}

function loadShard(number) {
  if (!document.getElementById("static-search").dataset.shards.split(" ").includes(String(number))) return {};
  if (!shards.has(number)) {
    const shard = {};
    shard.words = new Promise((resolve) => (shard.resolve = resolve));
    shards.set(number, shard);
    const script = document.createElement("script");
    script.src = `search/${number}.js`;
    script.onerror = () => shard.resolve({});
    document.head.append(script);
  }
  return shards.get(number).words;
}

async function findWord(word, isPrefix) {
  // Returns the first turn of each episode that has the word.
  const words = await loadShard((31 * word.charCodeAt(0) + word.charCodeAt(1)) % SHARDS);
  const found = new Map();
  const fitting = isPrefix ? Object.keys(words).filter((each) => each.startsWith(word)) : Object.hasOwn(words, word) ? [word] : [];
  for (const each of fitting)
    for (let n = 0; n < words[each].length; n += 2) {
      const [episode, turn] = [words[each][n], words[each][n + 1]];
      found.set(episode, Math.min(turn, found.get(episode) ?? turn));
    }
  return found;
}

async function findTexts(text) {
  const words = (text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []).filter((word) => word.length > 1);
  if (!words.length) return null;
  const isOpen = /[\p{L}\p{N}_]$/u.test(text);
  const found = await Promise.all(words.map((word, n) => findWord(word, isOpen && n === words.length - 1)));
  found.sort((one, other) => one.size - other.size);
  return new Map([...found[0]].filter(([episode]) => found.every((each) => each.has(episode))));
}

async function filterRows() {
  const [wanted, text] = [rows.value.toLowerCase(), texts.value];
  const hits = await findTexts(text);
  if (text !== texts.value) return; // a newer search follows
  let left = 0;
  document.querySelectorAll("#episodes tbody tr").forEach((row, n) => {
    row.hidden = !row.textContent.toLowerCase().includes(wanted) || (hits !== null && !hits.has(n));
    left += !row.hidden;
    const link = row.querySelector("a"), turn = hits && hits.get(n);
    if (link && !row.hidden) {
      const folder = link.getAttribute("href").replace(/[^/]*$/, "");
      link.setAttribute("href", folder + (turn ? `${Math.floor((turn - 1) / TURNS) + 1}.html#turn-${turn}` : "1.html"));
      link.textContent = folder.slice(2, -1) + (turn ? `, turn ${turn}` : "");
    }
  });
  const status = document.querySelector("[role=status]");
  status.textContent = status.textContent.replace(/^\d+/, left);
}

if (rows && texts) {
  for (const field of [rows, texts]) field.addEventListener("input", filterRows);
  document.getElementById("static-search").addEventListener("submit", (event) => event.preventDefault());
  filterRows();
}
