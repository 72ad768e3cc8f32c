"use strict";
// Draws each figure as wide as the page lets it, again when that changes.
const LEAST = 340, MOST = 640; // pixels of a panel; what is wider than the page scrolls

function draw(place) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  const columns = place.dataset.columns, room = place.parentElement.clientWidth;
  figure.layout.width = Math.max(LEAST * columns, Math.min(MOST * columns, room));
  Plotly.react(place, figure.data, figure.layout, { displaylogo: false });
}

function drawAll() {
  document.querySelectorAll(".drawing").forEach(draw);
}

drawAll();
addEventListener("resize", drawAll);
