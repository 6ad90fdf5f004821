// Parts that several views share: elements, words to choose, sliders over the layers, files to take away.
import { say } from "./labels.js";
import { saveCsv, savePng, saveSvg } from "./pictures.js";

/** An element; functions are listeners, null values are left out. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** One stop for the Tab key, arrows between the items: what keyboards expect of lists of buttons. */
export function rove(container, selector) {
  const items = () => [...container.querySelectorAll(selector)];
  const rest = (active) =>
    items().forEach((item) => {
      item.tabIndex = item === active ? 0 : -1;
    });
  rest(container.querySelector(`${selector}[aria-pressed="true"], ${selector}[aria-selected="true"]`) ?? items()[0]);
  container.addEventListener("focusin", (event) => items().includes(event.target) && rest(event.target));
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const steps = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: all.length - 1,
    };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    all[(steps[event.key] + all.length) % all.length].focus();
  });
}

/**
 * The words of a text as buttons, with what stands between them.
 * `words` have text, start and stop, counted in characters; `mark(i)` gives classes and whether a word is chosen.
 */
export function makeWords(content, words, { choose, mark }) {
  const letters = [...content];
  const line = make("span", { class: "words", role: "group", "aria-label": say("sentence") });
  let place = 0;
  let last = line;
  words.forEach((word, i) => {
    if (word.start > place) line.append(letters.slice(place, word.start).join(""));
    const { classes = "", chosen = false } = mark(i);
    const shown = letters.slice(word.start, word.stop).join("");
    const button = make(
      "button",
      {
        type: "button",
        class: `word ${classes}`,
        "aria-pressed": `${chosen}`,
        "data-word": word.text,
        click: () => choose(i),
      },
      shown,
    );
    if (i && word.start === place && /^\p{P}+$/u.test(shown))
      last.append(button); // no line begins with a comma
    else line.append((last = make("span", { class: "unbroken" }, button)));
    place = word.stop;
  });
  if (words.length) rove(line, ".word");
  return line;
}

/** Buttons of which one may be pressed. */
export function makeChips(label, names, chosen, choose) {
  const group = make(
    "div",
    { class: "chips", role: "group", "aria-label": label },
    make("span", { class: "chips-label", "aria-hidden": "true" }, label),
    names.map((name) =>
      make(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": `${name === chosen}`,
          click: () => choose(name),
        },
        name,
      ),
    ),
  );
  if (names.length) rove(group, ".chip");
  return group;
}

/**
 * Sliders over the layers, their weights s_j and γ. `state.s` and `state.g` hold them; `changed` is called once a frame.
 * Returns the element, and functions that tell the weights (which sum to 1) and γ.
 */
export function makeMixer(page, numLayers, changed, { withGamma = true } = {}) {
  const equal = Array(numLayers).fill(1 / numLayers);
  const given = (page.state.s ?? "").split(",").map(Number);
  let weights =
    given.length === numLayers && given.every((value) => value >= 0 && value <= 1) ? normalise(given) : equal;
  let gamma = Number(page.state.g) > 0 && Number(page.state.g) < 100 ? Number(page.state.g) : 1;
  const own = page.model.mix;

  const formula = make("output", { class: "formula" });
  const path = makeRange(
    { min: 0, max: numLayers - 1, step: 0.05, label: say("layerSlider"), marks: numLayers },
    (value) => {
      const below = Math.min(Math.floor(value), numLayers - 2);
      take(equal.map((_, j) => (j === below ? 1 - (value - below) : j === below + 1 ? value - below : 0)));
    },
  );
  const each = equal.map((_, j) =>
    makeRange({ min: 0, max: 1, step: 0.01, label: say("weight", { j }) }, (value) => {
      const others = weights.reduce((sum, weight, i) => (i === j ? sum : sum + weight), 0);
      take(
        weights.map((weight, i) =>
          i === j ? value : others ? (weight / others) * (1 - value) : (1 - value) / (numLayers - 1),
        ),
      );
    }),
  );
  const scale = makeRange({ min: 0.1, max: 3, step: 0.05, label: say("gamma") }, (value) => {
    gamma = value;
    refresh();
  });

  function take(next) {
    weights = normalise(next);
    refresh();
  }
  let waiting = 0;
  function refresh() {
    each.forEach((range, j) => range.set(weights[j]));
    scale.set(gamma);
    path.set(weights.reduce((sum, weight, j) => sum + weight * j, 0));
    const sum = weights.map((weight, j) => `${weight.toFixed(2)} h${subscript(j)}`).join(" + ");
    formula.textContent = withGamma ? `ELMo = ${gamma.toFixed(2)} · (${sum})` : sum;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      page.save({
        s: weights === equal ? null : weights.map((weight) => weight.toFixed(3)).join(","),
        g: gamma === 1 ? null : gamma.toFixed(2),
      });
      changed();
    });
  }
  const presets = make(
    "div",
    { class: "chips" },
    make(
      "button",
      {
        type: "button",
        class: "chip",
        click: () => {
          gamma = 1;
          weights = equal;
          refresh();
        },
      },
      say("average"),
    ),
    equal.map((_, j) =>
      make(
        "button",
        { type: "button", class: "chip", "data-layer": j, click: () => take(equal.map((_, i) => Number(i === j))) },
        say("layerNumber", { j }),
      ),
    ),
    own &&
      make(
        "button",
        {
          type: "button",
          class: "chip",
          click: () => {
            if (withGamma) gamma = own.gamma;
            take(own.weights);
          },
        },
        say("ownMix"),
      ),
  );
  rove(presets, ".chip");
  const element = make(
    "section",
    { class: "mixer", "aria-label": say("layers") },
    presets,
    make("div", { class: "slider-row" }, make("span", { class: "slider-name" }, say("layers")), path.element),
    make(
      "div",
      { class: "weights" },
      each.map((range, j) =>
        make("div", { class: "slider-row" }, make("span", { class: "slider-name" }, `s${subscript(j)}`), range.element),
      ),
      withGamma && numLayers > 0
        ? make("div", { class: "slider-row" }, make("span", { class: "slider-name" }, "γ"), scale.element)
        : null,
    ),
    formula,
  );
  refresh();
  return { element, weights: () => weights, gamma: () => (withGamma ? gamma : 1) };
}

const normalise = (values) => {
  const sum = values.reduce((a, b) => a + b, 0);
  return sum ? values.map((value) => value / sum) : values.map(() => 1 / values.length);
};
const subscript = (number) => [...`${number}`].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");

function makeRange({ min, max, step, label, marks = 0 }, moved) {
  const input = make("input", {
    type: "range",
    min,
    max,
    step,
    "aria-label": label,
    input: () => moved(Number(input.value)),
  });
  const value = make("span", { class: "slider-value", "aria-hidden": "true" });
  const ticks = marks
    ? make(
        "span",
        { class: "ticks", "aria-hidden": "true" },
        Array.from({ length: marks }, (_, i) => make("span", {}, `${i}`)),
      )
    : null;
  const element = make(
    "span",
    { class: "range" },
    make("span", { class: "track" }, input, ticks),
    marks ? null : value,
  );
  return {
    element,
    set(number) {
      if (document.activeElement !== input || Math.abs(Number(input.value) - number) > step) input.value = number;
      input.style.setProperty("--part", `${(100 * (number - min)) / (max - min)}%`);
      value.textContent = number.toFixed(2);
    },
  };
}

/**
 * Buttons for the picture, the table and the address of a view. `picture` and `table` are asked when pressed; they
 * give null while there is nothing to show.
 */
export function makeTakeaway(name, picture, table) {
  const button = (kind, give, save) =>
    make(
      "button",
      {
        type: "button",
        class: "quiet-button",
        "data-save": kind,
        click: () => {
          const given = give();
          if (given) save(given, name);
        },
      },
      kind.toUpperCase(),
    );
  const copy = make(
    "button",
    {
      type: "button",
      class: "quiet-button",
      click: async () => {
        copy.textContent = (await copyText(location.href)) ? say("copied") : say("copyLink");
        setTimeout(() => {
          copy.textContent = say("copyLink");
        }, 1500);
      },
    },
    say("copyLink"),
  );
  return make(
    "div",
    { class: "takeaway" },
    make("span", { class: "chips-label" }, say("picture")),
    button("svg", picture, saveSvg),
    button("png", picture, savePng),
    make("span", { class: "chips-label" }, say("table")),
    button("csv", table, saveCsv),
    copy,
    make("span", { class: "note too-long-note" }, say("tooLongToShare")),
  );
}

/** Whether a text could be copied: without https a browser lends its clipboard only the old way. */
async function copyText(content) {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    const field = make("textarea", { class: "unseen" });
    field.value = content;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    return isCopied;
  }
}

/** A whole number of an address from 0 on; whatever else stands there is `otherwise`. */
export function readCount(given, otherwise) {
  return /^\d{1,6}$/.test(given ?? "") ? Number(given) : otherwise;
}

/** The title of a view and what it shows. */
export function makeTitle(title, intro) {
  return make("header", { class: "title" }, make("h1", {}, say(title)), make("p", {}, say(intro)));
}

/** A field for a text of several lines that tells when it was changed and left. */
export function makeTextField(label, value, changed, { rows = 7 } = {}) {
  const field = make("textarea", {
    rows,
    "aria-label": label,
    spellcheck: "false",
    change: () => changed(field.value),
  });
  field.value = value;
  return field;
}
