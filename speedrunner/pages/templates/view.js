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
});

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
