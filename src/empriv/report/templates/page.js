"use strict";
// The report's slider, charts and table. Charts are SVG drawn beforehand; this script moves their marks, by the same
// scales that drew them. Everything comes from the JSON in #data; nothing is fetched, and no text becomes markup.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const slider = document.getElementById("epsilon");
  let at = data.start;

  function place(scale, value, upwards) {
    let share;
    if (scale.kind === "log") {
      const v = Math.min(Math.max(value, scale.low), scale.high);
      share = Math.log(v / scale.low) / Math.log(scale.high / scale.low);
    } else if (scale.kind === "symlog") {
      share = (Math.log1p(value) - Math.log1p(scale.low)) / (Math.log1p(scale.high) - Math.log1p(scale.low));
    } else {
      share = (value - scale.low) / (scale.high - scale.low);
    }
    return scale.length * (upwards ? 1 - share : share);
  }

  function marks(figure, name, tag) {
    return figure.querySelectorAll("." + name + "_marks " + tag);
  }

  function path(xs, ys, back) {
    let d = "";
    for (let k = 0; k < xs.length; k++) d += (k ? "L" : "M") + xs[k].toFixed(2) + "," + ys[k].toFixed(2);
    if (back) {
      for (let k = xs.length - 1; k >= 0; k--) d += "L" + xs[k].toFixed(2) + "," + back[k].toFixed(2);
      d += "Z";
    }
    return d;
  }

  function moveCursor(figure, live) {
    const last = live.epsilons.length - 1;
    const k = Math.min(at, last);
    const x = place(live.x, live.epsilons[k], false);
    for (const line of marks(figure, "cursor", "line")) line.setAttribute("transform", "translate(" + x + ",0)");
    if (!live.values) return;
    const y = place(live.y, live.values[k], true);
    for (const dot of marks(figure, "dot", "path")) dot.setAttribute("transform", "translate(" + x + "," + y + ")");
  }

  function moveBars(figure, live) {
    const foot = live.y.length;
    marks(figure, "bars", "path").forEach(function (bar, k) {
      const box = /^M([-\d.e]+),[-\d.e]+h([-\d.e]+)/.exec(bar.getAttribute("d"));
      const top = place(live.y, live.counts[at][k], true);
      bar.setAttribute("d", "M" + box[1] + "," + top + "h" + box[2] + "v" + (foot - top) + "h-" + box[2] + "Z");
    });
    column(figure, 1, live.counts[at]);
  }

  function moveCells(figure, live) {
    marks(figure, "cells", "path").forEach(function (cell, k) {
      cell.setAttribute("fill", live.colours[live.heat[at][k]]);
    });
    column(figure, 3, live.heat[at].map(function (step) { return live.steps[step]; }));
  }

  function moveConditions(figure, live) {
    const upwards = live.along === "y";
    const spot = function (value) { return place(live.scale, value, upwards); };
    marks(figure, "conditions", "path").forEach(function (mark, k) {
      const to = spot(live.values[at][k]);
      if (upwards) {
        const x = /translate\(([-\d.e]+)/.exec(mark.getAttribute("transform"))[1];
        mark.setAttribute("transform", "translate(" + x + "," + to + ")");
      } else {
        const box = /^M[-\d.e]+,([-\d.e]+)h[-\d.e]+v([-\d.e]+)/.exec(mark.getAttribute("d"));
        mark.setAttribute("d", "M0," + box[1] + "h" + to + "v" + box[2] + "h-" + to + "Z");
      }
    });
    for (const line of marks(figure, "nothing", "line")) {
      const to = spot(live.nothing[at]);
      const x = /translate\(([-\d.e]+)/.exec(line.getAttribute("transform"))[1];
      line.setAttribute("transform", upwards ? "translate(" + x + "," + to + ")" : "translate(" + to + ",0)");
    }
    column(figure, 2, live.table[at]);
  }

  function moveLaws(figure, live) {
    const epsilon = live.epsilons[at] === null ? Infinity : live.epsilons[at];
    const without = live.without[live.index[at]];
    const xs = live.places.map(function (x) { return place(live.x, x, false); });
    const reach = live.r.high;
    const ratio = live.with.map(function (p, k) {
      return p === 0 && without[k] === 0 ? 0 : Math.log(p) - Math.log(without[k]);
    });
    const r = ratio.map(function (v) { return Math.min(reach, Math.max(-reach, v)); });
    const y = function (p) { return place(live.y, p, true); };
    const across = function (v) { return place(live.r, v, true); };
    const high = live.with.map(function (p, k) {
      return Math.abs(ratio[k]) > epsilon ? y(Math.max(p, without[k])) : y(0);
    });
    const shade = marks(figure, "shade", "path")[0];
    if (shade) shade.setAttribute("d", path(xs, high, xs.map(function () { return y(0); })));
    const curves = marks(figure, "laws", "path");
    if (curves.length > 1) curves[1].setAttribute("d", path(xs, without.map(y)));
    const line = marks(figure, "ratio", "path")[0];
    if (line) line.setAttribute("d", path(xs, r.map(across)));
    const edge = r.map(function (v) { return across(Math.min(epsilon, Math.max(-epsilon, v))); });
    const excess = marks(figure, "excess", "path")[0];
    if (excess) excess.setAttribute("d", path(xs, r.map(across), edge));
    marks(figure, "limits", "line").forEach(function (rule, k) {
      const v = Math.min(epsilon, reach) * (k ? -1 : 1);
      const left = /translate\(([-\d.e]+)/.exec(rule.getAttribute("transform"));
      rule.setAttribute("transform", "translate(" + left[1] + "," + across(v) + ")");
    });
    if (figure.dataset.face !== String(live.index[at])) {
      figure.dataset.face = String(live.index[at]);
      column(figure, 2, without);
      column(figure, 3, ratio.map(function (v) { return Number.isFinite(v) ? Number(v.toPrecision(6)) : "—"; }));
    }
  }

  const movers = {cursor: moveCursor, bars: moveBars, cells: moveCells, laws: moveLaws, conditions: moveConditions};

  // A column of the table behind a chart.
  function column(figure, number, values) {
    const rows = figure.querySelectorAll("tbody tr");
    for (let k = 0; k < rows.length && k < values.length; k++) rows[k].cells[number].textContent = String(values[k]);
  }

  function show() {
    for (const spot of document.querySelectorAll("[data-bind]")) {
      const texts = data.bind[spot.dataset.bind];
      if (texts) spot.textContent = texts[at];
    }
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      const live = data.charts[figure.dataset.chart];
      if (live) movers[live.kind](figure, live);
    }
    if (table) table.show(true);
  }

  function go(to) {
    at = Math.min(data.epsilons.length - 1, Math.max(0, to));
    slider.value = String(at);
    slider.setAttribute("aria-valuetext", "epsilon " + data.epsilons[at]);
    show();
  }

  // A click on a curve goes to its epsilon; the slider does the same by keyboard.
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const live = data.charts[figure.dataset.chart];
    const line = live && live.kind === "cursor" ? figure.querySelector(".cursor_marks") : null;
    if (!line) continue;
    figure.querySelector("svg").addEventListener("click", function (event) {
      const frame = line.getScreenCTM();
      const x = (event.clientX - frame.e) / frame.a / live.x.length;
      const wanted = live.x.low + x * (live.x.high - live.x.low);
      let best = 0;
      live.epsilons.forEach(function (e, k) {
        if (Math.abs(e - wanted) < Math.abs(live.epsilons[best] - wanted)) best = k;
      });
      go(best);
    });
  }

  // What a chart says where the pointer is.
  const tip = document.getElementById("tip");
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const hover = data.hover[figure.dataset.chart];
    const frame = hover ? figure.querySelector("." + hover.layer + "_marks") : null;
    if (!frame) continue;
    const svg = figure.querySelector("svg");
    svg.addEventListener("pointermove", function (event) {
      const at = frame.getScreenCTM();
      const share = (event.clientX - at.e) / at.a / data.width;
      let best = 0;
      hover.at.forEach(function (place, k) {
        if (Math.abs(place - share) < Math.abs(hover.at[best] - share)) best = k;
      });
      tip.textContent = hover.text[best];
      tip.hidden = false;
      const left = Math.min(event.pageX + 12, document.documentElement.scrollWidth - tip.offsetWidth - 8);
      tip.style.left = Math.max(4, left) + "px";
      tip.style.top = event.pageY + 14 + "px";
    });
    svg.addEventListener("pointerleave", function () { tip.hidden = true; });
  }

  // The record belongs on paper.
  const record = document.getElementById("record");
  if (record) {
    let open = false;
    window.addEventListener("beforeprint", function () { open = record.open; record.open = true; });
    window.addEventListener("afterprint", function () { record.open = open; });
  }

  // In a frame, whoever framed it may ask for the paper.
  window.addEventListener("message", function (event) {
    if (event.source === window.parent && event.data === "print") window.print();
  });

  // A link to a folded part opens it.
  for (const link of document.querySelectorAll(".contents a")) {
    link.addEventListener("click", function () {
      const part = document.getElementById(link.hash.slice(1));
      if (part && part.tagName === "DETAILS") part.open = true;
    });
  }

  // The individuals

  // delta_i are three digits in 16 bits, rounded as everywhere in empriv: 0 is 0, 1 is 1, 2 is just below 1.
  function decode(text) {
    const raw = atob(text);
    const codes = new Uint16Array(raw.length / 2);
    for (let k = 0; k < codes.length; k++) codes[k] = raw.charCodeAt(2 * k) | (raw.charCodeAt(2 * k + 1) << 8);
    return codes;
  }

  function digits(code) {
    return [100 + (code - 3) % 900, Math.floor((code - 3) / 900) - 40];
  }

  function format(code) {
    if (code < 3) return ["0", "1", ">0.999"][code];
    const [mantissa, exponent] = digits(code);
    if (exponent >= -6) return String(Number(mantissa + "e" + (exponent - 2)));
    const tail = String(-exponent);
    return (mantissa / 100).toFixed(2) + "e-" + (tail.length < 2 ? "0" + tail : tail);
  }

  // codes rise with the value, except for 1 and just below 1
  function rank(code) {
    return code === 1 ? 65537 : code === 2 ? 65536 : code;
  }

  function makeTable(root) {
    const rows = data.individuals;
    const codes = decode(rows.delta_i);
    const stops = data.epsilons.length;
    const size = 50;
    const body = root.querySelector("tbody");
    const find = root.querySelector("input[type=search]");
    const count = root.querySelector("[data-count]");
    const buttons = root.querySelectorAll("th button");
    const [back, on] = root.querySelectorAll("nav button");
    const lower = rows.names.map(function (name) { return name.toLowerCase(); });
    const changes = rows.influence.map(function (text) {
      const value = Number(text.replaceAll(",", ""));
      return Number.isNaN(value) ? Infinity : value;
    });
    let key = "delta_i";
    let falling = true;
    let page = 0;
    let order = [];

    function value(k) {
      if (key === "delta_i") return rank(codes[k * stops + at]);
      if (key === "influence") return changes[k];
      if (key === "databases") return rows.databases[k];
      return lower[k];
    }

    function arrange() {
      const words = find.value.trim().toLowerCase();
      order = [];
      for (let k = 0; k < lower.length; k++) if (lower[k].includes(words)) order.push(k);
      const values = order.map(value);
      const turn = falling ? -1 : 1;
      const place = order.map(function (_, k) { return k; });
      place.sort(function (a, b) {
        return values[a] < values[b] ? -turn : values[a] > values[b] ? turn : a - b;
      });
      order = place.map(function (k) { return order[k]; });
    }

    const heads = ["individual", "delta_i", "largest influence", "in databases"];
    function cell(row, text) {
      const made = row.insertCell();
      made.dataset.l = heads[row.cells.length - 1];
      made.textContent = text;
    }

    function show(again) {
      if (again) arrange();
      const pages = Math.max(1, Math.ceil(order.length / size));
      page = Math.min(page, pages - 1);
      body.replaceChildren();
      for (const k of order.slice(page * size, (page + 1) * size)) {
        const row = body.insertRow();
        cell(row, rows.names[k]);
        cell(row, format(codes[k * stops + at]));
        cell(row, rows.influence[k]);
        cell(row, rows.databases[k].toLocaleString("en-GB"));
      }
      count.textContent = order.length.toLocaleString("en-GB") + (order.length === 1 ? " individual" : " individuals") +
        ", page " + (page + 1) + " of " + pages;
      back.disabled = page === 0;
      on.disabled = page >= pages - 1;
      buttons.forEach(function (button) {
        const sorted = button.dataset.key === key;
        const head = button.parentElement;
        if (sorted) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    }

    find.addEventListener("input", function () { page = 0; show(true); });
    back.addEventListener("click", function () { page -= 1; show(false); });
    on.addEventListener("click", function () { page += 1; show(false); });
    buttons.forEach(function (button) {
      button.addEventListener("click", function () {
        falling = button.dataset.key === key ? !falling : button.dataset.key !== "name";
        key = button.dataset.key;
        page = 0;
        show(true);
      });
    });
    return {show: show};
  }

  const root = document.getElementById("individuals");
  const table = root && data.individuals ? makeTable(root) : null;
  document.documentElement.classList.add("live");
  if (!slider) return; // a page that stays at one epsilon
  slider.addEventListener("input", function () { go(Number(slider.value)); });
  for (const button of document.querySelectorAll("[data-stop]")) {
    button.addEventListener("click", function () { go(Number(button.dataset.stop)); });
  }
  go(Number.isInteger(Number(slider.value)) ? Number(slider.value) : at);
})();
