// Tells the server the time zone, shows new figures as it sends them, and scrolls rows of links to the current one.
// Without it, times are in UTC, and pages show the figures of when they were loaded.
"use strict";

(function () {
  const page = document.body.dataset;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone || !page.zone) return;
  const told = "delayq-web-zone=" + zone;
  const isTold = function () { return document.cookie.split("; ").includes(told); };
  if (isTold()) return;
  document.cookie = told + "; path=" + page.root + "; max-age=31536000; samesite=strict";
  if (page.zone !== zone && isTold()) window.location.reload();
})();

document.querySelectorAll("[data-choose-all]").forEach(function (label) {
  const all = label.querySelector("input");
  const boxes = label.closest("form").querySelectorAll("[name=chosen]");
  label.hidden = false;
  all.addEventListener("change", function () { boxes.forEach(function (box) { box.checked = all.checked; }); });
});

document.querySelectorAll(".tabs [aria-current], .states [aria-current]").forEach(function (one) {
  one.parentElement.scrollLeft = one.offsetLeft + one.offsetWidth / 2 - one.parentElement.clientWidth / 2;
});

(function () {
  const address = document.body.dataset.live;
  const target = document.getElementById("live");
  const state = document.getElementById("live-state");
  if (!address || !target || !window.EventSource) return;

  let source = null;

  function say(text, lost) {
    state.hidden = false;
    state.classList.toggle("lost", lost);
    if (state.textContent !== text) state.textContent = text;
  }

  function open() {
    source = new EventSource(address);
    source.addEventListener("figures", function (event) {
      say("live", false);
      const focused = target.contains(document.activeElement) ? document.activeElement.id : "";
      htmx.swap(target, event.data, { swapStyle: "innerHTML", settleDelay: 0, swapDelay: 0 });
      const again = focused && document.getElementById(focused);
      if (again && again !== document.activeElement) again.focus({ preventScroll: true });
    });
    source.addEventListener("trouble", function (event) { say(event.data, true); });
    source.onerror = function () {
      say("not connected, trying again", true);
      if (source.readyState === EventSource.CLOSED) {
        source = null;
        window.setTimeout(open, 3000);
      }
    };
  }

  // A page that nobody sees reads nothing.
  document.addEventListener("visibilitychange", function () {
    if (document.hidden && source) {
      source.close();
      source = null;
    } else if (!document.hidden && !source) {
      open();
    }
  });
  window.addEventListener("pagehide", function () { if (source) source.close(); });
  if (!document.hidden) open();
})();
