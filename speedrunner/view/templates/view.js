"use strict";
// What pages do once they are there: pictures that come later, pages that grow, rows that are looked for, keys.

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
if (document.body.dataset.growing) later();
