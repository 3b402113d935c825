"use strict";
// What moves: the chart, the live feed, the slider. Every page reads without it.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const widthIn = (place) => Math.min(place.clientWidth || 600, 960);

function drawCharts() {
  for (const place of document.querySelectorAll(".chart:empty")) {
    const series = JSON.parse(place.dataset.series);
    if (!series[0].length || !window.uPlot) continue;
    const line = (label, colour) => ({ label, stroke: css(colour), width: 2 });
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line") } };
    const chart = new uPlot({ width: widthIn(place), height: 220, series: [{}, line("appends/s", "--accent"), line("reads/s", "--good"), line("p99 ms", "--bad")], axes: [axis, axis] }, series, place);
    new ResizeObserver(() => chart.setSize({ width: widthIn(place), height: 220 })).observe(place);
  }
}

function followFeed(button) {
  let source = null;
  button.hidden = false;
  button.addEventListener("click", () => {
    if (source) { source.close(); source = null; button.textContent = "Go live"; return; }
    const asked = new URLSearchParams(new FormData(document.querySelector("main form")));
    for (const [name, value] of [...asked]) if (!value) asked.delete(name);
    asked.set("after", "now");
    source = new EventSource(button.dataset.feed + "?" + String(asked).replaceAll("+", "%20"));
    button.textContent = "Pause";
    source.onmessage = show;
    source.addEventListener("event", show);
  });
  function show(message) {
    if (message.lastEventId) document.getElementById("position").textContent = message.lastEventId;
    if (!message.data) return;
    const event = JSON.parse(message.data), row = document.getElementById("events").insertRow(0);
    const root = button.dataset.feed.replace("/feed/live", "");
    cell(row, event.type, `${root}/events/${event.id}`);
    cell(row, `${event.aggregate_type} ${event.key}`, `${root}/aggregates/${encodeURIComponent(event.aggregate_type)}/${encodeURIComponent(event.key)}?version=${event.version}`);
    cell(row, event.metadata.actor.type);
    cell(row, JSON.stringify(event.data).slice(0, 120));
    while (row.parentNode.rows.length > 500) row.parentNode.deleteRow(-1);
  }
  function cell(row, text, link) {
    const made = link ? document.createElement("a") : document.createElement("bdi");
    made.textContent = text;
    if (link) made.href = link;
    row.insertCell().append(made);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  drawCharts();
  document.body.addEventListener("htmx:afterSwap", drawCharts);
  const live = document.getElementById("live");
  if (live && window.EventSource) followFeed(live);
  for (const form of document.querySelectorAll("form[data-submits]")) {
    form.addEventListener("change", () => form.requestSubmit());
    form.addEventListener("input", (event) => { const told = form.querySelector("output"); if (told) told.textContent = `${event.target.value} of ${event.target.max}`; });
  }
});
