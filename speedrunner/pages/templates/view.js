"use strict";
// Keys that move between turns, tables that sort and filter, and folded parts that a link leads to.

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

function sortRows(table, column, descending) {
  const value = (row) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text.replaceAll(/[,$%]/g, ""));
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

// Each filter selects rows by the words of the column with its name, so the server adds no attributes to rows.
const filters = [...document.querySelectorAll("[data-filter]")];

function filterRows() {
  const table = document.querySelector("main table");
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const wanted = filters.map((filter) => [headings.indexOf(filter.dataset.filter), filter.value]);
  let count = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = wanted.some(([column, value]) => value && row.cells[column].textContent.trim() !== value);
    count += !row.hidden;
  }
  document.querySelector(".filters output").textContent = `${count} shown`;
}

for (const filter of filters) {
  filter.closest(".filters").hidden = false;
  filter.addEventListener("change", filterRows);
}

function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target.matches("details") ? target : target.querySelector(":scope > details"); part; part = part.parentElement.closest("details")) part.open = true;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
}
window.addEventListener("hashchange", unfold);
unfold();
