// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"
#include "ir/mma_types.h"

namespace imbrex::ir {
namespace {

/// Element types of A and B that may meet, and the accumulators they have.
struct MmaTypes {
  std::vector<DataType> inputs;
  bool mixed;  ///< a and b may differ
  std::vector<DataType> accumulators;
};

const std::vector<MmaTypes>& mma_types() {
  static const std::vector<MmaTypes> types = {
      {{float16}, false, {float32, float16}}, {{bfloat16}, false, {float32}},
      {{tfloat32, float32}, true, {float32}}, {{float8_e4m3, float8_e5m2}, true, {float32}},
      {{int8, uint8}, true, {int32}},
  };
  return types;
}

bool contains(const std::vector<DataType>& list, DataType type) {
  return std::find(list.begin(), list.end(), type) != list.end();
}

std::string names(const std::vector<DataType>& types) {
  std::string out;
  for (DataType type : types) out += (out.empty() ? "" : " or ") + std::string(type.name());
  return out;
}

const MmaTypes* types_of(DataType a) {
  for (const MmaTypes& candidate : mma_types())
    if (contains(candidate.inputs, a)) return &candidate;
  return nullptr;
}

bool may_meet(const MmaTypes& types, DataType a, DataType b) {
  return contains(types.inputs, b) && (types.mixed || a == b);
}

/// m and n are multiples of 16 and 8, k of this.
int64_t k_step(DataType a) { return 256 / a.bits(); }

}  // namespace

bool mma_sync_takes(const Type& a, const Type& b, const Type& c) {
  if (a.rank() != 2 || b.rank() != 2 || c.rank() != 2) return false;
  const MmaTypes* types = types_of(a.dtype);
  return types && may_meet(*types, a.dtype, b.dtype) && contains(types->accumulators, c.dtype) &&
         a.shape[0] % 16 == 0 && b.shape[1] % 8 == 0 && a.shape[1] % k_step(a.dtype) == 0;
}

void verify_mma_sync(const Op& op, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& b = op.operands[1]->type;
  const Type& c = op.operands[2]->type;
  if (a.rank() != 2 || b.rank() != 2 || c.rank() != 2)
    return out.add(op, fmt::format("works on matrices, not on {}, {} and {}", shape_text(a.shape),
                                   shape_text(b.shape), shape_text(c.shape)));
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  if (b.shape[0] != k)
    return out.add(op, fmt::format("inner sizes differ, a has k = {} and b has k = {}", k, b.shape[0]),
                   k == n ? "transpose b: it is [k, n]" : "");
  if (c.shape[0] != m || c.shape[1] != n)
    return out.add(op, fmt::format("c is {}, a x b gives {}", shape_text(c.shape), shape_text({m, n})));
  const MmaTypes* types = types_of(a.dtype);
  if (!types)
    return out.add(op, fmt::format("does not multiply {}", a.dtype.name()),
                   "cast to float16, bfloat16, tfloat32, an 8-bit float, int8 or uint8");
  if (!may_meet(*types, a.dtype, b.dtype))
    return out.add(op, fmt::format("a holds {}, b holds {}", a.dtype.name(), b.dtype.name()),
                   "cast one of them");
  if (!contains(types->accumulators, c.dtype))
    return out.add(op, fmt::format("{} products are summed in {}, c holds {}", a.dtype.name(),
                                   names(types->accumulators), c.dtype.name()));
  const Type& result = op.result()->type;
  if (result.dtype != c.dtype || result.shape != c.shape)
    return out.add(
        op, fmt::format("gives {}, declared as {}",
                        Type::tensor(TypeKind::kRegister, c.dtype, c.shape).to_string(), result.to_string()));
  const int64_t step = k_step(a.dtype);
  if (m % 16 != 0 || n % 8 != 0 || k % step != 0)
    return out.add(
        op, fmt::format("m, n and k are {}, {} and {}; for {} they must be multiples of 16, 8 and {}", m, n,
                        k, a.dtype.name(), step));
  const int64_t warps_m = op.int_attr("warps_m", 0), warps_n = op.int_attr("warps_n", 0);
  if (warps_m < 0 || warps_n < 0 || (warps_m == 0) != (warps_n == 0))
    return out.add(op, fmt::format("a grid of {} x {} warps", warps_m, warps_n));
  if (warps_m > 0 && (m % (16 * warps_m) != 0 || n % (8 * warps_n) != 0))
    out.add(op,
            fmt::format("{} x {} warps cannot share a {} product: each takes a box of whole 16 x 8 blocks",
                        warps_m, warps_n, shape_text({m, n})));
}

}  // namespace imbrex::ir
