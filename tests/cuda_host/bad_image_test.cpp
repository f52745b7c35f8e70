// SPDX-License-Identifier: Apache-2.0
// Images that something has happened to: a program gets an error code for them, whatever it was.
#include <cstdlib>
#include <random>

#include "driver_testing.h"
#include "fat_binary_builder.h"

namespace imbrex::cuda {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST_F(Driver, ChangedFatBinariesAreLoadedOrAnsweredByACode) {
  const char* told = std::getenv("IMBREX_FUZZ_ROUNDS");
  const int rounds = told != nullptr ? std::atoi(told) : 400;
  std::mt19937 random(20261123);
  for (const Compression how : {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    const std::vector<std::byte> good = FatBinaryBuilder().machine_code(90).ptx(kKernels, 80, how).bytes();
    int loaded = 0;
    CaptureStderr();
    for (int i = 0; i < rounds; ++i) {
      std::vector<std::byte> bytes = good;
      for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
      CUmodule module = nullptr;
      if (cuModuleLoadData(&module, bytes.data()) != CUDA_SUCCESS) continue;
      ++loaded;
      ASSERT_OK(cuModuleUnload(module));
    }
    GetCapturedStderr();
    EXPECT_LT(loaded, rounds);
    // The driver is as it was.
    CUmodule module = nullptr;
    ASSERT_OK(cuModuleLoadData(&module, good.data()));
    EXPECT_OK(cuModuleUnload(module));
  }
}

TEST_F(Driver, PtxThatEndsTooEarlyIsAnsweredByACode) {
  const std::string whole = kKernels;
  CaptureStderr();
  for (size_t length = 0; length < whole.size(); length += 7) {
    CUmodule module = nullptr;
    if (cuModuleLoadData(&module, whole.substr(0, length).c_str()) == CUDA_SUCCESS) {
      EXPECT_OK(cuModuleUnload(module));
    }
  }
  GetCapturedStderr();
}

}  // namespace
}  // namespace imbrex::cuda
