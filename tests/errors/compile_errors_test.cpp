// SPDX-License-Identifier: Apache-2.0
// Kernels that cannot be compiled: each message names the kernel's line, what was asked, what is allowed.
#include <optional>

#include "imbrex/runtime/compile.h"
#include "message.h"

namespace imbrex {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

/// Traces and compiles a kernel that takes one float32 pointer.
template <class K>
std::string complaint() {
  return message_of<CompileError>([] { emit_ptx(*Kernel<K>().trace(uint64_t{0})); });
}

struct ProductOfOddDepth {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float32>) const {
    grid(1);
    auto a = shared_tensor(float16, {128, 24}), b = shared_tensor(float16, {64, 24});
    auto d = tcgen05::alloc(float32, {128, 64});
    if (auto warp = single_warp()) tcgen05::mma(a, b.transpose(), d, {.enable_input_d = false});
  }
};
TEST(CompileErrors, ShapesThatDoNotFitAnInstruction) {
  EXPECT_THAT(complaint<ProductOfOddDepth>(),
              AllOf(ContainsRegex("compile_errors_test.cpp:[0-9]+: error: tcgen05_?:?:?.*mma"),
                    HasSubstr("k is 24"), HasSubstr("multiple of 16"), HasSubstr("[128, 24]")));
}

struct HugeTile {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto big = shared_tensor(float32, {256, 512});
    auto small = shared_tensor(float32, {16, 16});
    store_shared(big, zeros(float32, {256, 512}));
    store_shared(small, zeros(float32, {16, 16}));
    sync();
    auto g = global_view(x_ptr, {16, 16});
    store_global(g, load_shared(small) + load_shared(big.slice({0, 0}, {16, 16})), {0, 0});
  }
};
TEST(CompileErrors, TooMuchSharedMemoryNamesTheTensorsThatTakeIt) {
  EXPECT_THAT(complaint<HugeTile>(), AllOf(HasSubstr("shared memory"), HasSubstr("526336"),
                                           HasSubstr("166912"), HasSubstr("big"), HasSubstr("small")));
}

struct HugeAccumulators {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float32>) const {
    grid(1);
    auto first = tcgen05::alloc(float32, {128, 512});
    auto second = tcgen05::alloc(float32, {128, 64});
    sync();
    tcgen05::dealloc(first);
    tcgen05::dealloc(second);
  }
};
TEST(CompileErrors, TooMuchTensorMemoryNamesTheTensorsThatTakeIt) {
  EXPECT_THAT(complaint<HugeAccumulators>(),
              AllOf(HasSubstr("tensor memory"), HasSubstr("576"), HasSubstr("512"), HasSubstr("first")));
}

struct ProductByEveryone {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float32>) const {
    grid(1);
    auto a = shared_tensor(float16, {128, 32}), b = shared_tensor(float16, {64, 32});
    auto d = tcgen05::alloc(float32, {128, 64});
    sync();
    tcgen05::mma(a, b.transpose(), d, {.enable_input_d = false});
    tcgen05::dealloc(d);
  }
};
TEST(CompileErrors, AWrongThreadGroupSaysWhichIsNeededAndWhichItIs) {
  EXPECT_THAT(complaint<ProductByEveryone>(),
              AllOf(ContainsRegex("compile_errors_test.cpp:[0-9]+: error: tcgen05_mma"),
                    HasSubstr("one warp"), HasSubstr("128")));
}

struct EscapedValue {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {128});
    std::optional<RegisterValue> kept;
    if (auto arm = when(block_idx.x < 1)) kept.emplace(load_global(g, {0}, {128}));
    store_global(g, *kept, {0});
  }
};
TEST(CompileErrors, UseAfterTheScopeNamesBothLines) {
  EXPECT_THAT(complaint<EscapedValue>(),
              AllOf(HasSubstr("store_global"), HasSubstr("scope"),
                    ContainsRegex("compile_errors_test.cpp:[0-9]+(.|\n)*compile_errors_test.cpp:[0-9]+")));
}

struct TensorMemoryOnAmpere {
  void operator()(Ptr<float32>) const {
    grid(1);
    auto d = tcgen05::alloc(float32, {128, 64});
    tcgen05::dealloc(d);
  }
};
TEST(CompileErrors, AnInstructionTheTargetLacks) {
  EXPECT_THAT(complaint<TensorMemoryOnAmpere>(),
              AllOf(HasSubstr("tcgen05_alloc"), HasSubstr("sm_100a"), HasSubstr("sm_80")));
}

struct BrokenLoop {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {128});
    for (Int32 i : range(0, 4)) {
      store_global(g, zeros(float32, {128}), {i});
      break;
    }
  }
};
TEST(CompileErrors, ABreakOutOfATracedLoop) {
  EXPECT_THAT(complaint<BrokenLoop>(),
              AllOf(HasSubstr("break"), ContainsRegex("compile_errors_test.cpp:[0-9]+")));
}

struct ReturningLoop {
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {128});
    for (Int32 i : range(0, 4)) {
      store_global(g, zeros(float32, {128}), {i});
      return;
    }
  }
};
TEST(CompileErrors, AReturnOutOfATracedLoop) {
  EXPECT_THAT(complaint<ReturningLoop>(),
              AllOf(HasSubstr("return"), ContainsRegex("compile_errors_test.cpp:[0-9]+")));
}

struct TransposedAndPlain {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float32>) const {
    grid(1);
    auto a = shared_tensor(tfloat32, {128, 128});
    auto b = shared_tensor(tfloat32, {128, 128});
    auto d = tcgen05::alloc(float32, {128, 128});
    sync();
    if (auto warp = single_warp()) {
      tcgen05::mma(a, b.transpose(), d, {.enable_input_d = false});
      tcgen05::mma(a.transpose(), b.transpose(), d, {.enable_input_d = true});
    }
    sync();
    tcgen05::dealloc(d);
  }
};
TEST(CompileErrors, LayoutsThatClashNameBothDemands) {
  const std::string text = complaint<TransposedAndPlain>();
  EXPECT_THAT(text,
              AllOf(HasSubstr("tcgen05_mma"), HasSubstr("%a"),
                    ContainsRegex("compile_errors_test.cpp:[0-9]+(.|\n)*compile_errors_test.cpp:[0-9]+")));
}

}  // namespace
}  // namespace imbrex
