// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "attention/configured_kernel.h"
#include "attention/decode_call.h"
#include "attention/kv_arguments.h"
#include "attention/tensors.h"
#include "imbrex/kernels/attention/decode.h"
#include "imbrex/kernels/attention/decode_float8.h"
#include "imbrex/runtime/caller_line.h"

namespace imbrex {
namespace {

DecodeSizes check(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& k,
                  const DeviceTensor& v, const DeviceTensor& o, const AttentionDecodeOptions& options) {
  call.check_tensors(AttentionCall::Float8::kKAndV);
  const bool is_paged = !options.page_table.is_null();
  const DecodeSizes s{head_extent(q, 0),
                      head_extent(k, 1),
                      head_extent(q, 1) / head_extent(k, 1),
                      head_extent(q, 2),
                      is_paged ? 0 : head_extent(k, 2),
                      head_extent(q, 3)};
  if (v.shape() != k.shape()) call.refuse("v has another shape than k", "v is what k is");
  if (o.shape() != q.shape()) call.refuse("o has another shape than q", "o is what q is");
  call.check_written("o", o);
  if (head_extent(k, 3) != s.head_size || (!is_paged && head_extent(k, 0) != s.batches))
    call.refuse("k has another batch or head size than q",
                "k is [batch, kv heads, rows, head size], or pages with a page table");
  if (head_extent(q, 1) % s.heads_kv != 0)
    call.refuse(fmt::format("{} heads of q do not share {} of k and v evenly", head_extent(q, 1), s.heads_kv),
                "heads of q are a multiple of those of k");
  if (s.head_size % 16 != 0 || s.head_size > 256)
    call.refuse(fmt::format("head size {} is not a multiple of 16 of at most 256", s.head_size),
                "pad the heads with zeros");
  if (s.heads_kv > 65535 || s.batches > 65535)
    call.refuse(fmt::format("{} kv heads of {} batches; at most 65535 of each", s.heads_kv, s.batches),
                "divide the call");
  if (options.k_scales.is_null() != options.v_scales.is_null())
    call.refuse("only one of k_scales and v_scales is there", "give both, or none");
  if (!options.k_scales.is_null() && k.dtype() != float8_e4m3)
    call.refuse("scales of a cache that is not float8", "leave them out, and use options.scale");
  call.check_extra("k_scales", options.k_scales, float32, {s.heads_kv});
  call.check_extra("v_scales", options.v_scales, float32, {s.heads_kv});
  check_decode_options(call, s.batches, q, options);
  for (const DeviceTensor* cache : {&k, &v}) check_cache_rows(call, *cache);
  return s;
}

}  // namespace

LaunchReport attention_decode(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                              const DeviceTensor& o, const AttentionDecodeOptions& options,
                              SourceLocation where) {
  const CallerLine caller(where);
  const AttentionCall call("attention_decode", {{"q", q}, {"k", k}, {"v", v}, {"o", o}});
  DecodeSizes s = check(call, q, k, v, o, options);
  if (!options.page_table.is_null()) s.capacity = options.page_table.shape()[1] * head_extent(k, 2);
  std::vector<Workspace> held;  // given back when the launches are on the stream
  const DeviceTensor from = reachable(q, true, options.stream, held),
                     to = reachable(o, false, options.stream, held);

  constexpr int kBlock = 64;
  // More rows of Q than a tile has would each read the cache again. Fewer and longer parts suit it: one CTA for each
  // multiprocessor.
  const bool widens_in_registers = k.dtype() == float8_e4m3 && s.head_size % 32 == 0 &&
                                   s.group * s.q_size <= kernels::DecodeFloat8Attention::kRows;
  const int multiprocessors = q.device().multiprocessors();
  const int64_t parts = options.parts > 0 ? options.parts
                                          : decode_parts(s,
                                                         widens_in_registers && s.head_size <= 128
                                                             ? std::max(multiprocessors / 2, 1)
                                                             : multiprocessors,
                                                         kBlock);
  const DecodeParts divided(s, s.head_size, parts, from, options, held);
  const HeadArguments qs(from), os(to);
  const CacheArguments cache(k, v, options.lengths, options.page_table);
  const CacheScaleArguments scales(options.k_scales, options.v_scales, q.address());
  const auto launch = [&](auto& kernel, const auto&... types) {
    return kernel.on(options.stream)(s.batches, s.heads_kv, s.group, s.q_size, parts, s.head_size,
                                     divided.is_divided, options.causal,
                                     attention_scale(options.scale, s.head_size), types..., qs, cache, scales,
                                     os, divided.partial, divided.log_sum);
  };
  LaunchReport report;
  if (widens_in_registers) {
    kernels::DecodeFloat8Attention tiles;
    if (s.head_size > 128) tiles.warp_rows = 16;
    report = launch(configured_kernel(q.device(), tiles, {tiles.block_kv(), tiles.stages, 0}), q.dtype());
  } else {
    kernels::DecodeAttention tiles;
    tiles.block_kv = kBlock;
    if (s.head_size > 192) tiles.stages = 2;
    report =
        launch(configured_kernel(q.device(), tiles, {tiles.block_kv, tiles.stages, 0}), q.dtype(), k.dtype());
  }
  if (divided.is_divided && report.clean())  // on a CUDA GPU it always is
    report = divided.merge(s, q, os, options);
  if (to.address() != o.address()) DeviceTensor(o).copy_from(to, options.stream);
  return report;
}

}  // namespace imbrex
