// SPDX-License-Identifier: Apache-2.0
// The kernels that attention's functions choose on a Hopper GPU, through its assembler: a device refuses those whose registers spill.
// The functions are called on a driver that carries nothing out (bench/fake_driver).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "../full.h"
#include "../ptxas.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/custom_backward.h"

namespace imbrex::testing {
namespace {

/// Heads of K and V, and their sizes.
struct Heads {
  int64_t kv, size, value_size;
};

/// A library that has the driver's name is the driver, if it is there first.
const Device& hopper() {
  static const Device device = [] {
    const char* driver = IMBREX_BINARY_DIR "/bench/fake_driver/libcuda.so.1";
    if (dlopen(driver, RTLD_NOW | RTLD_LOCAL) == nullptr) throw DeviceError({{}, dlerror(), {}, ""});
    return Device::cuda();
  }();
  return device;
}
DeviceTensor tensor(DataType type, const std::vector<int64_t>& shape) {
  return DeviceTensor::empty(hopper(), type, shape);
}

void expect_assembles(const std::string& what, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    ADD_FAILURE() << what << ": " << error.what();
  }
}

constexpr int64_t kHeads = 4, kRows = 64;

/// Options of which kernels are compiled anew, and what they are called.
std::vector<std::pair<std::string, AttentionOptions>> masks(int64_t size) {
  const DeviceTensor of_heads = tensor(float32, {kHeads});
  AttentionOptions none, causal{.causal = true}, all{.window_left = 30, .window_right = 0, .soft_cap = 9};
  all.alibi_slopes = of_heads;
  std::vector<std::pair<std::string, AttentionOptions>> of_all{
      {"no mask", none}, {"causal", causal}, {"window, cap, alibi", all}};
  if (!is_full() || size % 64 != 0) return of_all;
  AttentionOptions window{.window_left = 30, .window_right = 0}, prefix{.prefix = 20}, cap{.soft_cap = 9},
      alibi, sinks;
  alibi.alibi_slopes = of_heads, sinks.sinks = of_heads;
  of_all.insert(of_all.end(),
                {{"window", window}, {"prefix", prefix}, {"cap", cap}, {"alibi", alibi}, {"sinks", sinks}});
  return of_all;
}

void try_training(const Heads& heads, DataType type, bool packed) {
  const auto of = [&](int64_t count, int64_t size) { return tensor(type, {count, kRows, size}); };
  const DeviceTensor q = of(kHeads, heads.size), k = of(heads.kv, heads.size),
                     v = of(heads.kv, heads.value_size), o = of(kHeads, heads.value_size);
  for (auto& [name, options] : masks(heads.size))
    for (const bool deterministic : {true, false}) {
      if (!deterministic && (packed || heads.size > 128)) continue;
      // Forms that are known to spill (docs/attention.md).
      const bool is_large = std::max(heads.size, heads.value_size) >= 208 && heads.size % 64 != 0;
      if (packed && is_large && (heads.size == 240 || options.soft_cap != 0)) continue;
      options.deterministic = deterministic;
      options.log_sum_exp = tensor(float32, {kHeads, kRows});
      if (packed) options.q_begins = options.kv_begins = tensor(int32, {3});
      const std::string what = fmt::format("heads {}, {} of K and V, {} and {}, {}, {}{}{}", kHeads, heads.kv,
                                           heads.size, heads.value_size, type.name(), name,
                                           packed ? ", packed" : "", deterministic ? "" : ", adding");
      expect_assembles("attention: " + what, [&] { attention(q, k, v, o, options); });
      expect_assembles("attention_backward: " + what,
                       [&] { attention_backward(q, k, v, o, o, q, k, v, options); });
    }
}

class AttentionOnHopper : public ::testing::TestWithParam<int64_t> {};

TEST_P(AttentionOnHopper, Trains) {
  IMBREX_NEEDS_PTXAS();
  try_training({kHeads, GetParam(), GetParam()}, bfloat16, false);
  if (is_full() && GetParam() % 64 == 0) try_training({1, GetParam(), GetParam()}, float16, false);
}
TEST_P(AttentionOnHopper, TrainsPackedSequences) {
  IMBREX_NEEDS_PTXAS();
  try_training({1, GetParam(), GetParam()}, bfloat16, true);
  if (is_full() && GetParam() % 64 == 0) try_training({kHeads, GetParam(), GetParam()}, float16, true);
}
TEST_P(AttentionOnHopper, TrainsWithOtherValues) {
  IMBREX_NEEDS_PTXAS();
  const int64_t size = GetParam();
  for (const int64_t values : {128, 256})
    for (const bool packed : {false, true})
      if ((is_full() && size % 64 == 0) || (size == 192 && values == 128) ||
          (size == 128 && values == 256 && !packed))
        try_training({1, size, values}, bfloat16, packed);
}

std::vector<int64_t> head_sizes() {
  if (!is_full()) return {64, 128, 144, 192, 256};
  std::vector<int64_t> all;
  for (int64_t size = 16; size <= 256; size += 16) all.push_back(size);
  return all;
}
INSTANTIATE_TEST_SUITE_P(HeadsOf, AttentionOnHopper, ::testing::ValuesIn(head_sizes()),
                         ::testing::PrintToStringParamName());

/// So many heads that what blocks of K and V have for the gradient of Q is added in the order of the blocks.
TEST(AttentionOnHopperOfManyHeads, Trains) {
  IMBREX_NEEDS_PTXAS();
  const int64_t rows = 1024, heads = 168;
  for (const DataType type : {bfloat16, float16})
    for (const int64_t group : {1, 3}) {
      const DeviceTensor q = tensor(type, {heads, rows, 128}), k = tensor(type, {heads / group, kRows, 128});
      const AttentionOptions options{.log_sum_exp = tensor(float32, {heads, rows})};
      EXPECT_TRUE(BackwardAttentionCall(q, k, k, q, q, q, k, k, options).fills_by_turns());
      expect_assembles(fmt::format("{}, groups of {}", type.name(), group),
                       [&] { attention_backward(q, k, k, q, q, q, k, k, options); });
    }
}

}  // namespace
}  // namespace imbrex::testing
