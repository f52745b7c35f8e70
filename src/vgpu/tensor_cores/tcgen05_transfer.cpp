// SPDX-License-Identifier: Apache-2.0
// tcgen05.ld, st and their waits: between a warp's registers and its quarter of tensor memory,
// asynchronously.
#include <fmt/format.h>

#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/tensor_unit.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

struct TransferForm {
  AddressSource at;  // a 32-bit tensor-memory address
  TensorShape shape;
  uint32_t repeat;
  uint32_t half_split = 0;
  bool packed;  // .pack::16b, .unpack::16b: two columns per register
  std::vector<Slot> registers;
  std::vector<uint32_t> numbers;  // dense register numbers of a load's destinations

  uint32_t width() const { return packed ? 2 : 1; }  // columns a register
  /// Columns from the address on that it reaches. The split counts columns, packed or not.
  uint32_t columns() const { return columns_of(shape, repeat, 0) * width() + half_split; }
};

// Where register r of thread t goes, and with .pack its second half one column on.
TensorAddress cell(const TransferForm& form, TensorAddress at, uint32_t t, uint32_t r) {
  const TensorAddress c = cell_of(form.shape, t, r, 0);
  return {at.lane + c.lane, at.column + c.column * form.width() + (t < kWarpSize / 2 ? 0 : form.half_split)};
}

class Transfer : public AsyncOp {
 public:
  Transfer(Who who, Warp& warp, const TransferForm& form, TensorAddress at)
      : AsyncOp(who), warp_(&warp), form_(&form), at_(at) {}

 protected:
  std::string text(const char* verb) const {
    return fmt::format("tcgen05.{} of lanes {} on, columns {} to {}", verb, at_.lane, at_.column,
                       at_.column + form_->columns() - 1);
  }
  int64_t bytes() const { return static_cast<int64_t>(form_->registers.size()) * kWarpSize * 4; }
  void touch_cells(Observers& observe, TensorAccess kind) const {
    const uint32_t lanes = form_->shape == TensorShape::k32x32b ? 32 : 16;
    if (const uint32_t columns = form_->repeat * form_->width();
        form_->shape == TensorShape::k16x32bx2 && form_->half_split > columns) {
      // Two blocks of columns with others in between.
      for (const uint32_t block : {uint32_t{0}, form_->half_split})
        observe.tensor_touched(who, warp_->cta(), at_.lane, lanes, at_.column + block, columns, kind);
      return;
    }
    observe.tensor_touched(who, warp_->cta(), at_.lane, lanes, at_.column, form_->columns(), kind);
  }
  /// Each thread's registers are neighbouring columns of its own lane.
  bool is_plain() const { return form_->shape == TensorShape::k32x32b && !form_->packed; }
  TensorUnit& unit() const { return tensor_unit(warp_->cta()); }
  TensorUnit::Transfers& transfers() const { return unit().transfers_of(warp_->index()); }

  Warp* warp_;
  const TransferForm* form_;
  TensorAddress at_;
};

class Load : public Transfer {
 public:
  using Transfer::Transfer;

  bool run(Cluster& cluster) override {
    TensorMemory& memory = unit().memory;
    if (cluster.checks().uninitialized) note_unwritten(memory);
    const auto count = static_cast<uint32_t>(form_->registers.size());
    for (uint32_t t = 0; t < kWarpSize && is_plain(); ++t) {
      const uint32_t* const row = memory.row(at_.lane + t) + at_.column;
      for (uint32_t r = 0; r < count; ++r) warp_->reg<uint32_t>(form_->registers[r])[t] = row[r];
    }
    for (uint32_t r = 0; r < count && !is_plain(); ++r) {
      uint32_t* to = warp_->reg<uint32_t>(form_->registers[r]);
      for (uint32_t t = 0; t < kWarpSize; ++t) {
        const TensorAddress c = cell(*form_, at_, t, r);
        to[t] = form_->packed ? (memory.at(c.lane, c.column) & 0xFFFF) | memory.at(c.lane, c.column + 1) << 16
                              : memory.at(c.lane, c.column);
      }
    }
    touch_cells(cluster.observe(), TensorAccess::kRead);
    --transfers().loads;
    cluster.note_progress();
    return true;
  }
  std::string describe() const override { return text("ld"); }
  WorkDemand demand() const override { return {.kind = WorkDemand::Kind::kTensorLoad, .bytes = bytes()}; }
  Completion completion() const override { return {CompletedBy::kWaitLoad}; }

 private:
  /// Cells that nobody has written are found where what was loaded from them is used.
  void note_unwritten(const TensorMemory& memory) {
    bool all = is_plain();
    for (uint32_t t = 0; all && t < kWarpSize; ++t)
      all = memory.is_defined(at_.lane + t, at_.column, form_->columns());
    if (all) return;
    for (uint32_t r = 0; r < form_->registers.size(); ++r) {
      Mask lanes = 0;
      for (uint32_t t = 0; t < kWarpSize; ++t) {
        const TensorAddress c = cell(*form_, at_, t, r);
        if (memory.is_defined(c.lane, c.column, form_->width())) continue;
        Warp::UnwrittenLoad& found = warp_->unwritten_loads()[who.insn->index];
        if (lanes == 0) found = {"tensor", 4 * form_->width(), {}};
        found.addresses[t] = TensorAddress{c.lane, c.column}.bits();
        lanes |= lane_bit(static_cast<int>(t));
      }
      // A register that is thrown away (_) has no number.
      if (lanes != 0 && form_->numbers.size() == form_->registers.size())
        transfers().unwritten.push_back({form_->numbers[r], lanes, who.insn});
    }
  }
};

class Store : public Transfer {
 public:
  Store(Who who, Warp& warp, const TransferForm& form, TensorAddress at)
      : Transfer(who, warp, form, at), values_(form.registers.size() * kWarpSize) {
    for (size_t r = 0; r < form.registers.size(); ++r)
      std::copy_n(warp.reg<uint32_t>(form.registers[r]), kWarpSize,
                  values_.begin() + static_cast<int64_t>(r * kWarpSize));
  }

  bool run(Cluster& cluster) override {
    TensorMemory& memory = unit().memory;
    const uint32_t width = form_->width();
    if (is_plain()) {
      const auto count = static_cast<uint32_t>(form_->registers.size());
      for (uint32_t t = 0; t < kWarpSize; ++t) {
        uint32_t* const row = memory.row(at_.lane + t) + at_.column;
        for (uint32_t r = 0; r < count; ++r) row[r] = values_[r * kWarpSize + t];
        memory.define(at_.lane + t, at_.column, count);
      }
      memory.set_result(at_.column, count, {});
    }
    for (uint32_t r = 0; r < form_->registers.size() && !is_plain(); ++r)
      for (uint32_t t = 0; t < kWarpSize; ++t) {
        const TensorAddress c = cell(*form_, at_, t, r);
        const uint32_t value = values_[r * kWarpSize + t];
        memory.at(c.lane, c.column) = form_->packed ? value & 0xFFFF : value;
        if (form_->packed) memory.at(c.lane, c.column + 1) = value >> 16;
        memory.define(c.lane, c.column, width);
        memory.set_result(c.column, width, {});
      }
    touch_cells(cluster.observe(), TensorAccess::kWrite);
    --transfers().stores;
    cluster.note_progress();
    return true;
  }
  std::string describe() const override { return text("st"); }
  WorkDemand demand() const override { return {.kind = WorkDemand::Kind::kTensorStore, .bytes = bytes()}; }
  Completion completion() const override { return {CompletedBy::kWaitStore}; }

 private:
  std::vector<uint32_t> values_;  // the registers at the time of issue
};

// The one address of a warp-wide instruction, or false after a finding.
bool resolve(Warp& warp, const Instruction& insn, const TransferForm& form, Mask active, TensorAddress& at) {
  Cluster& cluster = warp.cta().cluster();
  const int lane = first_lane(active);
  const auto bits = static_cast<uint32_t>(warp.address(form.at, lane));
  const Who who = warp.thread(insn, -1);
  bool uniform = true;
  for_each_lane(active,
                [&](int l) { uniform = uniform && static_cast<uint32_t>(warp.address(form.at, l)) == bits; });
  if (!uniform) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, bits,
                         "the tensor-memory address differs between the lanes of the warp");
    return false;
  }
  at = TensorAddress::from_bits(bits);
  if (at.lane == 0) at.lane = static_cast<uint32_t>(warp.index()) % 4 * kWarpSize;  // each warp's own quarter
  if (const std::string why = refuse_address(form.shape, at, warp.index()); !why.empty()) {
    cluster.report_fatal(FindingKind::kTensorMemory, who, bits, why);
    return false;
  }
  return check_allocated(cluster, who, warp.cta(), at.column, form.columns());
}

template <class Operation>
Step exec_transfer(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const TransferForm& form = insn.form<TransferForm>();
  Cluster& cluster = warp.cta().cluster();
  TensorAddress at;
  if (!resolve(warp, insn, form, active, at)) return Step::kNext;
  TensorUnit::Transfers& transfers = tensor_unit(warp.cta()).transfers_of(warp.index());
  constexpr bool kIsLoad = std::is_same_v<Operation, Load>;
  ++(kIsLoad ? transfers.loads : transfers.stores);
  if (kIsLoad && !warp.defined().empty()) {
    for (uint32_t number : form.numbers) {
      std::erase_if(transfers.unwritten, [&](const auto& cells) { return cells.number == number; });
      warp.defined()[number] = 0;
      transfers.unwaited.push_back(number);
    }
  }
  cluster.statistics().tensor_memory_bytes += static_cast<int64_t>(form.registers.size()) * kWarpSize * 4;
  cluster.async().submit(std::make_unique<Operation>(
      warp.thread(insn, -1).as_unit(kIsLoad ? "tcgen05.ld" : "tcgen05.st"), warp, form, at));
  return Step::kNext;
}

template <bool kLoads>
bool is_drained(Warp& warp, const Wait&) {
  const TensorUnit::Transfers& transfers = tensor_unit(warp.cta()).transfers_of(warp.index());
  return (kLoads ? transfers.loads : transfers.stores) == 0;
}

template <bool kLoads>
std::string describe_drain(Warp&, const Wait&) {
  return fmt::format("for its tcgen05.{} to finish", kLoads ? "ld" : "st");
}

template <bool kLoads>
Step exec_wait(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  Wait wait;
  wait.ready = is_drained<kLoads>;
  wait.describe = describe_drain<kLoads>;
  if (!is_drained<kLoads>(warp, wait)) return warp.wait_and_retry(active, wait);
  warp.cta().cluster().observe().waited_for_transfers(
      warp.threads(insn, active), kLoads ? CompletedBy::kWaitLoad : CompletedBy::kWaitStore);
  if (kLoads) {
    std::vector<uint32_t>& unwaited = tensor_unit(warp.cta()).transfers_of(warp.index()).unwaited;
    for (uint32_t number : unwaited)
      if (warp.defined()[number] != 0)
        warp.cta().cluster().report(FindingKind::kAsyncInFlight, warp.thread(insn, -1), 0,
                                    "a register of a tcgen05.ld was written before it was waited for",
                                    "tcgen05.wait::ld before the write", BentRule::kRegisterWait);
    for (uint32_t number : unwaited) warp.defined()[number] = kAllLanes;
    unwaited.clear();
    note_unwritten_cells(warp);
  }
  return Step::kNext;
}

bool decode_transfer(Decoder& decoder, Instruction& out) {
  const bool is_load = decoder.op() == Op::tcgen05_ld;
  TransferForm form;
  form.at = decoder.address(is_load ? 1 : 0);
  switch (decoder.insn().one_of({Mod::_32x32b, Mod::_16x64b, Mod::_16x128b, Mod::_16x256b}, Mod::_16x32bx2)) {
    case Mod::_32x32b:
      form.shape = TensorShape::k32x32b;
      break;
    case Mod::_16x64b:
      form.shape = TensorShape::k16x64b;
      break;
    case Mod::_16x128b:
      form.shape = TensorShape::k16x128b;
      break;
    case Mod::_16x256b:
      form.shape = TensorShape::k16x256b;
      break;
    default:
      form.shape = TensorShape::k16x32bx2;
  }
  const Mod repeats[] = {Mod::x1, Mod::x2, Mod::x4, Mod::x8, Mod::x16, Mod::x32, Mod::x64, Mod::x128};
  form.repeat = 0;
  for (uint32_t i = 0; i < 8; ++i)
    if (decoder.has(repeats[i])) form.repeat = 1u << i;
  form.packed = decoder.has(Mod::pack_16b) || decoder.has(Mod::unpack_16b);
  const bool has_split = form.shape == TensorShape::k16x32bx2;
  if (has_split)
    form.half_split = static_cast<uint32_t>(decoder.immediate(is_load ? 2 : 1, "immHalfSplitoff"));

  const ptx::Operand& data = decoder.operand(is_load ? 0 : has_split ? 2 : 1);
  const std::span<const ptx::Operand> elements =
      data.kind == ptx::OperandKind::vector ? decoder.elements(data) : std::span(&data, 1);
  const uint32_t expected = registers_of(form.shape, form.repeat);
  if (elements.size() != expected || expected > 128)
    decoder.refuse(fmt::format("{} registers given, this shape takes {}{}", elements.size(), expected,
                               expected > 128 ? ", and no instruction takes more than 128" : ""));
  for (const ptx::Operand& element : elements) {
    form.registers.push_back(is_load ? decoder.late_destination(element, form.numbers)
                                     : decoder.source(element, ScalarType::b32));
  }
  out.extra = decoder.keep(std::move(form));
  set_body(out, is_load ? exec_transfer<Load> : exec_transfer<Store>);
  return true;
}

}  // namespace

bool decode_tcgen05_transfer(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::tcgen05_ld:
    case Op::tcgen05_st:
      return decode_transfer(decoder, out);
    case Op::tcgen05_wait_ld:
      set_body(out, exec_wait<true>);
      return true;
    case Op::tcgen05_wait_st:
      set_body(out, exec_wait<false>);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
