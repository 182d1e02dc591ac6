"use strict";
// What the page does by itself: charts say what the pointer is on, and the record is printed.
// Everything comes from the JSON in #data; nothing is fetched, and no text becomes markup.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);

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

  // In a frame, the page says how high it is, so that nothing is scrolled inside.
  if (window.parent !== window) {
    const page = document.documentElement;
    new ResizeObserver(function () { window.parent.postMessage({ height: page.offsetHeight }, "*"); }).observe(page);
  }

  // In a frame, whoever framed it may ask for the paper.
  window.addEventListener("message", function (event) {
    if (event.source === window.parent && event.data === "print") window.print();
  });
})();
