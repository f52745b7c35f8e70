// SPDX-License-Identifier: Apache-2.0
// The products whose machine code can be made before anybody calls them: few enough to ship, and what most calls are.
#include "grouped/fused_tiles.h"
#include "imbrex/kernels/matmul.h"
#include "matmul/matmul_launch.h"

#include <fmt/format.h>

namespace imbrex {
namespace {

/// Calls that share their kernels but for the choice.
struct CallKind {
  const char* name;
  DataType dtype, c_type;
  bool a_is_km, b_is_kn, has_bias;
  kernels::Factors scales_a, scales_b;
  int64_t n_unit;  // rows of C begin at its multiples
};
using enum kernels::Factors;
constexpr CallKind kKinds[] = {
    {"bfloat16", bfloat16, bfloat16, false, false, false, kNone, kNone, 16},
    {"bfloat16 b_is_kn", bfloat16, bfloat16, false, true, false, kNone, kNone, 16},
    {"bfloat16 a_is_km b_is_kn", bfloat16, bfloat16, true, true, false, kNone, kNone, 16},
    {"bfloat16 bias", bfloat16, bfloat16, false, false, true, kNone, kNone, 16},
    {"bfloat16 n/8", bfloat16, bfloat16, false, false, false, kNone, kNone, 8},
    {"float16", float16, float16, false, false, false, kNone, kNone, 16},
    {"float8_e4m3 scales", float8_e4m3, bfloat16, false, false, false, kOne, kOne, 16},
};

/// A product of the kind; m is of no account, nor are the addresses.
Product product_of(const CallKind& kind, int64_t k) {
  constexpr uint64_t kSomewhere = 4096;
  return {.m = 64,
          .n = kind.n_unit,
          .k = k,
          .dtype = kind.dtype,
          .c_type = kind.c_type,
          .a = kSomewhere,
          .b = kSomewhere,
          .c = kSomewhere,
          .a_is_km = kind.a_is_km,
          .b_is_kn = kind.b_is_kn,
          .alpha = 1,
          .scales_a = kind.scales_a,
          .scales_b = kind.scales_b,
          .scale_a = kSomewhere,
          .scale_b = kSomewhere,
          .bias = kind.has_bias ? DeviceTensor::shape_only(kind.c_type, {kind.n_unit}) : DeviceTensor(),
          .is_column_bias = kind.has_bias,
          .beta = 0,
          .residual = kSomewhere,
          .activation = Activation::kNone,
          .strides = {},
          .ctas = 132};
}

}  // namespace

std::vector<MatmulCode> matmul_codes() {
  std::vector<MatmulCode> codes;
  for (const CallKind& kind : kKinds)
    for (MatmulChoice choice : matmul_candidates()) {
      if (choice.is_tight && (kind.has_bias || kind.scales_a != kNone)) continue;
      if ((kind.a_is_km || kind.b_is_kn) && !takes_any_order(choice)) continue;
      choice.block_k *= 16 / kind.dtype.bits();
      const Variant variant{choice, kind.a_is_km, kind.b_is_kn, false};
      // Large tiles have code of their own for k that is a multiple of what the stages hold.
      constexpr int kLargeTile = 128 * 192;
      const bool may_fill_rings = choice.method == MatmulChoice::Method::kGeneral && choice.split_k == 1 &&
                                  choice.block_m * choice.block_n >= kLargeTile;
      for (int64_t k : {int64_t{1}, int64_t{choice.block_k} * choice.stages})
        if (k == 1 || may_fill_rings)
          codes.push_back({fmt::format("{} {}", kind.name, choice.text()),
                           [variant, &kind, k] {
                             return make_dense_launch(variant, std::nullopt).trace(product_of(kind, k));
                           },
                           [variant, &kind, k](Cache& folder) {
                             make_dense_launch(variant, std::nullopt).ship(product_of(kind, k), folder);
                           }});
    }
  for (MatmulCode& code : fused_matmul_codes()) codes.push_back(std::move(code));
  return codes;
}

}  // namespace imbrex
