// SPDX-License-Identifier: Apache-2.0
// Products of the library beside the ladders': consumers that take turns, groups, float8 with scales of blocks, gated and
// quantised results.
#include "imbrex/kernels/grouped/few_rows.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "mutants/subject.h"

namespace imbrex::mutants {

namespace {

using namespace kernels;

/// H8 with two consumers that take turns, in pairs of CTAs.
template <class... Steps>
HopperMatmulH8<Steps...> in_turns() {
  return {.block_m = 64,
          .block_n = 64,
          .block_k = 16,
          .stages = 2,
          .consumers = 2,
          .cluster_m = 2,
          .takes_turns = true,
          .swizzle_size = 1};
}

Subject turns(int m, int n, int k) {
  const ProductSizesArguments sizes(m, n, k, 0, 2);
  return make_subject("turns", 1, in_turns(), m, static_cast<int>(sizes.n_units), sizes.n_unit, k, false, 2,
                      float16, in(float16, {m, k}), in(float16, {n, k}), out(float16, {m, n}));
}

/// The same of two B, which come as one tile.
Subject gated_turns(int m, int n, int k) {
  const ProductSizesArguments sizes(m, n, k, 0, 2);
  return make_subject("gated-turns", 1, in_turns<GatedBy>(), m, static_cast<int>(sizes.n_units), sizes.n_unit,
                      k, false, 2, float16, in(float16, {m, k}), in(float16, {n, k}), out(float16, {m, n}),
                      true, Activation::kSilu, in(float16, {n, k}));
}

/// Masked groups, each with room for 128 rows.
Subject scaled_groups(int n, int k) {
  const HopperGroupedMatmul<BlockScales, Convert> kernel{
      .block_m = 64, .stages = 2, .consumers = 1, .cluster_n = 1, .store_stages = 1, .band = 2};
  const int room = 256, count = 2, m = room * count, k_blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
  const ProductSizesArguments sizes(m, n, k, 0, 1);
  return make_subject("groups8", 1, kernel, m, static_cast<int>(sizes.n_units), sizes.n_unit, k, false, 1,
                      count, 32, true, room, float8_e4m3, numbers(int32, {190, 64}), in(float8_e4m3, {m, k}),
                      in(float8_e4m3, {count, n, k}), out(bfloat16, {m, n}), in(float32, {k_blocks, m}), m,
                      in(float32, {count, n_blocks, k_blocks}), bfloat16);
}

/// Gated products with results in float8.
Subject gated(int m, int n, int k) {
  const HopperGroupedMatmul<OneGroup, GatedBy, QuantiseBlocks, Convert> kernel{
      .block_m = 64, .block_k = 16, .stages = 2, .consumers = 1, .store_stages = 1, .band = 1};
  const ProductSizesArguments sizes(m, n, k, 0, 2);
  return make_subject("gated", 1, kernel, m, static_cast<int>(sizes.n_units), sizes.n_unit, k, false, 2, 1, 1,
                      false, 0, float16, numbers(int32, {0}), in(float16, {m, k}), in(float16, {n, k}),
                      out(float8_e4m3, {m, n}), true, Activation::kSilu, in(float16, {n, k}), true,
                      out(float32, {n / 128, m}), m, float8_e4m3);
}

/// The same for few rows: two CTAs have a block of 128 columns.
Subject few_rows(int m, int n, int k) {
  const HopperFewRows<GatedBy, QuantiseBlocks, Convert> kernel{
      .block_m = 16, .block_n = 64, .block_k = 16, .stages = 2};
  const ProductSizesArguments sizes(m, n, k, 0, 2);
  return make_subject("few-rows", 1, kernel, m, static_cast<int>(sizes.n_units), sizes.n_unit, k, false, 2,
                      float16, in(float16, {m, k}), in(float16, {n, k}), out(float8_e4m3, {m, n}), true,
                      Activation::kSilu, in(float16, {n, k}), true, out(float32, {n / 128, m}), m,
                      float8_e4m3);
}

}  // namespace

std::vector<Subject> fused_subjects() {
  std::vector<Subject> all;
  all.push_back(turns(512, 128, 48));
  all.push_back(gated_turns(512, 64, 48));
  all.push_back(scaled_groups(128, 640));
  all.back().left_out = {"store-shift-128", "transpose-a", "transpose-b"};  // float8 is never transposed
  all.push_back(gated(320, 256, 80));
  all.back().left_out = {"load-shared-plus-8192"};  // the other slice
  all.push_back(few_rows(16, 256, 80));
  all.back().left_out = {"transpose-b"};  // another element of the same stage
  return all;
}

}  // namespace imbrex::mutants
