// SPDX-License-Identifier: Apache-2.0
#include "runtime/assemble/ptxas_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "imbrex/core/nearest.h"
#include "runtime/assemble/ptx_lines.h"

namespace imbrex::runtime {
namespace {

/// What to change, by the remark's number.
struct Remedy {
  int code;
  const char* instruction;  // the PTX instruction it is about: where no line is given, its first use
  const char* help;
};
constexpr Remedy kRemedies[] = {
    {7504, "setmaxnreg",
     "ask for a number of registers that the kernel fits in, and build without debug information"},
    {7508, "setmaxnreg", "fix the registers at entry: give the CTA's number of warps, or max_registers()"},
    {7509, "wgmma.mma_async", "remove printf, check and unresolved calls from a kernel that uses wgmma"},
    {7510, "wgmma.mma_async", "remove function calls between a product and the wait for it"},
    {7511, "wgmma.mma_async",
     "use a smaller accumulator (block_n, or more consumer warp groups), or more registers by setmaxnreg"},
    {7512, "wgmma.mma_async",
     "use a smaller accumulator (block_n, or more consumer warp groups), or more registers by setmaxnreg"},
    {7513, "wgmma.mma_async", "wait for the product before its input registers are written again"},
    {7514, "wgmma.mma_async",
     "wait for all products (wait_group 0) on every path before reading the accumulator"},
    {7515, "wgmma.mma_async",
     "do not write the accumulator while a product runs: clear it with enable_input_d = false"},
    {7516, "wgmma.mma_async", "put fence, products, commit and wait into one straight line of code"},
    {7517, "wgmma.mma_async", "put the wait before the first use of the accumulator"},
    {7518, "wgmma.mma_async",
     "choose roles by warp-uniform values; put no product under a condition that differs between lanes"},
    {7519, "wgmma.mma_async", "put wgmma::fence after the barrier wait and before the first product"},
    {7602, "wgmma.mma_async",
     "so many threads leave too few registers for the accumulator: use fewer warps or a smaller block_n"},
};

const Remedy* remedy(int code) {
  for (const Remedy& each : kRemedies)
    if (each.code == code) return &each;
  return nullptr;
}

/// The line (from 1) of the first PTX instruction that starts with `instruction`; 0 when there is none.
int first_use(std::string_view ptx, std::string_view instruction) {
  const size_t at = ptx.find(instruction);
  if (at == std::string_view::npos) return 0;
  return 1 + static_cast<int>(std::count(ptx.begin(), ptx.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

int number_after(const std::string& text, const char* word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + std::char_traits<char>::length(word));
}

/// "around line 42" or ", line 42"; not the "line" of "pipeline stage".
int ptx_line_of(const std::string& text) {
  const int around = number_after(text, "around line ");
  return around != 0 ? around : number_after(text, ", line ");
}

}  // namespace

AssemblerLog read_assembler_log(std::string_view log) {
  AssemblerLog result;
  while (!log.empty()) {
    const size_t end = log.find('\n');
    const std::string line(log.substr(0, end));
    log = end == std::string_view::npos ? std::string_view() : log.substr(end + 1);
    long long stack = 0, stores = 0, loads = 0;
    if (std::sscanf(line.c_str(), " %lld bytes stack frame, %lld bytes spill stores, %lld bytes spill loads",
                    &stack, &stores, &loads) == 3) {
      result.stack_bytes += stack, result.spill_store_bytes += stores, result.spill_load_bytes += loads;
    } else if (const int registers = number_after(line, ": Used "); registers > 0) {
      result.registers = std::max(result.registers, registers);
    } else if (const size_t code = line.find("(C");
               code != std::string::npos && std::isdigit(line[code + 2])) {
      const size_t text = line.find(") ", code);
      result.remarks.push_back({std::atoi(line.c_str() + code + 2), ptx_line_of(line),
                                text == std::string::npos ? line : line.substr(text + 2)});
    } else if (const size_t warning = line.find("warning"); warning != std::string::npos) {
      const size_t colon = line.find(": ", warning);
      result.remarks.push_back(
          {0, ptx_line_of(line), colon == std::string::npos ? line : line.substr(colon + 2)});
    }
  }
  return result;
}

AssemblerTolerance AssemblerTolerance::from_environment() {
  AssemblerTolerance tolerance;
  const char* allowed = std::getenv("IMBREX_ALLOW");
  std::string_view rest = allowed == nullptr ? "" : allowed;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const std::string known[] = {"spills", "serialization"};
    if (word == known[0]) {
      tolerance.spills = true;
    } else if (word == known[1]) {
      tolerance.serialization = true;
    } else if (!word.empty()) {
      const std::string near = nearest_word(word, known);
      throw LaunchError(Diagnostic{{},
                                   fmt::format("IMBREX_ALLOW: unknown word '{}'", word),
                                   {},
                                   near.empty() ? "use spills, serialization, or both with a comma"
                                                : fmt::format("did you mean '{}'?", near)});
    }
  }
  return tolerance;
}

std::vector<Diagnostic> performance_errors(const codegen::CompiledKernel& kernel, const AssemblerLog& log,
                                           const AssemblerTolerance& tolerance) {
  std::vector<Diagnostic> errors;
  if (!tolerance.serialization) {
    for (const AssemblerRemark& remark : log.remarks) {
      if (remark.code < 7500 || remark.code >= 7700) continue;
      const Remedy* known = remedy(remark.code);
      const int line = remark.ptx_line != 0 || known == nullptr ? remark.ptx_line
                                                                : first_use(kernel.ptx, known->instruction);
      SourceLocation where = line == 0 ? SourceLocation() : kernel_line(kernel.ptx, line);
      if (!where.is_known()) where = kernel.where;
      errors.push_back({where,
                        fmt::format("assembling {}: {}", kernel.name, remark.text),
                        {fmt::format("ptxas C{}", remark.code)},
                        known == nullptr ? "IMBREX_ALLOW=serialization accepts it" : known->help});
    }
  }
  if (!tolerance.spills && log.spill_store_bytes + log.spill_load_bytes > 0)
    errors.push_back(
        {kernel.where,
         fmt::format(
             "assembling {}: registers are spilled to memory, {} bytes stored and {} bytes loaded per thread",
             kernel.name, log.spill_store_bytes, log.spill_load_bytes),
         {fmt::format("{} registers per thread, {} threads per CTA", log.registers, kernel.threads)},
         "use smaller register tiles or more warps, or raise max_registers(); IMBREX_ALLOW=spills accepts "
         "it"});
  return errors;
}

}  // namespace imbrex::runtime
