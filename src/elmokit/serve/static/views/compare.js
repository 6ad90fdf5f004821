// Compare: a word in several sentences, how alike its occurrences are, and what the layers do to that.
import { post } from "../api.js";
import { make, makeChips, makeMixer, makeTakeaway, makeTextField, makeTitle, makeWords } from "../controls.js";
import { choose, COMPARE } from "../examples.js";
import { say } from "../labels.js";
import { compareAll, mixLayers, norm } from "../maths.js";
import { readUses } from "../reading.js";
import { colour, draw, drawing, drawKey, inkOn, shade, text } from "../pictures.js";
import { cutAround, joinWords } from "../sentences.js";

const MOST = 30; // occurrences in the map

export function openCompare(root, page) {
  const examples = choose(COMPARE, page.model);
  const first = Object.values(examples)[0];
  let word = page.state.word ?? (page.state.text ? "" : first.word);
  let content = page.state.text ?? first.text;
  let found = null;
  let isEditing = false;

  const list = make("ol", { class: "sentences" });
  const map = make("figure", { class: "map" });
  const verdict = make("p", { class: "verdict", "aria-live": "polite" });
  const mixer = makeMixer(page, page.model.layers, drawMap);
  const head = make("div", { class: "bar" });
  root.append(
    makeTitle("compareTitle", "compareIntro"),
    make(
      "div",
      { class: "columns" },
      make("section", { class: "panel" }, head, list),
      make("section", { class: "panel sticky" }, map, verdict, mixer.element, makeTakeaway("compare", picture, table)),
    ),
  );

  function drawHead() {
    const name = Object.keys(examples).find((each) => examples[each].text === content);
    head.replaceChildren(
      makeChips(say("examples"), Object.keys(examples), name, (chosen) => {
        content = examples[chosen].text;
        word = examples[chosen].word;
        isEditing = false;
        load();
      }),
      make(
        "button",
        {
          type: "button",
          class: "quiet-button",
          "aria-expanded": `${isEditing}`,
          click: () => {
            isEditing = !isEditing;
            if (isEditing) edit();
            else load();
          },
        },
        say(isEditing ? "done" : "edit"),
      ),
    );
  }

  function edit() {
    drawHead();
    const field = makeTextField(say("oneALine"), content, () => {}, { rows: 12 });
    field.addEventListener("input", () => {
      content = field.value;
    });
    const wordField = make("input", { type: "text", "aria-label": say("word"), spellcheck: "false", value: word });
    wordField.addEventListener("input", () => {
      word = wordField.value.trim();
    });
    list.replaceChildren(
      make(
        "li",
        { class: "editor" },
        field,
        make("p", { class: "note" }, say("oneALine")),
        make("span", { class: "field-label" }, say("word")),
        wordField,
        make("p", { class: "note" }, say("severalWords")),
      ),
    );
    field.focus();
  }

  async function load() {
    drawHead();
    await page.attempt(async (isWanted) => {
      const texts = content
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean);
      const words = texts.length ? await post("/tokenize", { model: page.model.name, inputs: texts }) : [];
      const counts = countWords(words);
      if (!word || !counts.has(word.toLowerCase()))
        word = word.includes(" ") || word.includes("|") ? word : mostRepeated(counts);
      const next = word ? placeUses(await readUses(texts, word, page.model.name), words) : null;
      if (!isWanted()) return;
      found = next;
      page.save({
        text: content === first.text ? null : content,
        word: word === first.word && content === first.text ? null : word,
      });
      drawSentences(texts, words, counts);
      drawMap();
    });
  }

  function drawSentences(texts, words, counts) {
    list.replaceChildren(
      ...texts.map((line, t) => {
        const uses = (found?.uses ?? []).filter((use) => use.text === t);
        return make(
          "li",
          {},
          makeWords(line, words[t], {
            choose: async (i) => {
              word = words[t][i].text.toLowerCase();
              await load();
              list.children[t]?.querySelector('.word[aria-pressed="true"]')?.focus({ preventScroll: true });
            },
            mark: (i) => ({
              chosen: uses.some((use) => i >= use.begin && i < use.end),
              classes:
                counts.get(words[t][i].text.toLowerCase()) > 1 && /[\p{L}\p{N}]/u.test(words[t][i].text)
                  ? "repeated"
                  : "",
            }),
          }),
          uses.map((use) => make("div", { class: "strip", "data-use": use.number })),
        );
      }),
    );
  }

  function vectors() {
    return found.layers.map((layers) => mixLayers(layers, mixer.weights(), mixer.gamma()));
  }

  function drawMap() {
    if (!found) {
      map.replaceChildren();
      return;
    }
    const mixed = vectors();
    const cosines = compareAll(mixed);
    for (const strip of list.querySelectorAll(".strip")) {
      strip.replaceChildren(drawStrip(mixed[Number(strip.dataset.use)], found.largest));
    }
    map.replaceChildren(
      drawHeat(
        cosines.slice(0, MOST).map((row) => row.slice(0, MOST)),
        found,
        false,
      ),
    );
    verdict.replaceChildren(...tellVerdict(cosines));
  }

  function tellVerdict(cosines) {
    if (cosines.length < 2) return [say("onlyOnce")];
    const pairs = cosines.flatMap((row, i) => row.slice(i + 1).map((value, j) => ({ i, j: i + 1 + j, value })));
    pairs.sort((a, b) => b.value - a.value);
    const name = ({ i, j, value }) =>
      `${found.uses[i].label} ${say("and")} ${found.uses[j].label} (${value.toFixed(2)})`;
    const isSpelling = mixer.weights()[0] > 0.999;
    const lines = isSpelling
      ? [say("layerZeroSame")]
      : [`${say("mostAlike")}: ${name(pairs[0])}. ${say("leastAlike")}: ${name(pairs.at(-1))}.`];
    if (mixer.gamma() !== 1) lines.push(` ${say("gammaNote")}`);
    if (cosines.length > MOST) lines.push(` ${say("tooManyUses")}`);
    return lines;
  }

  function picture() {
    if (!found) return null;
    return drawHeat(
      compareAll(vectors())
        .slice(0, MOST)
        .map((row) => row.slice(0, MOST)),
      found,
      true,
    );
  }

  function table() {
    if (!found) return null;
    const cosines = compareAll(vectors());
    return [
      ["number", "sentence", ...found.uses.map((use) => use.label)],
      ...found.uses.map((use, i) => [
        use.label,
        joinWords(found.sentences[use.sentence].words),
        ...cosines[i].map((value) => value.toFixed(4)),
      ]),
    ];
  }

  load();
  return { redraw: drawMap };
}

function countWords(words) {
  const counts = new Map();
  for (const each of words.flat()) counts.set(each.text.toLowerCase(), (counts.get(each.text.toLowerCase()) ?? 0) + 1);
  return counts;
}

function mostRepeated(counts) {
  const letters = [...counts].filter(([word]) => /\p{L}/u.test(word));
  letters.sort((a, b) => b[1] * Math.min(b[0].length, 5) - a[1] * Math.min(a[0].length, 5));
  return letters[0]?.[0] ?? "";
}

/** Uses with their places among all words of their text: sentences without the word are not in an answer. */
function placeUses(found, words) {
  const cursors = new Map();
  const starts = found.sentences.map(({ text: t, words: wanted }) => {
    let at = cursors.get(t) ?? 0;
    while (at < words[t].length && !wanted.every((each, i) => words[t][at + i]?.text === each)) at++;
    cursors.set(t, at + wanted.length);
    return at;
  });
  const uses = found.uses.map((use) => ({
    ...use,
    text: found.sentences[use.sentence].text,
    begin: starts[use.sentence] + use.inSentence[0],
    end: starts[use.sentence] + use.inSentence[1],
  }));
  const averages = found.layers.map((layers) =>
    norm(
      mixLayers(
        layers,
        layers.map(() => 1 / layers.length),
      ),
    ),
  );
  return { ...found, uses, largest: (3 * Math.max(...averages)) / Math.sqrt(found.layers[0][0].length) };
}

function drawStrip(vector, largest) {
  const [width, height] = [512, 26];
  const step = width / vector.length;
  const tall = (value) => Math.max(-1, Math.min(1, value / largest)) * (height / 2);
  const bars = Array.from(vector, (value, d) => `M${(d + 0.5) * step} ${height / 2}v${(-tall(value)).toFixed(2)}`).join(
    "",
  );
  const svg = drawing(
    width,
    height,
    say("vector"),
    draw("path", { d: bars, stroke: colour("accent"), "stroke-width": Math.max(0.7, step * 0.7), fill: "none" }),
  );
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  return svg;
}

function drawHeat(cosines, found, withSentences) {
  const n = cosines.length;
  const cell = Math.max(14, Math.min(104, Math.floor(400 / n)));
  const left = 44;
  const top = withSentences ? 62 : 30;
  const side = n * cell;
  const lines = withSentences
    ? found.uses.slice(0, n).map((use) => cutAround(found.sentences[use.sentence].words, ...use.inSentence, 84))
    : [];
  const width = Math.max(left + side + 8, ...lines.map((line) => left + 30 + 7.4 * line.join("").length));
  const off = cosines.flatMap((row, i) => row.filter((_, j) => j !== i));
  const low = Math.min(0.9, Math.floor(Math.min(1, ...off) * 10 - 1e-9) / 10);
  const labels = found.uses.slice(0, n).map((use) => use.label);
  const keyTop = top + side + 18;
  const lineTop = keyTop + 64;
  const height = withSentences ? lineTop + 22 * n + 6 : keyTop + 32;
  const svg = drawing(width, height, `${say("heatMap")}: ${found.word}`);
  svg.style.maxWidth = `${Math.round(1.1 * width)}px`;
  if (withSentences) svg.append(text(left, 24, `${found.word} – ${say("heatMap")}`, { size: 16, weight: 600 }));
  labels.forEach((label, i) => {
    const at = (i + 0.5) * cell;
    svg.append(
      text(left + at, top - 9, label, { anchor: "middle", fill: colour("quiet"), size: 12.5 }),
      text(left - 12, top + at + 4, label, { anchor: "end", fill: colour("quiet"), size: 12.5 }),
    );
  });
  cosines.forEach((row, i) =>
    row.forEach((value, j) => {
      const fill = shade((value - low) / (1 - low));
      const square = draw("rect", {
        x: left + j * cell + 1,
        y: top + i * cell + 1,
        width: cell - 2,
        height: cell - 2,
        rx: Math.min(5, cell / 6),
        fill,
      });
      square.append(draw("title", {}, `${labels[i]} ${say("and")} ${labels[j]}: ${value.toFixed(3)}`));
      square.dataset.pair = `${i},${j}`;
      square.dataset.cosine = value.toFixed(4);
      svg.append(square);
      if (cell >= 34)
        svg.append(
          text(left + (j + 0.5) * cell, top + (i + 0.5) * cell + 4.5, value.toFixed(2), {
            anchor: "middle",
            size: 12.5,
            fill: inkOn(fill),
            "pointer-events": "none",
          }),
        );
    }),
  );
  svg.append(drawKey(left, keyTop, Math.max(side, 180), low.toFixed(1), "1.0", say("cosine")));
  if (withSentences) {
    found.uses.slice(0, n).forEach((use, i) => {
      const [before, middle, after] = lines[i];
      svg.append(
        draw(
          "text",
          { x: left, y: lineTop + 22 * i, "font-size": 13 },
          draw("tspan", { fill: colour("quiet") }, `${use.label}  ${before}`),
          draw("tspan", { "font-weight": 600, fill: colour("accent") }, middle),
          draw("tspan", { fill: colour("quiet") }, after),
        ),
      );
    });
  }
  return svg;
}
