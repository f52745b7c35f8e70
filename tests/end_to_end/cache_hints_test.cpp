// SPDX-License-Identifier: Apache-2.0
// Hints to the caches: loads, stores and cp.async with every one give what they give without, and assemble.
#include <gmock/gmock.h>

#include <regex>

#include "../ptxas.h"
#include "codegen/codegen.h"
#include "ir/ir.h"
#include "kit.h"
#include "lang/trace.h"
#include "passes/pipeline.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

constexpr L1Priority kL1[] = {L1Priority::kDefault, L1Priority::kEvictFirst, L1Priority::kEvictNormal,
                              L1Priority::kEvictLast, L1Priority::kNoAllocate};
constexpr CachePolicy kL2[] = {CachePolicy::kDefault, CachePolicy::kEvictFirst, CachePolicy::kEvictNormal,
                               CachePolicy::kEvictLast};

/// y = 2 x, through registers and through shared memory, with hints.
struct Hinted {
  L1Priority l1;
  CachePolicy l2;
  DataType type = float32;
  void operator()(Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) const {
    grid(cdiv(n, 256));
    auto g_x = global_view(x_ptr, type, {n}), g_y = global_view(y_ptr, type, {n});
    auto tile = shared_tensor(type, {256});
    Int32 at = 256 * block_idx.x;
    if (type.bits() >= 32) {
      copy_async(g_x, tile, {at}, {.cache_policy = l2});
      copy_async_wait_all();
    } else {
      store_shared(tile, load_global(g_x, {at}, {256}));
    }
    sync();
    auto loaded = load_global(g_x, {at}, {256}, {.l1_priority = l1, .cache_policy = l2});
    store_global(g_y, loaded + load_shared(tile), {at}, {.l1_priority = l1, .cache_policy = l2});
  }
};

TEST(CacheHints, ChangeNoResult) {
  for (L1Priority l1 : kL1)
    for (CachePolicy l2 : kL2)
      for (DataType type : {DataType(float32), DataType(float16)}) {
        Machine machine;
        const int64_t n = 1000;
        DeviceTensor x = machine.random(type, {n}), y = machine.output(type, {n});
        const Hinted kernel{l1, l2, type};
        machine.run([kernel](Int32 n, Ptr<> x, Ptr<> y) { kernel(n, x, y); }, n, x, y);
        const std::vector<double> in = x.to_host().to_doubles();
        expect_elements(y, [&](int64_t i) { return 2 * in[static_cast<size_t>(i)]; });
      }
}

std::string ptx_of(const Hinted& kernel) {
  const auto traced = lang::trace(kernel, {}, "sm_80");
  passes::run_pipeline(*traced, {});
  return codegen::generate(*traced, {}).ptx;
}

TEST(CacheHints, StandOnTheInstructionsAndAssemble) {
  const std::string ptx = ptx_of({L1Priority::kNoAllocate, CachePolicy::kEvictFirst});
  EXPECT_THAT(ptx, HasSubstr("createpolicy.fractional.L2::evict_first.b64"));
  EXPECT_THAT(ptx, HasSubstr("ld.global.L1::no_allocate.L2::cache_hint"));
  EXPECT_THAT(ptx, HasSubstr("st.global.L1::no_allocate.L2::cache_hint"));
  EXPECT_EQ(ptx.find("createpolicy"), ptx.rfind("createpolicy")) << "one policy for all";
  IMBREX_NEEDS_PTXAS();
  for (L1Priority l1 : kL1)
    for (CachePolicy l2 : kL2) EXPECT_EQ(ptxas_says(ptx_of({l1, l2}), "-arch=sm_80"), "");
}

/// Copies of every size have the hint, also where an edge cuts them, and addresses that ptxas does not take apart.
TEST(CacheHints, StandOnCopies) {
  const auto text = [](int64_t rows, bool has_edge) {
    const auto traced =
        lang::trace(RetargetedLambda([=](Int32 n, Ptr<float32> p) {
                      grid(1);
                      auto tile = shared_tensor(float32, {rows, 128});
                      auto g = global_view(p, {has_edge ? ScalarArg(n) : ScalarArg(rows), 128});
                      copy_async(g, tile, {0, 0}, {.cache_policy = CachePolicy::kEvictFirst});
                      copy_async_wait_all();
                    }),
                    {}, "sm_90a");
    passes::run_pipeline(*traced, {});
    return codegen::generate(*traced, {}).ptx;
  };
  EXPECT_THAT(text(8, false), HasSubstr("cp.async.cg.shared.global.L2::cache_hint"));
  EXPECT_THAT(text(8, true), HasSubstr("cp.async.cg.shared.global.L2::cache_hint"));
  EXPECT_THAT(text(2, false), HasSubstr("cp.async.ca.shared.global.L2::cache_hint"));
  for (const bool has_edge : {false, true}) {
    const std::string ptx = text(8, has_edge);
    std::smatch match;
    ASSERT_TRUE(std::regex_search(ptx, match, std::regex(R"(cache_hint \[(%r\d+))")));
    EXPECT_THAT(ptx, HasSubstr("min.u32 " + match[1].str() + ","));
  }
}

TEST(CacheHints, OfL1AreNotForCpAsync) {
  try {
    lang::trace(RetargetedLambda([](Ptr<float32> p) {
                  grid(1);
                  copy_async(global_view(p, {64}), shared_tensor(float32, {64}), {0},
                             {.l1_priority = L1Priority::kEvictFirst});
                }),
                {}, "sm_80");
    FAIL() << "no error";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cp.async takes no hint to the L1 cache"));
  }
}

}  // namespace
}  // namespace imbrex::testing
