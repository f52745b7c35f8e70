// SPDX-License-Identifier: Apache-2.0
#include "ptx/register_pressure.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/target.h"
#include "ptx/insns.h"
#include "ptx/operands.h"
#include "ptx/reader.h"
#include "ptx/uniform_registers.h"

namespace imbrex::ptx {
namespace {

using Set = std::vector<bool>;

/// The accumulator of wgmma is read as well as written, in one operand.
bool reads_its_result(const Instruction& i) { return ptx::name(i.op).starts_with("wgmma.mma_async"); }

struct Liveness {
  const Function& f;
  std::vector<std::vector<size_t>> successors;  // of instruction i

  explicit Liveness(const Function& function) : f(function), successors(function.body.size()) {
    for (size_t i = 0; i < f.body.size(); ++i) {
      const Instruction& insn = f.body[i];
      const std::string_view mnemonic = ptx::name(insn.op);
      const bool leaves = mnemonic == "ret" || mnemonic == "exit" || mnemonic == "trap";
      if (mnemonic.starts_with("bra") || mnemonic.starts_with("brx"))
        for (const Operand& o : f.operands_of(insn)) {
          if (o.ref == ptx::Ref::label) add(i, f.labels[o.id].position);
          if (o.ref == ptx::Ref::target_list)
            for (uint32_t label : f.target_lists[o.id].targets) add(i, f.labels[label].position);
        }
      const bool goes_on =
          insn.guard.is_valid() || !(leaves || mnemonic == "bra" || mnemonic.starts_with("brx"));
      if (goes_on) add(i, i + 1);
    }
  }
  void add(size_t from, size_t to) {
    if (to < f.body.size()) successors[from].push_back(to);
  }

  /// Calls set(id, whether it is live before the instruction) for the registers of the instruction; the last call counts.
  template <class SetLive>
  void step(const Instruction& insn, SetLive&& set) const {
    const std::string kinds = ptx::slot_kinds(insn);
    const auto operands = f.operands_of(insn);
    const bool kills = !insn.guard.is_valid() && !reads_its_result(insn);
    for (size_t slot = 0; slot < operands.size(); ++slot)
      if (ptx::is_written(kinds, slot))
        ptx::each_register(f, operands[slot], [&](uint32_t id, bool in_address) {
          if (!in_address && kills) set(id, false);
        });
    for (size_t slot = 0; slot < operands.size(); ++slot)
      ptx::each_register(f, operands[slot], [&](uint32_t id, bool in_address) {
        if (in_address || !ptx::is_written(kinds, slot) || reads_its_result(insn)) set(id, true);
      });
    if (insn.guard.is_valid()) set(insn.guard.id, true);
  }
};

bool is_shared_load(const Instruction& i) {
  return i.op == ptx::Op::ldmatrix || (i.op == ptx::Op::ld && i.has(ptx::Mod::shared));
}

/// What loads of shared memory are not moved across.
bool orders_shared_memory(const Instruction& i) {
  static constexpr std::string_view kNames[] = {"bar",  "fence", "membar",   "mbarrier", "cp.async",
                                                "atom", "red",   "stmatrix", "wgmma",    "call"};
  if (i.op == ptx::Op::st) return i.has(ptx::Mod::shared);
  const std::string_view name = ptx::name(i.op);
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view word) { return name.starts_with(word); });
}

/// So many instructions before its place the assembler issues a load of shared memory, where its address, the
/// barriers and the start of the run allow it. Found by comparing with ptxas 13.0 over the kernel library.
constexpr size_t kLookAhead = 16;
/// Registers that ptxas takes on sm_100 beside what is live (the same comparison).
constexpr int64_t kSystemRegisters = 3;

/// For the loads of [first, end) that move up: the instruction they then stand before.
std::map<size_t, size_t> earliest_loads(const Function& f, size_t first, size_t end) {
  std::map<size_t, size_t> earliest;
  std::vector<size_t> defined(f.registers.size(), first);
  size_t ordered = first;
  for (size_t i = first; i < end; ++i) {
    const Instruction& insn = f.body[i];
    if (is_shared_load(insn)) {
      size_t at = std::max(ordered, i > kLookAhead ? i - kLookAhead : 0);
      for (const Operand& o : f.operands_of(insn))
        ptx::each_register(f, o, [&](uint32_t id, bool) { at = std::max(at, defined[id]); });
      if (insn.guard.is_valid()) at = std::max(at, defined[insn.guard.id]);
      if (at < i) earliest[i] = at;
    }
    if (orders_shared_memory(insn)) ordered = i + 1;
    ptx::each_result(f, insn, [&](uint32_t id) { defined[id] = i + 1; });
  }
  return earliest;
}

/// Choices between two constants that only say how many bytes cp.async reads: in machine code the copy takes
/// the condition itself.
Set copied_sizes(const Function& f) {
  Set sizes(f.registers.size());
  for (const Instruction& i : f.body) {
    const auto operands = f.operands_of(i);
    if (i.op == ptx::Op::selp && operands[1].is_immediate() && operands[2].is_immediate())
      ptx::each_result(f, i, [&](uint32_t id) { sizes[id] = true; });
  }
  constexpr size_t kSourceBytes = 3;
  for (const Instruction& i : f.body) {
    const std::string kinds = ptx::slot_kinds(i);
    const auto operands = f.operands_of(i);
    for (size_t slot = 0; slot < operands.size(); ++slot)
      if (!(i.op == ptx::Op::cp_async && slot == kSourceBytes) &&
          !(i.op == ptx::Op::selp && ptx::is_written(kinds, slot)))
        ptx::each_register(f, operands[slot], [&](uint32_t id, bool) { sizes[id] = false; });
  }
  return sizes;
}

/// The limits of the PTX's target. PTX of another compiler may name one that Imbrex does not compile for; what is
/// read here, the register file, is the same for every target so far.
const imbrex::Target& limits_of(std::string_view target) {
  const imbrex::Target* known = find_target(target);
  return known != nullptr ? *known : *find_target("sm_80");
}

/// What is live before each instruction of a straight run [first, end), and what that weighs. It is kept by registers: sets
/// for all instructions would grow with the square of the run.
struct Run {
  size_t first, end;
  Set after;  // what is live behind the run
  std::unordered_map<uint32_t, std::vector<size_t>>
      changes;  // where a register becomes live or dead, from the end on
  std::map<std::pair<size_t, uint32_t>, bool> moved;  // what set() says of instructions and registers
  std::vector<int64_t> live, estimate;                // weights before instruction first + i

  bool is_live(size_t i, uint32_t id) const {
    if (const auto known = moved.find({i, id}); known != moved.end()) return known->second;
    const auto found = changes.find(id);
    if (found == changes.end()) return after[id];
    const auto behind = std::upper_bound(found->second.begin(), found->second.end(), i, std::greater());
    return after[id] != ((behind - found->second.begin()) % 2 == 1);
  }
  /// Takes the register to be live, or not, before instruction i.
  void set(size_t i, uint32_t id, bool lives, int64_t weight) {
    if (is_live(i, id) == lives) return;
    moved[{i, id}] = lives;
    estimate[i - first] += lives ? weight : -weight;
  }
  int64_t most() const { return *std::max_element(estimate.begin(), estimate.end()); }
};

/// Sums over the instructions of a kernel, run by run.
class Measure {
 public:
  Measure(const Function& function, std::string_view target) : f_(function), limits_(limits_of(target)) {
    for (const ptx::Register& r : f_.registers)
      weight_.push_back(r.type == ptx::ScalarType::pred ? 0 : std::max(1, ptx::bits(r.type) / 32));
    thread_weight_ = weight_;
    const Set sizes = copied_sizes(f_);
    for (size_t r = 0; r < sizes.size(); ++r)
      if (sizes[r]) thread_weight_[r] = 0;
    const std::optional<ptx::Target> parsed = ptx::Target::parse(target);
    has_warp_registers_ = parsed && parsed->sm >= 100;
    if (!has_warp_registers_) return;
    const Set uniform = uniform_registers(f_);
    for (size_t r = 0; r < uniform.size(); ++r)
      if (uniform[r]) thread_weight_[r] = 0;
  }

  /// The run [first, end), behind which `now` is live; leaves what is live before it in `now`.
  void add_run(const Liveness& liveness, size_t first, size_t end, Set& now) {
    Run run{first, end, now, {}, {}, std::vector<int64_t>(end - first), std::vector<int64_t>(end - first)};
    int64_t live = sum(now, weight_), estimate = sum(now, thread_weight_);
    for (size_t i = end; i-- > first;) {
      liveness.step(f_.body[i], [&](uint32_t id, bool lives) {
        if (now[id] == lives) return;
        now[id] = lives;
        run.changes[id].push_back(i);
        live += lives ? weight_[id] : -weight_[id];
        estimate += lives ? thread_weight_[id] : -thread_weight_[id];
      });
      run.live[i - first] = live;
      run.estimate[i - first] = estimate;
    }
    for (size_t i = first; i < end; ++i) {
      live = run.live[i - first];
      if (i > first && f_.body[i - 1].op == ptx::Op::call)
        result_.across_calls = std::max(result_.across_calls, live);
      if (live <= result_.live) continue;
      result_.live = live;
      if (const uint32_t loc = f_.body[i].loc; loc != Instruction::kNone) {
        result_.line = f_.locs[loc].line;
        result_.file = f_.locs[loc].file;
      }
    }
    for (const auto& [load, at] : earliest_loads(f_, first, end))
      for (size_t i = at + 1; i <= load; ++i)
        ptx::each_result(f_, f_.body[load], [&](uint32_t id) { run.set(i, id, true, thread_weight_[id]); });
    if (run.most() > limits_.max_registers_per_thread) postpone_tensor_loads(run);
    result_.estimate = std::max(result_.estimate, run.most());
  }

  RegisterPressure result() const {
    RegisterPressure result = result_;
    if (has_warp_registers_) result.estimate += kSystemRegisters;
    const bool takes_shares = std::any_of(f_.body.begin(), f_.body.end(),
                                          [](const Instruction& i) { return i.op == ptx::Op::setmaxnreg; });
    const std::array<int, 3>& block = f_.reqntid[0] > 0 ? f_.reqntid : f_.maxntid;
    const int64_t threads = int64_t{block[0]} * block[1] * block[2];
    constexpr int64_t kUnit = 8;
    if (takes_shares && threads > 0) result.estimate = limits_.registers_per_sm / threads / kUnit * kUnit;
    if (f_.maxnreg > 0) result.estimate = std::min<int64_t>(result.estimate, f_.maxnreg);
    return result;
  }

 private:
  /// What does not fit is loaded from tensor memory later, whatever the PTX waits for together: the assembler
  /// moves a load behind the uses of the one before, where its registers become free.
  void postpone_tensor_loads(Run& run) const {
    std::vector<size_t> first_use(f_.registers.size(), run.end);
    for (size_t i = run.end; i-- > run.first;) {
      const Instruction& insn = f_.body[i];
      if (ptx::name(insn.op).starts_with("tcgen05.ld")) {
        size_t use = run.end;
        ptx::each_result(f_, insn, [&](uint32_t id) { use = std::min(use, first_use[id]); });
        for (size_t j = i + 1; use < run.end && j < use; ++j)
          ptx::each_result(f_, insn, [&](uint32_t id) { run.set(j, id, false, thread_weight_[id]); });
        continue;
      }
      for (const Operand& o : f_.operands_of(insn))
        ptx::each_register(f_, o, [&](uint32_t id, bool) { first_use[id] = i; });
    }
  }
  static int64_t sum(const Set& set, const std::vector<int64_t>& weight) {
    int64_t sum = 0;
    for (size_t r = 0; r < set.size(); ++r) sum += set[r] ? weight[r] : 0;
    return sum;
  }
  const Function& f_;
  const imbrex::Target& limits_;
  std::vector<int64_t> weight_, thread_weight_;
  bool has_warp_registers_ = false;
  RegisterPressure result_;
};

}  // namespace

RegisterPressure register_pressure(const Function& function, std::string_view target) {
  const size_t n = function.body.size();
  const Liveness liveness(function);

  // Straight runs of instructions share one set: `live` holds what is live before each run's first
  // instruction.
  std::vector<bool> starts(n + 1, false);
  if (n > 0) starts[0] = true;
  for (size_t i = 0; i < n; ++i)
    if (liveness.successors[i] != std::vector<size_t>{i + 1}) {
      starts[i + 1] = true;
      for (size_t to : liveness.successors[i]) starts[to] = true;
    }
  std::vector<size_t> blocks;
  for (size_t i = 0; i < n; ++i)
    if (starts[i]) blocks.push_back(i);
  std::map<size_t, Set> live;
  for (size_t first : blocks) live[first] = Set(function.registers.size());

  Measure measure(function, target);
  auto sweep = [&](size_t block, bool measured) {
    const size_t first = blocks[block], end = block + 1 < blocks.size() ? blocks[block + 1] : n;
    Set now(function.registers.size());
    for (size_t to : liveness.successors[end - 1]) {
      const Set& other = live[to];
      for (size_t r = 0; r < now.size(); ++r) now[r] = now[r] || other[r];
    }
    if (measured)
      measure.add_run(liveness, first, end, now);
    else
      for (size_t i = end; i-- > first;)
        liveness.step(function.body[i], [&](uint32_t id, bool lives) { now[id] = lives; });
    return now;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t block = blocks.size(); block-- > 0;) {
      Set now = sweep(block, false);
      if (now == live[blocks[block]]) continue;
      live[blocks[block]] = std::move(now);
      changed = true;
    }
  }
  for (size_t block = 0; block < blocks.size(); ++block) sweep(block, true);
  return measure.result();
}

RegisterPressure register_pressure(std::string_view ptx, std::string_view kernel) {
  const ptx::Module module = ptx::read(ptx, kernel);
  RegisterPressure result = register_pressure(*module.find_function(kernel), module.target);
  for (const ptx::File& file : module.files)
    if (file.index == result.file) result.file_name = file.path;
  return result;
}

}  // namespace imbrex::ptx
