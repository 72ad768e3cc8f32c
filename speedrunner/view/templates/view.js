"use strict";
// What pages do once they are there: pictures that come later, pages that grow, rows that are looked for, keys.

async function addPictures(turns) {
  const answer = await fetch(turns.dataset.pictures);
  if (!answer.ok) return;
  for (const [turn, picture] of Object.entries(await answer.json())) {
    const place = turns.querySelector(`[data-turn="${turn}"]`);
    if (place) place.innerHTML = picture; // drawn by the server: shapes, and texts that it has escaped
  }
}

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
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

const rows = document.getElementById("rows");
if (rows) {
  rows.addEventListener("input", () => {
    const wanted = rows.value.toLowerCase();
    for (const row of document.querySelectorAll("#episodes tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
    const left = document.querySelectorAll("#episodes tbody tr:not([hidden])").length;
    const status = document.querySelector("[role=status]");
    status.textContent = status.textContent.replace(/^\d+/, left);
  });
}
const turns = document.querySelector("[data-pictures]");
if (turns) addPictures(turns);
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
