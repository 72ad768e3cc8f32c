"use strict";
// Shows the value of the mark nearest to the pointer. Without this script, each mark's title does.
const NEAR = 30; // pixels
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

function distance(box, x, y) {
  return Math.hypot(Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom));
}

function hide() {
  tip.hidden = true;
  document.querySelector(".near")?.classList.remove("near");
}

function show(mark, box) {
  hide();
  mark.classList.add("near");
  tip.textContent = mark.dataset.value;
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(room, (box.left + box.right - tip.offsetWidth) / 2))}px`;
  const above = box.top - tip.offsetHeight - 6;
  tip.style.top = `${above < 4 ? box.bottom + 6 : above}px`;
}

for (const panel of document.querySelectorAll(".panel svg")) {
  const marks = [...panel.querySelectorAll("title")].map(title => {
    const mark = title.parentElement;
    mark.dataset.value = title.textContent;
    title.remove();
    return mark;
  });
  const follow = event => {
    let best = null, least = NEAR;
    for (const mark of marks) {
      const box = mark.getBoundingClientRect(), away = distance(box, event.clientX, event.clientY);
      if (away < least) [best, least] = [{ mark, box }, away];
    }
    if (best) show(best.mark, best.box);
    else hide();
  };
  panel.addEventListener("pointermove", follow);
  panel.addEventListener("pointerdown", follow);
  panel.addEventListener("pointerleave", hide);
}
addEventListener("scroll", hide, { passive: true });
