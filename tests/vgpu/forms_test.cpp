// SPDX-License-Identifier: Apache-2.0
// Every instruction form that the hardware notes list and the assembler takes: either the virtual GPU decodes
// it, or it says that it is not modelled. Which are which is written down here.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

std::string read_forms(const std::string& name) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/ptx/data/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One module an instruction: the lines around the bodies and the declarations stay, the other instructions
// go.
std::vector<std::string> refused_forms(const std::string& name, const std::string& target) {
  std::istringstream lines(read_forms(name));
  std::vector<std::string> refused, entry;  // of the entry being read: header and declarations
  std::string header, line;
  bool in_entry = false;
  VirtualGpu gpu({.target = target});
  int forms = 0;
  while (std::getline(lines, line)) {
    if (line.find(".entry") != std::string::npos) {
      in_entry = true;
      entry.clear();
    }
    if (!in_entry) {
      header += line + "\n";
      continue;
    }
    if (line == "}") {
      in_entry = false;
      continue;
    }
    const size_t begin = line.find_first_not_of(" \t");
    const bool is_instruction =
        begin != std::string::npos && (std::isalpha(line[begin]) != 0 || line[begin] == '@');
    if (!is_instruction || line.find(".entry") != std::string::npos) {
      entry.push_back(line);
      continue;
    }
    std::string module = header;
    for (const std::string& part : entry) module += part + "\n";
    module += line + "\n\tret;\n}\n";
    ++forms;
    try {
      gpu.load_module(module, name);
    } catch (const CompileError& e) {
      refused.push_back(line.substr(begin));
    }
  }
  EXPECT_GT(forms, 20) << name;
  return refused;
}

using testing::ContainsRegex;
using testing::Each;

// What is not modelled: the im2col modes that go along W only, matrix moves that transpose bytes.
constexpr const char* kNotModelled = "im2col::w|\\.trans\\.shared\\.b8";

TEST(Forms, Ampere) {
  EXPECT_THAT(refused_forms("forms.sm_80.ptx", "sm_80"), Each(ContainsRegex(kNotModelled)));
}
TEST(Forms, Hopper) {
  EXPECT_THAT(refused_forms("forms.sm_90a.ptx", "sm_90a"), Each(ContainsRegex(kNotModelled)));
}
TEST(Forms, Blackwell) {
  EXPECT_THAT(refused_forms("forms.sm_100a.ptx", "sm_100a"), Each(ContainsRegex(kNotModelled)));
}

}  // namespace
}  // namespace imbrex::vgpu
