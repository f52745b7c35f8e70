// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>

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

/// How the warps share the product, if the program says: boxes of whole blocks.
void verify_warp_grid(const Op& op, int64_t m, int64_t n, Findings& out) {
  const int64_t warps_m = op.int_attr("warps_m", 0), warps_n = op.int_attr("warps_n", 0);
  if (warps_m < 0 || warps_n < 0 || (warps_m == 0) != (warps_n == 0))
    return out.add(op, fmt::format("a grid of {} x {} warps", warps_m, warps_n));
  if (warps_m > 0 && (m % (16 * warps_m) != 0 || n % (8 * warps_n) != 0))
    out.add(op,
            fmt::format("{} x {} warps cannot share a {} product: each takes a box of whole 16 x 8 blocks",
                        warps_m, warps_n, shape_text({m, n})));
}

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
  if (!verify_product(op, "c", out)) return;
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  const MmaTypes* types = types_of(a.dtype);
  if (!types)
    return out.add(op, fmt::format("does not multiply {}", a.dtype.name()),
                   "dot() multiplies any type; for the tensor cores cast to float16, bfloat16, tfloat32, an "
                   "8-bit float, int8 or "
                   "uint8");
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
  verify_warp_grid(op, m, n, out);
}

namespace {

/// A kind of block-scaled products: what the scales are of, and how many elements share one.
struct ScaledKind {
  DataType scale;
  int64_t block;
};

bool is_narrow_float(DataType type) {
  return type == float8_e4m3 || type == float8_e5m2 || type == float6_e2m3 || type == float6_e3m2 ||
         type == float4_e2m1;
}

/// What the operand's elements are; nothing, and a finding, where no product takes them.
std::optional<DataType> scaled_element(const Op& op, size_t operand, std::string_view attr, Findings& out) {
  const DataType held = op.operands[operand]->type.dtype;
  const char* name = operand == 0 ? "a" : "b";
  if (op.attr(attr)) {
    const DataType type = op.dtype_attr(attr);
    if (held != uint8)
      out.add(op, fmt::format("{} says what bytes hold, {} holds {}", attr, name, held.name()),
              fmt::format("leave it out, or give {} as uint8", name));
    else if (!is_narrow_float(type))
      out.add(op, fmt::format("{} is {}; bytes hold floats of 8, 6 or 4 bits", attr, type.name()));
    else
      return type;
    return std::nullopt;
  }
  if (held == float8_e4m3 || held == float8_e5m2 || held == float4_e2m1) return held;
  out.add(op, fmt::format("{} holds {}", name, held.name()),
          held == uint8           ? fmt::format("say what its bytes hold: {}_type", name)
          : is_narrow_float(held) ? fmt::format("this one is multiplied from bytes, an element each: give "
                                                "`view({0}, uint{1}).to(uint8)`, and say .{0}_type = {2}",
                                                name, held.bits(), held.name())
                                  : "products with block scales are of floats of 8, 6 or 4 bits");
  return std::nullopt;
}

}  // namespace

void verify_mma_scaled(const Op& op, Findings& out) {
  const Type &a = op.operands[0]->type, &b = op.operands[1]->type, &c = op.operands[2]->type;
  const Type &scale_a = op.operands[3]->type, &scale_b = op.operands[4]->type;
  for (const Value* operand : op.operands)
    if (operand->type.rank() != 2)
      return out.add(op, fmt::format("works on matrices, not on {}", shape_text(operand->type.shape)));
  if (!verify_product(op, "c", out)) return;
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  if (c.dtype != float32)
    return out.add(op, fmt::format("products are summed in float32, c holds {}", c.dtype.name()));
  if (op.result()->type.dtype != c.dtype || op.result()->type.shape != c.shape)
    return out.add(op, fmt::format("gives {}, declared as {}",
                                   Type::tensor(TypeKind::kRegister, c.dtype, c.shape).to_string(),
                                   op.result()->type.to_string()));
  if (!scaled_element(op, 0, "a_type", out) || !scaled_element(op, 1, "b_type", out)) return;
  const bool is_packed = a.dtype == float4_e2m1;
  if ((b.dtype == float4_e2m1) != is_packed)
    return out.add(op, fmt::format("a holds {}, b holds {}", a.dtype.name(), b.dtype.name()),
                   "float4_e2m1 meets other types in bytes of its own: give it as uint8");
  const bool is_nvfp4 = is_packed && scale_a.dtype == float8_ue4m3;
  const ScaledKind kind = is_nvfp4 ? ScaledKind{float8_ue4m3, 16} : ScaledKind{float8_e8m0, 32};
  if (scale_a.dtype != kind.scale || scale_b.dtype != kind.scale)
    return out.add(op, fmt::format("scales are {} and {}", scale_a.dtype.name(), scale_b.dtype.name()),
                   is_packed ? "both are float8_e8m0, or both float8_ue4m3" : "both are float8_e8m0");
  const int64_t step = is_packed ? 64 : 32;
  if (m % 16 != 0 || n % 8 != 0 || k % step != 0)
    return out.add(op, fmt::format("m, n and k are {}, {} and {}; they must be multiples of 16, 8 and {}", m,
                                   n, k, step));
  const int64_t blocks = k / kind.block;
  if (scale_a.shape != std::vector<int64_t>{m, blocks})
    out.add(op, fmt::format("scale_a is {}, one scale for {} elements of k is {}", shape_text(scale_a.shape),
                            kind.block, shape_text({m, blocks})));
  if (scale_b.shape != std::vector<int64_t>{blocks, n})
    out.add(op, fmt::format("scale_b is {}, one scale for {} elements of k is {}", shape_text(scale_b.shape),
                            kind.block, shape_text({blocks, n})));
  verify_warp_grid(op, m, n, out);
}

}  // namespace imbrex::ir
