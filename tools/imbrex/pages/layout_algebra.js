// ---------------------------------------------------------------------------------------------- 5. the layout algebra
// What src/layout computes, once more: a test compares the two over many expressions, right ones and wrong ones.
// A layout: shape, modes[dimension] and replicas of {e: extent, s: stride, a: axis letter}, outermost first, as in layout.h.

/// A wrong expression: `from` to `to` are the characters that are to blame.
class LayoutError extends Error {
  constructor(what, from, to) { super(what); this.from = from; this.to = to; }
}
const complain = (what, from, to = from) => { throw new LayoutError(what, from, to); };
const kAxisLetters = "tralcx", kMostSlots = 2 ** 31, kMostElements = 2 ** 24;
const total = list => list.reduce((a, b) => a * b, 1), slots = modes => total(modes.map(m => m.e));

const merged = modes => modes.filter(m => m.e > 1).reduce((done, m) => {
  const last = done.at(-1), own = m.s === 0 ? {...m, a: "t"} : {...m};
  if (last && last.a === own.a && last.s === own.e * own.s) done[done.length - 1] = {e: last.e * own.e, s: own.s, a: own.a};
  else done.push(own);
  return done;
}, []);
/// The outermost mode cut to what the shape needs, so that padding has one spelling.
function trimmed(modes, extent) {
  while (modes.length) {
    modes[0].e = Math.ceil(extent * modes[0].e / slots(modes));
    if (modes[0].e > 1) break;
    modes.shift();
  }
  return modes;
}
function layoutOf(shape, modes, replicas = [], bits = 0, swizzle = "none") {
  let all = 1;
  const check = list => list.forEach(m => {
    if (m.e < 1) complain(`a mode of extent ${m.e}`);
    if (m.e > Math.floor(kMostSlots / all) || m.s > Math.floor(kMostSlots / m.e)) complain(`a mode of extent ${m.e} and stride ${m.s} is too large`);
    all *= m.e;
  });
  modes = modes.map((list, d) => {
    check(list);
    if (shape[d] < 1) complain(`extent ${shape[d]} of dimension ${d}`);
    if (slots(list) < shape[d]) complain(`the modes of dimension ${d} reach ${slots(list)} of ${shape[d]} elements`);
    return trimmed(merged(list), shape[d]);
  });
  check(replicas);
  replicas = merged(replicas.filter(m => m.s > 0).sort((x, y) => kAxisLetters.indexOf(x.a) - kAxisLetters.indexOf(y.a) || y.s - x.s));
  if (swizzle !== "none" && (bits === 0 || facts.atoms[swizzle] * 8 % bits !== 0))
    complain(bits ? `elements of ${bits} bits with swizzle ${swizzle}` : `swizzle ${swizzle} is of shared memory, as row_major(...) is`);
  return {shape, modes, replicas, bits, swizzle};
}
const modesOn = (l, axis) => [...l.modes.flat(), ...l.replicas].filter(m => m.a === axis);
const axisExtent = (l, axis) => 1 + modesOn(l, axis).reduce((sum, m) => sum + (m.e - 1) * m.s, 0);
const scaled = (modes, inner) => modes.map(m => ({e: m.e, s: m.s * axisExtent(inner, m.a), a: m.a}));
const shapeText = shape => shape.length ? shape.join("x") : "scalar";

function dense(shape, axis, firstFastest, bits = 0) {
  const modes = shape.map(() => []), order = [...shape.keys()];
  let stride = 1;
  for (const d of firstFastest ? order : order.reverse()) { modes[d] = [{e: shape[d], s: stride, a: axis}]; stride *= shape[d]; }
  return layoutOf(shape, modes, [], bits);
}
function jointOf(a, b, what) {
  if (a.bits && b.bits && a.bits !== b.bits) complain(`${what}: elements of ${a.bits} and ${b.bits} bits`);
  if (a.swizzle !== "none" && b.swizzle !== "none" && a.swizzle !== b.swizzle) complain(`${what}: swizzles ${a.swizzle} and ${b.swizzle}`);
  return [Math.max(a.bits, b.bits), a.swizzle !== "none" ? a.swizzle : b.swizzle];
}
function times(outer, inner) {
  const rank = Math.max(outer.shape.length, inner.shape.length), at = (l, d) => d - (rank - l.shape.length), shape = [], modes = [];
  for (let d = 0; d < rank; ++d) {
    const own = outer.shape[at(outer, d)] ?? 1, extent = inner.shape[at(inner, d)] ?? 1, digits = inner.modes[at(inner, d)] ?? [];
    if (own > 1 && slots(digits) !== extent) complain(`product: the inner layout is padded in dimension ${d} (${extent} of ${slots(digits)} slots)`);
    shape.push(own * extent);
    modes.push([...scaled(outer.modes[at(outer, d)] ?? [], inner), ...digits]);
  }
  return layoutOf(shape, modes, [...inner.replicas, ...scaled(outer.replicas, inner)], ...jointOf(outer, inner, "product"));
}
const concatenated = (a, b) => layoutOf([...a.shape, ...b.shape], [...a.modes.map(list => scaled(list, b)), ...b.modes],
                                        [...b.replicas, ...scaled(a.replicas, b)], ...jointOf(a, b, "concat"));
/// The inner digits of `flat` that count to `extent`, taken out of it; null where that cuts through one.
function takeInner(flat, extent) {
  const taken = [];
  while (extent > 1) {
    const m = flat.pop();
    if (!m) return null;
    if (extent % m.e === 0) { taken.unshift(m); extent /= m.e; }
    else if (m.e % extent === 0) { taken.unshift({e: extent, s: m.s, a: m.a}); flat.push({e: m.e / extent, s: m.s * extent, a: m.a}); extent = 1; }
    else return null;
  }
  return taken;
}
function reshaped(l, target) {
  if (total(target) !== total(l.shape)) complain(`reshape: ${total(l.shape)} elements cannot become ${shapeText(target)}`);
  const result = [], onlyWide = extents => {
    if (extents.length === 1) return 0;
    const wide = extents.map((e, i) => e !== 1 ? i : -1).filter(i => i >= 0);
    return wide.length === 1 ? wide[0] : -1;
  };
  // From the inner end, dimensions are gathered until both sides hold equally many elements.
  let from = l.shape.length, to = target.length;
  while (to > 0 || from > 0) {
    const fromEnd = from, toEnd = to;
    let own = 1, wanted = 1;
    do {
      if (own <= wanted && from > 0) own *= l.shape[--from];
      else if (to > 0) wanted *= target[--to];
      else own *= l.shape[--from];
    } while (own !== wanted);
    // One dimension that stays, beside extents of 1: unchanged, padding included.
    const kept = onlyWide(l.shape.slice(from, fromEnd)), put = onlyWide(target.slice(to, toEnd));
    if (kept >= 0 && put >= 0) {
      for (let d = to; d < toEnd; ++d) result[d] = [];
      result[to + put] = l.modes[from + kept];
      continue;
    }
    for (let d = from; d < fromEnd; ++d) if (slots(l.modes[d]) !== l.shape[d]) complain(`reshape: dimension ${d} is padded`);
    const flat = merged(l.modes.slice(from, fromEnd).flat());
    for (let d = toEnd; d-- > to;) result[d] = takeInner(flat, target[d]) ?? complain(`reshape: extent ${target[d]} of dimension ${d} cuts through a mode`);
  }
  return layoutOf(target, result, l.replicas, l.bits, l.swizzle);
}
const without = (list, dim) => list.filter((_, d) => d !== dim);
function squeezed(l, dim) {
  if (l.shape[dim] !== 1) complain(`squeeze: dimension ${dim} has extent ${l.shape[dim]}`);
  return layoutOf(without(l.shape, dim), without(l.modes, dim), l.replicas, l.bits, l.swizzle);
}
function reduced(l, dim) {
  const elsewhere = l.modes[dim].find(m => m.a !== "t" && m.a !== "r");
  if (elsewhere) complain(`reduce: dimension ${dim} lies in memory, not in registers`);
  const replicas = [...l.replicas, ...l.modes[dim].filter(m => m.a === "t")], modes = l.modes.map((list, d) => d === dim ? [] : list.map(m => ({...m})));
  let next = 1;  // registers are renumbered so that none is skipped
  for (const m of modes.flat().filter(m => m.a === "r").sort((x, y) => x.s - y.s)) { m.s = next; next *= m.e; }
  return squeezed(layoutOf(l.shape.map((e, d) => d === dim ? 1 : e), modes, replicas, l.bits, l.swizzle), dim);
}
function replicated(l, threads) {
  const own = axisExtent(l, "t");
  if (threads < own || threads % own) complain(`replicate_to: ${own} threads do not divide ${threads}`);
  return layoutOf(l.shape, l.modes, [...l.replicas, {e: threads / own, s: own, a: "t"}], l.bits, l.swizzle);
}
/// `whole` without the digits of `inner` at its inner end; null where those are others.
function withoutInner(whole, inner) {
  whole = whole.map(m => ({...m})), inner = inner.map(m => ({...m}));
  while (inner.length) {
    const digit = inner.at(-1), from = whole.at(-1);
    if (digit.e === 1) { inner.pop(); continue; }
    if (!from || from.a !== digit.a || from.s !== digit.s) return null;
    if (from.e % digit.e === 0) { from.e /= digit.e; from.s *= digit.e; inner.pop(); if (from.e === 1) whole.pop(); }
    else if (digit.e % from.e === 0) { digit.e /= from.e; digit.s *= from.e; whole.pop(); }
    else return null;
  }
  return whole;
}
/// The same of copies, whose digits have no order.
function withoutCopies(whole, inner) {
  whole = whole.map(m => ({...m}));
  for (const copy of inner.map(m => ({...m})))
    while (copy.e > 1) {
      const found = whole.findIndex(m => m.a === copy.a && m.s === copy.s && (m.e % copy.e === 0 || copy.e % m.e === 0));
      if (found < 0) return null;
      const m = whole[found], taken = Math.min(m.e, copy.e);
      copy.e /= taken, copy.s *= taken, m.e /= taken, m.s *= taken;
      if (m.e === 1) whole.splice(found, 1);
    }
  return whole;
}
function divided(whole, inner) {
  const none = () => complain("divide: no layout times the second is the first"), skip = whole.shape.length - inner.shape.length;
  if (skip < 0) none();
  const down = m => m.s % axisExtent(inner, m.a) === 0 ? {e: m.e, s: m.s / axisExtent(inner, m.a), a: m.a} : none();
  const shape = whole.shape.map((e, d) => d < skip ? e : e % inner.shape[d - skip] === 0 ? e / inner.shape[d - skip] : none());
  const modes = whole.modes.map((own, d) => d < skip ? own : withoutInner(own, inner.modes[d - skip]) ?? none());
  const copies = withoutCopies(whole.replicas, inner.replicas) ?? none();
  const q = layoutOf(shape, modes.map(list => list.map(down)), copies.map(down), whole.bits, whole.swizzle);
  return layoutText(times(q, inner)) === layoutText(whole) ? q : none();
}

const modesText = modes => modes.map(m => `${m.e}${m.a}${m.s}`).join(" ");
const layoutText = l => "[" + l.shape.map((e, d) => l.modes[d].length ? `${e}: ${modesText(l.modes[d])}` : `${e}`).join(", ") +
  (l.replicas.length ? `; rep ${modesText(l.replicas)}` : "") + (l.bits ? `; bits ${l.bits}` : "") + (l.swizzle !== "none" ? `; swizzle ${l.swizzle}` : "") + "]";

/// The text form "[8: 8t4, 8: 4t1 2r1; bits 16]", which stands at `start` of an expression.
function readLayout(text, start) {
  let at = 0;
  const refuse = what => complain(`expected ${what}`, start + at, start + at + 1);
  const peek = () => { while (text[at] === " ") ++at; return text[at] ?? ""; }, accept = c => peek() === c && ++at > 0;
  const digit = () => /^\d$/.test(peek());
  const count = () => {
    if (!digit()) refuse("a number");
    const found = /^\d+/.exec(text.slice(at))[0];
    if (+found > 2 ** 40) refuse("a smaller number");
    at += found.length;
    return +found;
  };
  const modeList = () => {
    const modes = [];
    while (digit()) {
      const e = count();
      if (!text[at] || !kAxisLetters.includes(text[at])) refuse("an axis letter (t, r, a, l, c, x)");
      const a = text[at++];
      modes.push({e, s: count(), a});
    }
    return modes;
  };
  const shape = [], modes = [];
  let replicas = [], bits = 0, swizzle = "none";
  if (!accept("[")) refuse("[");
  if (digit()) do { shape.push(count()); modes.push(accept(":") ? modeList() : []); } while (accept(","));
  while (accept(";")) {
    peek();
    const word = /^[A-Za-z]*/.exec(text.slice(at))[0];
    at += word.length;
    if (word === "rep") replicas = modeList();
    else if (word === "bits") bits = Math.min(count(), 2 ** 20);
    else if (word === "swizzle") {
      peek();
      swizzle = /^[^ ;\]]*/.exec(text.slice(at))[0];
      if (!(swizzle in facts.swizzles)) refuse(`a swizzle (${Object.keys(facts.swizzles).join(", ")})`);
      at += swizzle.length;
    } else refuse("rep, bits or swizzle");
  }
  if (!accept("]")) refuse("]");
  return layoutOf(shape, modes, replicas, bits, swizzle);
}

/// What an expression says; LayoutError with the place of what is wrong.
function evaluateLayout(text) {
  let at = 0, depth = 0;
  const space = () => { while (/^[ \t\n\v\f\r]$/.test(text[at] ?? "")) ++at; }, accept = c => { space(); if (text[at] !== c) return false; ++at; return true; };
  const refuse = (what, from = at) => complain(`expected ${what}`, from, from === at ? at + 1 : at);
  /// An operation that is not possible is the fault of what is written from `from` to here.
  const near = (from, operation) => {
    try { return operation(); } catch (error) {
      if (error instanceof LayoutError && error.from === undefined) { error.from = from; error.to = at; }
      throw error;
    }
  };
  const product = () => {
    if (++depth > 100) refuse("less: this is nested too deep");
    space();
    const start = at;
    let l = value();
    while (accept("*")) { const right = value(), left = l; l = near(start, () => times(left, right)); }
    --depth;
    return l;
  };
  const value = () => {
    let l = primary();
    while (accept(".")) { space(); const start = at, name = word(), a = args(), of = l; l = near(start, () => method(name, of, a, start)); }
    return l;
  };
  const primary = () => {
    space();
    const start = at;
    if (text[at] === "[") {
      const end = text.indexOf("]", at);
      if (end < 0) refuse("a ] somewhere behind");
      at = end + 1;
      return near(start, () => readLayout(text.slice(start, end + 1), start));
    }
    if (accept("(")) { const l = product(); accept(")") || refuse(")"); return l; }
    const name = word(), a = args();
    return near(start, () => called(name, a, start));
  };
  const word = () => {
    space();
    const found = /^[A-Za-z_]+/.exec(text.slice(at))?.[0] ?? refuse("a layout: spatial(...), local(...), row_major(...), [...]");
    at += found.length;
    return found;
  };
  const args = () => {
    const out = {numbers: [], layouts: [], word: "", bits: undefined}, token = () => { const found = /^[\dA-Za-z/+]*/.exec(text.slice(at))[0]; at += found.length; return found; };
    if (!accept("(")) refuse("(");
    if (accept(")")) return out;
    do {
      space();
      const start = at, rest = text.slice(at), isNumber = found => /^\d{1,9}$/.test(found) || (/^\d*$/.test(found) && refuse("a number below a billion", start));
      if (/^\d/.test(rest)) {
        const found = token();
        if (isNumber(found)) out.numbers.push(+found);
        else out.word = found;
      } else if (rest.startsWith("bits")) {
        at += 4;
        if (!accept("=")) refuse("=");
        space();
        const found = token();
        if (!isNumber(found) || +found > 64) refuse("a number of bits, at most 64", start);
        out.bits = +found;
      } else if (rest.startsWith("none")) { at += 4; out.word = "none"; }
      else out.layouts.push(product());
    } while (accept(","));
    if (!accept(")")) refuse(")");
    return out;
  };
  const extentsOf = (a, start) => {
    if (!a.numbers.length) refuse("extents", start);
    if (a.numbers.includes(0)) refuse("extents of at least 1", start);
    if (total(a.numbers) > kMostElements) refuse(`at most ${kMostElements} elements`, start);
    return a.numbers;
  };
  const called = (name, a, start) => {
    const two = operation => a.layouts.length === 2 ? operation(...a.layouts) : refuse(`${name} of two layouts`, start);
    switch (name) {
      case "spatial": return dense(extentsOf(a, start), "t", false);
      case "column_spatial": return dense(extentsOf(a, start), "t", true);
      case "local": return dense(extentsOf(a, start), "r", false);
      case "column_local": return dense(extentsOf(a, start), "r", true);
      case "row_major": return a.bits === 0 ? complain("elements of 0 bits in memory") : dense(extentsOf(a, start), "a", false, a.bits ?? 16);
      case "compose": return two(times);
      case "concat": return two(concatenated);
      case "divide": return two(divided);
      default: return refuse("spatial, column_spatial, local, column_local, row_major, compose, concat or divide", start);
    }
  };
  const method = (name, l, a, start) => {
    const rank = l.shape.length, one = () => a.numbers.length === 1 ? a.numbers[0] : refuse(`${name} of one number`, start);
    const dimension = () => one() < rank ? one() : refuse(`a dimension, 0 to ${rank - 1}`, start);
    const permuted = order => layoutOf(order.map(d => l.shape[d]), order.map(d => l.modes[d]), l.replicas, l.bits, l.swizzle);
    switch (name) {
      case "transpose": return rank < 2 ? complain("transpose of fewer than two dimensions") : permuted([...Array(rank - 2).keys(), rank - 1, rank - 2]);
      case "permute": return [...a.numbers].sort((x, y) => x - y).join() === [...Array(rank).keys()].join() ? permuted(a.numbers) : refuse("every dimension once", start);
      case "reshape": return reshaped(l, extentsOf(a, start));
      case "reduce": return reduced(l, dimension());
      case "squeeze": return squeezed(l, dimension());
      case "replicate_to": return replicated(l, one());
      case "with_swizzle": return a.word in facts.swizzles ? layoutOf(l.shape, l.modes, l.replicas, l.bits, a.word) : refuse(`with_swizzle of ${Object.keys(facts.swizzles).join(", ")}`, start);
      default: return refuse("transpose, permute, reshape, squeeze, reduce, replicate_to or with_swizzle", start);
    }
  };
  const result = product();
  space();
  return at === text.length ? result : refuse("the end, or *");
}

const inSharedMemory = l => modesOn(l, "a").length > 0, inTensorMemory = l => !inSharedMemory(l) && modesOn(l, "l").length + modesOn(l, "c").length > 0;
/// Thread and register of an element, byte and bank, or lane and column.
function placeOf(l, index) {
  const place = {t: 0, r: 0, a: 0, l: 0, c: 0, x: 0};
  l.modes.forEach((modes, d) => {
    let rest = index[d];
    for (const m of [...modes].reverse()) { place[m.a] += rest % m.e * m.s; rest = Math.floor(rest / m.e); }
  });
  if (inTensorMemory(l)) return [place.l, place.c];
  if (!inSharedMemory(l)) return [place.t, place.r];
  const bits = Math.max(1, l.bits), plain = place.a * bits;
  const moved = l.swizzle === "none" ? place.a : Math.floor((swizzled(l.swizzle, Math.floor(plain / 8)) * 8 + plain % 8) / bits);
  const byte = Math.floor(moved * bits / 8);
  return [byte, Math.floor(byte / 4) % 32];
}
/// The last two dimensions, at index 0 of the others; no more of them than that many.
function layoutTable(l, mostRows = Infinity, mostColumns = Infinity) {
  const rank = l.shape.length, rows = rank >= 2 ? l.shape[rank - 2] : 1, columns = rank >= 1 ? l.shape[rank - 1] : 1, cells = [];
  const shownRows = Math.min(rows, mostRows), shownColumns = Math.min(columns, mostColumns);
  for (let r = 0; r < shownRows; ++r) for (let c = 0; c < shownColumns; ++c) cells.push(placeOf(l, l.shape.map((_, d) => d === rank - 1 ? c : d === rank - 2 ? r : 0)));
  return {rows, columns, shownRows, shownColumns, cells};
}

/// Expressions for the test: built at random from all there is, every third with a letter changed.
function randomLayouts(count) {
  let state = 12345;
  const below = n => { state = (state * 1103515245 + 12345) % 2147483648; return Math.floor(state / 65536) % n; }, one = list => list[below(list.length)];
  const extents = () => Array.from({length: 1 + below(3)}, () => one([1, 2, 2, 3, 4, 4, 8])).join(", ");
  const primary = depth => {
    if (depth > 0 && below(3) === 0) {
      const a = product(depth - 1), b = product(depth - 1);
      return one([`(${a})`, `compose(${a}, ${b})`, `concat(${a}, ${b})`, `divide(${a}, ${b})`, `divide((${a}) * (${b}), ${b})`, `divide(${b}, ${b})`]);
    }
    if (below(8) === 0) return one(["[8: 8t4, 8: 4t1 2r1]", "[4: 4t2, 2: 2t1; rep 2t8]", "[6: 8r1]", "[4: 4l1, 8: 8c1; bits 16]", "[8: 8a8, 8: 8a1; bits 16; swizzle 32B]"]);
    return below(5) ? `${one(["spatial", "local", "column_spatial", "column_local"])}(${extents()})` :
      `row_major(${extents()}, bits = ${one([4, 8, 16, 32])})${one(["", ".with_swizzle(64B)", ".with_swizzle(128B/32B+8B)"])}`;
  };
  const value = depth => {
    let text = primary(depth);
    for (let n = one([0, 0, 0, 1, 2]); n-- > 0;)
      text += one([() => ".transpose()", () => `.reduce(${below(3)})`, () => `.squeeze(${below(2)})`, () => `.reshape(${extents()})`, () => `.replicate_to(${one([8, 32, 64])})`,
                   () => `.permute(${one(["0", "1, 0", "2, 0, 1"])})`, () => `.with_swizzle(${one(Object.keys(facts.swizzles))})`])();
    return text;
  };
  const product = depth => Array.from({length: 1 + below(3)}, () => value(depth)).join(" * ");
  const all = [];
  while (all.length < count) {
    let text = product(2);
    // A name of the command's own, without a bracket, is no expression.
    if (all.length % 3 === 0) { const i = below(text.length); text = text.slice(0, i) + one([..."()[]*.,:;8t ", "", "x"]) + text.slice(i + 1); }
    if (/[[(]/.test(text)) all.push(text);
  }
  return all;
}
