// SPDX-License-Identifier: Apache-2.0
// Machine code read back: registers, lines, stalls, loops.
#include "ptx/machine_code.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../ptxas.h"
#include "ptx/machine_loops.h"

namespace imbrex::ptx {
namespace {

constexpr const char* kTwoKernels = R"(.version 8.6
.target TARGET
.address_size 64
.visible .entry other(.param .u64 p) {
  .reg .b64 %a;
  ld.param.u64 %a, [p];
  st.global.u32 [%a], 7;
  ret;
}
.visible .entry sum(.param .u64 p, .param .u32 n) {
  .reg .pred %q;
  .reg .b32 %n, %x, %s;
  .reg .b64 %a;
  ld.param.u64 %a, [p];
  ld.param.u32 %n, [n];
  mov.u32 %s, 0;
LOOP:
  .pragma "nounroll";
  ld.global.u32 %x, [%a];
  add.u32 %s, %s, %x;
  add.u64 %a, %a, 4;
  sub.u32 %n, %n, 1;
  setp.ne.u32 %q, %n, 0;
  @%q bra LOOP;
  st.global.u32 [%a], %s;
  ret;
}
)";
constexpr int kLoadLine = 19, kStoreLine = 25;
constexpr uint16_t kLoad = 0x181, kStore = 0x186;  // LDG, STG

std::string assembled(const std::string& target, std::string* said = nullptr) {
  std::string ptx = kTwoKernels;
  ptx.replace(ptx.find("TARGET"), 6, target);
  const std::string file =
      (std::filesystem::temp_directory_path() / ("imbrex_machine_" + std::to_string(getpid()) + ".cubin"))
          .string();
  const std::string log = ptxas_says(ptx, "-v -lineinfo -arch=" + target, file);
  if (said != nullptr) *said = log;
  std::stringstream cubin;
  cubin << std::ifstream(file, std::ios::binary).rdbuf();
  std::filesystem::remove(file);
  return cubin.str();
}

TEST(MachineCode, HasTheRegistersAndTheLinesOfTheKernelThatIsAskedFor) {
  IMBREX_NEEDS_PTXAS();
  for (const auto& [target, sm] : {std::pair{"sm_80", 80}, {"sm_90a", 90}, {"sm_100a", 100}}) {
    std::string said;
    const std::optional<MachineCode> code = read_machine_code(assembled(target, &said), "sum", sm);
    ASSERT_TRUE(code) << target << said;
    const size_t of_sum = said.find("Used ", said.find("'sum'"));
    EXPECT_EQ(code->registers, std::stoi(said.substr(of_sum + 5))) << said;
    int loads = 0, stores = 0;
    for (const MachineInstruction& insn : code->instructions) {
      if (insn.opcode == kLoad) {
        ++loads;
        EXPECT_EQ(insn.ptx_line, kLoadLine) << target;
        EXPECT_EQ(insn.depth, 1) << target;
      }
      if (insn.opcode == kStore) {
        ++stores;
        EXPECT_EQ(insn.ptx_line, kStoreLine) << target;
        EXPECT_EQ(insn.depth, 0) << target;
      }
    }
    EXPECT_EQ(loads, 1) << target;
    EXPECT_EQ(stores, 1) << target;
    EXPECT_FALSE(read_machine_code(assembled(target), "none", sm)) << target;
  }
}

TEST(MachineCode, IsNothingWhereTheFileIsCutOrIsNoCubin) {
  IMBREX_NEEDS_PTXAS();
  const std::string cubin = assembled("sm_90a");
  EXPECT_FALSE(read_machine_code("", "sum", 90));
  EXPECT_FALSE(read_machine_code("no cubin at all", "sum", 90));
  for (size_t size = 0; size < cubin.size(); size += 7) read_machine_code(cubin.substr(0, size), "sum", 90);
  for (size_t at = 0; at < cubin.size(); ++at) {  // any byte may be wrong
    std::string broken = cubin;
    broken[at] = static_cast<char>(~broken[at]);
    read_machine_code(broken, "sum", 90);
  }
}

// Words of machine code: a branch at `from` to `to`, an exit, anything else.
struct Words {
  int sm;
  std::string code;
  explicit Words(int target, size_t count) : sm(target), code(16 * count, '\0') {}
  void put(size_t at, uint64_t low) { std::memcpy(code.data() + 16 * at, &low, 8); }
  void branch(size_t from, size_t to, bool is_conditional) {
    const auto distance = 16 * (static_cast<int64_t>(to) - static_cast<int64_t>(from) - 1);  // in bytes
    uint64_t low = 0x947 | (is_conditional ? 0 : 7ull << 12);
    if (sm >= 90) {
      const int64_t words = distance / 4;
      low |= static_cast<uint64_t>(words >> 8) << 34 | (static_cast<uint64_t>(words) & 0xFF) << 16;
    } else {
      low |= static_cast<uint64_t>(distance) << 32;
    }
    put(from, low);
  }
  void exit(size_t at) { put(at, 0x94D | 7ull << 12); }
  std::vector<int> depths() const {
    const std::vector<uint8_t> found = machine_loop_depths(code, sm);
    return {found.begin(), found.end()};
  }
};

TEST(MachineLoops, AreNestedAndEnteredAtOnePlace) {
  for (int sm : {80, 90}) {
    Words nested(sm, 7);
    nested.branch(3, 2, true);
    nested.branch(4, 1, true);
    nested.exit(6);
    EXPECT_EQ(nested.depths(), (std::vector<int>{0, 1, 2, 2, 1, 0, 0})) << sm;

    // A wait that takes long goes on behind the kernel's end and comes back: what lies between is no loop.
    Words wait(sm, 7);
    wait.branch(1, 5, true);
    wait.exit(4);
    wait.branch(5, 5, true);
    wait.branch(6, 2, false);
    EXPECT_EQ(wait.depths(), (std::vector<int>{0, 0, 0, 0, 0, 1, 0})) << sm;
  }
}

}  // namespace
}  // namespace imbrex::ptx
