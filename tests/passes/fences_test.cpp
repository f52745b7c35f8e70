// SPDX-License-Identifier: Apache-2.0
// insert_fences on the skeletons of the Blackwell kernels: only the ops that synchronise are compared.
#include <gmock/gmock.h>

#include "pass_test.h"
#include "passes/insert_fences.h"

namespace imbrex::passes {
namespace {

const char* const kTensors =
    "%i0: int32 = const {int = 0}\n%u0: uint32 = const {int = 0}\n%yes: bool = const {int = 1}\n"
    "%g: global<float16, [?, ?]> = global_view %p, %n, %m, %m, %n {rank = 2}\n"
    "%a: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]}\n"
    "%b: shared<float16, [64, 128]> = shared_alloc {dtype = float16, shape = [64, 128]}\n"
    "%acc: tmem<float32, [128, 128]> = tcgen05_alloc {dtype = float32, shape = [128, 128]}\n"
    "%done: barrier = mbarrier_alloc {counts = [1]}\n"
    "%half: float16 = const {float = 0.5}\n%tile: register<float16, [128, 64]> = broadcast %half {shape = "
    "[128, 64]}\n";

/// The mnemonics after the tensors, indented by nesting, constants and views left out.
std::string skeleton(const std::string& body) {
  const auto f = kernel(kTensors + body);
  insert_fences(*f);
  EXPECT_NO_THROW(ir::verify(*f)) << ir::print(*f);
  std::string out;
  const auto visit = [&](auto& self, const ir::Block& block, int depth) -> void {
    for (const ir::Op* op : block.ops) {
      if (op->info().effect == ir::Effect::kPure || op->code == ir::Opcode::kSharedAlloc) continue;
      if (op->code == ir::Opcode::kTcgen05Alloc || op->code == ir::Opcode::kMbarrierAlloc) continue;
      out += std::string(static_cast<size_t>(depth), ' ') + std::string(op->info().mnemonic) + "\n";
      for (const auto& region : op->regions) self(self, *region, depth + 1);
    }
  };
  visit(visit, f->body, 0);
  return out;
}

TEST(InsertFences, TheFirstBlackwellKernel) {
  EXPECT_EQ(skeleton("sync\n"
                     "for %k: int32 in %i0, %n, %m {\n"
                     "  copy_async %g, %a, %i0, %k {dims = [0, 1]}\n"
                     "  copy_async_wait_all\n"
                     "  sync\n"
                     "  thread_group {begin = 0, threads = 32} {\n"
                     "    tcgen05_mma %a, %b, %acc, %yes\n"
                     "    tcgen05_commit %done\n"
                     "    mbarrier_wait %done, %u0\n"
                     "  }\n"
                     "  sync\n"
                     "}\n"
                     "%r: register<float32, [128, 128]> = tcgen05_load %acc\n"
                     "%s: register<float32, [128, 128]> = neg %r\n"
                     "sync\n"
                     "tcgen05_dealloc %acc"),
            "sync\n"
            "for\n"
            " copy_async\n"
            " copy_async_wait_all\n"
            " fence_proxy_async\n"  // cp.async wrote what the tensor core reads
            " sync\n"
            " thread_group\n"
            "  tcgen05_fence_after_thread_sync\n"
            "  tcgen05_mma\n"
            "  tcgen05_commit\n"
            "  mbarrier_wait\n"
            " sync\n"
            "tcgen05_fence_after_thread_sync\n"
            "tcgen05_load\n"
            "tcgen05_wait_load\n"
            "tcgen05_fence_before_thread_sync\n"
            "sync\n"
            "tcgen05_fence_after_thread_sync\n"
            "tcgen05_dealloc\n");
}

TEST(InsertFences, WhatTheAuthorPlacedCounts) {
  const std::string body =
      "store_shared %a, %tile\n"
      "fence_proxy_async {space = \"shared\"}\n"
      "sync\n"
      "tcgen05_fence_after_thread_sync\n"
      "%r: register<float32, [128, 128]> = tcgen05_load %acc\n"
      "tcgen05_wait_load\n"
      "%s: register<float32, [128, 128]> = neg %r\n"
      "tcgen05_fence_before_thread_sync\n"
      "sync\n"
      "thread_group {begin = 0, threads = 32} {\n"
      "  tcgen05_fence_after_thread_sync\n"
      "  tcgen05_mma %a, %b, %acc, %yes\n"
      "}";
  EXPECT_EQ(skeleton(body),
            "store_shared\nfence_proxy_async\nsync\ntcgen05_fence_after_thread_sync\ntcgen05_load\ntcgen05_"
            "wait_load\n"
            "tcgen05_fence_before_thread_sync\nsync\nthread_group\n tcgen05_fence_after_thread_sync\n "
            "tcgen05_mma\n");
}

TEST(InsertFences, OneWaitServesSeveralLoads) {
  EXPECT_EQ(skeleton("%r: register<float32, [128, 128]> = tcgen05_load %acc\n"
                     "%s: register<float32, [128, 128]> = tcgen05_load %acc\n"
                     "if %c {\n  %t: register<float32, [128, 128]> = add %r, %s\n  sync\n}"),
            "tcgen05_load\ntcgen05_load\ntcgen05_wait_load\nif\n "
            "tcgen05_fence_before_thread_sync\n sync\n");
}

TEST(InsertFences, ALoopCarriesWhatItOwesToItsHead) {
  // The store at the end of a trip is what the sync at the head of the next one must publish.
  EXPECT_EQ(
      skeleton(
          "sync\nloop {\n  sync\n  thread_group {begin = 0, threads = 32} {\n"
          "    tcgen05_mma %a, %b, %acc, %yes\n    tcgen05_commit %done\n  }\n  store_shared %a, %tile\n}"),
      "sync\nloop\n fence_proxy_async\n sync\n thread_group\n  "
      "tcgen05_fence_after_thread_sync\n"
      "  tcgen05_mma\n  tcgen05_commit\n store_shared\n");
}

TEST(InsertFences, MemoryThatOnlyThreadsReadNeedsNone) {
  EXPECT_EQ(skeleton("store_shared %a, %tile\nsync\n%r: register<float16, [128, 64]> = load_shared %a"),
            "store_shared\nsync\nload_shared\n");
}

const char* const kFill =
    "thread_group {begin = 0, threads = 32} {\n  tma_global_to_shared %g, %a, %done, %i0, %i0 {dims = [0, "
    "1]}\n}\n";

const char* const kRead =
    "%r: register<float16, [128, 64]> = load_shared %a\n%x: float16 = load_item %a, %i0, %i0\n";

TEST(InsertFences, WhoFillsWhatThreadsReadHasAFence) {
  // One for each trip, behind the wait for the readers; none of the readers' own.
  EXPECT_EQ(skeleton("loop {\nmbarrier_wait %done, %u0\n" + std::string(kFill) + "}\n" + kRead +
                     "mbarrier_arrive %done"),
            "loop\n mbarrier_wait\n thread_group\n  fence_proxy_async\n  tma_global_to_shared\n"
            "load_shared\nload_item\nmbarrier_arrive\n");
  // What only products read needs none.
  EXPECT_EQ(skeleton("loop {\nmbarrier_wait %done, %u0\n" + std::string(kFill) + "}\n"),
            "loop\n mbarrier_wait\n thread_group\n  tma_global_to_shared\n");
}

TEST(InsertFences, AThreadThatFillsWhatItReadNeedsOneToo) {
  EXPECT_EQ(skeleton("%x: float16 = load_item %a, %i0, %i0\n" + std::string(kFill)),
            "load_item\nthread_group\n fence_proxy_async\n tma_global_to_shared\n");
}

TEST(InsertFences, ReadersOfWhatOtherCtasFillHaveOne) {
  // One behind all loads of a trip, at the arrival that gives the stage back; products wait for none.
  std::string fill = kFill;
  fill.replace(fill.find("{dims = [0, 1]}"), 15, "{dims = [0, 1], multicast_mask = 3}");
  EXPECT_EQ(skeleton("loop {\n" + fill + "mbarrier_wait %done, %u0\n" + kRead +
                     "thread_group {begin = 0, threads = 32} {\n  tcgen05_mma %a, %b, %acc, %yes\n}\n"
                     "mbarrier_arrive %done\n}"),
            "loop\n thread_group\n  tma_global_to_shared\n mbarrier_wait\n "
            "load_shared\n load_item\n"
            " thread_group\n  tcgen05_fence_after_thread_sync\n  tcgen05_mma\n"
            " fence_proxy_async\n tcgen05_fence_before_thread_sync\n mbarrier_arrive\n");
}

TEST(InsertFences, StoresToWhatTmaFillsNeedOne) {
  EXPECT_EQ(skeleton("store_shared %a, %tile\nsync\n" + std::string(kFill)),
            "store_shared\nfence_proxy_async\nsync\nthread_group\n tma_global_to_shared\n");
}

TEST(InsertFences, AFenceOfTheAuthorCountsForReadsToo) {
  EXPECT_EQ(
      skeleton(std::string(kRead) + "mbarrier_wait %done, %u0\nfence_proxy_async {space = \"shared\"}\n" +
               kFill),
      "load_shared\nload_item\nmbarrier_wait\nfence_proxy_async\nthread_group\n tma_global_to_shared\n");
}

TEST(InsertFences, StoresToTensorMemoryAreWaitedFor) {
  EXPECT_EQ(skeleton("%z: float32 = const {float = 0.0}\n%r: register<float32, [128, 128]> = broadcast %z "
                     "{shape = [128, 128]}\n"
                     "tcgen05_store %acc, %r\n%s: register<float32, [128, 128]> = tcgen05_load %acc"),
            "tcgen05_store\ntcgen05_wait_store\ntcgen05_load\ntcgen05_wait_load\n");
}

}  // namespace
}  // namespace imbrex::passes
