// SPDX-License-Identifier: Apache-2.0
// Messages from their first character to their last, one of each kind: where, what is wrong with both sides
// and their numbers, the facts, the help. Lines are counted from each kernel's own.
#include <optional>
#include <regex>

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "message.h"

namespace imbrex {
namespace {

/// The text with this file's name as "here", its lines as +1, +2, ... from `line`, addresses and PTX as #.
std::string from_here(const std::string& text, int line) {
  static const std::regex place("([^ (]*/)?whole_messages_test\\.cpp:([0-9]+)|(^|\n) *([0-9]+) \\| *");
  std::string out;
  size_t end = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), place); match != std::sregex_iterator();
       ++match) {
    out += text.substr(end, static_cast<size_t>(match->position()) - end);
    if ((*match)[2].matched)
      out += "here:+" + std::to_string(std::stoi((*match)[2]) - line);
    else
      out += (*match)[3].str() + "+" + std::to_string(std::stoi((*match)[4]) - line) + " | ";
    end = static_cast<size_t>(match->position() + match->length());
  }
  out = std::regex_replace(out + text.substr(end), std::regex("0x10[0-9a-f]{8}"), "0x#");
  return std::regex_replace(out, std::regex("PTX line [0-9]+: [^;]*;"), "PTX #");
}

constexpr int kInnerSizes = __LINE__;
struct InnerSizes {
  static constexpr const char* target = "sm_100a";
  void operator()(Int32 ctas) const {
    grid(ctas);
    auto a = shared_tensor(float16, {128, 64});
    auto b = shared_tensor(float16, {64, 32});
    auto d = tcgen05::alloc(float32, {128, 64});
    if (auto warp = single_warp()) tcgen05::mma(a, b.transpose(), d, {.enable_input_d = false});
    sync();
    tcgen05::dealloc(d);
  }
};

TEST(WholeMessages, ShapesThatDoNotFitAnInstruction) {
  const std::string text = message_of<CompileError>([] { emit_ptx(*Kernel<InnerSizes>().trace(1)); });
  EXPECT_EQ(
      from_here(text, kInnerSizes),
      "here:+8: error: tcgen05_mma: inner sizes differ, a has k = 64 and b has k = 32\n"
      "+8 | if (auto warp = single_warp()) tcgen05::mma(a, b.transpose(), d, {.enable_input_d = false});\n"
      "  a    shared<float16, [128, 64]>  %a  made at here:+5\n"
      "  b    shared<float16, [32, 64]>  made at here:+8\n"
      "  d    tmem<float32, [128, 64]>  %d  made at here:+7\n"
      "  enable_input_d bool  made at here:+8\n"
      "  help: transpose b: it is [k, n]");
}

constexpr int kTooLarge = __LINE__;
struct TooLarge {
  void operator()(Int32 ctas) const {
    grid(ctas);
    auto small = shared_tensor(float32, {128, 64});
    auto large = shared_tensor(float16, {256, 300});
    store_shared(small, zeros(float32, {128, 64}));
    store_shared(large, zeros(float16, {256, 300}));
  }
};

TEST(WholeMessages, ATileTooLargeForSharedMemory) {
  const std::string text = message_of<CompileError>([] { emit_ptx(*Kernel<TooLarge>().trace(1)); });
  EXPECT_EQ(
      from_here(text, kTooLarge),
      "here:+2: error: kernel too_large: needs 186368 bytes of shared memory, sm_80 has 166912 for a CTA\n"
      "+2 | void operator()(Int32 ctas) const {\n"
      "    153600 bytes  %large float16[256, 300]  made at here:+5\n"
      "     32768 bytes  %small float32[128, 64]  made at here:+4\n"
      "  help: use smaller tiles or fewer stages, or free_shared() what is not used any more; sm_90 has "
      "232448: a "
      "kernel for it says static constexpr const char* target = \"sm_90\"");
}

constexpr int kWrongGroup = __LINE__;
struct WrongGroup {
  static constexpr const char* target = "sm_100a";
  void operator()(Int32 ctas, Ptr<float32> x_ptr) const {
    grid(ctas);
    auto a = tcgen05::alloc(float32, {128, 64});
    sync();
    if (auto warp = single_warp(1)) store_global(global_view(x_ptr, {128, 64}), tcgen05::load(a), {0, 0});
    sync();
    tcgen05::dealloc(a);
  }
};

TEST(WholeMessages, AWrongThreadGroup) {
  const std::string text = message_of<CompileError>([] { emit_ptx(*Kernel<WrongGroup>().trace(1, 0)); });
  EXPECT_EQ(from_here(text, kWrongGroup),
            "here:+7: error: tcgen05_load: needs whole warp groups (128 threads, from a multiple of 128), it "
            "runs in warp 1\n"
            "+7 | if (auto warp = single_warp(1)) store_global(global_view(x_ptr, {128, 64}), "
            "tcgen05::load(a), {0, 0});\n"
            "  thread group 32 ... 63 of its enclosing group  opened at here:+7\n"
            "  the CTA has 128 threads\n"
            "  help: run it in a CTA of warps(4), or under warp_group(0, 4), warp_group(4, 4), ...");
}

constexpr int kAfterItsScope = __LINE__;
struct AfterItsScope {
  void operator()(Int32 n, Ptr<float32> x_ptr) const {
    grid(1);
    auto g_x = global_view(x_ptr, {64});
    std::optional<RegisterValue> tile;
    if (auto arm = when(n > 3)) tile.emplace(load_global(g_x, {0}, {64}));
    store_global(g_x, *tile, {0});
  }
};

TEST(WholeMessages, UseAfterTheScope) {
  const std::string text = message_of<CompileError>([] { emit_ptx(*Kernel<AfterItsScope>().trace(1, 0)); });
  EXPECT_EQ(from_here(text, kAfterItsScope),
            "here:+7: error: store_global: a value is used after its scope has ended\n"
            "+7 | store_global(g_x, *tile, {0});\n"
            "  it: register<float32, [64]>, made at here:+6\n"
            "  made at here:+6, inside the if of here:+6\n"
            "  help: declare it before that block, and assign it inside");
}

constexpr int kLacks = __LINE__;
struct Lacks {
  void operator()(Int32 ctas) const {
    grid(ctas);
    fence::proxy_async();
  }
};

TEST(WholeMessages, AnInstructionTheTargetLacks) {
  const std::string text = message_of<CompileError>([] { emit_ptx(*Kernel<Lacks>().trace(1)); });
  EXPECT_EQ(from_here(text, kLacks),
            "here:+4: error: fence_proxy_async: needs target sm_90, the kernel is for sm_80\n"
            "+4 | fence::proxy_async();\n"
            "  help: say it in the kernel: static constexpr const char* target = \"sm_90\";");
}

constexpr int kScale = __LINE__;
struct Scale {
  void operator()(Int32 n, int width, Ptr<float32> x_ptr) const {
    grid(cdiv(n, width));
    auto g_x = global_view(x_ptr, {n});
    Int32 at = width * block_idx.x;
    store_global(g_x, load_global(g_x, {at}, {width}) * 2, {at});
  }
};

class ScaleMessages : public testing::Test {
 protected:
  template <class... Arguments>
  std::string of(const Arguments&... arguments) {
    return from_here(message_of<LaunchError>([&] { kernel_(arguments...); }), kScale);
  }
  Device device_ = checked_device("sm_80");
  Kernel<Scale> kernel_{{}, device_};
  DeviceTensor x_ = DeviceTensor::random(device_, float32, {100}, 1);
};

TEST_F(ScaleMessages, ArgumentsAreCountedAsTheCallerDoes) {
  EXPECT_EQ(of(100, 128, DeviceTensor()),
            "here:+2: error: scale: argument 3 (x_ptr) is a null tensor\n"
            "+2 | void operator()(Int32 n, int width, Ptr<float32> x_ptr) const {\n"
            "  help: make it with DeviceTensor::empty or from_host");
}
TEST_F(ScaleMessages, ABufferThatIsTooSmall) {
  EXPECT_EQ(of(101, 128, x_),
            "here:+4: error: scale: argument 3 (x_ptr) is too small: the kernel views 404 bytes, the tensor "
            "has 400\n"
            "+4 | auto g_x = global_view(x_ptr, {n});\n"
            "  tensor  float32[100]\n"
            "  help: pass a larger tensor or smaller sizes");
}
TEST_F(ScaleMessages, NumbersThatDoNotFitTheirParameters) {
  EXPECT_EQ(of(int64_t{5000000000}, 128, x_),
            "here:+2: error: scale: argument 1 (n) is 5000000000, int32 holds -2147483648 to 2147483647\n"
            "+2 | void operator()(Int32 n, int width, Ptr<float32> x_ptr) const {\n"
            "  help: declare a wider parameter or pass a smaller number");
  EXPECT_EQ(of(100, int64_t{1} << 32, x_),
            "error: a compile-time argument is 4294967296, the kernel's parameter has 32 bits\n"
            "  help: declare a wider parameter or pass a smaller number");
}
TEST_F(ScaleMessages, ReleasedTensorsHaveNoContents) {
  DeviceTensor x = DeviceTensor::random(device_, float32, {10, 10}, 1);
  x.release();
  EXPECT_EQ(message_of<LaunchError>([&] { x.to_host(); }),
            "error: to_host of a tensor that has been released: float32[10, 10]\n"
            "  help: use it before release()");
  EXPECT_EQ(message_of<LaunchError>([&] { DeviceTensor().poison(); }), "error: fill of a null tensor");
}

constexpr int kDeadlock = __LINE__;
struct Deadlock {
  static constexpr const char* target = "sm_90a";
  void operator()(Int32 ctas) const {
    grid(ctas);
    warps(1);
    auto barriers = mbarrier::alloc({2});
    sync();
    if (auto thread = single_thread(3)) mbarrier::arrive(barriers[0]);
    mbarrier::wait(barriers[0], 0);
  }
};

TEST(WholeMessages, ADeadlock) {
  const LaunchReport report = Kernel<Deadlock>({}, checked_device("sm_90a"))(1);
  EXPECT_EQ(from_here(report.virtual_report.format(), kDeadlock),
            "here:+9: deadlock: no thread of the CTA can run and no asynchronous operation is pending\n"
            "+9 | mbarrier::wait(barriers[0], 0);\n"
            "  at    here:+9, PTX #  (in deadlock)\n"
            "  by    CTA (0, 0, 0) warp 0\n"
            "  warp 0 lanes 0xffffffff at here:+9 (PTX #) waits for parity 0 of the barrier barriers at "
            "shared 0x400 "
            "(pending 1 of 2 arrivals)");
}

constexpr int kEmptyRing = __LINE__;
struct EmptyRing {
  static constexpr const char* target = "sm_90a";
  void operator()(Int32 ctas) const {
    grid(ctas);
    warps(1);
    kernels::Pipeline keys(2), values(2);
    sync();
    values.consumer_advance();
    values.consumer_acquire();
  }
};

TEST(WholeMessages, ADeadlockOnARingNamesItsVariable) {
  const LaunchReport report = Kernel<EmptyRing>({}, checked_device("sm_90a"))(1);
  EXPECT_EQ(from_here(report.virtual_report.format(), kEmptyRing),
            "here:+9: deadlock: no thread of the CTA can run and no asynchronous operation is pending\n"
            "+9 | values.consumer_acquire();\n"
            "  at    here:+9, PTX #  (in empty_ring)\n"
            "  by    CTA (0, 0, 0) warp 0\n"
            "  warp 0 lanes 0xffffffff at here:+9 (PTX #) waits for parity 0 of the barrier "
            "values.full_barriers[1] at shared 0x428 (pending 1 of 1 arrivals)");
}

/// Before sm_90 waiting is a loop that asks.
struct EmptyRingOfAmpere {
  static constexpr const char* target = "sm_80";
  void operator()(Int32 ctas) const {
    grid(ctas);
    warps(1);
    kernels::Pipeline keys(2), values(2);
    sync();
    values.consumer_advance();
    values.consumer_acquire();
  }
};

TEST(WholeMessages, ALoopThatAsksARingNamesItsVariable) {
  const LaunchReport report = Kernel<EmptyRingOfAmpere>({}, checked_device("sm_80"))(1);
  EXPECT_THAT(
      report.virtual_report.format(),
      ::testing::HasSubstr(
          "for parity 0 of the barrier values.full_barriers[1] at shared 0x28 (pending 1 of 1 arrivals)"));
}

constexpr int kTooMany = __LINE__;
struct TooMany {
  static constexpr const char* target = "sm_90a";
  void operator()(Int32 ctas) const {
    grid(ctas);
    warps(1);
    kernels::Pipeline pipe(2);
    sync();
    mbarrier::arrive(pipe.producer_barrier());
  }
};

TEST(WholeMessages, AnArrivalTooManyNamesTheVariable) {
  const LaunchReport report = Kernel<TooMany>({}, checked_device("sm_90a"))(1);
  EXPECT_THAT(
      from_here(report.virtual_report.format(), kTooMany),
      ::testing::HasSubstr("arrives at the mbarrier pipe.full_barriers[0] at shared 0x400 for phase 1"));
}

constexpr int kOverrun = __LINE__;
struct Overrun {
  void operator()(Int32 n, Ptr<float32> x_ptr) const {
    grid(1);
    store_global(global_view(x_ptr, {n}), zeros(float32, {128}), {0});
  }
};

TEST(WholeMessages, AnOverrun) {
  const Device device = checked_device("sm_80");
  DeviceTensor x = DeviceTensor::random(device, float32, {96}, 1);
  const LaunchReport report = Kernel<Overrun>({}, device)(128, x.address());
  EXPECT_EQ(
      from_here(report.virtual_report.format(), kOverrun),
      "here:+4: out-of-bounds: writes 4 bytes of global memory at 0x#, outside every allocation  (32 times)\n"
      "+4 | store_global(global_view(x_ptr, {n}), zeros(float32, {128}), {0});\n"
      "  at    here:+4, PTX #  (in overrun)\n"
      "  by    CTA (0, 0, 0) warp 3 lane 0\n"
      "  0 bytes past the end of allocation 0 [0x#, 0x#), 384 bytes");
}

TEST(WholeMessages, PtxThatDoesNotParse) {
  vgpu::VirtualGpu gpu({.target = "sm_80"});
  const char* text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n"
      "  .reg .b32 %r<2>;\n  add.s32 %r0, %r1 5;\n  ret;\n}\n";
  EXPECT_EQ(message_of<ParseError>([&] { gpu.load_module(text, "kernel.ptx"); }),
            "kernel.ptx:6: error: expected ';', found '5' (column 20)\n"
            "    6 |   add.s32 %r0, %r1 5;");
}

}  // namespace
}  // namespace imbrex
