// SPDX-License-Identifier: Apache-2.0
// The main loops of the Hopper ladder are what an expert would write: few machine instructions beside the
// products, none that moves a descriptor or a sum, no spills. Counted in the disassembly where nvdisasm is
// there, and always in the PTX.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "../param_name.h"
#include "../ptxas.h"
#include "codegen/codegen.h"
#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

/// The output of a command; a failure when it fails.
std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> part;
  while (size_t count = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), count);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

/// Assembly text as instructions and the places of its labels.
struct Listing {
  std::vector<std::string> instructions;
  std::map<std::string, size_t> labels;
};

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

Listing listing_of(const std::string& text) {
  Listing out;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    if (line.starts_with("/*") && line.size() > 2 &&
        std::isxdigit(static_cast<unsigned char>(line[2])))  // nvdisasm's addresses
      line = trimmed(line.substr(line.find("*/") + 2));
    if (line.ends_with(":") && line.find(' ') == std::string::npos) {
      out.labels[line.substr(0, line.size() - 1)] = out.instructions.size();
    } else if (const size_t end = line.find(';');
               end != std::string::npos && line[0] != '.' && line[0] != '/') {
      out.instructions.push_back(line.substr(0, end));
    }
  }
  return out;
}

/// The innermost loops that have products: instructions from a label to the branch back to it.
std::vector<std::vector<std::string>> product_loops(const Listing& listing, const std::string& product) {
  struct Span {
    size_t begin, end;
  };
  std::vector<Span> spans;
  for (size_t i = 0; i < listing.instructions.size(); ++i) {
    const std::string& text = listing.instructions[i];
    // Unconditional ones come back from where a wait is tried again.
    if (text[0] != '@' || (text.find("bra") == std::string::npos && text.find("BRA") == std::string::npos))
      continue;
    for (const auto& [label, place] : listing.labels) {
      const size_t at = text.find(label);
      if (at == std::string::npos || place > i) continue;
      const char next = at + label.size() < text.size() ? text[at + label.size()] : ' ';
      if (next == ' ' || next == ')') spans.push_back({place, i + 1});
    }
  }
  const auto has_product = [&](const Span& span) {
    for (size_t i = span.begin; i < span.end; ++i)
      if (listing.instructions[i].find(product) != std::string::npos) return true;
    return false;
  };
  std::erase_if(spans, [&](const Span& span) { return !has_product(span); });
  std::vector<std::vector<std::string>> loops;
  for (const Span& span : spans) {
    bool is_innermost = true;
    for (const Span& other : spans)
      is_innermost &= !(other.begin >= span.begin && other.end < span.end) &&
                      !(other.begin > span.begin && other.end <= span.end);
    if (is_innermost)
      loops.emplace_back(listing.instructions.begin() + static_cast<std::ptrdiff_t>(span.begin),
                         listing.instructions.begin() + static_cast<std::ptrdiff_t>(span.end));
  }
  return loops;
}

int64_t count(const std::vector<std::string>& loop, const std::string& word) {
  int64_t n = 0;
  for (const std::string& instruction : loop) n += instruction.find(word) != std::string::npos;
  return n;
}

struct Step {
  const char* kernel;
  double machine_instructions;  // of one block of k, at most
  double ptx_instructions;

  friend std::ostream& operator<<(std::ostream& out, const Step& s) { return out << s.kernel; }
};

class Loop : public testing::TestWithParam<Step> {};

TEST_P(Loop, IsShort) {
  constexpr int64_t kProducts = 4;  // of one block of k: 64 elements, 16 each
  const RegisteredKernel& kernel = registered_kernel(GetParam().kernel);
  Case c(Case::Mode::kTrace, std::nullopt, {{"m", 8192}, {"n", 8192}, {"k", 8192}, {"bf16", 1}}, 0);
  kernel.run(c, std::nullopt, kernel.space.configuration(0));
  passes::run_pipeline(*c.function, {});
  const std::string ptx = codegen::generate(*c.function, {}).ptx;
  const auto check = [&](const Listing& listing, const std::string& product, double limit) {
    const auto loops = product_loops(listing, product);
    EXPECT_FALSE(loops.empty());
    for (const auto& loop : loops) {
      const double blocks = static_cast<double>(count(loop, product)) / kProducts;
      std::string text;
      for (const std::string& instruction : loop) text += "  " + instruction.substr(0, 100) + "\n";
      EXPECT_LE(static_cast<double>(loop.size()) / blocks, limit) << text;
      EXPECT_EQ(count(loop, "R2UR"), 0) << text;
      EXPECT_EQ(count(loop, "mov.f32"), 0) << text;
    }
  };
  check(listing_of(ptx), "wgmma.mma_async", GetParam().ptx_instructions);

  IMBREX_NEEDS_PTXAS();
  const std::string disassembler = find_cuda_tool("nvdisasm").path;
  if (disassembler.empty()) IMBREX_SKIP(nvdisasm);  // the PTX has been counted, not what the machine executes
  const std::string cubin = testing::TempDir() + "imbrex_loop_" + std::to_string(getpid()) + ".cubin";
  const std::string said = ptxas_says(ptx, "-v -arch=sm_90a", cubin);
  EXPECT_NE(said.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << said;
  const std::string code = output_of(disassembler + " -c " + cubin);
  std::filesystem::remove(cubin);
  check(listing_of(code), "HGMMA", GetParam().machine_instructions);
}

INSTANTIATE_TEST_SUITE_P(Hopper, Loop,
                         testing::Values(Step{"hopper_matmul_h3", 35, 40}, Step{"hopper_matmul_h4", 35, 40},
                                         Step{"hopper_matmul_h6", 40, 45}, Step{"hopper_matmul_h7", 35, 32},
                                         Step{"hopper_matmul_h7_bias_gelu", 35, 32},
                                         Step{"hopper_matmul_h8", 35, 40}, Step{"hopper_matmul_h9", 35, 32}),
                         ParamName());

}  // namespace
}  // namespace imbrex
