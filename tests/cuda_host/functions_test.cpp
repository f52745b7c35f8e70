// SPDX-License-Identifier: Apache-2.0
// The table of driver functions, and the look-ups made from it.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "cuda_host/driver/functions.h"
#include "driver_testing.h"

namespace imbrex::cuda {
namespace {

TEST(DriverFunctions, EachVersionOfAFunctionStandsInTheTableOnce) {
  std::set<std::pair<std::string, int>> seen;
  std::set<std::string> symbols;
  for (const DriverFunction& one : driver_functions()) {
    EXPECT_TRUE(seen.emplace(one.base, one.since).second) << one.base << ' ' << one.since;
    EXPECT_TRUE(symbols.insert(one.symbol).second) << one.symbol;
    EXPECT_TRUE(std::string(one.symbol).starts_with(one.base)) << one.symbol;
    EXPECT_NE(one.address, nullptr);
  }
  EXPECT_GT(seen.size(), 400u);
}

TEST(DriverFunctions, ALookUpGivesTheNewestThatTheProgramKnows) {
  void *old = nullptr, *recent = nullptr, *newest = nullptr;
  int status = -1;
  EXPECT_OK(cuGetProcAddress_v2("cuStreamGetCaptureInfo", &old, 11030, 0, &status));
  EXPECT_OK(cuGetProcAddress_v2("cuStreamGetCaptureInfo", &recent, 12030, 0, &status));
  EXPECT_OK(cuGetProcAddress_v2("cuStreamGetCaptureInfo", &newest, 13000, 0, &status));
  EXPECT_EQ(status, 0);
  EXPECT_NE(old, recent);
  EXPECT_EQ(recent, newest);
  EXPECT_EQ(cuGetProcAddress_v2("cuLaunchKernelEx", &old, 11000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(old, nullptr);
  EXPECT_EQ(cuGetProcAddress_v2("cuNoSuchThing", &old, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, 1);
}

class SecondNames : public Driver {};

TEST_F(SecondNames, MeanTheThreadsDefaultStreamByNull) {
  using Get = CUresult (*)(CUstream, unsigned long long*);
  const auto id_by = [](uint64_t flags) {
    void* get = nullptr;
    EXPECT_OK(cuGetProcAddress_v2("cuStreamGetId", &get, 13000, flags, nullptr));
    unsigned long long id = ~0ull;
    EXPECT_OK(reinterpret_cast<Get>(get)(nullptr, &id));
    return id;
  };
  constexpr uint64_t kLegacy = 1, kPerThread = 2;
  unsigned long long legacy = ~0ull, of_thread = ~0ull;
  EXPECT_OK(cuStreamGetId(reinterpret_cast<CUstream>(kLegacy), &legacy));
  EXPECT_OK(cuStreamGetId(reinterpret_cast<CUstream>(kPerThread), &of_thread));
  EXPECT_NE(legacy, of_thread);
  EXPECT_EQ(id_by(0), legacy);
  EXPECT_EQ(id_by(kPerThread), of_thread);
  EXPECT_EQ(id_by(kLegacy), legacy) << "the second name's word is taken by its own call";
}

}  // namespace
}  // namespace imbrex::cuda
