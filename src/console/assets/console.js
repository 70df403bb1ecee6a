"use strict";
// What pages do by themselves: times in the browser's time zone, what is left of a term, the theme, keys, and the one
// stream that says that something has changed. Every page works without it; it then only stands still.

const page = document.documentElement;

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(time.dateTime);
    time.title = time.textContent;
    time.textContent = at.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
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
    span.textContent = ms > 0 ? left(ms) : "over";
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

// --- keys: / for the first search field, g and a letter for a page, ? for the list
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

// --- forms that ask once more before they are sent
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// --- notifications of new questions, for whoever asked for them in this browser: which tool, and nothing of its arguments
const NOTIFY = "callgate-notify";
const notifies = () => "Notification" in globalThis && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "yes";

function notify({ id, tool }) {
  if (!notifies()) return;
  const shown = new Notification("A call waits for an answer", { body: tool, tag: id });
  shown.onclick = () => { globalThis.focus(); location.assign(`/approvals/${encodeURIComponent(id)}`); };
}

function offer(said = "") {
  const button = document.getElementById("notify");
  if (!button || !("Notification" in globalThis)) return;
  button.hidden = false;
  button.textContent = notifies() ? "Notify me no more" : "Notify me of new questions while a page is open";
  document.getElementById("notify-state").textContent = said;
}
document.getElementById("notify")?.addEventListener("click", async () => {
  if (notifies()) {
    localStorage.removeItem(NOTIFY);
    return offer("You are not notified any more.");
  }
  if ((await Notification.requestPermission()) !== "granted") return offer("The browser does not allow it: its settings for this site do.");
  localStorage.setItem(NOTIFY, "yes");
  offer("You are notified as long as a page of the console is open.");
});
offer();

// --- a file that is chosen goes into a field
document.addEventListener("change", async (event) => {
  const into = event.target.dataset.into;
  const file = event.target.files?.[0];
  if (into && file) document.getElementById(into).value = await file.text();
});

// --- live: what the server says has changed becomes an event that parts of the page wait for
function listen() {
  const session = document.querySelector("[data-live-session]")?.dataset.liveSession;
  const events = new EventSource(session ? `/events?session=${encodeURIComponent(session)}` : "/events");
  const state = document.getElementById("live");
  const say = (text, alive) => {
    if (!state) return;
    state.textContent = text;
    state.dataset.alive = alive;
  };
  events.onopen = () => say("live", true);
  events.onerror = () => say(events.readyState === EventSource.CLOSED ? "not live: load the page again" : "connecting again", false);
  const tell = (name, detail) => document.body.dispatchEvent(new CustomEvent(`live-${name}`, { detail }));
  for (const name of ["session", "tick"]) {
    events.addEventListener(name, () => { say("live", true); tell(name); });
  }
  // Many questions at once, as when a page opens, are looked at once.
  let news = [];
  events.addEventListener("approvals", (event) => {
    say("live", true);
    const question = JSON.parse(event.data);
    if (question.new) notify(question);
    if (news.push(question.id) === 1) setTimeout(() => { tell("approvals", news); news = []; }, 150);
  });
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

prepare(document);
setInterval(clocks, 1000);
document.addEventListener("htmx:after:swap", () => prepare(document));
if (document.body.dataset.live) listen();
