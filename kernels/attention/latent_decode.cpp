// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention/latent_decode.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "attention/cache_case.h"
#include "attention/decode_launch.h"
#include "attention/kv_arguments.h"
#include "attention/reference.h"
#include "attention/score_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/merge.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

using LatentDecode = WithScoreOptions<LatentDecodeAttention>;

/// A cache of float8 of `rows` rows: random values and factors, as bytes that lie in memory, and what the rows stand for.
struct Float8Cache {
  HostTensor bytes;
  std::vector<double> meant;

  Float8Cache(Case& c, const CacheCase& cache, int64_t head_size, int64_t value_size, DataType dtype)
      : bytes(float8_e4m3,
              {cache.pages, 1, cache.rows_of_page, latent_float8_row_bytes(head_size, value_size)}) {
    const int64_t rows = cache.pages * cache.rows_of_page, row_bytes = bytes.shape().back(),
                  rest = head_size - value_size, factors = value_size / LatentFloat8::kScaled,
                  scaled = LatentFloat8::kScaled;
    const HostTensor values = c.random(float8_e4m3, {rows, value_size}),
                     of_blocks = c.random(float32, {rows, factors}),
                     others = c.random(dtype, {rows, head_size});
    HostTensor rounded(dtype, {rows, head_size});
    const auto place = [&](int64_t row, int64_t at, const std::byte* from, int64_t size) {
      std::memcpy(bytes.bytes().data() + row * row_bytes + at, from, static_cast<size_t>(size));
    };
    for (int64_t row = 0; row < rows; ++row) {
      place(row, 0, values.bytes().data() + row * value_size, value_size);
      for (int64_t b = 0; b < factors; ++b) {
        const float factor = 0.25F + std::abs(static_cast<float>(of_blocks.get(row * factors + b)));
        place(row, value_size + 4 * b, reinterpret_cast<const std::byte*>(&factor), 4);
        for (int64_t e = b * scaled; e < (b + 1) * scaled; ++e)
          rounded.set(row * head_size + e, static_cast<float>(values.get(row * value_size + e)) * factor);
      }
      place(row, row_bytes - 2 * rest, others.bytes().data() + (row * head_size + value_size) * 2, 2 * rest);
      for (int64_t e = value_size; e < head_size; ++e)
        rounded.set(row * head_size + e, others.get(row * head_size + e));
    }
    meant = rounded.to_doubles();
  }
};

template <class K>
void latent_decode(Case& c, Kernel<K>& kernel, bool is_float8) {
  const DecodeSizes s{c.size("batch"), 1, c.size("heads"), c.size("q"), c.size("kv"), c.size("d")};
  const int64_t value_size = c.size("dv"), heads = s.group, rows = s.batches * heads * s.q_size;
  const bool is_causal = c.size("causal") != 0;
  const DataType dtype = c.size("bf16") ? bfloat16 : float16;
  const float scale = 1 / std::sqrt(static_cast<float>(s.head_size));
  std::shared_ptr<const Float8Cache> float8;
  if (is_float8 && (value_size < 128 || value_size % 128 != 0 || value_size > s.head_size))
    throw LaunchError(Diagnostic{
        {},
        fmt::format("attention_latent_decode_float8: keys of {} with values of {}", s.head_size, value_size),
        {},
        "give --dv as a multiple of 128 of at most --d"});
  const CacheCase in_cache(c, s.batches, s.capacity, c.size("page"), c.size("ragged") != 0);
  if (is_float8) float8 = std::make_shared<Float8Cache>(c, in_cache, s.head_size, value_size, dtype);
  const DeviceTensor q = c.input(dtype, {s.batches, heads, s.q_size, s.head_size}),
                     cache = is_float8
                                 ? c.input(float8->bytes)
                                 : c.input(dtype, {in_cache.pages, 1, in_cache.rows_of_page, s.head_size}),
                     o = c.output(dtype, {s.batches, heads, s.q_size, value_size});
  const int64_t parts = c.size("parts") > 0 ? c.size("parts") : decode_parts(s, 132, is_float8 ? 32 : 64);
  const DeviceTensor partial = c.output(float32, {parts, rows, value_size}),
                     log_sum = c.output(float32, {parts, rows});
  const ScoreArguments steps{
      .causal = is_causal, .heads = heads, .slopes = q.address(), .sinks = q.address()};
  c.launch(kernel, s.batches, heads, s.q_size, parts, s.head_size, value_size, parts > 1, scale, dtype,
           HeadArguments(q), CacheArguments(cache, cache, in_cache.lengths, in_cache.table),
           LatentFloat8Arguments(is_float8, cache.address(), value_size), HeadArguments(o), partial, log_sum,
           steps);
  if (c.mode() == Case::Mode::kRun && parts > 1)
    Kernel<MergeAttention>(merge_tiles(parts), q.device())(s.batches, heads, s.q_size, parts, value_size,
                                                           dtype, false, partial, log_sum, HeadArguments(o),
                                                           log_sum.address())
        .expect_clean();
  c.flop = 2.0 * static_cast<double>(heads * s.q_size) * in_cache.all_rows() *
           static_cast<double>(s.head_size + value_size);
  std::shared_ptr<std::array<std::vector<double>, 2>> values;
  RowReference row;
  int64_t of = -1;
  c.expect_within(
      o,
      [&, q, cache, float8, is_float8, values, row, of, in_cache](int64_t element) mutable {
        if (!values)
          values = std::make_shared<std::array<std::vector<double>, 2>>(
              std::array<std::vector<double>, 2>{c.values(q), is_float8 ? float8->meant : c.values(cache)});
        const int64_t r = element / value_size, i = r % s.q_size, b = r / s.q_size / heads;
        const auto at = [&](int64_t j) { return (*values)[1].data() + in_cache.row_at(b, j) * s.head_size; };
        if (r != of) {
          const int64_t length = in_cache.length_of[b],
                        seen = std::max<int64_t>(0, is_causal ? length - s.q_size + i + 1 : length);
          row.weigh((*values)[0].data() + r * s.head_size, s.head_size, scale, seen, dtype, at);
          of = r;
        }
        return row.mean(element % value_size, AttentionTypes(dtype), at);
      },
      std::min<int64_t>(rows * value_size,
                        (int64_t{1} << 27) / std::max<int64_t>(s.capacity, 1) / s.head_size + 300));
}

std::vector<SizeOption> sizes() {
  return {{"batch", 2, "sequences"},
          {"heads", 64, "heads of Q, which share the cache"},
          {"q", 1, "rows of Q per head"},
          {"kv", 300, "rows of the cache for which there is room"},
          {"d", 576, "columns of the keys, a multiple of 64, at most 576"},
          {"dv", 512, "columns of the values, a multiple of 128, at most 512"},
          {"page", 0, "rows of a page; 0: contiguous"},
          {"ragged", 0, "1: sequences of several lengths"},
          {"causal", 0, "1: row i sees the columns up to i + length - q"},
          {"bf16", 0, "1: bfloat16, 0: float16"},
          {"parts", 0, "CTAs that share a sequence; 0: as many as fill the GPU"}};
}

const KernelRegistration<LatentDecode> registration{
    {"attention_latent_decode",
     "multi-head latent attention of few query rows: one cache whose rows are keys, and their beginnings "
     "values",
     sizes()},
    [](Case& c, Kernel<LatentDecode>& kernel) { latent_decode(c, kernel, false); }};

/// The configurations that shared memory has room for.
struct Float8LatentDecode : LatentDecode {
  Float8LatentDecode() : LatentDecode(for_float8()) {}
  static auto space() {
    using K = Float8LatentDecode;
    return Space<K>()
        .choose<&K::helps_early>({true, false})
        .choose<&K::block_kv, &K::stages, &K::float8_stages>({{32, 3, 2}, {32, 2, 3}, {32, 2, 2}});
  }
};

const KernelRegistration<Float8LatentDecode> of_float8{
    {"attention_latent_decode_float8",
     "multi-head latent attention whose cache has values of float8 with a factor for each 128 of a row",
     sizes()},
    [](Case& c, Kernel<Float8LatentDecode>& kernel) { latent_decode(c, kernel, true); }};

}  // namespace
}  // namespace imbrex::kernels
