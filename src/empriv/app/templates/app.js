// What a page of the app does by itself. Pages work without it, except for what is said to be live.
//   data-load="/address"              the element is filled from there once the page, or the fold it is in, is shown
//   data-poll="/address"              the element is replaced from there every second, until the answer has no data-poll; if the
//                                   answer has data-reload, the page is asked for anew
//   form data-live="/address" data-into="#id"   whatever is changed in the form is sent there, and the answer put into #id
//   data-beside="field"                an error in such an answer goes beside its field, and those before it go away
//   data-print="#frame"               prints the page in a frame, and so does Ctrl-P: on paper, a frame would be cut off
"use strict";

async function answer(address, options) {
  const response = await fetch(address, { credentials: "same-origin", redirect: "error", ...options });
  return response.text();
}

function dress(root) {
  for (const place of root.querySelectorAll("[data-load]")) {
    const fold = place.closest("details:not([open])");
    if (fold) fold.addEventListener("toggle", () => load(place), { once: true });
    else load(place);
  }
  for (const place of root.querySelectorAll("[data-poll]")) setTimeout(() => poll(place), 1000);
  for (const form of root.querySelectorAll("form[data-live]")) live(form);
  for (const form of root.querySelectorAll("form[method=post]")) form.addEventListener("submit", () => sent(form));
  for (const button of root.querySelectorAll("[data-print]")) {
    button.addEventListener("click", () => document.querySelector(button.dataset.print).contentWindow.postMessage("print", "*"));
  }
}

// What takes long shows that it goes on, and for how long; the answer is a function that ends it.
function wait(place, says) {
  const line = document.createElement("p"), bar = document.createElement("progress"), count = document.createElement("span");
  const began = Date.now();
  line.className = "soft wait";
  bar.setAttribute("aria-label", says);
  count.setAttribute("aria-hidden", "true"); // else it would be read out every second
  line.append(says, count, bar);
  const soon = setTimeout(() => place.prepend(line), 400);
  const ticks = setInterval(() => {
    if (Date.now() - began > 2000) count.textContent = ` ${Math.round((Date.now() - began) / 1000)} s`;
  }, 500);
  return () => { clearTimeout(soon); clearInterval(ticks); line.remove(); };
}

function load(place) {
  const address = place.dataset.load, says = place.textContent.trim();
  place.removeAttribute("data-load");
  place.replaceChildren();
  const done = wait(place, says);
  answer(address).then((html) => { done(); place.innerHTML = html; dress(place); }, () => { done(); gone(place); });
}

// A form is under way: a file may be large, and rows are read before the next page is there.
function sent(form) {
  const done = wait(form.querySelector("[type=submit]:not(.unseen)")?.parentElement ?? form, form.querySelector("[type=file]") ? "Sending the file…" : "One moment…");
  addEventListener("pageshow", done, { once: true }); // back again
}

function silence() {
  const line = document.createElement("p");
  line.className = "alarm";
  line.setAttribute("role", "alert");
  line.textContent = "The desk does not answer. Is `empriv app` still running? Nothing that was saved is lost.";
  return line;
}

function gone(place) {
  place.classList.remove("busy");
  place.replaceChildren(silence());
}

async function poll(place) {
  if (!place.isConnected) return;
  try {
    const html = await answer(place.dataset.poll);
    const box = document.createElement("div");
    box.innerHTML = html;
    const next = box.firstElementChild;
    if (next && next.dataset.reload !== undefined) {
      location.reload();
      return;
    }
    place.replaceWith(...box.childNodes);
    if (next) dress(next.parentElement);
  } catch {
    if (!place.querySelector(".alarm")) place.append(silence());
    setTimeout(() => poll(place), 3000); // the server may be starting again
  }
}

function live(form) {
  const place = document.querySelector(form.dataset.into);
  let waiting = 0, asked = 0, done = () => {};
  const send = async (first) => {
    const turn = ++asked;
    place.classList.add("busy");
    done();
    done = wait(place, "Counting…");
    try {
      const html = await answer(form.dataset.live, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (turn !== asked) return;
      done();
      place.innerHTML = html;
      if (!first) for (const slot of form.querySelectorAll("[data-wrong]")) slot.replaceChildren();
      for (const line of place.querySelectorAll("[data-beside]")) {
        const slot = form.querySelector(`[data-wrong="${CSS.escape(line.dataset.beside)}"]`);
        if (slot && slot.childElementCount) line.remove(); else if (slot) slot.append(line);
      }
      dress(place);
      place.classList.remove("busy");
    } catch { done(); gone(place); }
  };
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(send, 300, false); });
  if (form.dataset.now !== undefined) send(true);
}

// A written page in a frame says how high it is; it may be anybody's, so that it can ask for that and nothing else.
addEventListener("message", (event) => {
  for (const frame of document.querySelectorAll("iframe.page")) {
    const height = Number(event.data?.height);
    if (event.source === frame.contentWindow && height > 0) frame.style.height = `${Math.min(Math.ceil(height) + 4, 20000)}px`;
  }
});

addEventListener("keydown", (event) => {
  const button = document.querySelector("[data-print]");
  if (button && (event.ctrlKey || event.metaKey) && event.key === "p") { event.preventDefault(); button.click(); }
});
dress(document);
document.querySelector("main [aria-invalid=true]")?.focus(); // what must be mended comes first
