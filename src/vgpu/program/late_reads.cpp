// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/late_reads.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

namespace imbrex::vgpu {

namespace {

/// How far behind a load its first use is looked for.
constexpr size_t kReach = 4096;

bool has(std::string_view text, std::string_view mnemonic) { return text.find(mnemonic) != text.npos; }

bool is_barrier(std::string_view text) { return has(text, "bar.sync") || has(text, "barrier.sync"); }
bool sets_flag(std::string_view text) { return has(text, "st.relaxed") || has(text, "st.volatile"); }
bool gives_back(std::string_view text) { return has(text, "mbarrier.arrive") && !has(text, "expect_tx"); }

/// The values of a load that nothing has used so far, going on instruction by instruction.
class Unused {
 public:
  Unused(const Program& program, uint32_t load) : program_(program) {
    for (const uint32_t number : registers(load, true)) left_.insert(number);
    left_.erase(0);
  }
  bool empty() const { return left_.empty(); }
  void pass(uint32_t at, std::string_view text) {
    bool used = false;
    for (const uint32_t number : registers(at, false)) used |= left_.erase(number) != 0;
    // The assembler keeps a value that is moved where it is.
    const bool moves = used && has(text, "mov.");
    for (const uint32_t number : registers(at, true))
      if (moves)
        left_.insert(number);
      else
        left_.erase(number);
  }

 private:
  std::span<const uint32_t> registers(uint32_t at, bool written) const {
    const DefinedUse& use = program_.uses[at];
    const std::span<const uint32_t> all(program_.use_numbers.data() + use.first, use.all);
    return written ? all.subspan(use.reads) : all.first(use.reads);
  }

  const Program& program_;
  std::set<uint32_t> left_;
};

std::string_view text_of(const Program& program, uint32_t at) {
  const auto line = static_cast<size_t>(program.info[at].ptx_line);
  return program.text == nullptr || line == 0 || line > program.text->size() ? std::string_view()
                                                                             : (*program.text)[line - 1];
}

uint32_t end_of_reach(const Program& program, uint32_t load) {
  return static_cast<uint32_t>(std::min(program.code.size(), load + kReach));
}

}  // namespace

uint32_t used_behind(const Program& program, uint32_t load) {
  Unused unused(program, load);
  const uint32_t end = end_of_reach(program, load);
  for (uint32_t at = load + 1; at < end && !unused.empty(); ++at) {
    const std::string_view text = text_of(program, at);
    if (gives_back(text)) return kBehindArrival;
    // Where others follow it, the load has come by the time that the last one is passed.
    if (is_barrier(text)) return at;
    unused.pass(at, text);
  }
  return kUsedInTime;
}

bool used_before_flag(const Program& program, uint32_t load) {
  Unused unused(program, load);
  bool barrier_before_use = false, barrier_since = false;
  const uint32_t end = end_of_reach(program, load);
  for (uint32_t at = load + 1; at < end; ++at) {
    const std::string_view text = text_of(program, at);
    if (sets_flag(text)) return unused.empty() && (!barrier_before_use || barrier_since);
    if (is_barrier(text) || has(text, "bar.warp.sync") || gives_back(text))
      (unused.empty() ? barrier_since : barrier_before_use) = true;
    unused.pass(at, text);
  }
  return false;
}

bool asks_l1(const Program& program, uint32_t load) {
  const std::string_view text = text_of(program, load);
  if (has(text, "cp.async")) return has(text, "cp.async.ca");
  const bool is_strong = has(text, ".volatile") || has(text, ".relaxed") || has(text, ".acquire");
  const bool reaches_others = has(text, ".gpu") || has(text, ".sys") || has(text, ".volatile");
  return !(is_strong && reaches_others) && !has(text, ".cg") && !has(text, ".cv");
}

}  // namespace imbrex::vgpu
