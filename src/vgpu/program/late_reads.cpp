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
bool gives_back(std::string_view text) { return has(text, "mbarrier.arrive") && !has(text, "expect_tx"); }

}  // namespace

uint32_t used_behind(const Program& program, uint32_t load) {
  const auto registers = [&](uint32_t at, bool written) {
    const DefinedUse& use = program.uses[at];
    const std::span<const uint32_t> all(program.use_numbers.data() + use.first, use.all);
    return written ? all.subspan(use.reads) : all.first(use.reads);
  };
  const auto text_of = [&](uint32_t at) -> std::string_view {
    const auto line = static_cast<size_t>(program.info[at].ptx_line);
    return program.text == nullptr || line == 0 || line > program.text->size() ? std::string_view()
                                                                               : (*program.text)[line - 1];
  };
  std::set<uint32_t> unused;
  for (const uint32_t number : registers(load, true)) unused.insert(number);
  unused.erase(0);
  const size_t end = std::min(program.code.size(), load + kReach);
  for (auto at = load + 1; at < end && !unused.empty(); ++at) {
    const std::string_view text = text_of(at);
    if (gives_back(text)) return kBehindArrival;
    // Where others follow it, the load has come by the time that the last one is passed.
    if (is_barrier(text)) return at;
    bool used = false;
    for (const uint32_t number : registers(at, false)) used |= unused.erase(number) != 0;
    // The assembler keeps a value that is moved where it is.
    const bool moves = used && has(text, "mov.");
    for (const uint32_t number : registers(at, true))
      if (moves)
        unused.insert(number);
      else
        unused.erase(number);
  }
  return kUsedInTime;
}

}  // namespace imbrex::vgpu
