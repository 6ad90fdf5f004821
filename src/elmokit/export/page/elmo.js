// An exported model in the browser: sentences of words → all layers, by onnxruntime-web. Like run_elmo.py, which sees to
// the same folder: distinct words are encoded once and remembered, then whole sentences are read in both directions.
import { makeScheme } from "./characters.js";
import { RuleSegmenter } from "./segmenter.js";

const FOLDER = new URL("../", import.meta.url);
const RUNTIME = "node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs";
const FORMAT_VERSION = 1;
const WORDS_AT_A_TIME = 128;
const POSITIONS_AT_A_TIME = 1024;

/** Open the folder that this page lies in. */
export async function openElmo() {
  const config = await readJson("elmo.json");
  if (config.format_version !== FORMAT_VERSION)
    throw new Error(`elmo.json has format_version ${config.format_version}`);
  const runtime = await import(new URL(RUNTIME, FOLDER)).catch(() => {
    throw new Error("onnxruntime-web is missing: run `npm install` in the folder of this page");
  });
  runtime.env.wasm.numThreads = 1; // more need headers that a plain server of files does not send
  const [rules, alphabet, vocabulary, words, layers] = await Promise.all([
    readJson("segmenter.json"),
    config.alphabet ? readJson("alphabet.json") : null,
    config.vocabulary ? readJson("vocabulary.json") : null,
    openGraph(runtime, "words.onnx"),
    openGraph(runtime, "layers.onnx"),
  ]);
  return new Elmo(runtime, config, new RuleSegmenter(rules), makeScheme(config, alphabet, vocabulary), words, layers);
}

class Elmo {
  constructor(runtime, config, segmenter, scheme, words, layers) {
    Object.assign(this, { runtime, config, segmenter, scheme, words, layers });
    this.width = config.elmo.lstm.projection_dim;
    this.dim = 2 * this.width;
    this.numLayers = config.elmo.lstm.num_layers + 1;
    this.vectors = new Map();
    this.last = Promise.resolve();
  }

  /** All layers of each sentence, (layers × words × dim) numbers in one array; one call after the other. */
  embed(sentences) {
    const own = this.last.then(() => this.read(sentences));
    this.last = own.catch(() => {});
    return own;
  }

  async read(sentences) {
    const found = Array(sentences.length);
    for (const batch of divide(sentences)) {
      const read = await this.readBatch(batch.map((number) => sentences[number]));
      batch.forEach((number, row) => {
        found[number] = read[row];
      });
    }
    return found;
  }

  async readBatch(sentences) {
    const { dim, numLayers, runtime, width } = this;
    await this.encode(new Set(sentences.flat()));
    const positions = Math.max(...sentences.map((sentence) => sentence.length)) + 2;
    const inputs = new Float32Array(sentences.length * positions * width);
    sentences.forEach((sentence, row) => {
      const vectors = [this.begin, ...sentence.map((word) => this.vectors.get(word)), this.end];
      vectors.forEach((vector, place) => inputs.set(vector, (row * positions + place) * width));
    });
    const lengths = BigInt64Array.from(sentences, (sentence) => BigInt(sentence.length + 2));
    const answer = await this.layers.run({
      words: new runtime.Tensor("float32", inputs, [sentences.length, positions, width]),
      lengths: new runtime.Tensor("int64", lengths, [sentences.length]),
    });
    const all = answer.layers.data;
    return sentences.map((sentence, row) => {
      const layers = new Float32Array(numLayers * sentence.length * dim);
      for (let layer = 0; layer < numLayers; layer++) {
        const from = ((layer * sentences.length + row) * positions + 1) * dim;
        layers.set(all.subarray(from, from + sentence.length * dim), layer * sentence.length * dim);
      }
      return layers;
    });
  }

  /** Find the vectors of words that are new. */
  async encode(words) {
    if (!this.begin) [this.begin, this.end] = await this.encodeIds([this.scheme.begin, this.scheme.end]);
    const fresh = [...words].filter((word) => !this.vectors.has(word));
    for (let start = 0; start < fresh.length; start += WORDS_AT_A_TIME) {
      const some = fresh.slice(start, start + WORDS_AT_A_TIME);
      const vectors = await this.encodeIds(some.map(this.scheme.wordIds));
      some.forEach((word, i) => this.vectors.set(word, vectors[i]));
    }
  }

  async encodeIds(rows) {
    const { firstCharacter, widest } = this.scheme;
    let columns = rows[0].length;
    if (widest) {
      // Columns of mere padding are left out, which changes nothing but the time it takes.
      const padding = rows[0].at(-1);
      const used = Math.max(firstCharacter, ...rows.map((row) => row.findLastIndex((id) => id !== padding))) + 1;
      columns = Math.min(columns, used + widest);
    }
    const ids = BigInt64Array.from(
      rows.flatMap((row) => row.slice(0, columns)),
      BigInt,
    );
    const answer = await this.words.run({ ids: new this.runtime.Tensor("int64", ids, [rows.length, columns]) });
    const all = answer.vectors.data;
    return rows.map((_, i) => all.slice(i * this.width, (i + 1) * this.width));
  }
}

/** The numbers of all sentences in batches of similar length. */
function divide(sentences) {
  const order = sentences.map((_, number) => number).sort((a, b) => sentences[a].length - sentences[b].length);
  const batches = [[]];
  for (const number of order) {
    const positions = (batches.at(-1).length + 1) * (sentences[number].length + 2);
    if (batches.at(-1).length && positions > POSITIONS_AT_A_TIME) batches.push([]);
    batches.at(-1).push(number);
  }
  return batches.filter((batch) => batch.length);
}

async function readFile(name) {
  const answer = await fetch(new URL(name, FOLDER));
  if (!answer.ok) throw new Error(`${name} is missing in the folder of this page (${answer.status})`);
  return answer;
}

const readJson = async (name) => (await readFile(name)).json();

async function openGraph(runtime, name) {
  const bytes = new Uint8Array(await (await readFile(name)).arrayBuffer());
  return runtime.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
}
