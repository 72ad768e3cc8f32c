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

function inUse(part) {
  const changed = [...part.querySelectorAll("input, select")].some((field) =>
    field.options ? !field.options[field.selectedIndex].defaultSelected && field.selectedIndex > 0 : field.value !== field.defaultValue
  );
  return changed || (part.contains(document.activeElement) && document.activeElement.matches("a, input, select, button, summary"));
}

async function grow() {
  try {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["header", "main"]) {
      const now = document.querySelector(part), then = page.querySelector(part);
      if (!then || now.innerHTML === then.innerHTML || inUse(now)) continue;
      const scrolled = [...now.querySelectorAll(".wide")].map((wide) => wide.scrollLeft);
      now.replaceWith(then);
      then.querySelectorAll(".wide").forEach((wide, n) => (wide.scrollLeft = scrolled[n] || 0));
    }
    document.body.dataset.growing = page.body.dataset.growing || document.body.dataset.growing;
  } catch {
    // The server has ended, or does not answer now.
  }
  later();
}

function later() {
  setTimeout(grow, 1000 * Number(document.body.dataset.growing));
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
if (document.body.dataset.growing) later();

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
