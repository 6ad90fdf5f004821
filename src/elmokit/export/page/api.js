// What the explorer asks of its server, answered by the model in this page: the same names, and the same answers as those
// of elmokit's serve/words.py, for the views that need vectors alone.
import { openElmo } from "./elmo.js";
import { say } from "./labels.js";

const VIEWS = ["compare", "usages", "neighbours"];
const ROUTES = { "/tokenize": tokenize, "/compare": compare, "/layers": readLayers };
const kept = new Map();
const KEEP = 30;
let elmo = null;

/** A refusal, as one line that a person can read; `kind` is its name. */
export class Problem extends Error {
  constructor(message, kind = "") {
    super(message);
    this.kind = kind;
  }
}

/** The model of this page, and the views that it can fill. */
export async function getInfo() {
  try {
    elmo = await openElmo();
  } catch (problem) {
    throw new Problem(`${say("failed")} ${problem.message}`);
  }
  const { name, mix } = elmo.config;
  return { models: [{ name, mix, layers: elmo.numLayers, dim: elmo.dim, predicts: false }], views: VIEWS };
}

/** What a server's route would answer. */
export function post(path, body) {
  const key = path + JSON.stringify(body);
  if (!kept.has(key)) {
    if (kept.size >= KEEP) kept.delete(kept.keys().next().value);
    kept.set(key, ROUTES[path](body));
    kept.get(key).catch(() => kept.delete(key));
  }
  return kept.get(key);
}

/** A server sends base64; here numbers are numbers. */
export const readFloats = (floats) => floats;

async function tokenize({ inputs }) {
  return inputs.map((text) => elmo.segmenter.sentences(text).flat());
}

async function compare({ texts, word }) {
  const found = texts.flatMap((text, number) =>
    elmo.segmenter.sentences(text).map((words) => ({ text: number, words: words.map((each) => each.text) })),
  );
  const spellings = word
    .split("|")
    .map((part) => elmo.segmenter.sentences(part).flatMap((words) => words.map((each) => each.text)));
  const uses = findUses(
    spellings,
    found.map((each) => each.words),
  );
  if (!uses.length) throw new Problem(`${say("failed")} no sentence has “${word}” as a word`, "Empty");
  const numbers = [...new Set(uses.map((use) => use.sentence))];
  const read = await elmo.embed(numbers.map((number) => found[number].words));
  const { dim, numLayers } = elmo;
  const vectors = new Float32Array(uses.length * numLayers * dim);
  uses.forEach((use, i) => {
    use.sentence = numbers.indexOf(use.sentence);
    const layers = read[use.sentence];
    const numWords = layers.length / (numLayers * dim);
    for (let layer = 0; layer < numLayers; layer++)
      for (let place = use.begin; place < use.end; place++)
        for (let d = 0; d < dim; d++)
          vectors[(i * numLayers + layer) * dim + d] +=
            layers[(layer * numWords + place) * dim + d] / (use.end - use.begin);
  });
  return { sentences: numbers.map((number) => found[number]), uses, shape: [uses.length, numLayers, dim], vectors };
}

/** Every place of a word, or of words in a row, in any case of letters (elmokit's embed/uses.py). */
function findUses(spellings, sentences) {
  const wanted = spellings.filter((words) => words.length).map((words) => words.map(fold));
  wanted.sort((a, b) => b.length - a.length);
  return sentences.flatMap((sentence, number) => {
    const folded = sentence.map(fold);
    const spans = [];
    for (let place = 0; place < folded.length;) {
      const length = wanted.find((words) => words.every((word, i) => folded[place + i] === word))?.length ?? 0;
      if (length) spans.push([place, place + length]);
      place += length || 1;
    }
    const label = (i) => (spans.length > 1 ? `${number + 1}.${i + 1}` : `${number + 1}`);
    return spans.map(([begin, end], i) => ({ label: label(i), sentence: number, begin, end }));
  });
}

/** A word in any case of letters; near to Python's casefold. */
const fold = (word) => word.toUpperCase().toLowerCase().replaceAll("ς", "σ");

async function readLayers({ texts }) {
  const found = texts.map((text) => elmo.segmenter.sentences(text));
  const read = await elmo.embed(found.flat().map((sentence) => sentence.map((word) => word.text)));
  let next = 0;
  return {
    shape: [elmo.numLayers, elmo.dim],
    texts: found.map((sentences) => {
      const words = sentences.flat();
      let end = 0;
      const bounds = sentences.map((sentence) => [end, (end += sentence.length)]);
      return {
        words: words.map((word) => word.text),
        spans: words.map((word) => [word.start, word.stop]),
        sentences: bounds,
        layers: joinLayers(
          sentences.map(() => read[next++]),
          words.length,
        ),
      };
    }),
  };
}

/** Layers of sentences as layers of their text: (layers × words × dim). */
function joinLayers(sentences, numWords) {
  const { dim, numLayers } = elmo;
  const joined = new Float32Array(numLayers * numWords * dim);
  let place = 0;
  for (const layers of sentences) {
    const own = layers.length / (numLayers * dim);
    for (let layer = 0; layer < numLayers; layer++)
      joined.set(layers.subarray(layer * own * dim, (layer + 1) * own * dim), (layer * numWords + place) * dim);
    place += own;
  }
  return joined;
}
