// SPDX-License-Identifier: Apache-2.0
// Which kernels, at which sizes. On one multiprocessor as many CTAs are resident as fit it; the persistent
// kernels get several times as many tiles.
#include "imbrex/kernels/blackwell_matmul/matmul_v0.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v1.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v2.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v3.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v4.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v5.h"
#include "imbrex/kernels/blackwell_matmul/matmul_v6.h"
#include "imbrex/kernels/block_scaled_matmul/block_scaled_matmul.h"
#include "imbrex/kernels/hopper_matmul/matmul_h0.h"
#include "imbrex/kernels/hopper_matmul/matmul_h1.h"
#include "imbrex/kernels/hopper_matmul/matmul_h2.h"
#include "imbrex/kernels/hopper_matmul/matmul_h3.h"
#include "imbrex/kernels/hopper_matmul/matmul_h4.h"
#include "imbrex/kernels/hopper_matmul/matmul_h5.h"
#include "imbrex/kernels/hopper_matmul/matmul_h6.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "mutants/subject.h"

namespace imbrex::mutants {

namespace {

template <class K>
Subject matmul(std::string name, const K& kernel, int m, int n, int k) {
  return make_subject(std::move(name), 1, kernel, m, n, k, in(float16, {m, k}), in(float16, {n, k}),
                      out(float16, {m, n}));
}

template <class K>
Subject hopper(std::string name, const K& kernel, int m, int n, int k) {
  return make_subject(std::move(name), 1, kernel, m, n, k, float16, in(float16, {m, k}), in(float16, {n, k}),
                      out(float16, {m, n}));
}

/// The same of kernels that take ProductSizes.
template <class K>
Subject hopper_of_any_size(std::string name, const K& kernel, int m, int n, int k) {
  const kernels::ProductSizesArguments sizes(m, n, k, 0, 2);
  return make_subject(std::move(name), 1, kernel, m, static_cast<int>(sizes.n_units), sizes.n_unit, k, false,
                      2, float16, in(float16, {m, k}), in(float16, {n, k}), out(float16, {m, n}));
}

/// Factors of blocks of 128 rows by four, see scale_factors.h.
Subject block_scaled(std::string name, DataType element, int scaled, int k) {
  const DataType scale = scaled == 16 ? float8_ue4m3 : float8_e8m0;
  const int m = 1024, n = 128, k_tiles = k / (4 * scaled);
  return make_subject(
      std::move(name), 1, kernels::BlockScaledMatmul{.block_n = 128, .tma_stages = 2, .swizzle_size = 1}, m,
      n, k, element, in(element, {m, k}), in(element, {n, k}), in(scale, {m / 128, k_tiles, 2, 256}),
      in(scale, {n / 128, k_tiles, 2, 256}), out(bfloat16, {m, n}));
}

std::vector<Subject> make_subjects() {
  using namespace kernels;
  std::vector<Subject> all;
  all.push_back(matmul("V0", BlackwellMatmulV0{.block_n = 32}, 128, 64, 64));
  all.push_back(matmul("V1", BlackwellMatmulV1{.block_n = 32}, 128, 64, 64));
  all.push_back(matmul("V2", BlackwellMatmulV2{.block_n = 32}, 128, 64, 96));
  all.push_back(matmul("V3", BlackwellMatmulV3{.block_n = 32}, 128, 64, 96));
  all.push_back(matmul("V4", BlackwellMatmulV4{.block_n = 32}, 256, 64, 96));
  all.push_back(matmul("V5", BlackwellMatmulV5{.block_n = 32}, 1024, 128, 96));
  all.push_back(matmul("V6",
                       BlackwellMatmulV6<>{.block_n = 64, .block_k = 16, .tma_stages = 2, .swizzle_size = 1},
                       1024, 256, 48));
  all.push_back(block_scaled("mxf8", float8_e4m3, 32, 256));
  all.push_back(block_scaled("nvf4", float4_e2m1, 16, 512));
  all.push_back(hopper("H0", HopperMatmulH0{.block_n = 32, .block_k = 16}, 64, 64, 48));
  all.push_back(hopper("H1", HopperMatmulH1{.block_n = 32, .block_k = 16}, 128, 64, 48));
  all.push_back(
      hopper("H2", HopperMatmulH2{.block_m = 64, .block_n = 32, .block_k = 16, .stages = 2}, 64, 64, 96));
  all.push_back(hopper("H3", HopperMatmulH3{.block_n = 32, .block_k = 16, .stages = 2}, 128, 64, 96));
  all.push_back(
      hopper("H4", HopperMatmulH4{.block_n = 32, .block_k = 16, .stages = 2, .swizzle_size = 1, .ctas = 1},
             256, 64, 80));
  all.push_back(
      hopper("H5", HopperMatmulH5{.block_n = 32, .block_k = 16, .stages = 2, .swizzle_size = 1, .ctas = 2},
             512, 64, 80));
  all.push_back(hopper(
      "H6",
      HopperMatmulH6{.block_n = 64, .block_k = 16, .stages = 2, .store_n = 32, .swizzle_size = 1, .ctas = 2},
      512, 128, 80));
  all.push_back(
      hopper("H7",
             HopperMatmulH7<>{
                 .block_n = 64, .block_k = 16, .stages = 2, .store_n = 32, .swizzle_size = 1, .ctas = 2},
             512, 128, 80));
  all.push_back(hopper_of_any_size("H8",
                                   HopperMatmulH8<>{.block_m = 64,
                                                    .block_n = 64,
                                                    .block_k = 16,
                                                    .stages = 2,
                                                    .consumers = 1,
                                                    .split_k = 2,
                                                    .swizzle_size = 1},
                                   128, 128, 80));
  all.push_back(hopper("H9",
                       HopperMatmulH9<>{.block_m = 64,
                                        .block_n = 64,
                                        .block_k = 16,
                                        .stages = 2,
                                        .store_n = 32,
                                        .store_stages = 1,
                                        .swizzle_size = 1,
                                        .ctas = 2},
                       1024, 128, 48));
  for (Subject& subject : language_subjects()) all.push_back(std::move(subject));
  for (Subject& subject : attention_subjects()) all.push_back(std::move(subject));
  for (Subject& subject : fused_subjects()) all.push_back(std::move(subject));
  for (Subject& subject : row_subjects()) all.push_back(std::move(subject));
  return all;
}

}  // namespace

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = make_subjects();
  return all;
}

}  // namespace imbrex::mutants
