// SPDX-License-Identifier: Apache-2.0
// Tensor memory: allocation, and transfers to and from registers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "codegen/tile.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using layout::Axis;

namespace {

constexpr int64_t kLanes = 128;
constexpr int64_t kLeastColumns = 32, kMostColumns = 512;

Mod group_word(int64_t cta_group) { return cta_group == 2 ? Mod::cta_group_2 : Mod::cta_group_1; }

/// Lets the first warp of the group through to `body`, whole.
template <class F>
void in_first_warp(Generator& g, const ir::Op& op, F&& body) {
  if (!g.group().is_whole_warps())
    g.fail(op, fmt::format("takes whole warps, the group has {} threads", g.group().threads));
  Emitter& e = g.e();
  if (g.group().threads == 32) return body();
  const ptx::LabelId end = e.label("first_warp_end");
  const Reg is_first = e.make(ScalarType::pred, Op::setp, {Mod::eq, ScalarType::u32},
                              {e.to_register(ScalarType::b32, g.warp_index().value), g.group().begin / 32});
  e.branch_unless(is_first, end);
  e.enter_scope();
  body();
  e.leave_scope();
  e.bind(end);
}

/// A place in tensor memory relative to a warp's first lane and the tile's first column.
struct Cell {
  int64_t lane, column;
  friend bool operator<(const Cell& a, const Cell& b) {
    // By the 16-lane half first: one instruction stays in one half.
    return std::tuple(a.lane / 16, a.column, a.lane) < std::tuple(b.lane / 16, b.column, b.lane);
  }
  friend Cell operator+(const Cell& a, const Cell& b) { return {a.lane + b.lane, a.column + b.column}; }
};

/// A shape of tcgen05.ld and .st: thread t holds cell thread(t, split) + registers[j] in register j, and each
/// repetition goes on `columns` columns further. `split` is the distance of the two halves of 16x32bx2.
struct TransferShape {
  Mod word;
  int64_t columns;
  Cell (*thread)(int64_t t, int64_t split);
  std::vector<Cell> registers;
};

const std::vector<TransferShape>& transfer_shapes() {
  static const std::vector<TransferShape> shapes = {
      {Mod::_32x32b,
       1,
       [](int64_t t, int64_t) {
         return Cell{t, 0};
       },
       {{0, 0}}},
      {Mod::_16x256b,
       8,
       [](int64_t t, int64_t) {
         return Cell{t / 4, 2 * (t % 4)};
       },
       {{0, 0}, {0, 1}, {8, 0}, {8, 1}}},
      {Mod::_16x128b,
       4,
       [](int64_t t, int64_t) {
         return Cell{t / 4, t % 4};
       },
       {{0, 0}, {8, 0}}},
      {Mod::_16x64b,
       2,
       [](int64_t t, int64_t) {
         return Cell{8 * (t % 2) + t / 4, t / 2 % 2};
       },
       {{0, 0}}},
      {Mod::_16x32bx2,
       1,
       [](int64_t t, int64_t split) {
         return Cell{t % 16, t / 16 * split};
       },
       {{0, 0}}},
  };
  return shapes;
}

/// One instruction: its registers, as word numbers of the tensor in the instruction's order.
struct TransferRun {
  Cell start;
  int64_t repetitions;
  std::vector<int64_t> words;
};

/// How the registers of a layout are moved to or from tensor memory.
class Transfer {
 public:
  Transfer(Generator& g, const ir::Op& op, const TensorMemoryView& view, const layout::Layout& registers)
      : g_(g), op_(op), view_(view), tile_(g, op, registers, g.group()) {
    const std::optional<std::vector<MemoryTerm>> terms = memory_terms(tile_.digits(), view.layout);
    if (!terms) refuse("the layouts cut the tensor at places that do not nest");
    terms_ = *terms;
    if (view.dtype.bits() > 32) refuse("elements of more than 32 bits");
    check_threads();
    place_words();
    if (tile_.layout().copies() != view.layout.copies())
      refuse(fmt::format("each element is in {} lanes and {} threads", view.layout.copies(),
                         tile_.layout().copies()));
    for (const layout::Mode& mode : view.layout.replicas()) {
      const std::vector<int64_t> before = copies_;
      for (int64_t i = 1; i < mode.extent; ++i)
        for (int64_t lane : before) copies_.push_back(lane + i * mode.stride);
    }
    split_ = cell(Axis::kThread, 16).column;
    for (const TransferShape& shape : transfer_shapes())
      if (runs_.empty() && threads_fit(shape)) fill_runs(shape);
    if (runs_.empty()) refuse("threads and registers are arranged otherwise");
  }

  /// Tensor-memory address of this warp's first lane, at the view's first column.
  Integer address() const {
    Integers& ints = g_.ints();
    // The lanes a warp can reach follow from its rank in the CTA.
    Integer sum = ints.add(view_.base, Integers::constant(view_.column));
    sum = ints.add(sum, ints.shift_left(ints.and_mask(g_.warp_index(), 3), 21));
    const Integer warp = ints.sub(g_.warp_index(), Integers::constant(g_.group().begin / 32));
    for (const MemoryTerm& t : terms_) {
      if (!is_warp_column(t)) continue;
      Integer digit = ints.div(warp, t.digit.divisor / 32);
      if (t.digit.modulus) digit = ints.rem(digit, t.digit.modulus);
      sum = ints.add(sum, ints.mul(digit, Integers::constant(t.stride * view_.dtype.bits() / 32)));
    }
    return sum;
  }

  const std::vector<TransferRun>& runs() const { return runs_; }
  /// The instruction's words; `packing` stands for pairs of 16-bit elements in two columns.
  std::vector<Suffix> suffixes(const TransferRun& run, Mod packing) const {
    const Mod counts[] = {Mod::x1, Mod::x2, Mod::x4, Mod::x8, Mod::x16, Mod::x32, Mod::x64, Mod::x128};
    std::vector<Suffix> words = {Mod::sync, Mod::aligned, shape_,
                                 counts[std::countr_zero(static_cast<uint64_t>(run.repetitions))]};
    if (packs_) words.push_back(packing);
    words.push_back(ScalarType::b32);
    return words;
  }
  /// The address in tensor memory, and where the shape has two halves, their distance.
  std::vector<Operand> place(const Integer& address, const TransferRun& run) const {
    const int64_t width = packs_ ? 2 : 1;  // columns of a cell
    std::vector<Operand> operands{
        ptx::address(address.value.reg(), run.start.lane << 16 | run.start.column * width)};
    if (shape_ == Mod::_16x32bx2) operands.emplace_back(split_ * width);
    return operands;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    g_.fail(op_, "no shape of tcgen05.ld and .st moves between these layouts: " + why,
            {"registers      " + tile_.layout().to_string(), "tensor memory  " + view_.layout.to_string()},
            "let the layout be inferred");
  }

  /// Warp groups reach all lanes, a warp those of its own quarter.
  void check_threads() const {
    const int64_t begin = g_.group().begin, threads = g_.group().threads;
    if (threads == 32) {
      const int64_t first = begin / 32 % 4 * 32;
      if (view_.lane != first)
        g_.fail(
            op_,
            fmt::format(
                "warp {} of the CTA reaches lanes {} ... {} of tensor memory, the tensor begins at lane {}",
                begin / 32, first, first + 31, view_.lane),
            {"tensor memory  " + view_.layout.to_string()},
            fmt::format("give it the slice of 32 lanes from {} on, or let a warp group execute it", first));
      return;
    }
    if (view_.lane != 0) refuse("the view does not start at lane 0");
    if (threads % kLanes != 0 || begin % kLanes != 0)
      refuse(fmt::format("threads {} ... {} are neither one warp nor whole warp groups", begin,
                         begin + threads - 1));
  }

  /// Warps beyond the fourth take other columns; their number is the same in the whole warp.
  static bool is_warp_column(const MemoryTerm& t) {
    return t.axis == Axis::kColumn && t.digit.axis == Axis::kThread && t.digit.divisor % 32 == 0;
  }

  int64_t columns(int64_t elements) const {
    const int64_t bits = elements * view_.dtype.bits();
    if (bits % (packs_ ? 64 : 32) != 0) refuse("a register starts inside a column");
    return bits / (packs_ ? 64 : 32);
  }

  /// Sum of the terms of one axis number, warps' columns aside.
  Cell cell(Axis axis, int64_t number) const {
    int64_t lane = 0, elements = 0;
    for (const MemoryTerm& t : terms_) {
      if (t.digit.axis != axis || is_warp_column(t)) continue;
      (t.axis == Axis::kLane ? lane : elements) += t.digit.of(number) * t.stride;
    }
    return {lane, columns(elements)};
  }

  /// Where the registers of thread 0 lie.
  void place_words() {
    const int per_word = elements_per_word(view_.dtype);
    const int64_t bits = view_.dtype.bits();
    auto element = [&](int64_t r) {
      int64_t sum = 0;
      for (const MemoryTerm& t : terms_)
        if (t.axis == Axis::kColumn && t.digit.axis == Axis::kRegister) sum += t.digit.of(r) * t.stride;
      return sum;
    };
    const int64_t count = tile_.layout().registers();
    if (per_word > 1 && count % per_word != 0) refuse("a register is not full");
    // 16-bit accumulators have one element in a column: an instruction packs those of two columns.
    packs_ = bits == 16 && count > 1 && element(1) - element(0) == 2;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t first = r / per_word * per_word;
      if (element(r) - element(first) != (r - first) * (packs_ ? 2 : 1))
        refuse("elements that share a register are not neighbours in tensor memory");
      if (r == first) words_[cell(Axis::kRegister, r)] = r / per_word;
    }
  }

  bool threads_fit(const TransferShape& shape) const {
    for (int64_t thread = 0; thread < g_.group().threads; ++thread) {
      const Cell expected = Cell{thread / 32 % 4 * 32, 0} + shape.thread(thread % 32, split_);
      const Cell actual = cell(Axis::kThread, thread);
      // Every thread moves a copy of its elements that is in its own lane.
      const bool has_copy =
          std::find(copies_.begin(), copies_.end(), expected.lane - actual.lane) != copies_.end();
      if (!has_copy || actual.column != expected.column) return false;
    }
    return true;
  }

  /// Covers all words by instructions of the shape; leaves runs_ empty when that cannot be done.
  void fill_runs(const TransferShape& shape) {
    std::map<Cell, int64_t> left = words_;
    std::vector<TransferRun> units;
    while (!left.empty()) {
      TransferRun unit{left.begin()->first, 1, {}};
      if (unit.start.lane % 16 != 0) return;
      for (const Cell& r : shape.registers) {
        const auto it = left.find(unit.start + r);
        if (it == left.end()) return;
        unit.words.push_back(it->second);
        left.erase(it);
      }
      units.push_back(std::move(unit));
    }
    const auto most = static_cast<size_t>(128 / static_cast<int64_t>(shape.registers.size()));
    for (size_t i = 0; i < units.size();) {
      size_t end = i + 1;
      while (end < units.size() && units[end].start.lane == units[i].start.lane &&
             units[end].start.column == units[end - 1].start.column + shape.columns)
        ++end;
      while (i < end) {
        TransferRun run{units[i].start, static_cast<int64_t>(std::bit_floor(std::min(end - i, most))), {}};
        for (int64_t n = 0; n < run.repetitions; ++n, ++i)
          run.words.insert(run.words.end(), units[i].words.begin(), units[i].words.end());
        runs_.push_back(std::move(run));
      }
    }
    shape_ = shape.word;
  }

  Generator& g_;
  const ir::Op& op_;
  const TensorMemoryView& view_;
  Tile tile_;
  std::vector<MemoryTerm> terms_;
  std::vector<int64_t> copies_{0};  // lanes of an element's copies, from that of the first
  std::map<Cell, int64_t> words_;   // in table columns: two of memory where packs_
  std::vector<TransferRun> runs_;
  Mod shape_ = Mod::_32x32b;
  int64_t split_ = 0;  // of the two halves of 16x32bx2
  bool packs_ = false;
};

}  // namespace

void emit_Tcgen05Alloc(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tensor memory");
  if (!op.attr("offset")) throw InternalError("codegen: tcgen05_alloc without an offset");
  const layout::Layout& layout = g.layout_of(op.result());
  const int64_t needed = layout.columns();
  const int64_t columns = op.int_attr(
      "columns", static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(needed, kLeastColumns)))));
  if (columns > kMostColumns)
    g.fail(op, fmt::format("needs {} columns of tensor memory, there are {}", needed, kMostColumns), {},
           "use smaller accumulators or fewer stages");
  const int64_t cta_group = op.int_attr("cta_group", 1);
  Emitter& e = g.e();
  const int64_t slot = op.int_attr("offset");
  in_first_warp(g, op, [&] {
    e.emit(Op::tcgen05_alloc,
           {group_word(cta_group), Mod::sync, Mod::aligned, Mod::shared_cta, ScalarType::b32},
           {g.shared_operand({}, slot), columns});
  });
  // The hardware has written the address to shared memory; every thread reads it there.
  g.synchronize(g.group(), op);
  const Reg address =
      e.make(ScalarType::b32, Op::ld, {Mod::shared, ScalarType::b32}, {g.shared_operand({}, slot)});
  TensorMemoryView view{op.result()->type.dtype,    layout, {}, 0, 0, static_cast<int>(columns),
                        static_cast<int>(cta_group)};
  view.base = g.ints().leaf(kTensorBase, address.id, address, false, {0, kMostColumns - 1, 1}, e.depth());
  g.bind(op.result(), std::move(view));
}

void emit_Tcgen05Dealloc(Generator& g, const ir::Op& op) {
  const TensorMemoryView& view = g.get<TensorMemoryView>(op.operands[0]);
  in_first_warp(g, op, [&] {
    g.e().emit(Op::tcgen05_dealloc, {group_word(view.cta_group), Mod::sync, Mod::aligned, ScalarType::b32},
               {view.base.value, view.columns});
  });
}

void emit_Tcgen05RelinquishAllocPermit(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tensor memory");
  in_first_warp(g, op, [&] {
    g.e().emit(Op::tcgen05_relinquish_alloc_permit,
               {group_word(op.int_attr("cta_group", 1)), Mod::sync, Mod::aligned}, {});
  });
}

void emit_Tcgen05Load(Generator& g, const ir::Op& op) {
  const Transfer transfer(g, op, g.get<TensorMemoryView>(op.operands[0]), g.layout_of(op.result()));
  const Integer address = transfer.address();
  RegisterTensor result = g.new_tensor(op.result());
  for (const TransferRun& run : transfer.runs()) {
    std::vector<Operand> registers;
    for (int64_t word : run.words) registers.push_back(result.words[word]);
    std::vector<Operand> operands = transfer.place(address, run);
    operands.insert(operands.begin(), g.e().builder().vec(registers));
    g.e().emit(Op::tcgen05_ld, transfer.suffixes(run, Mod::pack_16b), operands);
  }
  g.bind(op.result(), std::move(result));
}

void emit_Tcgen05Store(Generator& g, const ir::Op& op) {
  const RegisterTensor& value = g.get<RegisterTensor>(op.operands[1]);
  const Transfer transfer(g, op, g.get<TensorMemoryView>(op.operands[0]), value.layout);
  const Integer address = transfer.address();
  for (const TransferRun& run : transfer.runs()) {
    std::vector<Operand> registers;
    for (int64_t word : run.words)
      registers.push_back(g.e().to_register(word_type(value.dtype), value.words[word]));
    std::vector<Operand> operands = transfer.place(address, run);
    operands.push_back(g.e().builder().vec(registers));
    g.e().emit(Op::tcgen05_st, transfer.suffixes(run, Mod::unpack_16b), operands);
  }
}

}  // namespace imbrex::codegen
