// SPDX-License-Identifier: Apache-2.0
// Subjects beside the ladders: kernels with atomics, semaphores, scans, packed weights, views of bits.
#include "imbrex/kernels/block_scaled_matmul/block_scaled_mma.h"
#include "imbrex/kernels/histogram.h"
#include "imbrex/kernels/low_precision/ampere_low_precision.h"
#include "imbrex/kernels/low_precision/blackwell_low_precision.h"
#include "imbrex/kernels/low_precision/decode_matmul.h"
#include "imbrex/kernels/low_precision/direct_matmul.h"
#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/kernels/split_k_matmul.h"
#include "mutants/language_kernels.h"
#include "mutants/subject.h"

namespace imbrex::mutants {

namespace {

Subject stream_k(int m, int n, int k, int ctas) {
  const kernels::HopperMatmulStreamK<> kernel{.block_m = 64,
                                              .block_n = 64,
                                              .block_k = 16,
                                              .stages = 2,
                                              .consumers = 1,
                                              .cluster_m = 1,
                                              .swizzle_size = 1,
                                              .min_k_blocks = 1};
  const kernels::ProductSizesArguments sizes(m, n, k, 0, ctas);
  Subject subject = make_subject("stream-k", 1, kernel, m, static_cast<int>(sizes.n_units), sizes.n_unit, k,
                                 false, ctas, float16, in(float16, {m, k}), in(float16, {n, k}),
                                 out(float16, {m, n}), out(float32, {kernel.partial_elements(ctas)}).unread(),
                                 zeroed(int32, {kernel.turn_elements(ctas)}).unread());
  // Beside what is stored lie the stages of the operands.
  subject.left_out = {"store-shift-128"};
  return subject;
}

/// A product with weights of int4 and groups of 128, without any step behind it.
template <class K>
Subject packed_product(const char* name, int num_sms, const K& kernel, int m, int n, int k) {
  const int group = 128, tiles_n = (n + 63) / 64;
  const auto unread = in(float32, {m}).unread();
  return make_subject(name, num_sms, kernel, m, n, k, group, 0, int4, float16, float16, in(float16, {m, k}),
                      8, k / 8, 0, in(uint32, {tiles_n, k / 256, 8, 256}),
                      in(float16, {tiles_n, k / group, 64}), out(float16, {m, n}), 8, n / 8, 0, 0, unread,
                      false, 0, false, float16, unread, false, float16, unread, false, 0, unread, 1, 1, 0, 0,
                      Activation::kNone);
}

Subject decode() {
  const kernels::HopperLowPrecisionDecode kernel{
      .block_m = 8, .row_tiles = 1, .k_tiles = 1, .stages = 2, .split_k = 2};
  Subject subject = packed_product("int4", 2, kernel, 5, 64, 2048);
  // Sums lie where stages were: there are numbers beside them too.
  subject.left_out = {"store-shared-plus-16", "store-shared-plus-4096", "load-shared-plus-8192", "rank-1",
                      "own-barrier"};
  return subject;
}

Subject direct() {
  const kernels::HopperLowPrecisionDirect kernel{
      .block_m = 8, .row_tiles = 1, .k_tiles = 1, .warp_rows = 32, .ahead = 1, .split_k = 2};
  return packed_product("int4-direct", 2, kernel, 5, 64, 2048);
}

Subject ampere_packed() {
  const kernels::AmpereLowPrecision kernel{
      .block_m = 8, .row_tiles = 1, .k_tiles = 1, .warp_rows = 32, .stages = 3};
  Subject subject = packed_product("int4-ampere", 1, kernel, 5, 64, 1536);
  // As above.
  subject.left_out = {"store-shared-plus-16", "store-shared-plus-4096", "load-shared-plus-8192"};
  return subject;
}

Subject blackwell_packed() {
  const kernels::BlackwellLowPrecision kernel{.block_m = 64, .stages = 3, .weight_stages = 2};
  Subject subject = packed_product("int4-tcgen05", 1, kernel, 40, 128, 1024);
  subject.left_out = {"load-columns-plus-16"};  // there are more sums, and weights behind them
  return subject;
}

Subject scaled_mma() {
  const int m = 128, n = 128, k = 640;
  const kernels::BlockScaledMmaMatmul kernel{.warps_m = 2, .stages = 2, .swizzle_size = 1};
  return make_subject("mma-nvf4", 1, kernel, m, n, k, float4_e2m1, in(float4_e2m1, {m, k}),
                      in(float4_e2m1, {n, k}), in(float8_ue4m3, {m / 128, k / 64, 512}),
                      in(float8_ue4m3, {n / 128, k / 64, 512}), out(bfloat16, {m, n}));
}

}  // namespace

std::vector<Subject> language_subjects() {
  std::vector<Subject> all;
  all.push_back(make_subject("locked", 1, Locked(), 3, zeroed(int32, {1}), zeroed(int32, {64})));
  all.push_back(make_subject("ordered", 1, Ordered(), in(int32, {128}), out(int32, {128}), out(int32, {32})));
  all.push_back(make_subject("histogram", 1, kernels::Histogram{.keys_per_cta = 512, .num_warps = 2}, 1100,
                             32, in(int32, {1100}), zeroed(int32, {32}), zeroed(int32, {1}),
                             out(int32, {32})));
  all.push_back(
      make_subject("split-k", 1,
                   kernels::SplitKMatmul{
                       .block_m = 16, .block_n = 32, .block_k = 32, .num_warps = 2, .stages = 3, .parts = 3},
                   32, 32, 500, float16, in(float16, {32, 500}), in(float16, {32, 500}),
                   out(float32, {32, 32}).unread(), zeroed(int32, {2}), out(float16, {32, 32})));
  all.push_back(stream_k(320, 64, 112, 2));
  all.push_back(decode());
  all.push_back(direct());
  all.push_back(ampere_packed());
  all.push_back(blackwell_packed());
  all.push_back(scaled_mma());
  all.push_back(make_subject("rows", 1, Rows(), in(float16, {16, 64}), out(float16, {16, 64})));
  all.back().left_out = {"store-shared-plus-16", "map-narrow-box"};  // a neighbour of the same rows
  all.push_back(make_subject("viewed", 1, Viewed(), in(float16, {128, 32}), in(float16, {32, 32}),
                             in(float16, {32, 32}), out(float32, {128, 32})));
  all.back().left_out = {"matrix-b-next-line"};  // behind V lie numbers
  all.push_back(make_subject("masked", 2, Masked(), in(float32, {128, 32}), zeroed(float32, {2, 128, 32})));
  return all;
}

}  // namespace imbrex::mutants
