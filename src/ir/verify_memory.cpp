// SPDX-License-Identifier: Apache-2.0
// Loads, stores and copies of global and shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

using Shape = std::vector<int64_t>;

void expect_same(const Op& op, const Type& a, std::string_view a_role, const Type& b, std::string_view b_role,
                 Findings& out) {
  if (a.dtype != b.dtype)
    out.add(op,
            fmt::format("element types differ, {} holds {} and {} {}", a_role, a.dtype.name(), b_role,
                        b.dtype.name()),
            "cast first");
  else if (a.shape != b.shape)
    out.add(op,
            fmt::format("shapes differ, {} is {} and {} {}", a_role, shape_text(a.shape), b_role,
                        shape_text(b.shape)),
            a_role == "dst" ? "make the shapes the same; slice(offsets, shape) is a part of dst" : "");
}

}  // namespace

void verify_cache_hints(const Op& op, Findings& out) {
  const auto verify = [&](std::string_view attr, std::string_view what, bool may_bypass) {
    if (!op.attr(attr)) return;
    const std::string& word = op.string_attr(attr);
    if (word == "evict_first" || word == "evict_normal" || word == "evict_last" ||
        (may_bypass && word == "no_allocate"))
      return;
    out.add(op, fmt::format("unknown {} '{}'", what, word),
            fmt::format("evict_first, evict_normal{}evict_last{}", may_bypass ? ", " : " and ",
                        may_bypass ? " and no_allocate" : ""));
  };
  verify("cache_policy", "cache policy", false);
  verify("l1_priority", "priority in the L1 cache", true);
}

void expect_same_dtype(const Op& op, const Type& a, std::string_view a_role, const Type& b,
                       std::string_view b_role, Findings& out) {
  Type same_shape = b;
  same_shape.shape = a.shape;
  expect_same(op, a, a_role, same_shape, b_role, out);
}

bool verify_tile(const Op& op, const Type& global, const Shape& tile, size_t offsets, Findings& out) {
  const Shape& dims = op.ints_attr("dims");
  if (offsets != global.shape.size()) {
    out.add(
        op,
        fmt::format("{} takes {} offsets, there are {}", shape_text(global.shape), global.rank(), offsets),
        "give the tile's place along each dimension of the tensor");
    return false;
  }
  if (tile.size() > global.shape.size()) {
    out.add(op,
            fmt::format("a tile of {} dimensions, {}, is more than the tensor {} has", tile.size(),
                        shape_text(tile), shape_text(global.shape)),
            "view the memory as a tensor of as many dimensions, or take a tile of fewer and reshape() it");
    return false;
  }
  if (dims.size() != tile.size()) {
    out.add(op, fmt::format("dims {} names {} dimensions, the tile {} has {}", shape_text(dims), dims.size(),
                            shape_text(tile), tile.size()));
    return false;
  }
  for (int64_t dim : dims)
    if (dim < 0 || dim >= global.rank() || std::count(dims.begin(), dims.end(), dim) != 1) {
      out.add(op, fmt::format("dims {} must name different dimensions of {}", shape_text(dims),
                              shape_text(global.shape)));
      return false;
    }
  return true;
}

void verify_item_index(const Op& op, const Shape& shape, Findings& out) {
  if (op.operands.size() != 1 + shape.size())
    return out.add(op, fmt::format("{} takes {} indices, there are {}", shape_text(shape), shape.size(),
                                   op.operands.size() - 1));
  for (size_t d = 0; d < shape.size(); ++d)
    if (const auto i = constant_int(op.operands[1 + d]);
        i && (*i < 0 || (shape[d] != kDynamic && *i >= shape[d])))
      return out.add(op, fmt::format("index {} of dimension {} is outside 0 ... {}", *i, d, shape[d] - 1));
}

void verify_memory(const Op& op, Findings& out) {
  const auto type = [&](size_t i) -> const Type& { return op.operands[i]->type; };
  switch (op.code) {
    case Opcode::kLoadGlobal: {
      verify_cache_hints(op, out);
      const Shape& shape = op.ints_attr("shape");
      if (!verify_tile(op, type(0), shape, op.operands.size() - 1, out)) return;
      return expect_same(op, op.result()->type, "the result",
                         Type::tensor(TypeKind::kRegister, type(0).dtype, shape), "the tile", out);
    }
    case Opcode::kStoreGlobal:
      verify_cache_hints(op, out);
      if (!verify_tile(op, type(0), type(1).shape, op.operands.size() - 2, out)) return;
      return expect_same_dtype(op, type(0), "dst", type(1), "value", out);
    case Opcode::kCopyAsync:
      verify_cache_hints(op, out);
      if (!verify_tile(op, type(0), type(1).shape, op.operands.size() - 2, out)) return;
      return expect_same_dtype(op, type(0), "src", type(1), "dst", out);
    case Opcode::kLoadItem:
      if (type(0).kind == TypeKind::kTensorMemory)
        return out.add(op, "tensor memory has no addresses for single elements",
                       "load it with tcgen05::load first");
      if (type(0).dtype.bits() < 8)
        return out.add(op, fmt::format("an element of {} shares its byte with others", type(0).dtype.name()),
                       "load a tile of whole bytes, convert it, and take the item() of that");
      verify_item_index(op, type(0).shape, out);
      return expect_same_dtype(op, op.result()->type, "the result", type(0), "src", out);
    case Opcode::kSharedAlloc: {
      const Shape& shape = op.ints_attr("shape");
      if (shape.empty() || std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 1; }))
        return out.add(op, "shape " + shape_text(shape) + " has no elements");
      return expect_same(op, op.result()->type, "the result",
                         Type::tensor(TypeKind::kShared, op.dtype_attr("dtype"), shape), "the allocation",
                         out);
    }
    case Opcode::kSharedFree:
      if (!defined_by(op.operands[0], Opcode::kSharedAlloc))
        out.add(op, "frees a whole allocation, not a view of one", "pass what shared_tensor() returned");
      return;
    case Opcode::kLoadShared:
      verify_rank(op, 1, out);
      return expect_same(op, type(0), "src", op.result()->type, "the result", out);
    case Opcode::kStoreShared:
      verify_rank(op, 2, out);
      return expect_same(op, type(0), "dst", type(1), "value", out);
    case Opcode::kCopyAsyncWait:
      if (op.int_attr("pending") < 0)
        out.add(op, fmt::format("pending is {}, it must be at least 0", op.int_attr("pending")));
      return;
    case Opcode::kFenceProxyAsync: {
      const std::string& space = op.string_attr("space");
      if (space != "shared" && space != "global" && space != "all")
        out.add(op, "unknown space '" + space + "'", "spaces are shared, global and all");
      return;
    }
    default:
      return;
  }
}

}  // namespace imbrex::ir
