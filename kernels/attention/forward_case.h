// SPDX-License-Identifier: Apache-2.0
// The problem that registered kernels of attention's forward pass solve, and what they expect.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "attention/reference.h"
#include "attention/score_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

/// A kernel's sizes, and behind them those of masks and score modifications.
inline std::vector<SizeOption> with_steps(std::vector<SizeOption> sizes) {
  for (const SizeOption& step : std::initializer_list<SizeOption>{
           {"window", 0, "columns that a row sees, its own the last; 0: all"},
           {"prefix", 0, "columns that every row sees, beside those up to its own; 0: no such mask"},
           {"cap", 0, "bound of the scores, by tanh; 0: none"},
           {"alibi", 0, "1: a bias by distance, of each head"},
           {"sink", 0, "1: a score of each head without a value"}})
    sizes.push_back(step);
  return sizes;
}

/// A problem, as sizes of the registered kernel state it.
struct ForwardProblem {
  int64_t heads, rows, columns, d, d_v, group;
  DataType dtype;
  float scale;
  ScoreArguments steps;
  DeviceTensor q, k, v, o, log_sum, slopes, sinks;

  /// What the kernel has beside the sizes of the problem: masks and modifications, and the logarithms of sums; values of a
  /// size of their own, too.
  enum class Has : uint8_t { kNothing, kSteps, kAll };
  ForwardProblem(Case& c, Has has)
      : heads(c.size("heads")),
        rows(c.size("q")),
        columns(c.size("kv")),
        d(c.size("d")),
        d_v(has == Has::kAll && c.size("dv") > 0 ? c.size("dv") : d),
        group(c.size("group")),
        dtype(c.size("bf16") ? bfloat16 : float16),
        scale(1 / std::sqrt(static_cast<float>(d))) {
    if (group < 1 || heads % group != 0)
      throw LaunchError(Diagnostic{{},
                                   fmt::format("attention: {} heads in groups of {}", heads, group),
                                   {},
                                   "give --heads as a multiple of --group"});
    q = c.input(dtype, {heads, rows, d});
    k = c.input(dtype, {heads / group, columns, d});
    v = c.input(dtype, {heads / group, columns, d_v});
    o = c.output(dtype, {heads, rows, d_v});
    slopes = sinks = q;
    steps.causal = c.size("causal") != 0;
    if (has == Has::kNothing) return;
    log_sum = c.output(float32, {heads, rows});
    steps = {.causal = c.size("causal") != 0,
             .window = c.size("window") > 0,
             .prefix = c.size("prefix") > 0,
             .soft_cap = c.size("cap") > 0,
             .alibi = c.size("alibi") != 0,
             .sink = c.size("sink") != 0,
             .left = c.size("window") - 1,
             .right = 0,
             .length = c.size("prefix"),
             .heads = heads,
             .cap = static_cast<float>(c.size("cap"))};
    if (steps.alibi) slopes = c.input(float32, {heads}, 0.02);
    if (steps.sink) sinks = c.input(float32, {heads});
    steps.slopes = slopes.address();
    steps.sinks = sinks.address();
  }

  bool sees(int64_t row, int64_t column) const {
    const int64_t at = row + columns - rows;
    return (!steps.causal || column <= at) &&
           (!steps.window || (column >= at - steps.left && column <= at + steps.right)) &&
           (!steps.prefix || column <= std::max(at, steps.length - 1));
  }
};

/// Attention in float64, element by element; keeps the weights of the last row.
class ForwardReference {
 public:
  ForwardReference(const Case& c, const ForwardProblem& p)
      : p_(p), q_(c.values(p.q)), k_(c.values(p.k)), v_(c.values(p.v)) {
    if (p.steps.alibi) slopes_ = c.values(p.slopes);
    if (p.steps.sink) sinks_ = c.values(p.sinks);
  }
  Bounded operator()(int64_t element) {
    const int64_t row = element / p_.d_v;
    weigh(row);
    return reference_.mean(element % p_.d_v, AttentionTypes(p_.dtype),
                           [&](int64_t j) { return v_.data() + (first_kv(row) + j) * p_.d_v; });
  }
  Bounded log_sum(int64_t row) {
    weigh(row);
    return reference_.log_sum();
  }

 private:
  int64_t first_kv(int64_t row) const { return row / p_.rows / p_.group * p_.columns; }

  void weigh(int64_t row) {
    if (row == row_) return;
    row_ = row;
    const int64_t i = row % p_.rows, head = row / p_.rows;
    std::vector<RowScore> scores(static_cast<size_t>(p_.columns), {RowReference::kNone, 0});
    for (int64_t j = 0; j < p_.columns; ++j) {
      if (!p_.sees(i, j)) continue;
      RowScore score =
          score_of(q_.data() + row * p_.d, k_.data() + (first_kv(row) + j) * p_.d, p_.d, p_.scale, p_.dtype);
      if (p_.steps.soft_cap) score = capped(score, p_.steps.cap);
      if (p_.steps.alibi) {
        const double bias = slopes_[head] * static_cast<double>(j - (i + p_.columns - p_.rows));
        score = {score.value + bias, score.error + 0x1p-23 * (std::abs(score.value) + std::abs(bias))};
      }
      scores[static_cast<size_t>(j)] = score;
    }
    reference_.weigh(scores, p_.steps.sink ? std::optional(sinks_[head]) : std::nullopt);
  }

  const ForwardProblem p_;
  std::vector<double> q_, k_, v_, slopes_, sinks_;
  RowReference reference_;
  int64_t row_ = -1;
};

/// States the result, and the logarithms of sums if the kernel writes them.
inline void expect_forward(Case& c, const ForwardProblem& p, bool has_log_sum) {
  const bool plain =
      !p.steps.window && !p.steps.prefix && !p.steps.soft_cap && !p.steps.alibi && !p.steps.sink;
  if (p.d_v == p.d && plain) c.attention = StatedAttention{p.q, p.k, p.v, p.o, p.scale, p.steps.causal};
  c.flop = 2.0 * static_cast<double>(p.heads * p.rows) * static_cast<double>(p.columns * (p.d + p.d_v)) *
           (p.steps.causal ? 0.5 : 1);
  // Where checking all rows takes too long, a sample: an element of it costs as much as a row.
  constexpr int64_t kProducts = int64_t{1} << 29;
  const int64_t row = 2 * p.columns * p.d, all = p.heads * p.rows;
  const bool whole = all * row <= kProducts;
  auto reference = std::make_shared<std::shared_ptr<ForwardReference>>();
  const auto get = [&c, p, reference]() -> ForwardReference& {
    if (!*reference) *reference = std::make_shared<ForwardReference>(c, p);
    return **reference;
  };
  c.expect_within(
      p.o, [&](int64_t element) { return get()(element); },
      whole ? all * p.d_v : std::max<int64_t>(kProducts / row, 500));
  if (has_log_sum)
    c.expect_within(
        p.log_sum, [&](int64_t r) { return get().log_sum(r); }, whole ? all : 100);
}

}  // namespace imbrex::kernels
