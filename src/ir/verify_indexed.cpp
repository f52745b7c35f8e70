// SPDX-License-Identifier: Apache-2.0
// Accesses at places that are data: gather, scatter, atomics, semaphores.
#include <fmt/format.h>

#include <algorithm>

#include "core/target.h"
#include "core/text.h"
#include "ir/findings.h"

namespace imbrex::ir {
namespace {

using Shape = std::vector<int64_t>;

/// True when a tile of this shape repeats to `to`, of the same rank.
bool repeats_to(const Shape& shape, const Shape& to) {
  if (shape.size() != to.size()) return false;
  for (size_t i = 0; i < to.size(); ++i)
    if (shape[i] != 1 && shape[i] != to[i]) return false;
  return true;
}

/// Operands from `first` on: offsets, one for each dimension of operand 0, then the mask of a masked op.
bool verify_places(const Op& op, const Shape& tile, size_t first, Findings& out) {
  const Type& memory = op.operands[0]->type;
  const bool is_masked = op.bool_attr("masked", false);
  const size_t count = op.operands.size() - std::min(op.operands.size(), first + is_masked);
  if (count != memory.shape.size())
    return out.add(op, fmt::format("{} takes {} offsets, there are {}", shape_text(memory.shape),
                                   memory.rank(), count)),
           false;
  for (size_t i = first; i < op.operands.size(); ++i) {
    const Type& place = op.operands[i]->type;
    const bool is_mask = is_masked && i + 1 == op.operands.size();
    const std::string role = is_mask ? "the mask" : fmt::format("offset {}", i - first);
    if (is_mask ? !place.dtype.is_bool() : !place.dtype.is_integer())
      return out.add(op, fmt::format("{} holds {}, not {}", role, place.dtype.name(),
                                     is_mask ? "bool" : "integers")),
             false;
    if (!place.is_scalar() && !repeats_to(place.shape, tile))
      return out.add(op, fmt::format("{} is {}, which does not broadcast to the tile {}", role,
                                     shape_text(place.shape), shape_text(tile))),
             false;
  }
  const Shape& dims = op.ints_attr("dims");
  if (dims.size() != tile.size())
    return out.add(op, fmt::format("dims {} names {} dimensions, the tile {} has {}", shape_text(dims),
                                   dims.size(), shape_text(tile), tile.size())),
           false;
  for (int64_t dim : dims) {
    if (dim == -1) continue;
    if (dim < 0 || dim >= memory.rank() || std::count(dims.begin(), dims.end(), dim) != 1)
      return out.add(op, fmt::format("dims {} must name different dimensions of {}", shape_text(dims),
                                     shape_text(memory.shape))),
             false;
    if (!op.operands[first + static_cast<size_t>(dim)]->type.is_scalar())
      return out.add(op,
                     fmt::format("dims {} names dimension {}, whose places an index tile gives",
                                 shape_text(dims), dim),
                     "write -1 there"),
             false;
  }
  if (memory.dtype.bits() < 8)
    return out.add(op, fmt::format("elements of {} share bytes, and threads do not move single ones",
                                   memory.dtype.name())),
           false;
  return true;
}

bool verify_word(const Op& op, std::string_view attr, const std::vector<std::string>& words, Findings& out) {
  if (!op.attr(attr)) return true;
  const std::string& word = op.string_attr(attr);
  if (std::find(words.begin(), words.end(), word) != words.end()) return true;
  const std::string near = nearest_word(word, words);
  out.add(op, fmt::format("unknown {} '{}'", attr, word),
          near.empty() ? fmt::format("{} is one of {}", attr, fmt::join(words, ", "))
                       : "did you mean '" + near + "'?");
  return false;
}

bool verify_order(const Op& op, Findings& out) {
  return verify_word(op, "sem", {"relaxed", "acquire", "release", "acq_rel"}, out) &&
         verify_word(op, "scope", {"cta", "cluster", "gpu", "sys"}, out);
}

bool verify_update(const Op& op, DataType dtype, Findings& out) {
  if (!verify_word(op, "kind", {"add", "min", "max", "and", "or", "xor", "exch", "cas"}, out)) return false;
  const std::string& kind = op.string_attr("kind");
  const bool is_word = dtype.bits() == 32 || dtype.bits() == 64;
  const bool is_integer = dtype.is_integer() && is_word;
  const bool adds_half = dtype == float16 || dtype == bfloat16;
  bool is_known = is_integer;
  std::string types = "32- and 64-bit integers";
  if (kind == "add") {
    is_known |= dtype == float32 || dtype == float64 || adds_half;
    types += ", float64, float32, float16 and bfloat16";
  } else if (kind == "exch" || kind == "cas") {
    is_known = is_word;
    types = "elements of 32 and 64 bits";
  }
  if (!is_known) out.add(op, fmt::format("{} works on {}, not on {}", kind, types, dtype.name()));
  return is_known;
}

bool verify_one_element(const Op& op, Findings& out) {
  const Shape& shape = op.operands[0]->type.shape;
  if (std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n == 1; })) return true;
  out.add(op, fmt::format("works on one element, not on {}", shape_text(shape)), "index it, as in g[i]");
  return false;
}

void expect_tile(const Op& op, DataType dtype, const Type& tile, std::string_view role, Findings& out) {
  if (tile.dtype != dtype)
    out.add(op, fmt::format("the memory holds {}, {} {}", dtype.name(), role, tile.dtype.name()),
            "cast first");
}

void verify_semaphore(const Op& op, Findings& out) {
  const DataType dtype = op.operands[0]->type.dtype;
  if (!verify_one_element(op, out)) return;
  if (dtype != int32 && dtype != uint32)
    return out.add(op, fmt::format("a semaphore is an int32 or uint32, not a {}", dtype.name()));
  if (!verify_word(op, "scope", {"cta", "cluster", "gpu", "sys"}, out)) return;
  if (op.code == Opcode::kSemaphoreWait) verify_word(op, "mode", {"equal", "at_least", "lock"}, out);
  expect_tile(op, dtype, op.operands[1]->type, "the value is a", out);
}

}  // namespace

void verify_indexed(const Op& op, Findings& out) {
  const Type& memory = op.operands[0]->type;
  if (memory.kind == TypeKind::kTensorMemory)
    return out.add(op, "tensor memory has no addresses for single elements",
                   "load it with tcgen05::load first");
  switch (op.code) {
    case Opcode::kGather:
      if (!verify_places(op, op.ints_attr("shape"), 1, out)) return;
      if (op.result()->type != Type::tensor(TypeKind::kRegister, memory.dtype, op.ints_attr("shape")) &&
          !op.result()->type.layout)
        out.add(op, fmt::format("gives {} {}, declared as {}", memory.dtype.name(),
                                shape_text(op.ints_attr("shape")), op.result()->type.to_string()));
      return;
    case Opcode::kCopyAsyncGather: {
      const Type& to = op.operands[1]->type;
      if (!verify_places(op, to.shape, 3, out)) return;
      if (op.operands[2]->type.shape != to.shape ||
          std::find(op.operands.begin() + 3, op.operands.end(), op.operands[2]) == op.operands.end())
        return out.add(op, fmt::format("places is {}; it must be an index tile or the mask, of the shape {}",
                                       shape_text(op.operands[2]->type.shape), shape_text(to.shape)));
      return expect_tile(op, memory.dtype, to, "the destination", out);
    }
    case Opcode::kScatter:
      if (!verify_places(op, op.operands[1]->type.shape, 2, out)) return;
      return expect_tile(op, memory.dtype, op.operands[1]->type, "the value", out);
    case Opcode::kAtomic: {
      if (!verify_update(op, memory.dtype, out) || !verify_order(op, out)) return;
      const bool compares = op.string_attr("kind") == "cas";
      if (compares && op.operands.size() < 3) return out.add(op, "cas takes a tile to compare with");
      if (!verify_places(op, op.operands[1]->type.shape, compares ? 3 : 2, out)) return;
      for (size_t i = 1; i <= (compares ? 2u : 1u); ++i)
        expect_tile(op, memory.dtype, op.operands[i]->type, i == 1 ? "the value" : "what it compares", out);
      if (compares && op.operands[2]->type.shape != op.operands[1]->type.shape)
        out.add(op, "the tiles to store and to compare with differ in shape");
      return;
    }
    case Opcode::kAtomicItem: {
      if (!verify_update(op, memory.dtype, out) || !verify_order(op, out) || !verify_one_element(op, out))
        return;
      if ((op.string_attr("kind") == "cas") != (op.operands.size() == 3))
        return out.add(op, "cas, and it alone, takes a number to compare with");
      for (size_t i = 1; i < op.operands.size(); ++i)
        expect_tile(op, memory.dtype, op.operands[i]->type, "the value", out);
      return;
    }
    case Opcode::kSemaphoreWait:
    case Opcode::kSemaphoreRelease:
      return verify_semaphore(op, out);
    default:
      return;
  }
}

}  // namespace imbrex::ir
