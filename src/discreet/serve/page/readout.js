"use strict";
// The fold-in rules of discreet/models/fold_in.py in the browser: a user's vector from that user's own history.
// `model` holds numbers and typed arrays; a history is a list of item positions in order, with a rating for each.

// Solve A x = y for a symmetric positive A (n x n, row by row) by Cholesky; directions without weight stay 0.
function solveSymmetric(A, y, n) {
  const L = new Float64Array(n * n), x = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let s = A[i * n + j];
      for (let k = 0; k < j; k++) s -= L[i * n + k] * L[j * n + k];
      if (i === j) L[i * n + i] = s > 1e-12 * (1 + A[i * n + i]) ? Math.sqrt(s) : 0;
      else L[i * n + j] = L[j * n + j] ? s / L[j * n + j] : 0;
    }
  }
  for (let i = 0; i < n; i++) {
    let s = y[i];
    for (let k = 0; k < i; k++) s -= L[i * n + k] * x[k];
    x[i] = L[i * n + i] ? s / L[i * n + i] : 0;
  }
  for (let i = n - 1; i >= 0; i--) {
    let s = x[i];
    for (let k = i + 1; k < n; k++) s -= L[k * n + i] * x[k];
    x[i] = L[i * n + i] ? s / L[i * n + i] : 0;
  }
  return x;
}

// argmin of sum w (target - x . (v, constant))^2 + ridge |x|^2 + x' shared x; one coordinate more if constant is not 0.
function ridgeRegression(model, at, target, ridge, shared, constant, weights) {
  const V = model.factors, r = model.rank, n = r + (constant ? 1 : 0);
  const A = new Float64Array(n * n), y = new Float64Array(n), v = new Float64Array(n);
  for (let i = 0; i < r; i++) for (let j = 0; j < r; j++) A[i * n + j] = shared ? shared[i * r + j] : 0;
  for (let i = 0; i < n; i++) A[i * n + i] += ridge;
  for (let e = 0; e < at.length; e++) {
    const w = weights ? weights[e] : 1;
    for (let k = 0; k < r; k++) v[k] = V[at[e] * r + k];
    if (constant) v[r] = constant;
    for (let i = 0; i < n; i++) {
      y[i] += w * target[e] * v[i];
      for (let j = 0; j < n; j++) A[i * n + j] += w * v[i] * v[j];
    }
  }
  return solveSymmetric(A, y, n);
}

function dotItem(model, u, j) {
  let s = 0;
  for (let k = 0; k < model.rank; k++) s += u[k] * model.factors[j * model.rank + k];
  return s;
}

function ownMean(values, center, priorCount) {
  let total = center * priorCount;
  for (const value of values) total += value;
  return total / (values.length + priorCount);
}

// Weight of a rating, from 0 (the lowest) to 1 (the highest).
function likeOf(p, value) {
  if (!p.levels) return p.like_threshold === null || value >= p.like_threshold ? 1 : 0;
  const up = p.levels * Math.min(Math.max((value - p.low) / (p.high - p.low), 0), 1);
  const whole = Math.floor(up), rest = up - whole;
  return (rest > 0.5 || (rest === 0.5 && whole % 2) ? whole + 1 : whole) / p.levels;  // halves to even, like numpy, so that both give the same lists
}

/** Scores of all items: those of `own`, times the user's profile in public features. */
function profiled(model, at, values, own) {
  const p = model.numbers;
  const { popularity, feature_weights: weights, starts, values: labels, inverse } = model.arrays;
  const x = values.map((value) => likeOf(p, value)), width = model.count + 1;
  const total = x.reduce((a, b) => a + b, 0), share = new Float64Array(inverse.length);
  own.scores = Float64Array.from(popularity, (value) => p.popularity_weight * value);
  for (let j = 0; p.factor_weight && j < model.count; j++) {
    const ratio = dotItem(model, own.u, j) * Math.exp(-popularity[j]);
    own.scores[j] += p.factor_weight * Math.log(Math.max(ratio, p.floor));
  }
  weights.forEach((weight, f) => {
    const begin = (j) => starts[f * width + j];
    at.forEach((j, e) => {
      for (let s = begin(j); s < begin(j + 1); s++) share[labels[s]] += x[e] / (begin(j + 1) - begin(j));
    });
    for (let j = 0; j < model.count; j++) {
      const many = begin(j + 1) - begin(j);
      let lift = 0;
      for (let s = begin(j); s < begin(j + 1); s++) lift += share[labels[s]] * inverse[labels[s]];
      if (many) own.scores[j] += weight * Math.log((lift / many + p.tau) / (total + p.tau));
    }
    share.fill(0);
  });
  return own;
}

const READ_OUTS = {
  "same"(model) {
    return { u: new Float64Array(model.rank), offset: 0 };
  },

  "own offset"(model, at, values) {
    const p = model.numbers;
    let total = 0;
    at.forEach((j, e) => { total += values[e] - p.mean - model.biases[j]; });
    const own = p.personal ? total / Math.max(at.length + p.damping, 1e-9) : 0;
    return { u: new Float64Array(0), offset: p.mean + own };
  },

  "least squares"(model, at, values) {
    const p = model.numbers, known = model.arrays.known;
    let offset = 0, target = [];
    if (p.centering === "liked") target = at.map(() => 1);
    else if (p.centering === "none") target = values.slice();
    else if (p.centering === "own deviation") {
      const left = at.map((j, e) => values[e] - p.center - model.biases[j]);
      const own = left.reduce((a, b) => a + b, 0) / (at.length + p.prior_count);
      offset = p.center + own;
      target = left.map((value) => value - own);
    } else {
      offset = p.centering === "own mean" ? ownMean(values, p.center, p.prior_count) : p.center;
      target = at.map((j, e) => values[e] - offset - model.biases[j]);
    }
    if (p.masked) target = target.map((value, e) => (known[at[e]] ? value : 0));
    const counted = p.counted === "all" ? at.length : at.filter((j) => known[j]).length;
    const ridge = p.ridge * Math.max(counted, 1) ** p.exponent;
    if (p.intercept) target = target.map((value) => value - p.second_center);
    const x = ridgeRegression(model, at, target, ridge, model.arrays.shared, p.intercept, null);
    let tail = 0;
    if (p.tail) tail = (values.length ? values.reduce((a, b) => a + b, 0) / values.length : offset) - offset;
    if (p.intercept) offset += p.second_center + p.intercept * x[model.rank];
    return { u: x.subarray(0, model.rank), offset, tail };
  },

  "alternating"(model, at, values) {
    const p = model.numbers, shared = model.arrays.shared;
    const ridge = p.ridge * Math.max(at.length, 1) ** p.exponent;
    const target = at.map((j, e) => (p.explicit ? values[e] - model.biases[j] - p.mean : 1));
    const constant = p.explicit ? p.intercept : 0;
    let x = ridgeRegression(model, at, target, ridge, p.transition ? null : shared, constant, null);
    for (let round = 0; p.transition && round < p.inner_iterations; round++) {
      const weights = at.map((j, e) => {
        const found = dotItem(model, x, j) + (constant ? constant * x[model.rank] : 0);
        return p.transition / Math.max(Math.abs(target[e] - found), p.transition);
      });
      x = ridgeRegression(model, at, target, ridge, null, constant, weights);
    }
    return { u: x.subarray(0, model.rank), offset: p.mean + (constant ? constant * x[model.rank] : 0) };
  },

  "posterior mean"(model, at, values) {
    const p = model.numbers, r = model.rank, { place, gain, base, prior } = model.arrays;
    const sum = new Float64Array(r);
    let squares = 0, best = 0;
    at.forEach((j, e) => {
      const x = likeOf(p, values[e]);
      if (place[j] < 0 || !x) return;
      squares += x * x;
      best = Math.max(best, x);
      for (let k = 0; k < r; k++) sum[k] += x * gain[place[j] * r + k];
    });
    if (!squares) return { u: Float64Array.from(prior), offset: 0 };
    const liked = p.like_threshold === null ? p.high : p.like_threshold;
    const conviction = p.levels ? Math.min(best * (p.high - p.low) / Math.max(liked - p.low, 1e-9), 1) : 1;
    const whole = sum.map((value, k) => base[k] + value / Math.sqrt(squares));
    return { u: whole.map((value, k) => prior[k] + conviction * (value - prior[k])), offset: 0 };
  },

  "communities"(model, at, values) {
    const p = model.numbers, K = model.rank, P = model.factors;
    const liked = at.map((j, e) => [j, likeOf(p, values[e])]).filter(([, x]) => x);
    let theta = Float64Array.from(model.arrays.shares);
    if (!liked.length) return { u: theta, offset: 0 };
    for (let step = 0; step < p.steps; step++) {
      const next = Float64Array.from(model.arrays.shares, (share) => p.strength * share);
      for (const [j, x] of liked) {
        const part = theta.map((weight, z) => weight * P[j * K + z]);
        const total = part.reduce((a, b) => a + b, 0);
        for (let z = 0; total && z < K; z++) next[z] += x * part[z] / total;
      }
      const sum = next.reduce((a, b) => a + b, 0);
      theta = next.map((weight) => weight / sum);
    }
    return { u: theta, offset: 0 };
  },

  "communities and pairs"(model, at, values) {
    const pairs = READ_OUTS["posterior mean"](model, at, values).u;
    return { u: READ_OUTS["communities"](model, at, values).u.map((theta, k) => theta + pairs[k]), offset: 0 };
  },

  "communities with a profile"(model, at, values) {
    return profiled(model, at, values, READ_OUTS["communities"](model, at, values));
  },

  "profile"(model, at, values) {
    return profiled(model, at, values, model.rank ? READ_OUTS["posterior mean"](model, at, values) : { u: [], offset: 0 });
  },

  "descent"(model, at, values) {
    const p = model.numbers, r = model.rank, V = model.factors;
    const offset = p.prior_count === null ? p.center : ownMean(values, p.center, p.prior_count);
    let u = new Float64Array(r);
    for (let step = 0; step < p.steps; step++) {
      const g = new Float64Array(r);
      at.forEach((j, e) => {
        const residual = dotItem(model, u, j) - (values[e] - offset);
        for (let k = 0; k < r; k++) g[k] += residual * V[j * r + k];
      });
      const next = u.map((value, k) => value - p.rate * g[k]);
      const length = Math.sqrt(next.reduce((a, b) => a + b * b, 0));
      u = next.map((value) => value * Math.min(1, p.user_norm / Math.max(length, 1e-30)));
    }
    return { u, offset };
  },

  "Frank-Wolfe steps"(model, at, values) {
    const p = model.numbers, r = model.rank, { known, lengths, gammas } = model.arrays;
    const offset = p.prior_count === null ? p.center : ownMean(values, p.center, p.prior_count);
    const own = at.map((j, e) => [j, values[e] - offset - model.biases[j]]).filter(([j]) => known[j]);
    let fitted = own.map(() => 0);
    const weights = new Float64Array(r);
    for (let t = 0; t < r; t++) {
      const gamma = gammas[t], direction = own.map(([j]) => model.factors[j * r + t] / p.scale);
      const u = own.reduce((a, [, y], e) => a + (fitted[e] - y) * direction[e], 0) / lengths[t];
      const step = -gamma * p.nuclear_norm * u;
      fitted = fitted.map((value, e) => (1 - gamma) * value + step * direction[e]);
      const norm = Math.sqrt(fitted.reduce((a, b) => a + b * b, 0));
      const shrink = Math.min(1, p.row_norm / Math.max(norm, 1e-300));
      fitted = fitted.map((value) => value * shrink);
      for (let k = 0; k < r; k++) weights[k] *= 1 - gamma;
      weights[t] = step;
      for (let k = 0; k < r; k++) weights[k] *= shrink;
    }
    return { u: weights.map((value) => value / p.scale), offset };
  },

  "projection"(model, at, values) {
    const p = model.numbers, r = model.rank, { known, squares } = model.arrays;
    const left = at.map((j, e) => values[e] - p.center - model.biases[j]);
    const own = p.personal ? left.reduce((a, b) => a + b, 0) / (at.length + p.prior_count) : 0;
    const u = new Float64Array(r);
    at.forEach((j, e) => {
      if (known[j]) for (let k = 0; k < r; k++) u[k] += (left[e] - own) * model.factors[j * r + k];
    });
    return { u: u.map((value, k) => value / Math.max(squares[k], 1e-30) / p.density), offset: p.center + own };
  },
};

function readOut(model, at, values) {
  return READ_OUTS[model.numbers.kind](model, at, values);
}

function scoreOf(model, own, j) {
  if (own.scores) return own.scores[j];
  const tail = own.tail && !model.arrays.known[j] ? own.tail : 0;
  return own.offset + dotItem(model, own.u, j) + model.biases[j] + tail;
}

// The best n items that are not in `skip`, best first, equal scores by position: [[position, score], ...]
function bestItems(score, count, n, skip) {
  const best = [];
  for (let j = 0; j < count; j++) {
    if (skip.has(j)) continue;
    const s = score(j);
    if (best.length === n && s <= best[n - 1][1]) continue;
    let place = best.length;
    while (place > 0 && best[place - 1][1] < s) place--;
    best.splice(place, 0, [j, s]);
    if (best.length > n) best.pop();
  }
  return best;
}

// The best n items for a history, without its own items and those of `hidden` (a Map or Set of positions).
function recommend(model, history, n, hidden = new Set()) {
  const at = [...history.keys()].sort((a, b) => a - b), values = at.map((j) => history.get(j));
  const own = readOut(model, at, values);
  const found = bestItems((j) => scoreOf(model, own, j), model.count, n, new Set([...at, ...hidden.keys()]));
  if (!model.range) return found;
  return found.map(([j, s]) => [j, Math.min(Math.max(s, model.range[0]), model.range[1])]);
}

// Contribution of each item of the history to the score of an item: the score minus that without it.
function explainItem(model, history, item) {
  const at = [...history.keys()].sort((a, b) => a - b);
  const without = (left) => {
    const kept = at.filter((j) => j !== left);
    const own = readOut(model, kept, kept.map((j) => history.get(j)));
    return own.scores ? own.scores[item] : scoreOf(model, own, item) - model.biases[item];
  };
  const whole = without(-1);
  return at.map((j) => [j, whole - without(j)]).sort((a, b) => b[1] - a[1]);
}

function similarItems(model, item, n) {
  const r = model.rank, first = model.item_similarity.first, known = model.arrays["item_similarity.known"];
  if (!model.lengths) {
    model.lengths = new Float64Array(model.count);
    for (let j = 0; j < model.count; j++) {
      let s = 0;
      for (let k = first; k < r; k++) s += model.factors[j * r + k] ** 2;
      model.lengths[j] = known && !known[j] ? 0 : Math.sqrt(s);
    }
  }
  if (!(model.lengths[item] > 0)) return [];
  const cosine = (j) => {
    if (!model.lengths[j]) return 0;
    let s = 0;
    for (let k = first; k < r; k++) s += model.factors[j * r + k] * model.factors[item * r + k];
    return s / (model.lengths[j] * model.lengths[item]);
  };
  return bestItems(cosine, model.count, n, new Set([item]));
}

// ---------------------------------------------------------------- from the file

function halfToNumber(h) {
  const sign = h & 0x8000 ? -1 : 1, exponent = (h >> 10) & 31, rest = h & 1023;
  if (exponent === 0) return sign * rest * 2 ** -24;
  return exponent === 31 ? sign * (rest ? NaN : Infinity) : sign * (1 + rest / 1024) * 2 ** (exponent - 15);
}

function unpackArray(packed) {
  const text = atob(packed.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  if (packed.kind === "f4") return new Float32Array(bytes.buffer);
  if (packed.kind === "f8") return new Float64Array(bytes.buffer);
  if (packed.kind === "i4") return new Int32Array(bytes.buffer);
  if (packed.kind === "bool") return bytes;
  const halves = new Uint16Array(bytes.buffer), width = packed.scale.length, found = new Float32Array(halves.length);
  const table = new Float32Array(65536);
  for (let h = 0; h < 65536; h++) table[h] = halfToNumber(h);
  for (let i = 0; i < halves.length; i++) found[i] = table[halves[i]] * packed.scale[i % width];
  return found;
}

function unpackModel(document) {
  const arrays = {};
  for (const [name, packed] of Object.entries(document.arrays)) arrays[name] = unpackArray(packed);
  return {
    count: document.ids.length, rank: document.rank, ids: document.ids, titles: document.titles,
    range: document.range, liked: document.liked, rate: document.rate, step: document.step, numbers: document.numbers,
    item_similarity: document.item_similarity, factors: arrays.factors, biases: arrays.biases, arrays,
  };
}
