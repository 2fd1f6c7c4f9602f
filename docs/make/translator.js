"use strict";
// The translator of part 3: the functions have the names of those in Python. A matrix is an array of its rows.

const stored = JSON.parse(document.getElementById("translator-weights").textContent);
const { subwords, merges, H, N } = stored;
const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const number = new Map(subwords.map((subword, id) => [subword, id]));
const weights = Object.fromEntries(Object.entries(stored.weights).map(([name, part]) => [name, unpack(part)]));
const looked = {}; // the weights of each attention when it was last computed: a matrix (T, S) for each head

function unpack({ scales, int8 }) { // a byte is a number from -127 to 127; each row has a scale
  const bytes = Int8Array.from(atob(int8), (letter) => letter.charCodeAt(0));
  const width = bytes.length / scales.length;
  return scales.map((scale, i) => Array.from(bytes.slice(i * width, (i + 1) * width), (byte) => scale * byte));
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

function softmax(scores) {
  const largest = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - largest));
  const total = powers.reduce((sum, power) => sum + power);
  return powers.map((power) => power / total);
}

function attention(Q, K, V, mask) { // (T, d_k), (S, d_k), (S, d_v) to answers (T, d_v) and weights (T, S)
  const score = (q, t) => K.map((k, s) => (mask(t, s) ? dot(q, k) / Math.sqrt(k.length) : -Infinity));
  const weights = Q.map((q, t) => softmax(score(q, t)));
  const columns = V[0].map((_, i) => V.map((v) => v[i]));
  return [weights.map((row) => columns.map((column) => dot(row, column))), weights];
}

function linear(x, name) {
  const [W, [b]] = [weights[`${name}.weight`], weights[`${name}.bias`]];
  return x.map((row) => W.map((w, i) => dot(w, row) + b[i]));
}

function MultiHead(x, memory, name, mask = () => true) {
  const [Q, K, V] = [linear(x, `${name}.query`), linear(memory, `${name}.key`), linear(memory, `${name}.value`)];
  const width = Q[0].length / H;
  const split = (rows, h) => rows.map((row) => row.slice(h * width, (h + 1) * width));
  const heads = [...Array(H).keys()].map((h) => attention(split(Q, h), split(K, h), split(V, h), mask));
  looked[name] = heads.map(([, weights]) => weights);
  return linear(x.map((_, t) => heads.flatMap(([answers]) => answers[t])), `${name}.output`);
}

function FeedForward(x, name) {
  return linear(linear(x, `${name}.inner`).map((row) => row.map((value) => Math.max(0, value))), `${name}.outer`);
}

function LayerNorm(x, name) {
  const [[scale], [shift]] = [weights[`${name}.scale`], weights[`${name}.shift`]];
  return x.map((row) => {
    const mean = row.reduce((sum, value) => sum + value) / row.length;
    const centred = row.map((value) => value - mean);
    const root = Math.sqrt(dot(centred, centred) / row.length + 1e-5);
    return centred.map((value, i) => (scale[i] * value) / root + shift[i]);
  });
}

function Residual(x, y, name) { // y: of the sub-layer
  return LayerNorm(x.map((row, t) => row.map((value, i) => value + y[t][i])), `${name}.norm`);
}

function Embedding(ids) { // with the waves of the positions
  const D = weights["embedding.table"][0].length;
  const wave = (t, i) => (i % 2 ? Math.cos : Math.sin)(t / 10000 ** ((i - (i % 2)) / D));
  return ids.map((id, t) => weights["embedding.table"][id].map((value, i) => value * Math.sqrt(D) + wave(t, i)));
}

function encode(source) {
  let x = Embedding(source);
  for (let layer = 0; layer < N; layer++) {
    const name = `encoder.${layer}`;
    x = Residual(x, MultiHead(x, x, `${name}.attention`), `${name}.residuals.0`);
    x = Residual(x, FeedForward(x, `${name}.feed_forward`), `${name}.residuals.1`);
  }
  return x;
}

function decode(target, memory) { // ids (T,) to scores of what comes next (T, C)
  let x = Embedding(target);
  const causal_mask = (t, s) => s <= t;
  for (let layer = 0; layer < N; layer++) {
    const name = `decoder.${layer}`;
    x = Residual(x, MultiHead(x, x, `${name}.attention`, causal_mask), `${name}.residuals.0`);
    x = Residual(x, MultiHead(x, memory, `${name}.cross`), `${name}.residuals.1`);
    x = Residual(x, FeedForward(x, `${name}.feed_forward`), `${name}.residuals.2`);
  }
  return x.map((state) => weights["embedding.table"].map((row) => dot(row, state)));
}

function model_logs(source) { // the function that beam_search asks: lists of ids to log-probabilities
  const memory = encode([...source, EOS]);
  return (beams) => beams.map((ids) => {
    const scores = decode(ids, memory).at(-1);
    scores[PAD] = scores[BOS] = -Infinity; // never written
    return softmax(scores).map(Math.log);
  });
}

function beam_search(next_logs, limit, beam_size, alpha, early) { // early: end without waiting for the best to end
  let [beams, finished, best_ended, steps] = [[{ log: 0, ids: [BOS] }], [], false, []];
  const ended = ({ ids }) => ids.at(-1) === EOS;
  while (steps.length < limit && (finished.length < beam_size || !(early || best_ended))) {
    const logs = next_logs(beams.map(({ ids }) => ids));
    const grown = beams
      .flatMap((beam, k) => logs[k].map((log, id) => ({ log: beam.log + log, ids: [...beam.ids, id] })))
      .sort((a, b) => b.log - a.log || 0) // stable; the difference of two -Infinity is no number
      .slice(0, 2 * beam_size);
    finished = [...finished, ...grown.slice(0, beam_size).filter(ended)].sort((a, b) => b.log - a.log);
    finished = finished.slice(0, beam_size);
    beams = grown.filter((candidate) => !ended(candidate)).slice(0, beam_size);
    best_ended ||= ended(grown[0]);
    steps.push({ grown, beams, finished, best_ended });
  }
  return { hypotheses: [...ranked(finished, alpha), ...ranked(beams, alpha)].slice(0, beam_size), steps };
}

function ranked(beams, alpha) { // sums of logarithms with ids, and the score; best first
  const scored = beams.map(({ log, ids }) => ({ score: log / ((4 + ids.length) / 6) ** alpha, log, ids }));
  return scored.sort((a, b) => b.score - a.score);
}

function words_of(line) {
  const runs = line.split(/\s+/).map((run) => run.match(/[\p{L}\p{N}_]+|[^\p{L}\p{N}_]/gu) ?? []);
  return runs.flatMap(([first, ...rest]) => (first ? [`▁${first}`, ...rest] : []));
}

function cut(word) { // join pairs of neighbours in the order in which they were learned
  const parts = [...word];
  parts.push(`${parts.pop()}</w>`);
  for (const [left, right] of merges) {
    for (let i = 0; i < parts.length - 1; i++) {
      if (parts[i] === left && parts[i + 1] === right) parts.splice(i, 2, left + right);
    }
  }
  return parts;
}

const ids_of = (line) => words_of(line).flatMap(cut).map((piece) => number.get(piece) ?? UNK);
const spelt = (id) => (id === BOS || id === EOS ? "" : subwords[id].replace("</w>", "").replace("▁", " "));
const text_of = (ids) => ids.map(spelt).join("").trim();

// The controls, and what they show.

const at = (id) => document.getElementById(id);
const CELL = 20; // the side of a cell of a map, in the units of its SVG
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const shown = { example: 0, cell: [N - 1, 0, 0, 0] }; // layer, head, row, column; and the last translation
const name_of = (id) => subwords[id].replace("</w>", "").replace(/[▁<>]/g, "") || "▁";
const row_of = (...cells) => `<tr><td>${cells.join("</td><td>").replaceAll("<unk>", "?")}</td></tr>`;

function translate() {
  const source = ids_of(at("sentence").value);
  const [beam_size, early] = [Number(at("beams").value), at("early").checked];
  const { hypotheses, steps } = beam_search(model_logs(source), source.length + 50, beam_size, 0.6, early);
  const target = hypotheses[0].ids.filter((id) => id !== EOS);
  decode(target, encode([...source, EOS])); // for its attention
  const names = { source: [...source, EOS].map(name_of), target: target.map(name_of) };
  Object.assign(shown, { steps, ...names, written: [...target.slice(1), EOS].map(name_of) });
  at("pieces").innerHTML = names.source.map((name) => (name === "unk" ? "<mark>?</mark>" : `<i>${name}</i>`)).join(" ");
  at("answer").value = text_of(target);
  const rows = hypotheses.map(({ score, log, ids }) => row_of(score.toFixed(2), log.toFixed(2), text_of(ids)));
  at("hypotheses").innerHTML = rows.join("");
  at("step").max = steps.length; // first: a value above it is cut
  at("step").value = steps.length;
  show_step();
  show_maps();
}

function show_step() {
  const step = Number(at("step").value);
  const { grown, beams, finished, best_ended } = shown.steps[step - 1];
  const fate = (candidate) => (beams.includes(candidate) ? "beam" : finished.includes(candidate) ? "ended" : "dropped");
  const text = (ids) => `${text_of(ids.slice(0, -1))} <b>${name_of(ids.at(-1))}</b>`;
  at("candidates").innerHTML = grown.map((one) => row_of(one.log.toFixed(2), fate(one), text(one.ids))).join("");
  const best = best_ended ? "one of them was the best of its step" : "none of them was the best of its step";
  at("state").value = `${step} of ${shown.steps.length}. ${finished.length} have ended; ${best}.`;
}

function heatmap(layer, head, margin) { // the weights of a head as SVG; with a margin for the names of rows and columns
  const { maps, rows, columns } = shown;
  const cells = maps[layer][head].flatMap((line, t) => line.map((weight, s) => {
    const place = `x="${s * CELL}" y="${t * CELL}" width="${CELL}" height="${CELL}"`;
    return `<rect ${place} fill-opacity="${weight.toFixed(3)}" data-place="${[layer, head, t, s]}"/>`;
  }));
  const [width, height] = [columns.length * CELL, rows.length * CELL];
  const left = rows.map((name, t) => `<text x="-6" y="${t * CELL + 15}" text-anchor="end">${name}</text>`);
  const turned = (s) => `translate(${s * CELL + 15} -6) rotate(-60)`;
  const above = columns.map((name, s) => `<text transform="${turned(s)}">${name}</text>`);
  return `<svg viewBox="${[-margin, -margin, width + margin, height + margin]}" role="img" tabindex="${margin ? -1 : 0}"
    aria-label="Layer ${layer + 1}, head ${head + 1}" data-place="${[layer, head]}">
    ${[...cells, ...(margin ? [...left, ...above] : [])].join("")}
    <rect class="row" width="${width}" height="${CELL}"/></svg>`;
}

function show_maps() {
  const [half, part, rows, columns] = at("kind").value.split(" ");
  const maps = [...Array(N).keys()].map((layer) => looked[`${half}.${layer}.${part}`]);
  Object.assign(shown, { half, maps, rows: shown[rows], columns: shown[columns] });
  at("maps").innerHTML = maps.flatMap((heads, layer) => heads.map((_, head) => heatmap(layer, head, 0))).join("");
  show_cell(shown.cell);
}

function show_cell([layer, head, row, column]) { // of all heads the row, of one all names, and the weight of a cell
  const { maps, rows, columns } = shown;
  const [t, s] = [[row, rows], [column, columns]].map(([i, names]) => Math.max(0, Math.min(i, names.length - 1)));
  shown.cell = [layer, head, t, s];
  at("large").innerHTML = heatmap(layer, head, 80);
  at("large").querySelector(`[data-place="${shown.cell}"]`).classList.add("pointed");
  for (const outline of at("heads").querySelectorAll(".row")) outline.setAttribute("y", t * CELL);
  [...at("maps").children].forEach((map, i) => map.classList.toggle("pointed", i === layer * H + head));
  const writes = shown.half === "decoder" ? `, which writes “${shown.written[t]}”,` : "";
  const cell = `“${rows[t]}”${writes} looks at “${columns[s]}” with ${maps[layer][head][t][s].toFixed(2)}`;
  at("weight").value = `Layer ${layer + 1}, head ${head + 1}: ${cell}.`;
}

function point({ target }) { // at a cell; or at a map, whose cell stays
  const place = target.dataset.place?.split(",").map(Number) ?? shown.cell;
  if (place.some((number, i) => number !== shown.cell[i])) show_cell([...place, ...shown.cell.slice(place.length)]);
}

at("sentence").value = stored.examples[0];
at("ask").addEventListener("input", () => {
  clearTimeout(shown.waiting);
  shown.waiting = setTimeout(translate, 150);
});
at("another").addEventListener("click", () => {
  at("sentence").value = stored.examples[++shown.example % stored.examples.length];
  translate();
});
at("step").addEventListener("input", show_step);
at("kind").addEventListener("input", show_maps);
at("heads").addEventListener("pointerover", point);
at("heads").addEventListener("focusin", point);
at("maps").addEventListener("keydown", (event) => {
  if (!(event.key in MOVES)) return;
  event.preventDefault();
  const [layer, head, row, column] = shown.cell;
  show_cell([layer, head, row + MOVES[event.key][0], column + MOVES[event.key][1]]);
});
translate();
