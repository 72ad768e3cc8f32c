"use strict";
// Draws each figure in the colours that the page has, again when these change.
const dark = matchMedia("(prefers-color-scheme: dark)");

function colours() {
  const style = getComputedStyle(document.documentElement);
  return { text: style.getPropertyValue("--text").trim(), line: style.getPropertyValue("--line").trim() };
}

function draw(place) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  const { text, line } = colours();
  const layout = Object.assign({}, figure.layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true });
  layout.font = Object.assign({}, layout.font, { color: text });
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis/.test(key)) {
      layout[key] = Object.assign({}, layout[key], { gridcolor: line, zerolinecolor: line, linecolor: line });
    }
  }
  Plotly.react(place, figure.data, layout, { responsive: true, displaylogo: false, displayModeBar: "hover" });
}

function drawAll() {
  document.querySelectorAll(".drawing").forEach(draw);
}

drawAll();
dark.addEventListener("change", drawAll);
