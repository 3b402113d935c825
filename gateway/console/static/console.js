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
  let source = null, filter = null;
  const root = button.dataset.feed.replace("/feed/live", ""), said = document.getElementById("said");
  const rows = document.getElementById("events"), position = document.getElementById("position");
  const asked = () => {
    const found = new URLSearchParams(new FormData(document.querySelector("main form")));
    for (const [name, value] of [...found]) if (!value) found.delete(name);
    return found;
  };
  const query = (found, after) => "?" + String(new URLSearchParams([...found, ["after", after]])).replaceAll("+", "%20");
  button.hidden = false;
  button.addEventListener("click", () => (source ? pause("") : goLive()));
  function goLive() {
    filter = asked();
    source = new EventSource(button.dataset.feed + query(filter, position.textContent));
    button.textContent = "Pause";
    said.textContent = "";
    source.addEventListener("look", show);
    source.addEventListener("trouble", (message) => { said.textContent = JSON.parse(message.data).error; });
    source.addEventListener("refused", (message) => pause(JSON.parse(message.data).error));
    source.addEventListener("error", () => {
      if (!source) return;
      if (source.readyState === EventSource.CLOSED) pause("The feed has ended. Go live to continue where it ended.");
      else said.textContent = "The gateway does not answer; the feed continues once it does.";
    });
    source.addEventListener("open", () => { said.textContent = ""; });
  }
  function pause(why) {
    source.close();
    source = null;
    button.textContent = "Go live";
    said.textContent = why;
  }
  function show(message) {
    const look = JSON.parse(message.data);
    said.textContent = "";
    position.textContent = message.lastEventId;
    if (look.gap) leftOut(look.gap);
    for (const event of look.rows) add(event);
    while (rows.rows.length > 500) rows.deleteRow(-1);
  }
  function leftOut(gap) {
    const place = cell(rows.insertRow(0), `Up to ${gap.up_to} events behind position ${gap.after} are not shown`, root + "/feed" + query(filter, gap.before));
    place.colSpan = 4;
  }
  function add(event) {
    const row = rows.insertRow(0);
    cell(row, event.type, `${root}/events/${event.id}`);
    cell(row, `${event.aggregate_type} ${event.key}`, `${root}/aggregates/${encodeURIComponent(event.aggregate_type)}/${encodeURIComponent(event.key)}?version=${event.version}`);
    cell(row, event.actor);
    cell(row, event.data);
  }
  function cell(row, text, link) {
    const made = link ? document.createElement("a") : document.createElement("bdi"), place = row.insertCell();
    made.textContent = text;
    if (link) made.href = link;
    place.append(made);
    return place;
  }
}

function keepNow() {
  // What is read again by itself says so where it could not be.
  const stale = document.getElementById("stale");
  const say = (why) => { stale.textContent = `${why} since ${stale.dataset.since ||= new Date().toLocaleTimeString()}; this is what it said before.`; };
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target.id !== "now") return;
    if (detail.xhr.responseURL.endsWith("/sign-in")) { detail.shouldSwap = false; location.reload(); return; }
    detail.shouldSwap ||= detail.xhr.status === 503;
    if (detail.shouldSwap) { stale.textContent = ""; delete stale.dataset.since; } else say(`The gateway answers with HTTP ${detail.xhr.status}`);
  });
  document.body.addEventListener("htmx:sendError", () => say("The gateway does not answer"));
}

document.addEventListener("DOMContentLoaded", () => {
  drawCharts();
  if (document.getElementById("now")) keepNow();
  document.body.addEventListener("htmx:afterSwap", drawCharts);
  for (const chooser of document.querySelectorAll("input[data-fills]")) {
    chooser.hidden = false;
    chooser.addEventListener("change", async () => { document.getElementById(chooser.dataset.fills).value = await chooser.files[0].text(); });
  }
  const live = document.getElementById("live");
  if (live && window.EventSource) followFeed(live);
  for (const form of document.querySelectorAll("form[data-submits]")) {
    form.addEventListener("change", () => form.requestSubmit());
    form.addEventListener("input", (event) => { const told = form.querySelector("output"); if (told) told.textContent = `${event.target.value} of ${event.target.max}`; });
  }
});
