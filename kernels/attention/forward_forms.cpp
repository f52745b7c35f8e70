// SPDX-License-Identifier: Apache-2.0
// Further forms of attention's forward kernel, as registered kernels: packed sequences, and float8.
#include <cmath>
#include <memory>

#include "attention/forward_case.h"
#include "attention/kv_arguments.h"
#include "attention/packed_case.h"
#include "attention/reference.h"
#include "imbrex/kernels/attention/forward.h"

namespace imbrex::kernels {
namespace {

using Forward = WithScoreOptions<ForwardAttention>;

int64_t section_heads(int64_t columns, int64_t row_bytes, int64_t group) {
  return std::max<int64_t>(1, (int64_t{24} << 20) / (columns * row_bytes) * group);
}

const KernelRegistration<Forward> packed{
    {"attention_packed",
     "attention of sequences of several lengths, packed one behind the other",
     {{"heads", 2, "heads of Q"},
      {"q", 500, "rows of Q per head, of all sequences"},
      {"kv", 700, "rows of K and V per head, of all sequences"},
      {"d", 64, "columns: the head's size, a multiple of 16, at most 256"},
      {"group", 1, "heads of Q that share one of K and V"},
      {"causal", 0, "1: row i sees the columns up to i + kv - q, counted in its sequence"},
      {"bf16", 0, "1: bfloat16, 0: float16"},
      {"sequences", 6, "that the rows are divided among, unevenly"},
      {"same", 0, "1: K and V are divided as Q is; for as many rows"}}},
    [](Case& c, Kernel<Forward>& kernel) {
      const int64_t heads = c.size("heads"), rows = c.size("q"), columns = c.size("kv"), d = c.size("d"),
                    group = c.size("group");
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      const float scale = 1 / std::sqrt(static_cast<float>(d));
      const bool causal = c.size("causal") != 0;
      const std::vector<int64_t> q_begins = divided(rows, c.size("sequences"), 101),
                                 kv_begins =
                                     c.size("same") ? q_begins : divided(columns, c.size("sequences"), 57);
      const DeviceTensor q = c.input(dtype, {heads, rows, d}),
                         k = c.input(dtype, {heads / group, columns, d}),
                         v = c.input(dtype, {heads / group, columns, d}), q_at = as_input(c, q_begins),
                         kv_at = as_input(c, kv_begins), o = c.output(dtype, {heads, rows, d}),
                         log_sum = c.output(float32, {heads, rows});
      ScoreArguments steps;
      steps.causal = causal;
      steps.slopes = steps.sinks = q.address();
      c.launch(kernel, 1, heads, rows, columns, d, d, group, scale, dtype, dtype, HeadArguments(q),
               HeadArguments(k), HeadArguments(v), HeadArguments(o), true, log_sum, causal,
               section_heads(columns, 4 * d, group), PackedArguments(q_at, kv_at, q.address()),
               Float8Arguments(heads, {}, {}, {}, q.address()), steps);
      for (size_t s = 0; s + 1 < q_begins.size(); ++s)
        c.flop += 4.0 * static_cast<double>(heads * (q_begins[s + 1] - q_begins[s])) *
                  static_cast<double>((kv_begins[s + 1] - kv_begins[s]) * d) * (causal ? 0.5 : 1);
      std::shared_ptr<std::array<std::vector<double>, 3>> values;
      RowReference row;
      int64_t of = -1, first = 0;
      c.expect_within(
          o,
          [&, q, k, v, q_begins, kv_begins, values, row, of, first](int64_t element) mutable {
            if (!values)
              values = std::make_shared<std::array<std::vector<double>, 3>>(
                  std::array<std::vector<double>, 3>{c.values(q), c.values(k), c.values(v)});
            const int64_t r = element / d, i = r % rows, head_kv = r / rows / group;
            const auto place = [&](int64_t j) { return (head_kv * columns + first + j) * d; };
            if (r != of) {
              const size_t s = static_cast<size_t>(std::upper_bound(q_begins.begin(), q_begins.end(), i) -
                                                   q_begins.begin()) -
                               1;
              first = kv_begins[s];
              const int64_t q_size = q_begins[s + 1] - q_begins[s], kv_size = kv_begins[s + 1] - first;
              const int64_t seen =
                  causal ? std::clamp<int64_t>(i - q_begins[s] + 1 + kv_size - q_size, 0, kv_size) : kv_size;
              row.weigh((*values)[0].data() + r * d, d, scale, seen, dtype,
                        [&](int64_t j) { return (*values)[1].data() + place(j); });
              of = r;
            }
            return row.mean(element % d, AttentionTypes(dtype),
                            [&](int64_t j) { return (*values)[2].data() + place(j); });
          },
          std::min<int64_t>(heads * rows * d, (int64_t{1} << 28) / std::max<int64_t>(columns, 1) / d + 300));
    }};

const std::vector<SizeOption> kFloat8Sizes{
    {"heads", 2, "heads of Q, of all batches"},
    {"q", 300, "rows of Q per head"},
    {"kv", 300, "rows of K and V per head"},
    {"d", 128, "columns: the head's size, a multiple of 32, at most 256"},
    {"group", 1, "heads of Q that share one of K and V"},
    {"causal", 0, "1: row i sees the columns up to i + kv - q"},
    {"by_rows", 0, "1: a scale for each 128 rows of a head, 0: for each head"}};

int64_t padded(int64_t columns) { return (columns + kFloat8Columns - 1) / kFloat8Columns * kFloat8Columns; }

/// Element `i` of V [heads, columns, d] as TransposeValues leaves it, from value(element of V).
template <class Value>
double transposed_value(int64_t i, int64_t columns, int64_t d, const Value& value) {
  const int64_t p = i % padded(columns), e = i / padded(columns) % d, head = i / padded(columns) / d;
  const int64_t j = p / 16 * 16 + p % 4 / 2 * 8 + p % 16 / 4 * 2 + p % 2;
  return j < columns ? value((head * columns + j) * d + e) : 0;
}

/// Of `heads` heads of `rows` rows: positive numbers, one for each head, or for each block of rows of it.
DeviceTensor scales(Case& c, int64_t heads, int64_t rows) {
  std::vector<int64_t> shape{heads};
  if (c.size("by_rows")) shape.push_back((rows + kScaledRows - 1) / kScaledRows);
  HostTensor host = c.random(float32, shape);
  for (int64_t i = 0; i < host.elements(); ++i) host.set(i, 0.25 + std::abs(host.get(i)));
  return c.input(host);
}
/// What elements of [heads, rows, d] stand for.
std::vector<double> scaled(std::vector<double> elements, const std::vector<double>& scales, bool by_rows,
                           int64_t rows, int64_t d) {
  const int64_t blocks = (rows + kScaledRows - 1) / kScaledRows;
  for (size_t i = 0; i < elements.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / d, head = row / rows;
    elements[i] *= scales[static_cast<size_t>(by_rows ? head * blocks + row % rows / kScaledRows : head)];
  }
  return elements;
}

/// Of the tiles, those whose weights are whole operands of float8: 32 columns each.
struct Float8Forward : Forward {
  static auto space() {
    return Space<Float8Forward>()
        .choose<&Float8Forward::block_kv, &Float8Forward::stages, &Float8Forward::consumers>(
            {{128, 2, 2}, {160, 2, 2}, {96, 2, 2}, {64, 4, 2}, {64, 2, 3}})
        .choose<&Float8Forward::takes_turns>({false, true})
        .choose<&Float8Forward::ctas>({132});
  }
};

const KernelRegistration<Float8Forward> float8{
    {"attention_float8",
     "attention of float8_e4m3 with a scale per head, or for each 128 rows, into bfloat16", kFloat8Sizes},
    [](Case& c, Kernel<Float8Forward>& kernel) {
      const int64_t heads = c.size("heads"), rows = c.size("q"), columns = c.size("kv"), d = c.size("d"),
                    group = c.size("group"), heads_kv = heads / group;
      const float scale = 1 / std::sqrt(static_cast<float>(d));
      const bool causal = c.size("causal") != 0, by_rows = c.size("by_rows") != 0;
      const DeviceTensor q = c.input(float8_e4m3, {heads, rows, d}),
                         k = c.input(float8_e4m3, {heads_kv, columns, d});
      const HostTensor v = c.random(float8_e4m3, {heads_kv, columns, d});
      HostTensor transposed_v(float8_e4m3, {heads_kv, d, padded(columns)});
      for (int64_t i = 0; i < transposed_v.elements(); ++i)
        transposed_v.set(i, transposed_value(i, columns, d, [&](int64_t j) { return v.get(j); }));
      const DeviceTensor transposed = c.input(transposed_v), q_scales = scales(c, heads, rows),
                         k_scales = scales(c, heads_kv, columns), v_scales = scales(c, heads_kv, columns),
                         o = c.output(bfloat16, {heads, rows, d});
      ScoreArguments steps;
      steps.causal = causal;
      steps.slopes = steps.sinks = q.address();
      c.launch(kernel, 1, heads, rows, columns, d, d, group, scale, float8_e4m3, bfloat16, HeadArguments(q),
               HeadArguments(k), HeadArguments(transposed), HeadArguments(o), false, q.address(), causal,
               section_heads(columns, 2 * d, group), PackedArguments({}, {}, q.address()),
               Float8Arguments(heads, q_scales, k_scales, v_scales, q.address()), steps);
      c.flop =
          4.0 * static_cast<double>(heads * rows) * static_cast<double>(columns * d) * (causal ? 0.5 : 1);
      std::shared_ptr<std::array<std::vector<double>, 3>> values;
      RowReference row;
      int64_t of = -1;
      c.expect_within(
          o,
          [&, q, k, v, q_scales, k_scales, v_scales, values, row, of](int64_t element) mutable {
            if (!values) {
              const auto all = [&](std::vector<double> elements, const DeviceTensor& by, int64_t n) {
                return scaled(std::move(elements), c.values(by), by_rows, n, d);
              };
              values =
                  std::make_shared<std::array<std::vector<double>, 3>>(std::array<std::vector<double>, 3>{
                      all(c.values(q), q_scales, rows), all(c.values(k), k_scales, columns),
                      all(v.to_doubles(), v_scales, columns)});
            }
            const int64_t r = element / d, i = r % rows, head_kv = r / rows / group;
            const auto place = [&](int64_t j) { return (head_kv * columns + j) * d; };
            if (r != of) {
              const int64_t seen = causal ? std::clamp<int64_t>(i + 1 + columns - rows, 0, columns) : columns;
              row.weigh((*values)[0].data() + r * d, d, scale, seen, float8_e4m3,
                        [&](int64_t j) { return (*values)[1].data() + place(j); });
              of = r;
            }
            return row.mean(element % d, {float8_e4m3, float8_e4m3, bfloat16},
                            [&](int64_t j) { return (*values)[2].data() + place(j); });
          },
          std::min<int64_t>(heads * rows * d, (int64_t{1} << 28) / std::max<int64_t>(columns, 1) / d + 300));
    }};

const KernelRegistration<TransposeValues> transposed_values{
    {"attention_transpose_values",
     "V of float8, transposed and in the order in which attention's tensor cores take it",
     {{"heads", 3, "heads of V"}, {"kv", 300, "rows of V per head"}, {"d", 96, "columns of V"}}},
    [](Case& c, Kernel<TransposeValues>& kernel) {
      const int64_t heads = c.size("heads"), rows = c.size("kv"), d = c.size("d"), columns = padded(rows);
      const DeviceTensor v = c.input(float8_e4m3, {heads, rows, d}),
                         transposed = c.output(float8_e4m3, {heads, d, columns});
      c.launch(kernel, 1, heads, rows, static_cast<int>(d), HeadArguments(v), transposed,
               PackedArguments({}, {}, v.address()));
      c.flop = 0;
      c.expect(
          transposed,
          [&, v, rows, d, columns](std::span<double> out) {
            const std::vector<double> in = c.values(v);
            for (size_t i = 0; i < out.size(); ++i)
              out[i] = transposed_value(static_cast<int64_t>(i), rows, d, [&](int64_t j) { return in[j]; });
          },
          0);
    }};

}  // namespace
}  // namespace imbrex::kernels
