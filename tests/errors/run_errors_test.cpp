// SPDX-License-Identifier: Apache-2.0
// What the virtual GPU says of kernels that go wrong while they run, and of PTX that is none.
#include "imbrex/vgpu/virtual_gpu.h"
#include "message.h"

namespace imbrex {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

template <class K>
std::string findings(const char* target, int64_t budget = 0, uint64_t seed = 0) {
  vgpu::Options options;
  options.target = target;
  options.instruction_budget = budget;
  options.seed = seed;
  Device device = Device::virtual_gpu(options);
  DeviceTensor x = DeviceTensor::random(device, float32, {128}, 1);
  return Kernel<K>({}, device)(x).virtual_report.format();
}

struct WaitsForever {
  static constexpr const char* target = "sm_90a";
  void operator()(Ptr<float32>) const {
    grid(1);
    auto barriers = mbarrier::alloc({1});
    sync();
    mbarrier::wait(barriers[0], 0);
  }
};
TEST(RunErrors, ADeadlockTellsWhoWaitsForWhat) {
  EXPECT_THAT(findings<WaitsForever>("sm_90a"),
              AllOf(ContainsRegex("run_errors_test.cpp:[0-9]+: deadlock"),
                    HasSubstr("waits for parity 0 of the barrier"), HasSubstr("pending 1 of 1 arrivals"),
                    HasSubstr("mbarrier::wait(barriers[0], 0);")));
}

struct Overruns {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {4096}, {1000000});  // a stride that leaves the buffer
    store_global(g, zeros(float32, {128}), {0});
  }
};
TEST(RunErrors, AnOverrunNamesTheLineAndTheNearestAllocation) {
  vgpu::Options options;
  options.target = "sm_80";
  Device device = Device::virtual_gpu(options);
  DeviceTensor x = DeviceTensor::random(device, float32, {128}, 1);
  // By raw address: the launch cannot know the buffer's size, so the machine has to see the access.
  const std::string text = Kernel<Overruns>({}, device)(x.address()).virtual_report.format();
  EXPECT_THAT(text,
              AllOf(ContainsRegex("run_errors_test.cpp:[0-9]+: out-of-bounds"), HasSubstr("store_global")));
}

struct RunsForever {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {128});
    for (Loop loop : forever()) {
      store_global(g, load_global(g, {0}, {128}) + 1.0f, {0});
      loop.break_if(block_idx.x > 1);
    }
  }
};
TEST(RunErrors, AnEndlessLoopEndsWithTheBudget) {
  EXPECT_THAT(findings<RunsForever>("sm_80", 100000), AllOf(HasSubstr("endless"), HasSubstr("100000")));
}

struct ReadsUnwritten {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto s = shared_tensor(float32, {128});
    store_global(global_view(x_ptr, {128}), load_shared(s), {0});
  }
};
TEST(RunErrors, ReadingSharedMemoryNobodyWrote) {
  EXPECT_THAT(findings<ReadsUnwritten>("sm_80"), ContainsRegex("run_errors_test.cpp:[0-9]+: uninitialized"));
}

/// Arrives without announcing the copy's bytes: the phase completes before they are there.
struct AnnouncesNothing {
  static constexpr const char* target = "sm_90a";
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {128});
    auto s = shared_tensor(float32, {128});
    auto full = mbarrier::alloc(1);
    sync();
    if (auto thread = single_thread()) {
      tma::global_to_shared(g, s, {0}, full);
      mbarrier::arrive(full);
    }
    mbarrier::wait(full, 0);
    store_global(g, load_shared(s) + 1.0f, {0});
  }
};
struct DoesNotWaitForItsCopies {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {128});
    auto s = shared_tensor(float32, {128});
    copy_async(g, s, {0});
    sync();
    store_global(g, load_shared(s) + 1.0f, {0});
  }
};
/// The first finding of kind "uninitialized-read" under any of a few seeds: copies of threads come at once under some.
template <class K>
std::string first_unwritten_read(const char* target) {
  std::string text;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    text = findings<K>(target, 0, seed);
    const size_t at = text.find("uninitialized-read");
    if (at != std::string::npos) return text.substr(at, text.find("error: ", at) - at);
  }
  return text;
}
TEST(RunErrors, WhatIsReadBeforeItsCopyHasComeNamesTheCopy) {
  EXPECT_THAT(first_unwritten_read<AnnouncesNothing>("sm_90a"),
              AllOf(HasSubstr("it is yet to be written by the load of a"),
                    ContainsRegex("started at .*run_errors_test.cpp:[0-9]+"),
                    HasSubstr("mbarrier::arrive_and_expect_tx()")));
  EXPECT_THAT(first_unwritten_read<DoesNotWaitForItsCopies>("sm_80"),
              AllOf(HasSubstr("it is yet to be written by the cp.async of 16 bytes"),
                    HasSubstr("help: wait for the copy before it: cp.async.wait_group")));
}

TEST(RunErrors, PtxThatDoesNotParseNamesLineAndColumn) {
  vgpu::VirtualGpu gpu;
  const char* text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  add.s32 %r1 %r2;\n}\n";
  EXPECT_THAT(message_of<ParseError>([&] { gpu.load_module(text, "bad.ptx"); }), ContainsRegex("bad.ptx:6"));
}
TEST(RunErrors, AnUnknownInstructionIsNamedWithTheNearest) {
  vgpu::VirtualGpu gpu;
  const char* text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  .reg .b32 %r<3>;\n  addd.s32 "
      "%r0, %r1, %r2;\n}\n";
  EXPECT_THAT(message_of<ParseError>([&] { gpu.load_module(text, "bad.ptx"); }),
              AllOf(ContainsRegex("bad.ptx:7"), HasSubstr("addd"), HasSubstr("add")));
}

}  // namespace
}  // namespace imbrex
