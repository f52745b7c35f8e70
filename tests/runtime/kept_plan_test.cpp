// SPDX-License-Identifier: Apache-2.0
// Plans of kernels as entries of the cache: what is read is what was written, for every kernel of the library; what is
// damaged, of other members or of other sources is not taken.
#include "runtime/assemble/kept_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "../skip.h"
#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "imbrex/imbrex.h"
#include "imbrex/runtime/registry.h"
#include "library_kernel.h"
#include "runtime/cache/sources_digest.h"
#include "runtime/compile/compile.h"
#include "runtime/host/files.h"
#include "runtime/launch/host_program.h"

namespace imbrex::runtime {

/// Not of an unnamed namespace: kernels of those are not kept.
struct CountsItsTraces {
  static inline int traces = 0;
  int add = 5;
  void operator()(Int32 n, Ptr<int32> out_ptr) const {
    ++traces;
    grid(cdiv(n, 128));
    warps(4);
    Int32 offset = block_idx.x * 128;
    store_global(global_view(out_ptr, {n}),
                 register_tensor(int32, {128}, [&](auto i) { return offset + i + add; }), {offset});
  }
};

namespace {

codegen::CompiledKernel compiled(const RegisteredKernel& kernel) {
  std::map<std::string, int64_t> sizes;
  for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
  Case c(Case::Mode::kTrace, std::nullopt, sizes, 0);
  kernel.run(c, std::nullopt, kernel.space.configuration(0));
  return compile(*c.function);
}

/// A plan with something of everything: tensor maps, a host program, several buffers.
const codegen::CompiledKernel& large_kernel() {
  static const codegen::CompiledKernel kernel = compiled(registered_kernel("hopper_matmul_h8"));
  return kernel;
}

TEST(KeptPlan, EveryKernelOfTheLibraryIsReadAsItWasWritten) {
  int kernels = 0;
  for (const auto& [name, registered] : registered_kernels()) {
    const codegen::CompiledKernel kernel = compiled(registered);
    const std::string packed = pack_plan(kernel, sha256(kernel.ptx));
    const std::optional<KeptPlan> plan = unpack_plan(packed);
    ASSERT_TRUE(plan) << kernel.name;
    EXPECT_EQ(plan->ptx_digest, sha256(kernel.ptx));
    EXPECT_EQ(pack_plan(plan->kernel, plan->ptx_digest), packed) << kernel.name;
    EXPECT_EQ(plan->kernel.name, kernel.name);
    EXPECT_EQ(plan->kernel.ptx, "");
    EXPECT_EQ(plan->kernel.shared_bytes, kernel.shared_bytes);
    EXPECT_EQ(plan->kernel.host.size(), kernel.host.size());
    EXPECT_EQ(plan->kernel.tensor_maps.size(), kernel.tensor_maps.size());
    EXPECT_STREQ(plan->kernel.where.file, kernel.where.file);
    EXPECT_NE(plan->kernel.where.file, kernel.where.file) << "a string of its own";
    // The launch's numbers, from any arguments.
    std::mt19937_64 random(kernels);
    std::vector<int64_t> arguments(kernel.arguments.size()), slots(kernel.host.size()), again(slots);
    for (int64_t& argument : arguments) argument = 1 + static_cast<int64_t>(random() % 1000);
    try {
      evaluate_host(kernel, arguments, slots);
    } catch (const LaunchError&) {
      continue;  // not for such numbers
    }
    evaluate_host(plan->kernel, arguments, again);
    EXPECT_EQ(slots, again) << kernel.name;
    ++kernels;
  }
  EXPECT_GT(kernels, 20);
}

TEST(KeptPlan, EveryTruncationIsNoticed) {
  const std::string whole = pack_plan(large_kernel(), "digest");
  for (size_t length = 0; length < whole.size(); ++length)
    ASSERT_FALSE(unpack_plan(whole.substr(0, length))) << length;
  EXPECT_FALSE(unpack_plan(whole + "x"));
}

TEST(KeptPlan, DamageThatChecksumsMissedIsReadOrRefusedButNeverFatal) {
  const std::string whole = pack_plan(large_kernel(), "digest");
  std::mt19937_64 random(5);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 3; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    refused += !unpack_plan(damaged);
  }
  EXPECT_GT(refused, 0);
}

TEST(KeptPlan, ADamagedEntryIsRemovedAndMadeAgain) {
  const TemporaryFolder folder;
  Cache cache(folder.path(), 1 << 20);
  const CacheKey key = plan_key("a kernel", "sm_90a");
  ASSERT_TRUE(keep_plan(large_kernel(), "a kernel", "sm_90a", cache));
  std::optional<std::string> payload = cache.load(key);
  ASSERT_TRUE(payload);
  EXPECT_TRUE(unpack_plan(*payload));
  const std::string file = folder.path() + "/plan/" + key.group + "/" + sha256(key.text()).substr(0, 40);
  std::string content = read_file(file).value();
  content[content.size() / 2] ^= 1;
  ASSERT_EQ(write_file_whole(file, content), 0);
  EXPECT_FALSE(cache.load(key));
  EXPECT_FALSE(read_file(file));
  ASSERT_TRUE(keep_plan(large_kernel(), "a kernel", "sm_90a", cache));
  EXPECT_TRUE(cache.load(key));
}

TEST(KeptPlan, KeysDifferByAllThatAKernelDependsOn) {
  const CacheKey key = plan_key("a kernel", "sm_90a");
  EXPECT_EQ(key.part("sources"), sources_digest);
  EXPECT_EQ(sources_digest.size(), 64u);
  EXPECT_NE(key.text(), plan_key("a kernel", "sm_90").text());
  EXPECT_NE(key.text(), plan_key("another", "sm_90a").text());
}

TEST(KeptPlan, FirstCallsThatFindOneTraceNothing) {
  if (!Device::has_cuda()) IMBREX_SKIP(gpu);
  const Device device = Device::cuda();
  const std::string once =
      std::to_string(std::random_device()());  // not what an earlier run of the test left
  const auto run = [&](int add, const std::string& members) {
    Kernel<CountsItsTraces> kernel({add}, device);
    kernel.keep_compiled_as(members);
    const DeviceTensor out = DeviceTensor::empty(device, int32, {1000});
    DeviceTensor(out).poison();
    kernel(1000, out);
    const HostTensor got = out.to_host();
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(got.get(i), static_cast<double>(i + add));
  };
  CountsItsTraces::traces = 0;
  run(5, once + " 5");
  EXPECT_EQ(CountsItsTraces::traces, 1);
  run(5, once + " 5");
  EXPECT_EQ(CountsItsTraces::traces, 1) << "found, as another process would find it";
  run(6, once + " 6");
  EXPECT_EQ(CountsItsTraces::traces, 2) << "of other members";
}

struct Inner {
  int a = 1;
  bool b = false;
};
struct Outer {
  int first = 2;
  Inner inner;
  DataType type = float16;
  void operator()(Int32) const {}
};
struct Empty {
  void operator()(Int32) const {}
};

TEST(KeptPlan, TextsOfMembersNameEveryMember) {
  const std::string text = detail::member_text(Outer{});
  EXPECT_NE(text, detail::member_text(Outer{.first = 3}));
  EXPECT_NE(text, detail::member_text(Outer{.inner = {.a = 2}}));
  EXPECT_NE(text, detail::member_text(Outer{.inner = {.b = true}}));
  EXPECT_NE(text, detail::member_text(Outer{.type = bfloat16}));
  EXPECT_EQ(text, detail::member_text(Outer{}));
  EXPECT_EQ(detail::member_text(Empty{}), "{}");
}

}  // namespace
}  // namespace imbrex::runtime
