// SPDX-License-Identifier: Apache-2.0
// TMA: tensor maps as kernel parameters, copies box by box, groups of stores.
#include <fmt/format.h>

#include "codegen/generator.h"
#include "codegen/memory/cache_hints.h"
#include "codegen/memory/mbarrier.h"
#include "core/target.h"
#include "imbrex/core/error.h"
#include "layout/descriptors.h"

namespace imbrex::codegen {

namespace {

constexpr int64_t kMapBytes = 128, kMapAlignment = 64;
constexpr int64_t kSharedUnit = 128;        // bytes that boxes in shared memory start at multiples of
constexpr int64_t kPointerUnit = 16;        // and tensors in global memory,
constexpr int64_t kPaddedPointerUnit = 32;  // of elements that are spread to 16 bytes for 16

TensorMapType driver_type(DataType type, bool is_padded) {
  switch (type.code) {
    case DataType::kFloat4E2M1:
    case DataType::kInt4:
    case DataType::kUInt4:
      return is_padded ? TensorMapType::kPacked16U4Padded : TensorMapType::kPacked16U4;
    case DataType::kFloat6E2M3:
    case DataType::kFloat6E3M2:
      return TensorMapType::kPacked16U6Padded;
    case DataType::kUInt16:
    case DataType::kInt16:
      return TensorMapType::kUInt16;
    case DataType::kUInt32:
      return TensorMapType::kUInt32;
    case DataType::kInt32:
      return TensorMapType::kInt32;
    case DataType::kUInt64:
      return TensorMapType::kUInt64;
    case DataType::kInt64:
      return TensorMapType::kInt64;
    case DataType::kFloat16:
      return TensorMapType::kFloat16;
    case DataType::kFloat32:
    case DataType::kTFloat32:  // bits as they are
      return TensorMapType::kFloat32;
    case DataType::kFloat64:
      return TensorMapType::kFloat64;
    case DataType::kBFloat16:
      return TensorMapType::kBFloat16;
    default:
      return TensorMapType::kUInt8;
  }
}

/// A swizzle of the layout algebra, as tensor maps name it.
TensorMapSwizzle driver_swizzle(layout::Swizzle swizzle) {
  switch (swizzle.mode) {
    case layout::Swizzle::k32B:
      return TensorMapSwizzle::k32B;
    case layout::Swizzle::k64B:
      return TensorMapSwizzle::k64B;
    case layout::Swizzle::k128B:
      return TensorMapSwizzle::k128B;
    case layout::Swizzle::k128BAtom32B:
      return TensorMapSwizzle::k128BAtom32B;
    case layout::Swizzle::k128BAtom32BFlip8B:
      return TensorMapSwizzle::k128BAtom32BFlip8B;
    case layout::Swizzle::k128BAtom64B:
      return TensorMapSwizzle::k128BAtom64B;
    default:
      return TensorMapSwizzle::kNone;
  }
}

/// What only Blackwell's chips for data centres have.
void require_family(Generator& g, const ir::Op& op, std::string_view what) {
  if (!target_has(*find_target(g.function().target), "sm_100a"))
    g.fail(op, fmt::format("{} needs sm_100a, the kernel is for {}", what, g.function().target));
}

/// Lets only the issuing thread execute an instruction.
void guard(ptx::Instruction& instruction, const std::optional<Reg>& issuer) {
  if (issuer) instruction.when(*issuer);
}

class TmaCopy {
 public:
  TmaCopy(Generator& g, const ir::Op& op, const ir::Value* map, const ir::Value* tile, size_t first_offset)
      : g_(g), op_(op), map_(map), view_(g.get<SharedView>(tile)) {
    g.require_arch(op, 90, "TMA");
    const std::vector<int64_t>& dims = op.ints_attr("dims");
    int inner = 0;
    for (size_t t = 0; t < dims.size(); ++t)
      if (dims[t] == 0) inner = static_cast<int>(t);
    const auto described = layout::describe_tma_boxes(view_.layout, inner);
    if (!described)
      g.fail(op, "no box of a tensor map is the tile: " + described.error, {tile->type.to_string()});
    boxes_ = *described;
    if (boxes_.swizzle.mode > layout::Swizzle::k128B) g.require_arch(op, 100, "a swizzle of wider atoms");
    check_type();
    check_alignment(tile);
    const size_t end = op.operands.size() - (op.bool_attr("masked", false) ? 1 : 0);
    for (size_t i = first_offset; i < end; ++i)
      coordinates_.push_back(g.ints().narrow(g.integer(op.operands[i])));
  }

  template <class Emit>
  void for_each_box(Emit&& emit) {
    for (const layout::TmaBox& box : boxes_.boxes) {
      std::vector<Operand> at;
      for (size_t j = 0; j < coordinates_.size(); ++j) {
        // Of four rows the coordinates are the column and the rows, whose boxes begin with the first.
        const int64_t start = j < boxes_.dims.size() && (j == 0 || !is_four_rows())
                                  ? box.start[static_cast<size_t>(boxes_.dims[j])]
                                  : 0;
        at.push_back(g_.ints().add(coordinates_[j], Integers::constant(start)).value);
      }
      const Operand map = ptx::address(g_.scalar(map_).reg());
      emit(g_.e().builder().tensor(map, at), g_.shared_operand(view_.terms, view_.offset + box.offset_bytes));
    }
  }

  /// 1d ... 5d.
  Mod rank() const {
    static constexpr Mod kRanks[] = {Mod::_1d, Mod::_2d, Mod::_3d, Mod::_4d, Mod::_5d};
    return kRanks[is_four_rows() ? 1 : coordinates_.size() - 1];
  }
  bool is_four_rows() const { return op_.bool_attr("four_rows", false); }

  /// Appends the L2 hint, when the op has one, to the words and operands of an instruction.
  void add_policy(std::vector<Suffix>& words, std::vector<Operand>& operands) {
    const CacheHints hints = cache_hints(g_, op_);
    if (!hints.policy) return;
    words.push_back(Mod::L2_cache_hint);
    operands.push_back(*hints.policy);
  }

 private:
  void check_type() const {
    const DataType type = view_.dtype;
    if (type.bits() >= 8) return;
    const bool exists = type.bits() == 4 || type == float6_e2m3 || type == float6_e3m2;
    if (exists && g_.arch() >= 100) return;
    g_.fail(
        op_, fmt::format("there are no tensor maps of {}{}", type.name(), exists ? " before sm_100" : ""), {},
        "copy bytes, between a global and a shared tensor of uint8, and view() what load_shared() gives as "
        "the elements");
  }

  void check_alignment(const ir::Value* tile) const {
    if (!starts_at_multiple(view_, kSharedUnit))
      g_.fail(op_,
              fmt::format("the tile is not known to start at a multiple of {} bytes of shared memory",
                          kSharedUnit),
              {tile->type.to_string()}, "make stages and slices multiples of 128 bytes");
  }

  Generator& g_;
  const ir::Op& op_;
  const ir::Value* map_;
  const SharedView& view_;
  layout::TmaBoxes boxes_;
  std::vector<Integer> coordinates_;
};

}  // namespace

void Generator::declare_tensor_map(const ir::Value* map) {
  const ir::Op& op = *map->def;
  TensorMapPlan plan;
  plan.dtype = op.dtype_attr("dtype");
  plan.is_padded = op.bool_attr("padded", false);
  plan.is_stored = op.bool_attr("stored", false);
  plan.driver_type = driver_type(plan.dtype, plan.is_padded);
  for (int64_t extent : op.ints_attr("box")) plan.box.push_back(static_cast<int32_t>(extent));
  plan.rank = static_cast<int>(plan.box.size());
  const auto slot = [&](const ir::Value* value) {
    const std::optional<int32_t> found = host_.slot(value);
    if (!found) throw InternalError("codegen: " + ir::print(*value) + " cannot be computed on the host");
    return *found;
  };
  plan.base_slot = slot(op.operands[0]);
  const size_t rank = plan.box.size();
  for (size_t d = 0; d < rank; ++d) plan.dim_slots.push_back(slot(op.operands[1 + d]));
  for (size_t d = 1; d < rank; ++d)
    plan.stride_slots.push_back(host_.binary(ir::Opcode::kMul, slot(op.operands[rank + d]),
                                             host_.constant(plan.dtype.bits()), op.where));
  plan.swizzle = driver_swizzle(*layout::Swizzle::from_name(op.string_attr("swizzle")));
  plan.l2_promotion = TensorMapL2Promotion::k128B;
  plan.where = op.where;
  for (size_t i = 0; i < function_.params.size(); ++i)
    if (function_.params[i] == op.operands[0])
      kernel_.arguments[i].alignment =
          std::max<int32_t>(kernel_.arguments[i].alignment,
                            static_cast<int32_t>(plan.is_padded ? kPaddedPointerUnit : kPointerUnit));

  const auto index = static_cast<int32_t>(kernel_.tensor_maps.size());
  kernel_.tensor_maps.push_back(std::move(plan));
  kernel_.params.push_back({ParamPlan::Kind::kTensorMap, index, 0, static_cast<int32_t>(kMapBytes)});
  const ptx::SymbolRef param =
      emitter_.builder().param(ScalarType::b8, fmt::format("map_{}", index), kMapAlignment, kMapBytes);
  const Reg symbol = emitter_.make(ScalarType::b64, Op::mov, {ScalarType::b64}, {param});
  bind(map, emitter_.make(ScalarType::b64, Op::cvta, {Mod::param, ScalarType::u64}, {symbol}));
  tensor_maps_.push_back(map);
}

void Generator::prefetch_tensor_maps() {
  if (tensor_maps_.empty()) return;
  const Reg tid = emitter_.to_register(ScalarType::b32, thread_index(groups_[0]).value);
  const Reg is_first = emitter_.make(ScalarType::pred, Op::setp, {Mod::eq, ScalarType::u32}, {tid, 0});
  for (const ir::Value* map : tensor_maps_)
    emitter_.emit(Op::prefetch, {Mod::tensormap}, {ptx::address(scalar(map).reg())}).when(is_first);
}

void emit_TensorMap(Generator&, const ir::Op& op) {
  throw InternalError("codegen: a tensor map is made on the host:\n" + ir::print(op));
}

void emit_TmaGlobalToShared(Generator& g, const ir::Op& op) {
  TmaCopy copy(g, op, op.operands[0], op.operands[1], 3);
  const BarrierView& barrier = g.get<BarrierView>(op.operands[2]);
  const bool is_pair = op.int_attr("cta_group", 1) == 2;
  if (is_pair) g.require_arch(op, 100, "cta_group 2");
  if (barrier.remote && !is_pair)
    g.fail(op, "the barrier is another CTA's", {}, "a pair of CTAs may share one: set cta_group = 2");
  const std::optional<Reg> issuer = g.issuer();
  const std::optional<Operand> mask =
      op.attr("masked") ? multicast_mask(g, op, op.operands.back()) : multicast_mask(g, op, nullptr);
  const bool is_shared = mask || is_pair;
  if (copy.is_four_rows()) {
    g.require_arch(op, 100, "gather4");
    if (is_shared) require_family(g, op, "gather4 for several CTAs");
  }
  copy.for_each_box([&](const Operand& tensor, const Operand& shared) {
    std::vector<Suffix> words{copy.rank(), Mod::shared_cluster, Mod::global, Mod::tile,
                              Mod::mbarrier_complete_tx_bytes};
    if (copy.is_four_rows()) {
      words[1] = is_shared ? Mod::shared_cluster : Mod::shared_cta;
      words[3] = Mod::tile_gather4;
    }
    std::vector<Operand> operands{shared, tensor, barrier_operand(g, barrier)};
    if (mask) {
      words.push_back(Mod::multicast_cluster);
      operands.push_back(*mask);
    }
    if (is_pair) words.push_back(Mod::cta_group_2);
    copy.add_policy(words, operands);
    guard(g.e().emit(Op::cp_async_bulk_tensor, words, operands), issuer);
  });
}

void emit_TmaSharedToGlobal(Generator& g, const ir::Op& op) {
  TmaCopy copy(g, op, op.operands[1], op.operands[0], 2);
  const std::optional<Reg> issuer = g.issuer();
  if (copy.is_four_rows()) require_family(g, op, "scatter4");
  copy.for_each_box([&](const Operand& tensor, const Operand& shared) {
    std::vector<Suffix> words{copy.rank(), Mod::global, Mod::shared_cta};
    std::vector<Operand> operands{tensor, shared};
    Op instruction = Op::cp_async_bulk_tensor;
    if (op.attr("reduce")) {
      instruction = Op::cp_reduce_async_bulk_tensor;
      const std::string& reduce = op.string_attr("reduce");
      words.push_back(reduce == "add"   ? Mod::add
                      : reduce == "min" ? Mod::min
                      : reduce == "max" ? Mod::max
                      : reduce == "and" ? Mod::and_
                      : reduce == "or"  ? Mod::or_
                                        : Mod::xor_);
    }
    words.insert(words.end(), {copy.is_four_rows() ? Mod::tile_scatter4 : Mod::tile, Mod::bulk_group});
    copy.add_policy(words, operands);
    guard(g.e().emit(instruction, words, operands), issuer);
  });
}

void emit_TmaCommitGroup(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "TMA");
  const std::optional<Reg> issuer = g.issuer();
  guard(g.e().emit(Op::cp_async_bulk_commit_group, {}, {}), issuer);
}

void emit_TmaWaitGroup(Generator& g, const ir::Op& op) {
  g.require_arch(op, 90, "TMA");
  std::vector<Suffix> words;
  if (op.bool_attr("read", false)) words.push_back(Mod::read);
  const Operand pending = op.int_attr("pending");
  g.e().emit(Op::cp_async_bulk_wait_group, words, std::array{pending});
  // Threads that issued nothing wait for the one that did.
  g.synchronize(g.group(), op);
}

}  // namespace imbrex::codegen
