"use strict";
// Behavior of pages: times in the page's time zone, countdowns, the theme, keys, and the one stream of changes. Every page
// works without it, and does not update itself then.

const page = document.documentElement;

// One time zone a page: UTC where days are counted in it (data-zone), else the browser's.
const isUtc = document.body.dataset.zone === "UTC";
const zone = isUtc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local";
document.getElementById("zone")?.replaceChildren(`Times: ${zone}`);

const PRECISE = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };

function localTimes(root) {
  if (isUtc) return;
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(time.dateTime);
    time.title = time.textContent;
    time.textContent = at.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
    // Styles exclude single fields.
    if (time.dataset.precise) time.textContent = at.toLocaleString([], { ...PRECISE, fractionalSecondDigits: 3 });
  }
}

function left(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

// <span data-until="…"> counts down, <span data-since="…"> up; the server's text stands until this runs.
function clocks() {
  for (const span of document.querySelectorAll("[data-until]")) {
    const ms = new Date(span.dataset.until) - Date.now();
    span.textContent = ms > 0 ? left(ms) : "expired";
  }
  for (const span of document.querySelectorAll("[data-since]")) {
    span.textContent = left(Date.now() - new Date(span.dataset.since));
  }
}

function prepare(root) {
  localTimes(root);
  clocks();
  document.dispatchEvent(new CustomEvent("callgate:shown", { detail: root }));
}

// --- the theme
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-theme-toggle]")) return;
  const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("callgate-theme", page.dataset.theme);
  document.dispatchEvent(new CustomEvent("callgate:theme"));
});

// --- keyboard shortcuts: / for the first search field, g and a letter for a page, ? for the list
let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (Date.now() - going < 1500) {
    going = 0;
    const link = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (event.key === "g") going = Date.now();
  if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); }
  }
  if (event.key === "?") document.getElementById("keys")?.showModal();
});

// --- forms that need a confirmation
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// --- notifications of new approval requests, where this browser wants them: the tool's name, never its arguments
const NOTIFY = "callgate-notify";
const notifies = () => "Notification" in globalThis && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "yes";

function notify({ id, tool }) {
  if (!notifies()) return;
  const shown = new Notification("Approval request", { body: tool, tag: id });
  shown.onclick = () => { globalThis.focus(); location.assign(`/approvals/${encodeURIComponent(id)}`); };
}

function offer(said = "") {
  const button = document.getElementById("notify");
  if (!button || !("Notification" in globalThis)) return;
  button.hidden = false;
  button.textContent = notifies() ? "Stop notifications" : "Notify me of new requests while a page is open";
  document.getElementById("notify-state").textContent = said;
}
document.getElementById("notify")?.addEventListener("click", async () => {
  if (notifies()) {
    localStorage.removeItem(NOTIFY);
    return offer("Notifications are off.");
  }
  if ((await Notification.requestPermission()) !== "granted") return offer("The browser blocks notifications. Allow them in its settings for this site.");
  localStorage.setItem(NOTIFY, "yes");
  offer("Notifications are on while a page of the console is open.");
});
offer();

// --- a file that is chosen goes into a field
document.addEventListener("change", async (event) => {
  const into = event.target.dataset.into;
  const file = event.target.files?.[0];
  if (into && file) document.getElementById(into).value = await file.text();
});

// --- live: what the server says has changed becomes an event that parts of the page wait for. A browser has six connections
// to a server without HTTP/2, and a stream takes one for good: so one page of the console listens for all of them, and another
// goes on when it is closed. The events of one session go to its own page, while that is visible.
const AGAIN_MS = 3000;
const SILENT_MS = 5000;

// Answers with what closes it. A stream that was refused, as while the database is away, is asked for anew.
function stream(path, told) {
  let events, again;
  const open = () => {
    events = new EventSource(path);
    events.onopen = () => told("open");
    events.onerror = () => {
      told("away");
      if (events.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN_MS);
    };
    for (const name of ["session", "tick", "approvals"]) events.addEventListener(name, (event) => told(name, event.data));
  };
  open();
  return () => { clearTimeout(again); events.close(); };
}

function listen() {
  const state = document.getElementById("live");
  const say = (text, alive) => {
    if (!state) return;
    state.textContent = text;
    state.dataset.alive = alive;
  };
  const tell = (name, detail) => document.body.dispatchEvent(new CustomEvent(`live-${name}`, { detail }));
  let heard = 0;
  // Many requests at once, as when a page opens, cause one refresh.
  let news = [];
  const take = (name, data) => {
    if (name !== "away") heard = Date.now();
    say(name === "away" ? "not live: reconnecting" : "live", name !== "away");
    if (name === "tick") return tell(name);
    if (name !== "approvals") return;
    const question = JSON.parse(data);
    if (news.push(question.id) === 1) setTimeout(() => { tell("approvals", news); news = []; }, 150);
  };
  const close = [];
  const shared = new BroadcastChannel("callgate-live");
  shared.onmessage = ({ data: [name, data] }) => take(name, data);
  const leave = new AbortController();
  const lead = () => new Promise((free) => {
    const stop = stream("/events", (name, data) => {
      if (name === "approvals" && JSON.parse(data).new) notify(JSON.parse(data));
      shared.postMessage([name, data]);
      take(name, data);
    });
    close.push(() => { stop(); free(); });
  });
  navigator.locks.request("callgate-live", { signal: leave.signal }, lead).catch(() => {});
  close.push(() => { leave.abort(); shared.close(); });
  // The page that listens may be suspended.
  setInterval(() => { if (heard && Date.now() - heard > SILENT_MS) take("away"); }, 1000);
  const session = document.querySelector("[data-live-session]")?.dataset.liveSession;
  if (session) {
    let stop;
    // What was missed meanwhile is asked for; the page that was just loaded has missed nothing.
    let missed = false;
    const told = (name) => {
      if (name === "session" || (name === "open" && missed)) tell("session");
      missed = true;
    };
    const look = () => {
      stop?.();
      stop = document.hidden ? undefined : stream(`/events?session=${encodeURIComponent(session)}`, told);
    };
    document.addEventListener("visibilitychange", look);
    look();
    close.push(() => stop?.());
  }
  addEventListener("pagehide", () => close.forEach((end) => end()));
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

prepare(document);
setInterval(clocks, 1000);
document.addEventListener("htmx:after:swap", () => prepare(document));
if (document.body.dataset.live) listen();
