// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/gated_delta_rule.h"

#include <cmath>

#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

struct Sizes {
  int64_t tokens, heads, value_heads, key, value;
};

/// The reference: what becomes of the states and of o. `states` is changed; a token without a slot leaves no state.
struct Step {
  std::vector<double> q, k, v, a_log, a, dt_bias, b, slot;
  double scale;

  static double length(std::span<const double> row) {
    double sum = 1e-6;
    for (double x : row) sum += x * x;
    return std::sqrt(sum);
  }
  void run(const Sizes& s, std::span<double> states, std::span<double> o) const {
    for (int64_t t = 0; t < s.tokens; ++t)
      for (int64_t h = 0; h < s.value_heads; ++h) {
        const int64_t head = t * s.heads + h / (s.value_heads / s.heads), at = t * s.value_heads + h;
        const auto key_row =
            std::span(k).subspan(static_cast<size_t>(head * s.key), static_cast<size_t>(s.key));
        const auto query_row =
            std::span(q).subspan(static_cast<size_t>(head * s.key), static_cast<size_t>(s.key));
        const double key_length = length(key_row), query_length = length(query_row);
        const double decay = std::exp(-std::exp(a_log[h]) * std::log1p(std::exp(a[at] + dt_bias[h])));
        const double strength = 1 / (1 + std::exp(-b[at]));
        const auto slot_of = static_cast<int64_t>(slot[t]);
        std::vector<double> none(static_cast<size_t>(s.key * s.value));
        double* state = slot_of < 0 ? none.data() : &states[(slot_of * s.value_heads + h) * s.key * s.value];
        for (int64_t j = 0; j < s.value; ++j) {
          double predicted = 0, answer = 0;
          for (int64_t i = 0; i < s.key; ++i)
            predicted += (state[i * s.value + j] *= decay) * key_row[i] / key_length;
          const double error = strength * (v[at * s.value + j] - predicted);
          for (int64_t i = 0; i < s.key; ++i) {
            state[i * s.value + j] += key_row[i] / key_length * error;
            answer += state[i * s.value + j] * query_row[i] / query_length;
          }
          o[at * s.value + j] = answer * scale;
        }
      }
  }
};

const KernelRegistration<GatedDeltaRule> registration{
    {"gated_delta_rule",
     "a step of linear attention by the gated delta rule, states in float32",
     {{"tokens", 5, "sequences, one token each"},
      {"heads", 2, "of queries and keys"},
      {"value_heads", 4, "of values, a multiple of heads"},
      {"key", 64, "rows of a state"},
      {"value", 72, "columns of a state"},
      {"bf16", 1, "1: bfloat16, 0: float16"}}},
    [](Case& c, Kernel<GatedDeltaRule>& kernel) {
      const Sizes s{c.size("tokens"), c.size("heads"), c.size("value_heads"), c.size("key"), c.size("value")};
      const int64_t slots = s.tokens + 2;
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      const HostTensor before = c.random(float32, {slots, s.value_heads, s.key, s.value});
      HostTensor slot_of(int32, {s.tokens});
      for (int64_t t = 0; t < s.tokens; ++t)
        slot_of.set(t, t % 4 == 3 ? -1.0 : static_cast<double>(slots - 1 - t));
      DeviceTensor q = c.input(dtype, {s.tokens, s.heads, s.key}),
                   k = c.input(dtype, {s.tokens, s.heads, s.key}),
                   v = c.input(dtype, {s.tokens, s.value_heads, s.value}),
                   a_log = c.input(float32, {s.value_heads}), a = c.input(dtype, {s.tokens, s.value_heads}),
                   dt_bias = c.input(float32, {s.value_heads}), b = c.input(dtype, {s.tokens, s.value_heads}),
                   slot = c.input(slot_of), state = c.input(before),
                   o = c.output(dtype, {s.tokens, s.value_heads, s.value});
      const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.key)));
      c.launch(kernel, s.tokens, s.heads, s.value_heads, s.key, s.value, slots, scale, dtype, q, k, v, a_log,
               a, dt_bias, b, slot, state, o);
      const Step step{c.values(q),     c.values(k),    c.values(v),
                      c.values(a_log), c.values(a),    c.values(dt_bias),
                      c.values(b),     c.values(slot), scale};
      const auto run = [=](std::span<double> states, std::span<double> out) {
        for (size_t i = 0; i < states.size(); ++i) states[i] = before.get(static_cast<int64_t>(i));
        step.run(s, states, out);
      };
      c.expect(state, [=](std::span<double> out) {
        std::vector<double> answers(static_cast<size_t>(s.tokens * s.value_heads * s.value));
        run(out, answers);
      });
      c.expect(o, [=](std::span<double> out) {
        std::vector<double> states(static_cast<size_t>(before.elements()));
        run(states, out);
      });
    }};

}  // namespace
}  // namespace imbrex::kernels
