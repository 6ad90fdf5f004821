// Small linear algebra over plain arrays: what sliders recompute while they move.

/** The dot product of two vectors. */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** The length of a vector. */
export const norm = (a) => Math.sqrt(dot(a, a));

/** The cosine of the angle between two vectors; 0 if one of them is zero. */
export function cosine(a, b) {
  const lengths = norm(a) * norm(b);
  return lengths ? dot(a, b) / lengths : 0;
}

/** gamma * sum_j weights[j] * layers[j] (Peters et al. 2018, equation 1). */
export function mixLayers(layers, weights, gamma = 1) {
  const mixed = new Float64Array(layers[0].length);
  layers.forEach((layer, j) => {
    const factor = gamma * weights[j];
    if (factor) for (let d = 0; d < mixed.length; d++) mixed[d] += factor * layer[d];
  });
  return mixed;
}

/** Cosines between all pairs. */
export function compareAll(vectors) {
  const units = vectors.map(toUnit);
  return units.map((a) => units.map((b) => dot(a, b)));
}

/** The same direction with length 1. */
export function toUnit(vector) {
  const length = norm(vector) || 1;
  return vector.map((value) => value / length);
}

/** The mean of some vectors. */
export function mean(vectors) {
  const sum = new Float64Array(vectors[0].length);
  for (const vector of vectors) for (let d = 0; d < sum.length; d++) sum[d] += vector[d] / vectors.length;
  return sum;
}

/**
 * Principal components by power iteration: places (n × 2) and the fractions of variance they keep.
 * Signs are fixed by `before`, the places of an earlier call, so that a map does not flip while a slider moves.
 */
export function projectOnPlane(vectors, before = null) {
  const centre = mean(vectors);
  const rows = vectors.map((vector) => vector.map((value, d) => value - centre[d]));
  const total = rows.reduce((sum, row) => sum + dot(row, row), 0) || 1;
  const random = makeRandom(7);
  const axes = [];
  const fractions = [];
  for (let component = 0; component < 2; component++) {
    let axis = toUnit(Float64Array.from(centre, () => random() - 0.5));
    let size = 0;
    for (let round = 0; round < 60; round++) {
      const next = new Float64Array(centre.length);
      for (const row of rows) {
        const weight = dot(row, axis);
        for (let d = 0; d < next.length; d++) next[d] += weight * row[d];
      }
      for (const found of axes) {
        const along = dot(next, found);
        for (let d = 0; d < next.length; d++) next[d] -= along * found[d];
      }
      const grown = norm(next);
      axis = grown ? toUnit(next) : next;
      const isDone = Math.abs(grown - size) <= 1e-9 * total;
      size = grown;
      if (isDone) break;
    }
    axes.push(axis);
    fractions.push(size / total);
  }
  const places = rows.map((row) => axes.map((axis) => dot(row, axis)));
  for (let component = 0; component < 2; component++) {
    const reference = before ?? places.map((place, i) => (i === 0 ? [Math.abs(place[0]), Math.abs(place[1])] : [0, 0]));
    const agreement = places.reduce((sum, place, i) => sum + place[component] * (reference[i]?.[component] ?? 0), 0);
    if (agreement < 0) for (const place of places) place[component] *= -1;
  }
  return { places, fractions };
}

/** k-means of directions: the number of each vector's cluster. Clusters are numbered by their first member. */
export function cluster(vectors, k) {
  const units = vectors.map(toUnit);
  let best = null;
  for (let seed = 1; seed <= 8; seed++) {
    const found = clusterOnce(units, k, makeRandom(seed));
    if (!best || found.spread < best.spread - 1e-12) best = found;
  }
  const order = [...new Set(best.labels)];
  return best.labels.map((label) => order.indexOf(label));
}

function clusterOnce(units, k, random) {
  const centres = [units[Math.floor(random() * units.length)]];
  while (centres.length < k) {
    const far = units.map((unit) => Math.max(0, 1 - Math.max(...centres.map((centre) => dot(unit, centre)))));
    let left = random() * far.reduce((a, b) => a + b, 0);
    const next = far.findIndex((distance) => (left -= distance) <= 0);
    centres.push(units[Math.max(0, next)]);
  }
  let labels = [];
  for (let round = 0; round < 50; round++) {
    const nearest = units.map((unit) => {
      const likeness = centres.map((centre) => dot(unit, centre));
      return likeness.indexOf(Math.max(...likeness));
    });
    const isDone = nearest.every((label, i) => label === labels[i]);
    labels = nearest;
    if (isDone) break;
    for (let c = 0; c < k; c++) {
      const members = units.filter((_, i) => labels[i] === c);
      if (members.length) centres[c] = toUnit(mean(members));
    }
  }
  return { labels, spread: units.reduce((sum, unit, i) => sum + 1 - dot(unit, centres[labels[i]]), 0) };
}

/** The k from 2 to 6 with the largest mean silhouette; 1 where no division is clear. */
export function chooseClusters(vectors) {
  const distances = compareAll(vectors).map((row) => row.map((value) => 1 - value));
  let best = { k: 1, silhouette: 0.1 }; // a weaker division than this is no division
  for (let k = 2; k <= Math.min(6, vectors.length - 1); k++) {
    const silhouette = measureSilhouette(distances, cluster(vectors, k));
    if (silhouette > best.silhouette) best = { k, silhouette };
  }
  return best.k;
}

/** How much nearer each point is to its own cluster than to the next one, from -1 to 1 on average. */
export function measureSilhouette(distances, labels) {
  const sizes = [];
  for (const label of labels) sizes[label] = (sizes[label] ?? 0) + 1;
  let total = 0;
  labels.forEach((own, i) => {
    const sums = sizes.map(() => 0);
    labels.forEach((label, j) => {
      sums[label] += distances[i][j];
    });
    if (sizes[own] === 1 || sizes.length < 2) return;
    const inside = sums[own] / (sizes[own] - 1);
    const outside = Math.min(...sums.map((sum, label) => (label === own ? Infinity : sum / sizes[label])));
    total += (outside - inside) / (Math.max(inside, outside) || 1);
  });
  return total / labels.length;
}

/** The same numbers from 0 to 1 every time (mulberry32). */
function makeRandom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
