// SPDX-License-Identifier: Apache-2.0
// Which registers take turns in one slot of a warp's register file.
#include "vgpu/program/shared_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ptx/reader.h"

namespace imbrex::vgpu {
namespace {

/// By name, of a kernel with registers %a to %g (32 bits), %w (64 bits), %p.
std::map<std::string, uint32_t> slots_of(const std::string& body) {
  const ptx::Module module = ptx::read(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
  .reg .b32 %a, %b, %c, %d, %e, %f, %g; .reg .b64 %w; .reg .pred %p;
)" + body + "\n  ret;\n}\n");
  const ptx::Function& f = module.functions.at(0);
  const std::vector<uint32_t> slots = shared_slots(f, contractions(f));
  std::map<std::string, uint32_t> by_name;
  for (uint32_t id = 0; id < slots.size(); ++id) by_name[f.register_name(ptx::Reg{id})] = slots[id];
  return by_name;
}

TEST(SharedSlots, AreTakenInTurnsBehindTheLastUse) {
  auto slots = slots_of(R"(
  mov.u32 %a, 1;
  add.u32 %b, %a, 1;
  add.u32 %c, %b, 1;
  add.u32 %d, %c, 1;
  cvt.u64.u32 %w, %d;
  st.global.u64 [%w], %w;)");
  EXPECT_NE(slots["%a"], slots["%b"]) << "a result does not lie where an operand does";
  EXPECT_EQ(slots["%c"], slots["%a"]);
  EXPECT_EQ(slots["%d"], slots["%b"]);
  EXPECT_EQ(slots["%w"], 0u) << "of another size";
}

TEST(SharedSlots, AreNotForWhatOtherBlocksMention) {
  auto slots = slots_of(R"(
  mov.u32 %a, 1;
  mov.u32 %b, 2;
LOOP:
  add.u32 %c, %a, %b;
  add.u32 %a, %c, 1;
  setp.lt.u32 %p, %a, 9;
  @%p bra LOOP;
  mov.u32 %d, %b;
  st.global.u32 [%w], %d;)");
  EXPECT_EQ(slots["%a"], kOwnSlot);
  EXPECT_EQ(slots["%b"], kOwnSlot);
  EXPECT_EQ(slots["%c"], 0u);
  EXPECT_EQ(slots["%d"], 0u);
  EXPECT_EQ(slots["%p"], kOwnSlot);
  EXPECT_EQ(slots["%w"], kOwnSlot) << "read before it is written";
}

TEST(SharedSlots, AreNotForWhatIsWrittenBySomeLanesFirst) {
  auto slots = slots_of(R"(
  @%p mov.u32 %a, 1;
  mov.u32 %b, 2;
  @%p mov.u32 %b, 3;
  add.u32 %c, %a, %b;
  add.u32 %d, %d, %c;)");
  EXPECT_EQ(slots["%a"], kOwnSlot);
  EXPECT_EQ(slots["%b"], 0u);
  EXPECT_EQ(slots["%c"], 1u);
  EXPECT_EQ(slots["%d"], kOwnSlot) << "read where it is written";
}

// The product becomes one operation with the sum, which then reads the factors.
TEST(SharedSlots, AreKeptForFactorsUntilTheSum) {
  auto slots = slots_of(R"(
  mov.b32 %a, 1;
  mov.b32 %b, 2;
  mul.f32 %c, %a, %b;
  mov.b32 %d, 3;
  mov.b32 %e, 4;
  add.f32 %f, %c, %d;
  add.u32 %g, %e, %f;
  st.global.u32 [%w], %g;)");
  for (const char* factor : {"%a", "%b"})
    for (const char* later : {"%c", "%d", "%e", "%f"}) EXPECT_NE(slots[factor], slots[later]) << later;
  EXPECT_NE(slots["%a"], kOwnSlot);
}

TEST(SharedSlots, AreNotForAsynchronousInstructionsAndComparisons) {
  auto slots = slots_of(R"(
  mov.u32 %a, 1;
  tcgen05.ld.sync.aligned.32x32b.x2.b32 {%b, %c}, [%a];
  tcgen05.wait::ld.sync.aligned;
  add.u32 %d, %b, %c;
  mov.u32 %e, 7;
  setp.eq.u32 %p, %d, %e;
  st.global.u32 [%w], %d;)");
  for (const char* name : {"%a", "%b", "%c", "%d", "%e"}) EXPECT_EQ(slots[name], kOwnSlot) << name;
}

}  // namespace
}  // namespace imbrex::vgpu
