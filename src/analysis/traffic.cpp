// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "analysis/shared_accesses.h"
#include "analysis/tile_walk.h"
#include "core/target.h"
#include "imbrex/core/error.h"
#include "ir/tcgen05_kinds.h"
#include "layout/memory.h"
#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

using analysis::GlobalPlace;
using analysis::SharedAccesses;
using ir::Op;
using ir::Opcode;
using ir::TypeKind;

constexpr const char *kGlobal = "global memory", *kShared = "shared memory", *kRegisters = "registers",
                     *kTensorMemory = "tensor memory", *kTensorCore = "tensor core";
/// Swizzles and banks repeat within so many bytes.
constexpr int64_t kPeriod = 4096;

int64_t memory_bits(DataType type) { return type.is_bool() ? 8 : type.bits(); }

std::string type_text(DataType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} {}", dtype.name(), ir::shape_text(shape));
}
std::string tile_text(const ir::Type& type) { return type_text(type.dtype, type.shape); }

/// How many of [start, start + count) are in [0, extent).
int64_t inside(int64_t start, int64_t count, int64_t extent) {
  return std::max<int64_t>(0, std::min(start + count, extent) - std::max<int64_t>(start, 0));
}

class Counter {
 public:
  explicit Counter(const ir::Function& function, analysis::TileWalk& walk)
      : walk_(walk), arch_(find_target(function.target)->sm) {}

  void visit(const Op& op);
  KernelTraffic take() { return std::move(result_); }

 private:
  // What the rows of ops.def name.
  void count_nothing(const Op&) {}
  void count_uncounted(const Op& op) {
    // Within warps, lanes exchange registers.
    if (op.code == Opcode::kExchange && codegen::exchange_scratch(op, walk_.group()) == 0) return;
    walk_.note_unknown(op, "moves elements in a way that is not counted");
  }
  void count_global(const Op& op);
  void count_copy_async(const Op& op);
  void count_tma(const Op& op);
  void count_shared(const Op& op);
  void count_reduce(const Op& op);
  void count_relayout(const Op& op);
  void count_product(const Op& op);
  void count_tensor_memory(const Op& op);
  void count_tensor_address(const Op& op);
  void count_response(const Op& op);
  void count_item(const Op& op);
  void count_gather(const Op& op);
  void count_atomic(const Op& op);
  void count_atomic_item(const Op& op);
  void count_semaphore(const Op& op);

  /// Elements of a tile of `shape` at the offsets (operands from `first` on) that lie inside the tensor;
  /// nothing when that is not known.
  std::optional<int64_t> elements_inside(const Op& op, const ir::Value* view,
                                         const std::vector<int64_t>& shape, size_t first);
  std::optional<int64_t> integer(const Op& op, const ir::Value* value);
  void move(const Op& op, const char* from, const char* to, const std::string& tile, int64_t bytes);
  void accesses(const Op& op, const SharedAccesses& access, bool writes);

  analysis::TileWalk& walk_;
  int arch_;
  KernelTraffic result_;
  std::map<std::pair<const Op*, const char*>, size_t> moves_;
  std::map<std::pair<const Op*, bool>, size_t> banks_;
  std::map<std::pair<const Op*, int64_t>, SharedAccesses> tiles_;  // by offset
  std::map<const Op*, analysis::ReductionAccesses> reductions_;
};

std::optional<int64_t> Counter::integer(const Op& op, const ir::Value* value) {
  const std::optional<int64_t> known = walk_.integer(value);
  if (!known) walk_.note_unknown(op, "has an offset that depends on data");
  return known;
}

void Counter::move(const Op& op, const char* from, const char* to, const std::string& tile, int64_t bytes) {
  const auto [at, is_new] = moves_.try_emplace({&op, from}, result_.moves.size());
  if (is_new) result_.moves.push_back({std::string(op.info().mnemonic), tile, from, to, op.where, 0, 0});
  KernelMove& move = result_.moves[at->second];
  ++move.times;
  move.bytes += bytes;
}

void Counter::accesses(const Op& op, const SharedAccesses& access, bool writes) {
  (writes ? result_.counts.shared_bytes_written : result_.counts.shared_bytes_read) += access.lane_bytes;
  if (access.accesses == 0) return;
  const auto [at, is_new] = banks_.try_emplace({&op, writes}, result_.banks.size());
  if (is_new) result_.banks.push_back({std::string(op.info().mnemonic), op.where, writes, 0, 0, 0, 0, 1});
  BankPrediction& banks = result_.banks[at->second];
  banks.bytes = std::max(banks.bytes, access.bytes);
  banks.accesses += access.accesses;
  banks.wavefronts += access.wavefronts;
  banks.ideal += access.ideal;
  banks.degree = std::max(banks.degree, access.degree);
}

void Counter::visit(const Op& op) {
  switch (op.code) {
#define IR_OP(id, mnemonic, operands, results, attrs, regions, effect, scope, arch, rules, traffic, ...) \
  case Opcode::k##id:                                                                                    \
    return count_##traffic(op);
#include "ir/ops.def"
#undef IR_OP
    case Opcode::kCount:
      return;
  }
}

/// Every thread reads the 16 bytes of the cluster launch control response.
void Counter::count_response(const Op& op) {
  accesses(op, analysis::broadcast_accesses(16, walk_.group()), false);
}

/// Every thread loads the scalar. (One of registers that all threads hold moves nothing; else a few bytes.)
void Counter::count_item(const Op& op) {
  if (op.operands[0]->type.kind == TypeKind::kRegister) return;
  const int64_t bytes = memory_bits(op.operands[0]->type.dtype) / 8;
  if (op.operands[0]->type.kind == TypeKind::kShared)
    return accesses(op, analysis::broadcast_accesses(static_cast<int>(bytes), walk_.group()), false);
  result_.counts.global_bytes_read += bytes * walk_.group().threads;
}

/// As if all elements were inside and none left out: where they are is data.
void Counter::count_gather(const Op& op) {
  const bool is_load = op.code == Opcode::kGather;
  const bool is_shared = op.operands[0]->type.kind == TypeKind::kShared;
  const ir::Type& tile = is_load ? op.result()->type : op.operands[1]->type;
  const int64_t bytes = tile.elements() * (is_load ? tile.layout->copies() : 1) * memory_bits(tile.dtype) / 8;
  TrafficCounts& counts = result_.counts;
  (is_shared ? (is_load ? counts.shared_bytes_read : counts.shared_bytes_written)
             : (is_load ? counts.global_bytes_read : counts.global_bytes_written)) += bytes;
  const char* memory = is_shared ? kShared : kGlobal;
  move(op, is_load ? memory : kRegisters, is_load ? kRegisters : memory, tile_text(tile), bytes);
  walk_.note_unknown(op, "moves elements whose places are data");
}

void Counter::count_atomic(const Op& op) { count_gather(op); }

void Counter::count_atomic_item(const Op& op) {
  const ir::Type& memory = op.operands[0]->type;
  (memory.kind == TypeKind::kShared ? result_.counts.shared_bytes_written
                                    : result_.counts.global_bytes_written) += memory.dtype.bits() / 8;
}

void Counter::count_semaphore(const Op& op) {
  if (op.code == Opcode::kSemaphoreWait) return walk_.note_unknown(op, "waits as long as others take");
  result_.counts.global_bytes_written += op.operands[0]->type.dtype.bits() / 8;
}

/// Every thread reads the address that the hardware wrote.
void Counter::count_tensor_address(const Op& op) {
  accesses(op, analysis::broadcast_accesses(4, walk_.group()), false);
}

std::optional<int64_t> Counter::elements_inside(const Op& op, const ir::Value* view,
                                                const std::vector<int64_t>& shape, size_t first) {
  const GlobalPlace* place = walk_.global(view);
  if (place == nullptr) {
    walk_.note_unknown(op, "has a tensor whose place depends on data");
    return std::nullopt;
  }
  std::vector<GlobalPlace::Dim> dims = place->dims;
  std::vector<int64_t> count(dims.size(), 1);
  for (size_t v = first; v < op.operands.size(); ++v) {
    const std::optional<int64_t> offset = integer(op, op.operands[v]);
    if (!offset) return std::nullopt;
    if (const int root = place->view_dims[v - first]; root >= 0)
      dims[static_cast<size_t>(root)].start += *offset;
  }
  const std::vector<int64_t>& along = op.ints_attr("dims");
  for (size_t t = 0; t < along.size(); ++t)
    if (const int root = place->view_dims[static_cast<size_t>(along[t])]; root >= 0)
      count[static_cast<size_t>(root)] = shape[t];
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d) elements *= inside(dims[d].start, count[d], dims[d].extent);
  return elements;
}

void Counter::count_global(const Op& op) {
  const bool is_load = op.code == Opcode::kLoadGlobal;
  const ir::Type& tile = is_load ? op.result()->type : op.operands[1]->type;
  const std::optional<int64_t> elements = elements_inside(op, op.operands[0], tile.shape, is_load ? 1 : 2);
  if (!elements) return;
  // Every thread that holds a copy loads it; one of them stores it.
  const int64_t bytes = *elements * (is_load ? tile.layout->copies() : 1) * memory_bits(tile.dtype) / 8;
  (is_load ? result_.counts.global_bytes_read : result_.counts.global_bytes_written) += bytes;
  move(op, is_load ? kGlobal : kRegisters, is_load ? kRegisters : kGlobal, tile_text(tile), bytes);
}

void Counter::count_copy_async(const Op& op) {
  const ir::Type& tile = op.operands[1]->type;
  const std::optional<int64_t> elements = elements_inside(op, op.operands[0], tile.shape, 2);
  if (!elements) return;
  const int64_t bytes = *elements * memory_bits(tile.dtype) / 8;
  result_.counts.cp_async_bytes += bytes;
  move(op, kGlobal, kShared, tile_text(tile), bytes);
}

void Counter::count_tma(const Op& op) {
  const bool is_load = op.code == Opcode::kTmaGlobalToShared;
  const ir::Value* map = op.operands[is_load ? 0 : 1];
  const ir::Type& tile = op.operands[is_load ? 1 : 0]->type;
  if (is_load) {
    const int64_t bytes = tile.elements() * tile.dtype.bits() / 8;
    const ir::Op& made = *map->def;
    const bool is_padded = made.code == Opcode::kTensorMap && made.bool_attr("padded", false);
    const int64_t completed = is_padded ? tile.elements() : bytes;  // 16 elements take 16 bytes
    const std::optional<int64_t> receivers =
        op.attr("masked") ? integer(op, op.operands.back()) : op.int_attr("multicast_mask", 1);
    if (!receivers) return;
    const auto mask = static_cast<uint64_t>(*receivers);
    const int64_t destinations = std::popcount(mask);
    result_.counts.tma_bytes_loaded += completed * destinations;
    result_.counts.tma_bytes_repeated += completed * (destinations - 1);
    return move(op, kGlobal, kShared, tile_text(tile), completed * destinations);
  }
  // Sizes of the map, innermost first.
  const std::vector<int64_t>& along = op.ints_attr("dims");
  const Op& made = *map->def;
  size_t rank = made.ints_attr("box").size();
  std::vector<int64_t> count(rank, 1);
  for (size_t t = 0; t < along.size(); ++t) count[static_cast<size_t>(along[t])] = tile.shape[t];
  int64_t elements = 1;
  if (op.bool_attr("four_rows", false)) {  // offsets are the rows' numbers, then the column
    int64_t rows = 0;
    const std::optional<int64_t> columns = integer(op, made.operands[1]),
                                 height = integer(op, made.operands[2]);
    for (size_t i = 2; i < 6; ++i) {
      const std::optional<int64_t> row = integer(op, op.operands[i]);
      if (!row || !height) return;
      rows += *row >= 0 && *row < *height ? 1 : 0;
    }
    const std::optional<int64_t> column = integer(op, op.operands[6]);
    if (!columns || !column) return;
    elements = rows * inside(*column, tile.shape[1], *columns);
    rank = 0;
  }
  for (size_t d = 0; d < rank; ++d) {
    const std::optional<int64_t> extent = integer(op, made.operands[1 + d]);
    const std::optional<int64_t> start = integer(op, op.operands[2 + d]);
    if (!extent || !start) return;
    elements *= inside(*start, count[d], *extent);
  }
  const int64_t bytes = elements * tile.dtype.bits() / 8;
  result_.counts.tma_bytes_stored += bytes;
  move(op, kShared, kGlobal, tile_text(tile), bytes);
}

void Counter::count_shared(const Op& op) {
  const bool is_load = op.code == Opcode::kLoadShared;
  const ir::Type& memory = op.operands[0]->type;
  const ir::Type& registers = is_load ? op.result()->type : op.operands[1]->type;
  const std::optional<int64_t> offset = walk_.shared_offset(op.operands[0]);
  if (!offset) return walk_.note_unknown(op, "has a place that depends on data");
  const auto [at, is_new] = tiles_.try_emplace({&op, *offset % kPeriod});
  if (is_new) {
    layout::Layout held = *registers.layout, lies = *memory.layout;
    if (const int bits = memory.dtype.bits(); layout::crosses_bytes(bits)) {  // moved as bytes
      const int dim = layout::contiguous_run(lies, layout::Axis::kAddress).dim;
      const auto held_bytes = layout::view_as_width(held, bits, 8, dim);
      const auto bytes = layout::view_as_width(lies, bits, 8, dim, layout::Axis::kAddress);
      if (held_bytes && bytes) held = *held_bytes, lies = *bytes;
    }
    at->second = analysis::tile_accesses(held, lies, *offset % kPeriod, !is_load, walk_.group(), arch_);
  }
  accesses(op, at->second, !is_load);
  move(op, is_load ? kShared : kRegisters, is_load ? kRegisters : kShared, tile_text(registers),
       at->second.lane_bytes);
}

void Counter::count_reduce(const Op& op) {
  const auto [at, is_new] = reductions_.try_emplace(&op);
  if (is_new) at->second = analysis::reduction_accesses(op, walk_.group());
  const analysis::ReductionAccesses& r = at->second;
  if (r.written.accesses == 0) return;
  accesses(op, r.written, true);
  accesses(op, r.read, false);
  move(op, kRegisters, kShared, tile_text(op.result()->type), r.written.lane_bytes);
  move(op, kShared, kRegisters, tile_text(op.result()->type), r.read.lane_bytes);
}

void Counter::count_relayout(const Op& op) {
  const ir::Type &from = op.operands[0]->type, &to = op.result()->type;
  if (*from.layout == *to.layout || layout::register_map(*from.layout, *to.layout)) return;
  const layout::Layout staging = layout::row_major(to.shape, static_cast<int>(memory_bits(to.dtype)));
  const auto count = [&](const ir::Type& type, bool writes) {
    const auto [at, is_new] = tiles_.try_emplace({&op, writes ? -1 : -2});
    if (is_new) at->second = analysis::tile_accesses(*type.layout, staging, 0, writes, walk_.group(), arch_);
    accesses(op, at->second, writes);
    move(op, writes ? kRegisters : kShared, writes ? kShared : kRegisters, tile_text(type),
         at->second.lane_bytes);
  };
  count(from, true);
  count(to, false);
}

void Counter::count_product(const Op& op) {
  const ir::Type &a = op.operands[0]->type, &b = op.operands[1]->type, &d = op.operands[2]->type;
  const int64_t k = a.shape[1];
  int64_t m = d.shape[0], n = d.shape[1];
  TrafficCounts& counts = result_.counts;
  result_.operands = a.dtype;
  if (op.code == Opcode::kMma || op.code == Opcode::kMmaScaled) {
    counts.tensor_flops += 2 * m * n * k;
    // Of m16n8k(32 bytes) fragments.
    const int64_t depth = 256 / a.dtype.bits(), fragments = m * n * k / (16 * 8 * depth);
    const int64_t operands = (16 + 8) * depth * a.dtype.bits() / 8, sums = 16 * 8 * d.dtype.bits() / 8;
    result_.register_bytes += static_cast<double>(fragments * (operands + 2 * sums));
    return move(op, kRegisters, kTensorCore, fmt::format("{} x {} x {}", m, n, k), fragments * operands);
  }
  const bool a_is_shared = a.kind == TypeKind::kShared;
  int64_t bytes = 0;
  if (op.code == Opcode::kWgmmaMma) {
    counts.tensor_flops += 2 * m * n * k;
    const int64_t columns = layout::wgmma_columns(n, a.dtype.is_integer());
    const int64_t a_bytes = m * k * (n / columns) * a.dtype.bits() / 8;
    bytes = (a_is_shared ? a_bytes : 0) + m / 64 * n * k * b.dtype.bits() / 8;
    const int64_t steps = k * a.dtype.bits() / 256;
    result_.register_bytes +=
        static_cast<double>((a_is_shared ? 0 : a_bytes) + 2 * m * n * steps * d.dtype.bits() / 8);
  } else {
    const ir::MmaKindFacts* kind = ir::mma_kind(op);
    const ir::MmaTile tile = ir::mma_tile(op, *kind);
    const int64_t pair = op.int_attr("cta_group", 1);  // d's rows are those of one CTA
    counts.tensor_flops += 2 * m * pair * n * k;
    bytes = (a_is_shared ? m * pair * k * (n / tile.n) * a.dtype.bits() / 8 : 0) +
            m / tile.m * n * k * b.dtype.bits() / 8;
  }
  counts.operand_bytes += bytes;
  move(op, kShared, kTensorCore, fmt::format("{} x {} x {}", m, n, k), bytes);
}

void Counter::count_tensor_memory(const Op& op) {
  int64_t bytes = 0;
  if (op.code == Opcode::kTcgen05Copy) {
    const ir::Type& type = op.operands[0]->type;
    bytes = type.elements() * type.dtype.bits() / 8 * op.int_attr("cta_group", 1);
    move(op, kShared, kTensorMemory, tile_text(type), bytes);
  } else {
    const bool is_load = op.code == Opcode::kTcgen05Load;
    const ir::Type& type = is_load ? op.result()->type : op.operands[1]->type;
    const int64_t words = (type.layout->registers() * type.dtype.bits() + 31) / 32;
    bytes = words * 4 * walk_.group().threads;
    move(op, is_load ? kTensorMemory : kRegisters, is_load ? kRegisters : kTensorMemory, tile_text(type),
         bytes);
  }
  result_.counts.tensor_memory_bytes += bytes;
}

/// Tensors in global memory: of every pointer the largest view, whatever others there are.
std::vector<KernelTensor> global_tensors(const ir::Function& function, const analysis::TileWalk& walk) {
  std::vector<const ir::Value*> bases;
  std::vector<KernelTensor> tensors;
  ir::walk(function.body, [&](const Op& op) {
    if (op.code != Opcode::kGlobalView) return;
    const GlobalPlace* place = walk.global(op.result());
    if (place == nullptr) return;
    const DataType dtype = op.result()->type.dtype;
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (const GlobalPlace::Dim& dim : place->dims) {
      shape.push_back(dim.extent);
      elements *= dim.extent;
    }
    const KernelTensor tensor{op.result()->name, kGlobal, type_text(dtype, shape),
                              elements * dtype.bits() / 8, op.where};
    const auto at = std::find(bases.begin(), bases.end(), op.operands[0]) - bases.begin();
    if (at == static_cast<std::ptrdiff_t>(bases.size())) {
      bases.push_back(op.operands[0]);
      tensors.push_back(tensor);
    } else if (tensor.bytes > tensors[static_cast<size_t>(at)].bytes) {
      tensors[static_cast<size_t>(at)] = tensor;
    }
  });
  return tensors;
}

/// Tensors of a CTA in shared and tensor memory, and those in registers that products and global memory
/// take or give, every kind once.
std::vector<KernelTensor> tensors_on_chip(const ir::Function& function) {
  std::vector<KernelTensor> tensors;
  const auto add = [&](const ir::Value* value, const char* memory, int64_t bytes,
                       const SourceLocation& where) {
    const std::string text = type_text(value->type.dtype, value->type.shape);
    const bool is_known = std::any_of(tensors.begin(), tensors.end(), [&](const KernelTensor& t) {
      return t.memory == memory && t.type == text && (t.name == value->name || memory == kRegisters);
    });
    if (!is_known) tensors.push_back({value->name, memory, text, bytes, where});
  };
  const auto in_registers = [&](const ir::Value* value, const SourceLocation& where) {
    if (value->type.layout && value->type.layout->uses(layout::Axis::kThread))
      add(value, kRegisters, value->type.layout->registers() * value->type.dtype.bits() / 8, where);
  };
  ir::walk(function.body, [&](const Op& op) {
    switch (op.code) {
      case Opcode::kSharedAlloc:
        return add(op.result(), kShared, op.result()->type.layout->bytes(), op.where);
      case Opcode::kTcgen05Alloc:
        return add(op.result(), kTensorMemory, op.int_attr("columns", 0) * 128 * 4, op.where);
      case Opcode::kMma:
      case Opcode::kMmaScaled:
      case Opcode::kWgmmaMma:
        for (size_t i = 0; i < 3; ++i)
          if (op.operands[i]->type.kind != TypeKind::kShared) in_registers(op.operands[i], op.where);
        return;
      case Opcode::kLoadGlobal:
      case Opcode::kTcgen05Load:
        return in_registers(op.result(), op.where);
      case Opcode::kVar:
        return in_registers(op.result(), op.where);
      default:
        return;
    }
  });
  return tensors;
}

}  // namespace

Traffic TrafficCounts::levels(double compulsory) const {
  Traffic traffic;
  traffic.hbm = compulsory;
  traffic.l2 = static_cast<double>(global_bytes_read + global_bytes_written + cp_async_bytes +
                                   tma_bytes_loaded - tma_bytes_repeated + tma_bytes_stored);
  traffic.shared = static_cast<double>(shared_bytes_read + shared_bytes_written + cp_async_bytes +
                                       tma_bytes_loaded + tma_bytes_stored + operand_bytes);
  return traffic;
}

Traffic KernelTraffic::levels() const {
  Traffic traffic = counts.levels(compulsory);
  traffic.registers = register_bytes;
  return traffic;
}

KernelTraffic kernel_traffic(ir::Function& function, std::span<const int64_t> arguments) {
  passes::run_pipeline(function, passes::PipelineOptions::from_environment());
  analysis::TileWalk walk(function, arguments);
  Counter counter(function, walk);
  walk.run([&](const Op& op) { counter.visit(op); });
  KernelTraffic result = counter.take();
  result.grid.assign(walk.grid().begin(), walk.grid().end());
  result.tensors = global_tensors(function, walk);
  for (const KernelTensor& tensor : result.tensors) result.compulsory += static_cast<double>(tensor.bytes);
  const std::vector<KernelTensor> on_chip = tensors_on_chip(function);
  result.tensors.insert(result.tensors.end(), on_chip.begin(), on_chip.end());
  result.unknown = walk.unknown();
  return result;
}

std::vector<int64_t> run_time_integers(std::span<const ParameterInfo> parameters,
                                       std::span<const int64_t> shape) {
  std::vector<int64_t> integers;
  size_t next = 0;
  for (const ParameterInfo& parameter : parameters) {
    const bool is_constant = parameter.kind == ParameterKind::kConstant;
    const bool is_integer = parameter.kind == ParameterKind::kScalar && !parameter.dtype.is_float();
    if (!is_constant && !is_integer) continue;
    if (is_integer) integers.push_back(shape[next]);
    ++next;
  }
  return integers;
}

}  // namespace imbrex
