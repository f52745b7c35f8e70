// SPDX-License-Identifier: Apache-2.0
// Tensor memory: allocation, and transfers to and from registers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/tile.h"
#include "imbrex/error.h"

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

/// One tcgen05.ld or .st: `words` consecutive registers and as many columns (twice as many with 16-bit
/// packing).
struct TransferRun {
  int64_t first_word;  // index into the words in column order
  int64_t count;
  int64_t column;
};

/// How the registers of a layout lie along tensor-memory columns.
class Transfer {
 public:
  Transfer(Generator& g, const ir::Op& op, const TensorMemoryView& view, const layout::Layout& registers)
      : g_(g), op_(op), view_(view), tile_(g, op, registers, g.group()) {
    const std::optional<std::vector<MemoryTerm>> terms = memory_terms(tile_.digits(), view.layout);
    if (!terms) refuse("the layouts cut the tensor at places that do not nest");
    terms_ = *terms;
    check_lanes();
    order_words();
  }

  /// Tensor-memory address of this warp's lanes, at the view's first column.
  Integer address() const {
    Integers& ints = g_.ints();
    const Integer warp = ints.sub(g_.warp_index(), Integers::constant(g_.group().begin / 32));
    // The lanes a warp can reach follow from its rank in the CTA.
    Integer quarter = ints.and_mask(g_.warp_index(), 3);
    if (g_.group().threads == 32 && g_.function().warps == 1) quarter = Integers::constant(0);
    Integer sum = ints.add(view_.base, Integers::constant(view_.lane << 16 | view_.column));
    sum = ints.add(sum, ints.shift_left(quarter, 21));
    for (const MemoryTerm& t : terms_) {
      if (t.digit.axis != Axis::kThread || t.axis != Axis::kColumn) continue;
      if (t.digit.divisor % 32 != 0) refuse("threads of one warp hold different columns");
      Integer digit = ints.div(warp, t.digit.divisor / 32);
      if (t.digit.modulus) digit = ints.rem(digit, t.digit.modulus);
      sum = ints.add(sum, ints.mul(digit, Integers::constant(t.stride * view_.dtype.bits() / 32)));
    }
    return sum;
  }

  const std::vector<int64_t>& words() const { return words_; }  // word numbers in column order
  const std::vector<TransferRun>& runs() const { return runs_; }
  bool packs_halves() const { return packs_; }

  std::vector<Suffix> suffixes(const TransferRun& run) const {
    const Mod counts[] = {Mod::x1, Mod::x2, Mod::x4, Mod::x8, Mod::x16, Mod::x32, Mod::x64, Mod::x128};
    return {Mod::sync, Mod::aligned, Mod::_32x32b,
            counts[std::countr_zero(static_cast<uint64_t>(run.count))]};
  }

  [[noreturn]] void refuse(const std::string& why) const {
    g_.fail(op_, "no shape of tcgen05.ld and .st moves between these layouts: " + why,
            {"registers      " + tile_.layout().to_string(), "tensor memory  " + view_.layout.to_string()},
            "let the layout be inferred: thread i of a warp group holds lane i");
  }

 private:
  /// Thread i of a warp group must hold lane i, counted from the first warp that reaches lane 0.
  void check_lanes() const {
    if (view_.lane != 0) refuse("the view does not start at lane 0");
    if (g_.group().threads % kLanes != 0 || g_.group().begin % kLanes != 0)
      refuse(fmt::format("the thread group is {} ... {}, not whole warp groups", g_.group().begin,
                         g_.group().begin + g_.group().threads - 1));
    for (const MemoryTerm& t : terms_)
      if (t.axis == Axis::kLane && t.digit.axis == Axis::kRegister) refuse("a thread holds several lanes");
    for (int64_t thread = 0; thread < g_.group().threads; ++thread) {
      int64_t lane = 0;
      for (const MemoryTerm& t : terms_)
        if (t.axis == Axis::kLane) lane += t.digit.of(thread) * t.stride;
      if (lane != thread % kLanes) refuse(fmt::format("thread {} holds lane {}", thread, lane));
    }
  }

  /// Words by column, in runs of consecutive columns whose lengths are powers of two.
  void order_words() {
    const int64_t bits = view_.dtype.bits();
    const int per_word = elements_per_word(view_.dtype);
    std::vector<std::pair<int64_t, int64_t>> columns;  // column, word
    for (int64_t r = 0; r < tile_.layout().registers(); ++r) {
      int64_t element = 0;
      for (const MemoryTerm& t : terms_)
        if (t.axis == Axis::kColumn && t.digit.axis == Axis::kRegister) element += t.digit.of(r) * t.stride;
      if (bits >= 32) {
        columns.emplace_back(element * (bits / 32), r);
        continue;
      }
      const int64_t slot = element * bits;  // bit along the lane
      const int64_t first = r / per_word * per_word;
      if (r == first) {
        columns.emplace_back(slot / 32, r / per_word);
        if (slot % 32 != 0) refuse("a register starts inside a column");
        continue;
      }
      const int64_t step = slot - columns.back().first * 32;
      if (step == (r - first) * bits) continue;  // packed in one column
      if (bits == 16 && step == 32)
        packs_ = true;  // one in each of two columns
      else
        refuse("elements that share a register are not neighbours in tensor memory");
    }
    if (bits == 64) refuse("64-bit elements");
    std::sort(columns.begin(), columns.end());
    const int64_t step = packs_ ? 2 : 1;
    for (size_t i = 0; i < columns.size();) {
      size_t end = i + 1;
      while (end < columns.size() && columns[end].first == columns[end - 1].first + step) ++end;
      while (i < end) {
        const int64_t count =
            std::min<int64_t>(128, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(end - i))));
        runs_.push_back({static_cast<int64_t>(i), count, columns[i].first});
        i += static_cast<size_t>(count);
      }
    }
    for (const auto& [column, word] : columns) words_.push_back(word);
  }

  Generator& g_;
  const ir::Op& op_;
  const TensorMemoryView& view_;
  Tile tile_;
  std::vector<MemoryTerm> terms_;
  std::vector<int64_t> words_;
  std::vector<TransferRun> runs_;
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
  // The hardware has written the address to shared memory; everybody reads it there.
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
  const TensorMemoryView& view = g.get<TensorMemoryView>(op.operands[0]);
  const layout::Layout& layout = g.layout_of(op.result());
  const Transfer transfer(g, op, view, layout);
  const Integer address = transfer.address();
  RegisterTensor result = g.new_tensor(op.result());
  for (const TransferRun& run : transfer.runs()) {
    std::vector<Suffix> words = transfer.suffixes(run);
    if (transfer.packs_halves()) words.push_back(Mod::pack_16b);
    words.push_back(ScalarType::b32);
    std::vector<Operand> registers;
    for (int64_t i = 0; i < run.count; ++i)
      registers.push_back(result.words[transfer.words()[run.first_word + i]]);
    g.e().emit(Op::tcgen05_ld, words,
               std::array<Operand, 2>{g.e().builder().vec(registers),
                                      ptx::address(address.value.reg(), run.column)});
  }
  g.bind(op.result(), std::move(result));
}

void emit_Tcgen05Store(Generator& g, const ir::Op& op) {
  const TensorMemoryView& view = g.get<TensorMemoryView>(op.operands[0]);
  const RegisterTensor& value = g.get<RegisterTensor>(op.operands[1]);
  const Transfer transfer(g, op, view, value.layout);
  const Integer address = transfer.address();
  for (const TransferRun& run : transfer.runs()) {
    std::vector<Suffix> words = transfer.suffixes(run);
    if (transfer.packs_halves()) words.push_back(Mod::unpack_16b);
    words.push_back(ScalarType::b32);
    std::vector<Operand> registers;
    for (int64_t i = 0; i < run.count; ++i)
      registers.push_back(
          g.e().to_register(word_type(value.dtype), value.words[transfer.words()[run.first_word + i]]));
    g.e().emit(Op::tcgen05_st, words,
               std::array<Operand, 2>{ptx::address(address.value.reg(), run.column),
                                      g.e().builder().vec(registers)});
  }
}

}  // namespace imbrex::codegen
