// The page: which view is open, in which language, over which model. location.hash holds all of it, and never reaches
// the server.
import { getInfo, Problem } from "./api.js";
import { make, rove } from "./controls.js";
import { LANGUAGES, preferredLanguage, say, speak } from "./labels.js";
import { openCompare } from "./views/compare.js";
import { openInside } from "./views/inside.js";
import { openNeighbours } from "./views/neighbours.js";
import { openPredictions } from "./views/predictions.js";
import { openUsages } from "./views/usages.js";

const VIEWS = {
  compare: openCompare,
  usages: openUsages,
  neighbours: openNeighbours,
  predictions: openPredictions,
  inside: openInside,
};
const LONGEST = 8000; // characters of a text in an address
const states = Object.fromEntries(Object.keys(VIEWS).map((name) => [name, {}]));
const shared = { view: "compare", lang: null, model: null };
let info = null;
let opened = { redraw() {} };
let turn = 0;

function readAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  shared.view = Object.hasOwn(VIEWS, given.view ?? "") ? given.view : "compare";
  shared.lang = LANGUAGES.includes(given.lang) ? given.lang : shared.lang;
  shared.model = given.model ?? shared.model;
  for (const name of ["view", "lang", "model"]) delete given[name];
  const long = Object.entries(states[shared.view]).filter(
    ([name, value]) => value.length > LONGEST && !(name in given),
  );
  states[shared.view] = { ...given, ...Object.fromEntries(long) }; // what an address cannot hold stays
}

function writeAddress({ push = false } = {}) {
  let tooLong = false;
  const values = new URLSearchParams({ view: shared.view });
  if (shared.lang) values.set("lang", shared.lang);
  if (shared.model && info?.models.length > 1) values.set("model", shared.model);
  for (const [name, value] of Object.entries(states[shared.view])) {
    if (value.length > LONGEST) tooLong = true;
    else values.set(name, value);
  }
  document.body.classList.toggle("too-long", tooLong);
  const address = `#${values}`;
  if (address === location.hash) return;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** What a view knows of the page. */
function makePage() {
  const name = shared.view;
  return {
    state: states[name],
    model: info.models.find((model) => model.name === shared.model) ?? info.models[0],
    /** Keep values in the address; null takes one away. */
    save(values) {
      for (const [key, value] of Object.entries(values)) {
        if (value === null) delete states[name][key];
        else states[name][key] = `${value}`;
      }
      if (shared.view === name) writeAddress();
    },
    /** Run what may be refused; a refusal becomes one line. `work` is told how to ask whether it is still wanted. */
    async attempt(work) {
      const own = ++turn;
      const isWanted = () => own === turn;
      const root = document.getElementById("view");
      root.setAttribute("aria-busy", "true");
      tell("");
      try {
        await work(isWanted);
      } catch (problem) {
        if (!isWanted()) return;
        tell(problem instanceof Problem ? problem.message : `${say("failed")} ${problem.message}`);
        if (!(problem instanceof Problem)) console.error(problem);
      } finally {
        if (isWanted()) root.removeAttribute("aria-busy");
      }
    },
    tell,
  };
}

function tell(message) {
  const line = document.getElementById("problem");
  line.textContent = message;
  line.hidden = !message;
}

function openView() {
  speak(shared.lang ?? preferredLanguage());
  for (const node of document.querySelectorAll("[data-label]")) node.textContent = say(node.dataset.label);
  document.getElementById("language").value = document.documentElement.lang;
  document.title = `${say(shared.view)} – elmokit`;
  drawTabs();
  drawTheme();
  writeAddress();
  tell("");
  turn++;
  const root = document.getElementById("view");
  root.removeAttribute("aria-busy");
  root.setAttribute("aria-labelledby", `tab-${shared.view}`);
  root.className = `view ${shared.view}`;
  root.replaceChildren();
  opened = VIEWS[shared.view](root, makePage());
}

function drawTabs() {
  const tabs = document.getElementById("tabs");
  const hadFocus = tabs.contains(document.activeElement);
  const fresh = make(
    "div",
    { class: "tabs", id: "tabs", role: "tablist", "aria-label": say("views") },
    Object.keys(VIEWS).map((name) =>
      make(
        "button",
        {
          type: "button",
          class: "tab",
          role: "tab",
          id: `tab-${name}`,
          "aria-selected": `${name === shared.view}`,
          "aria-controls": "view",
          click: () => switchTo(name),
        },
        say(name),
      ),
    ),
  );
  tabs.replaceWith(fresh);
  rove(fresh, ".tab");
  const open = document.getElementById(`tab-${shared.view}`);
  open.scrollIntoView({ block: "nearest", inline: "center" });
  if (hadFocus) open.focus();
}

function switchTo(name) {
  shared.view = name;
  writeAddress({ push: true });
  openView();
}

function isDark() {
  const chosen = localStorage.getItem("theme");
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function drawTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  const button = document.getElementById("theme");
  button.textContent = isDark() ? "☀" : "☾";
  button.setAttribute("aria-label", say(isDark() ? "light" : "dark"));
  button.title = say(isDark() ? "light" : "dark");
}

async function start() {
  readAddress();
  speak(shared.lang ?? preferredLanguage());
  drawTheme();
  for (const node of document.querySelectorAll("[data-label]")) node.textContent = say(node.dataset.label);
  try {
    info = await getInfo();
  } catch (problem) {
    tell(problem.message);
    return;
  }
  // A page without a server fills some views only.
  for (const name of Object.keys(VIEWS)) if (info.views && !info.views.includes(name)) delete VIEWS[name];
  readAddress();
  const models = document.getElementById("model");
  models.append(...info.models.map((model) => make("option", { value: model.name }, model.name)));
  models.value = info.models.some((model) => model.name === shared.model) ? shared.model : info.models[0].name;
  document.getElementById("model-tool").hidden = info.models.length < 2;
  models.addEventListener("change", () => {
    shared.model = models.value;
    for (const name of Object.keys(states)) states[name] = {}; // texts of another language would mean nothing
    openView();
  });
  document.getElementById("language").addEventListener("change", (event) => {
    shared.lang = event.target.value;
    openView();
  });
  document.getElementById("theme").addEventListener("click", () => {
    localStorage.setItem("theme", isDark() ? "light" : "dark");
    drawTheme();
    opened.redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawTheme();
    opened.redraw();
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) requestAnimationFrame(() => opened.redraw());
    width = innerWidth;
  });
  addEventListener("popstate", () => {
    readAddress();
    openView();
  });
  openView();
}

start();
