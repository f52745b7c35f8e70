// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention/latent_decode.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "attention/configured_kernel.h"
#include "attention/decode_call.h"
#include "attention/kv_arguments.h"
#include "attention/reference.h"
#include "attention/tensors.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

using kernels::LatentDecodeAttention;

DecodeSizes check(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& cache,
                  const DeviceTensor& o, const AttentionDecodeOptions& options, int block_kv) {
  call.check_tensors();
  const bool is_paged = !options.page_table.is_null();
  // Heads are rows of one tile: those of one key and value head.
  DecodeSizes s{
      head_extent(q, 0), 1, head_extent(q, 1), head_extent(q, 2), is_paged ? 0 : head_extent(cache, 2),
      head_extent(q, 3)};
  const int64_t value_size = head_extent(o, 3), rows_of_page = head_extent(cache, 2);
  if (head_extent(cache, 1) != 1)
    call.refuse(fmt::format("the cache has {} heads", head_extent(cache, 1)), "all heads of q share one");
  if (head_extent(cache, 3) != s.head_size || (!is_paged && head_extent(cache, 0) != s.batches))
    call.refuse("the cache has another batch or row size than q",
                "it is [batch, 1, rows, head size], or pages with a page table");
  std::vector<int64_t> shape = q.shape();
  shape.back() = value_size;
  call.check_shape("o", o, shape, "o is like q, with rows as long as values");
  call.check_written("o", o);
  if (s.head_size % 64 != 0 || s.head_size > 576 || value_size % 128 != 0 || value_size > 512 ||
      value_size > s.head_size)
    call.refuse(fmt::format("heads of {} with values of {}", s.head_size, value_size),
                "heads are multiples of 64 up to 576, values multiples of 128 up to 512");
  if (s.batches > 65535) call.refuse(fmt::format("{} batches; at most 65535", s.batches), "divide the call");
  check_cache_rows(call, cache);
  check_decode_options(call, s.batches, q, options);
  if (is_paged) {
    if (rows_of_page % block_kv != 0 && (block_kv % rows_of_page != 0 || rows_of_page % 8 != 0))
      call.refuse(fmt::format("pages of {} rows", rows_of_page),
                  "pages have 8, 16, 32, or a multiple of 64 rows");
    s.capacity = options.page_table.shape()[1] * rows_of_page;
  }
  if (options.window_left >= 0 || options.soft_cap != 0 || !options.alibi_slopes.is_null() ||
      !options.sinks.is_null())
    call.refuse("a window, a soft cap, slopes or sinks", "latent attention has no such steps");
  if (!options.k_scales.is_null() || !options.v_scales.is_null())
    call.refuse("scales of a cache that is not float8", "leave them out, and use options.scale");
  return s;
}

}  // namespace

LaunchReport attention_latent_decode(const DeviceTensor& q, const DeviceTensor& cache, const DeviceTensor& o,
                                     const AttentionDecodeOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  LatentDecodeAttention tiles;
  const AttentionCall call("attention_latent_decode", {{"q", q}, {"cache", cache}, {"o", o}});
  const DecodeSizes s = check(call, q, cache, o, options, tiles.block_kv);
  const int64_t value_size = head_extent(o, 3);
  tiles.helps_early = s.group * s.q_size <= LatentDecodeAttention::kRows;  // one tile reads a sequence
  std::vector<Workspace> held;  // given back when the launches are on the stream
  const DeviceTensor from = reachable(q, true, options.stream, held),
                     to = reachable(o, false, options.stream, held);
  const int64_t parts =
      options.parts > 0 ? options.parts : decode_parts(s, q.device().multiprocessors(), tiles.block_kv);
  // Results of 64 rows of 512 are much to merge.
  const PartialArguments results =
      partial_arguments(s, value_size, parts, parts > 1 ? kernels::Division::kLeft : kernels::Division::kNone,
                        LatentDecodeAttention::kRows, from, options, held);
  const HeadArguments qs(from), os(to);
  LaunchReport report =
      configured_kernel(q.device(), tiles, {tiles.block_kv, tiles.stages, tiles.helps_early})
          .on(options.stream)(s.batches, s.group, s.q_size, parts, s.head_size, value_size, parts > 1,
                              options.causal, attention_scale(options.scale, s.head_size), q.dtype(), qs,
                              CacheArguments(cache, cache, options.lengths, options.page_table), os,
                              results.partial, results.log_sum);
  if (parts > 1 && report.clean())  // on a CUDA GPU it always is
    report = merge_parts(s, value_size, parts, q.dtype(), results, os, q.device(), options.stream);
  if (to.address() != o.address()) DeviceTensor(o).copy_from(to, options.stream);
  return report;
}

namespace kernels {
namespace {

const KernelRegistration<LatentDecodeAttention> registration{
    {"attention_latent_decode",
     "multi-head latent attention of few query rows: one cache whose rows are keys, and their beginnings "
     "values",
     {{"batch", 2, "sequences"},
      {"heads", 64, "heads of Q, which share the cache"},
      {"q", 1, "rows of Q per head"},
      {"kv", 300, "rows of the cache for which there is room"},
      {"d", 576, "columns of the keys, a multiple of 64, at most 576"},
      {"dv", 512, "columns of the values, a multiple of 128, at most 512"},
      {"page", 0, "rows of a page; 0: contiguous"},
      {"ragged", 0, "1: sequences of several lengths"},
      {"causal", 0, "1: row i sees the columns up to i + length - q"},
      {"bf16", 0, "1: bfloat16, 0: float16"},
      {"parts", 0, "CTAs that share a sequence; 0: as many as fill the GPU"}}},
    [](Case& c, Kernel<LatentDecodeAttention>& kernel) {
      const DecodeSizes s{c.size("batch"), 1, c.size("heads"), c.size("q"), c.size("kv"), c.size("d")};
      const int64_t value_size = c.size("dv"), page = c.size("page"), heads = s.group,
                    rows = s.batches * heads * s.q_size;
      const bool is_ragged = c.size("ragged") != 0, is_causal = c.size("causal") != 0;
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      const float scale = 1 / std::sqrt(static_cast<float>(s.head_size));
      const int64_t each = page > 0 ? (s.capacity + page - 1) / page : 1, pages = s.batches * each;
      const int64_t rows_of_page = page > 0 ? page : s.capacity;
      const DeviceTensor q = c.input(dtype, {s.batches, heads, s.q_size, s.head_size}),
                         cache = c.input(dtype, {pages, 1, rows_of_page, s.head_size}),
                         o = c.output(dtype, {s.batches, heads, s.q_size, value_size});
      std::vector<int64_t> length_of(static_cast<size_t>(s.batches), s.capacity), page_of;
      for (int64_t b = 1; b < s.batches && is_ragged; ++b)
        length_of[b] = b % 4 == 3 ? 0 : (b * 7919 + 13) % (s.capacity + 1);
      for (int64_t i = 0; i < pages; ++i) page_of.push_back(pages - 1 - i);
      DeviceTensor lengths, table;
      if (is_ragged || page > 0) {
        HostTensor host(int32, {s.batches});
        for (int64_t b = 0; b < s.batches; ++b) host.set(b, static_cast<double>(length_of[b]));
        lengths = c.input(host);
      }
      if (page > 0) {
        HostTensor host(int32, {s.batches, each});
        for (int64_t i = 0; i < pages; ++i) host.set(i, static_cast<double>(page_of[i]));
        table = c.input(host);
      }
      const int64_t parts = c.size("parts") > 0 ? c.size("parts") : decode_parts(s, 132, 64);
      const DeviceTensor partial = c.output(float32, {parts, rows, value_size}),
                         log_sum = c.output(float32, {parts, rows});
      c.launch(kernel, s.batches, heads, s.q_size, parts, s.head_size, value_size, parts > 1, is_causal,
               scale, dtype, HeadArguments(q), CacheArguments(cache, cache, lengths, table), HeadArguments(o),
               partial, log_sum);
      if (c.mode() == Case::Mode::kRun && parts > 1)
        Kernel<MergeAttention>(merge_tiles(parts), q.device())(s.batches, heads, s.q_size, parts, value_size,
                                                               dtype, false, partial, log_sum,
                                                               HeadArguments(o), log_sum.address())
            .expect_clean();
      double seen_rows = 0;
      for (int64_t length : length_of) seen_rows += static_cast<double>(length);
      c.flop = 2.0 * static_cast<double>(heads * s.q_size) * seen_rows *
               static_cast<double>(s.head_size + value_size);
      std::shared_ptr<std::array<std::vector<double>, 2>> values;
      RowReference row;
      int64_t of = -1;
      c.expect_within(
          o,
          [&, q, cache, values, row, of, length_of, page_of](int64_t element) mutable {
            if (!values)
              values = std::make_shared<std::array<std::vector<double>, 2>>(
                  std::array<std::vector<double>, 2>{c.values(q), c.values(cache)});
            const int64_t r = element / value_size, i = r % s.q_size, b = r / s.q_size / heads;
            const auto place = [&](int64_t j) {
              const int64_t at = page > 0 ? page_of[b * each + j / page] : b;
              return (at * rows_of_page + (page > 0 ? j % page : j)) * s.head_size;
            };
            const auto at = [&](int64_t j) { return (*values)[1].data() + place(j); };
            if (r != of) {
              const int64_t seen =
                  std::max<int64_t>(0, is_causal ? length_of[b] - s.q_size + i + 1 : length_of[b]);
              row.weigh((*values)[0].data() + r * s.head_size, s.head_size, scale, seen, dtype, at);
              of = r;
            }
            return row.mean(element % value_size, AttentionTypes(dtype), at);
          },
          std::min<int64_t>(rows * value_size,
                            (int64_t{1} << 27) / std::max<int64_t>(s.capacity, 1) / s.head_size + 300));
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
