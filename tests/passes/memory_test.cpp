// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "pass_test.h"
#include "passes/allocate_memory.h"

namespace imbrex::passes {
namespace {

using testing::HasSubstr;

int64_t offset_of(const ir::Function& f, std::string_view name) {
  int64_t offset = -1;
  ir::walk(f.body, [&](const ir::Op& op) {
    if (!op.results.empty() && op.result()->name == name) offset = op.int_attr("offset");
  });
  return offset;
}

TEST(AllocateMemory, EveryPieceIsAlignedAndApart) {
  const auto f = kernel(
      "%bars: barrier[3] = mbarrier_alloc {counts = [1, 1, 1]}\n"
      "%c8: shared<float16, [24]> = shared_alloc {dtype = float16, shape = [24]}\n"
      "%s: shared<float16, [8, 64], [8: 8a64, 64: 64a1; bits 16; swizzle 128B]> = shared_alloc {dtype = "
      "float16, shape = [8, 64]}\n"
      "%t: tmem<float32, [128, 96]> = tcgen05_alloc {dtype = float32, shape = [128, 96]}");
  allocate_memory(*f);
  EXPECT_EQ(offset_of(*f, "s"), 0);        // swizzled: first, on a period of its pattern
  EXPECT_EQ(offset_of(*f, "c8"), 1024);    // 128 bytes for bulk copies
  EXPECT_EQ(offset_of(*f, "bars"), 1072);  // 8
  EXPECT_EQ(offset_of(*f, "t"), 1096);     // the word for the allocation's address
  EXPECT_EQ(f->shared_bytes, 1100);
  EXPECT_EQ(f->tensor_memory_columns, 128);  // 96, rounded to a power of two
}

TEST(AllocateMemory, SaysWhatTakesTheMemory) {
  EXPECT_EQ(
      refusal("%a: shared<float16, [512, 128]> = shared_alloc {dtype = float16, shape = [512, 128]} @3\n"
              "%b: shared<float16, [512, 256]> = shared_alloc {dtype = float16, shape = [512, 256]} @4",
              allocate_memory),
      "f.cpp:1: error: kernel f: needs 393216 bytes of shared memory, sm_100a has 232448 for a CTA\n"
      "    262144 bytes  %b float16[512, 256]  made at f.cpp:4\n"
      "    131072 bytes  %a float16[512, 128]  made at f.cpp:3\n"
      "  help: use smaller tiles or fewer stages, or free_shared() what is not used any more");
}

TEST(AllocateMemory, TheLimitIsTheTargets) {
  const std::string body =
      "%a: shared<float16, [640, 128]> = shared_alloc {dtype = float16, shape = [640, 128]}";
  EXPECT_EQ(refusal(body, allocate_memory, "sm_80"), "passes");
  const std::string more =
      "%a: shared<float16, [704, 128]> = shared_alloc {dtype = float16, shape = [704, 128]}";
  EXPECT_THAT(refusal(more, allocate_memory, "sm_80"), HasSubstr("sm_80 has 166912"));
  EXPECT_THAT(
      refusal(more, allocate_memory, "sm_80"),
      HasSubstr("; sm_90 has 232448: a kernel for it says static constexpr const char* target = \"sm_90\""));
  EXPECT_EQ(refusal(more, allocate_memory, "sm_90a"), "passes");
}

TEST(AllocateMemory, TensorMemoryIsCountedWhileItLives) {
  const auto alloc = [](const std::string& name, int columns) {
    const std::string n = std::to_string(columns);
    return "%" + name + ": tmem<float32, [128, " + n + "]> = tcgen05_alloc {dtype = float32, shape = [128, " +
           n + "]}\n";
  };
  EXPECT_THAT(refusal(alloc("x", 256) + alloc("y", 256) + alloc("z", 32), allocate_memory),
              HasSubstr("needs 544 columns of tensor memory in all, sm_100a has 512"));
  EXPECT_EQ(refusal(alloc("x", 512) + "tcgen05_dealloc %x\n" + alloc("y", 512), allocate_memory), "passes");
  EXPECT_EQ(refusal(alloc("x", 64) + alloc("y", 128), allocate_memory), "passes");  // in the other order
  EXPECT_THAT(
      refusal(alloc("x", 64) + "thread_group {begin = 0, threads = 128} {\n" + alloc("y", 128) + "}\n",
              allocate_memory),
      HasSubstr("allocate the larger tensor first"));
  // A smaller one that was freed before stays as it is, for the larger to take its place.
  EXPECT_EQ(
      refusal(alloc("x", 512) + "tcgen05_dealloc %x\n" + alloc("y", 32) + alloc("z", 128), allocate_memory),
      "passes");
}

}  // namespace
}  // namespace imbrex::passes
