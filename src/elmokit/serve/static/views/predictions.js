// Language model: what would come next and before, substitutes for a word, the surprise of each word in both directions.
import { post } from "../api.js";
import { make, makeChips, makeTakeaway, makeTitle, makeWords, readCount } from "../controls.js";
import { choose, PREDICTIONS } from "../examples.js";
import { say } from "../labels.js";
import { colour, draw, drawing, drawKey, shade, text } from "../pictures.js";
import { shorten } from "../sentences.js";

const TOP = 8;
const HIGHEST = 16; // bits at the end of the colours

export function openPredictions(root, page) {
  root.append(makeTitle("predictionsTitle", "predictionsIntro"));
  if (!page.model.predicts) {
    root.append(make("p", {}, say("cannotPredict")));
    return { redraw() {} };
  }
  const examples = choose(PREDICTIONS, page.model);
  const first = Object.values(examples)[0];
  let content = page.state.text ?? first.text;
  let at = readCount(page.state.at, page.state.text === undefined ? first.at : null);
  let found = null;

  const head = make("div", { class: "bar" });
  const field = make("input", {
    type: "text",
    "aria-label": say("sentence"),
    spellcheck: "false",
    autocomplete: "off",
    change: () => {
      content = field.value.trim();
      at = null;
      load();
    },
  });
  const line = make("p", { class: "spoken" });
  const figure = make("figure", { class: "map scrolls" });
  const lists = make("div", { class: "lists results" });
  root.append(
    head,
    field,
    line,
    figure,
    lists,
    makeTakeaway("language-model", () => drawChart(), table),
  );

  async function load() {
    field.value = content;
    const name = Object.keys(examples).find((each) => examples[each].text === content);
    head.replaceChildren(
      makeChips(say("examples"), Object.keys(examples), name, (chosen) => {
        ({ text: content, at } = examples[chosen]);
        load();
      }),
    );
    await page.attempt(async (isWanted) => {
      const [words] = await post("/tokenize", { model: page.model.name, inputs: [content] });
      const answer = await post("/predict", { model: page.model.name, text: content, top: TOP });
      if (!isWanted()) return;
      found = { words, answer, substitutes: null };
      if (at !== null && at >= words.length) at = null;
      if (at !== null) await replace(at, isWanted);
      else drawAll();
    });
  }

  async function replace(i, isWanted) {
    const { words } = found;
    const occurrence = words.slice(0, i + 1).filter((word) => word.text === words[i].text).length;
    const { substitutes } = await post("/substitutes", {
      model: page.model.name,
      text: content,
      word: words[i].text,
      occurrence,
      top: TOP,
    });
    if (!isWanted()) return;
    found.substitutes = substitutes;
    at = i;
    drawAll();
  }

  function drawAll() {
    if (!found) return;
    const isFirst = content === first.text && at === first.at;
    page.save({ text: isFirst ? null : content, at: isFirst ? null : at });
    const hadFocus = line.contains(document.activeElement);
    line.replaceChildren(
      makeWords(content, found.words, {
        choose: (i) => page.attempt((isWanted) => replace(i, isWanted)),
        mark: (i) => ({ chosen: i === at }),
      }),
    );
    line.querySelectorAll(".word").forEach((button, i) => {
      const { forward, backward } = surprise(found.answer.words[i]);
      button.style.setProperty("--surprise", shade((forward + backward) / 2 / HIGHEST));
    });
    if (hadFocus) line.querySelector('[aria-pressed="true"]')?.focus();
    figure.replaceChildren(drawChart(Math.min(900, root.clientWidth)));
    const { next, previous } = found.answer;
    lists.replaceChildren(
      makeList(say("wouldPrecede"), previous, "previous"),
      found.substitutes && at !== null
        ? makeList(`${say("couldReplace")} “${found.words[at].text}”`, found.substitutes, "substitutes")
        : make("section", {}, make("h3", {}, say("couldReplace")), make("p", { class: "note" }, say("clickToReplace"))),
      makeList(say("wouldFollow"), next, "next"),
    );
  }

  function drawChart(room = 900) {
    if (!found) return null;
    const words = found.answer.words.map((word) => ({ word: word.word, ...surprise(word) }));
    const step = Math.max(44, Math.min(90, room / words.length));
    const half = 110;
    const width = Math.max(Math.min(room, 560), step * words.length);
    const highest = Math.max(HIGHEST, ...words.flatMap((word) => [word.forward, word.backward]));
    const middle = half + 44;
    const svg = drawing(
      width,
      2 * half + 158,
      say("surprise"),
      text(0, 14, `${say("forward")} →`, { size: 12.5, fill: colour("quiet") }),
      text(0, 2 * half + 108, `← ${say("backward")}`, { size: 12.5, fill: colour("quiet") }),
    );
    const labels = []; // above the lines, which would strike them through
    const halo = { stroke: colour("paper"), "stroke-width": 4, "paint-order": "stroke" };
    words.forEach(({ word, forward, backward }, i) => {
      const x = i * step;
      const tall = (bits) => (half * bits) / highest;
      svg.append(
        bar(
          x,
          middle - tall(forward),
          step,
          tall(forward),
          forward,
          `${word}, ${say("forward")}: ${forward.toFixed(1)}`,
        ),
        bar(x, middle + 32, step, tall(backward), backward, `${word}, ${say("backward")}: ${backward.toFixed(1)}`),
        text(x + step / 2, middle + 21, shorten(word, Math.floor(step / 7.2)), {
          size: 13.5,
          anchor: "middle",
          weight: i === at ? 700 : null,
          fill: i === at ? colour("accent") : null,
        }),
      );
      const label = { size: 11, anchor: "middle", fill: colour("quiet"), ...halo };
      labels.push(
        text(x + step / 2, middle - tall(forward) - 5, forward.toFixed(1), label),
        text(x + step / 2, middle + 32 + tall(backward) + 13, backward.toFixed(1), label),
      );
    });
    const along = (name, y) =>
      draw("polyline", {
        points: words.map((word, i) => `${(i + 0.5) * step},${y(word[name])}`).join(" "),
        fill: "none",
        stroke: colour("accent"),
        "stroke-width": 1.5,
        "stroke-opacity": 0.55,
      });
    svg.append(
      along("forward", (bits) => middle - (half * bits) / highest),
      along("backward", (bits) => middle + 32 + (half * bits) / highest),
      ...labels,
      drawKey(0, 2 * half + 126, 200, "0", `${HIGHEST}`, say("surprise")),
    );
    return svg;
  }

  function bar(x, y, step, height, bits, title) {
    const node = draw(
      "rect",
      { x: x + 4, y, width: step - 8, height: Math.max(1, height), rx: 4, fill: shade(bits / HIGHEST) },
      draw("title", {}, title),
    );
    node.dataset.bits = bits.toFixed(3);
    return node;
  }

  function table() {
    if (!found) return null;
    const rows = found.answer.words.map((word, i) => [
      i + 1,
      word.word,
      surprise(word).forward.toFixed(4),
      surprise(word).backward.toFixed(4),
    ]);
    const lists = [
      ["next", found.answer.next],
      ["previous", found.answer.previous],
      ["substitutes", found.substitutes ?? []],
    ];
    return [
      ["number", "word", "forward bits", "backward bits"],
      ...rows,
      [],
      ["list", "word", "probability"],
      ...lists.flatMap(([name, words]) => words.map(({ word, probability }) => [name, word, probability.toFixed(6)])),
    ];
  }

  load();
  return { redraw: drawAll };
}

/** Bits of surprise: the server gives natural logarithms of probabilities. */
function surprise({ forward, backward }) {
  return { forward: -forward / Math.LN2, backward: -backward / Math.LN2 };
}

const MARKS = { "<S>": "sentenceBegin", "</S>": "sentenceEnd", "<UNK>": "unknownWord" };

function makeList(title, words, name) {
  const most = Math.max(...words.map(({ probability }) => probability), 1e-9);
  return make(
    "section",
    { "data-list": name },
    make("h3", {}, title),
    make(
      "ol",
      { class: "likely" },
      words.map(({ word, probability }) => {
        const fill = make("span", { class: "bar-fill" });
        fill.style.width = `${(100 * probability) / most}%`;
        const percent = probability >= 0.0995 ? (100 * probability).toFixed(0) : (100 * probability).toPrecision(2);
        return make(
          "li",
          {},
          make(
            "span",
            { class: word in MARKS ? "likely-word mark-word" : "likely-word" },
            word in MARKS ? say(MARKS[word]) : word,
          ),
          make("span", { class: "near-bar" }, fill),
          make("span", { class: "near-value" }, `${percent} %`),
        );
      }),
    ),
  );
}
