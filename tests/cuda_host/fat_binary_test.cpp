// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "cuda_host/abi/api_error.h"
#include "cuda_host/image/image.h"
#include "fat_binary_builder.h"

namespace imbrex::cuda {
namespace {

using testing::HasSubstr;

std::string ptx_for(const std::string& target) {
  return "//\n.version 8.0\n.target " + target + "\n.address_size 64\n// " + std::string(300, 'x') + "\n";
}

template <class Body>
std::string refusal(CUresult code, Body&& body) {
  try {
    body();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.code, code);
    return error.message;
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(FatBinary, ReadsEveryCompression) {
  const std::string text = ptx_for("sm_80");
  for (const Compression how : {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    const std::vector<FatEntry> entries =
        read_fat_binary(FatBinaryBuilder().machine_code(80).ptx(text, 80, how).bytes());
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].kind, FatEntryKind::kMachineCode);
    EXPECT_EQ(entries[1].kind, FatEntryKind::kPtx);
    EXPECT_EQ(entries[1].sm, 80);
    EXPECT_EQ(entries[1].text, text);
  }
}

TEST(FatBinary, TheBestPtxIsTheGpusOwnVariantThenTheNewestThatRuns) {
  const std::vector<std::byte> bytes = FatBinaryBuilder()
                                           .ptx(ptx_for("sm_75"), 75)
                                           .ptx(ptx_for("sm_90"), 90)
                                           .ptx(ptx_for("sm_90a"), 90)
                                           .ptx(ptx_for("sm_100a"), 100)
                                           .bytes();
  EXPECT_EQ(ptx_of_image(bytes.data(), "sm_80"), ptx_for("sm_75"));
  EXPECT_EQ(ptx_of_image(bytes.data(), "sm_90a"), ptx_for("sm_90a"));
  EXPECT_EQ(ptx_of_image(bytes.data(), "sm_100a"), ptx_for("sm_100a"));
  EXPECT_EQ(ptx_of_image(bytes.data(), "sm_90"), ptx_for("sm_90"));
}

TEST(FatBinary, FamilyCodeRunsOnItsGenerationOnly) {
  const std::vector<std::byte> bytes = FatBinaryBuilder().ptx(ptx_for("sm_100f"), 100).bytes();
  EXPECT_EQ(ptx_of_image(bytes.data(), "sm_100a"), ptx_for("sm_100f"));
  EXPECT_THAT(refusal(CUDA_ERROR_NO_BINARY_FOR_GPU, [&] { ptx_of_image(bytes.data(), "sm_90a"); }),
              HasSubstr("PTX for sm_100f"));
}

TEST(FatBinary, MachineCodeAloneSaysHowToAddPtx) {
  const std::vector<std::byte> bytes = FatBinaryBuilder().machine_code(90).bytes();
  const std::string message =
      refusal(CUDA_ERROR_NO_BINARY_FOR_GPU, [&] { ptx_of_image(bytes.data(), "sm_90a"); });
  EXPECT_THAT(message, HasSubstr("machine code for sm_90 only"));
  EXPECT_THAT(message, HasSubstr("NVCC_APPEND_FLAGS=\"-gencode arch=compute_90a,code=compute_90a\""));
}

TEST(FatBinary, AWrapperAndPlainPtxAreImagesToo) {
  const std::vector<std::byte> bytes =
      FatBinaryBuilder().ptx(ptx_for("sm_80"), 80, Compression::kZstd).bytes();
  const struct {
    uint32_t magic, version;
    const void* binary;
    const void* more;
  } wrapper{kFatBinaryWrapperMagic, 1, bytes.data(), nullptr};
  EXPECT_EQ(ptx_of_image(&wrapper, "sm_90a"), ptx_for("sm_80"));
  const std::string text = ptx_for("sm_80");
  EXPECT_EQ(ptx_of_image(text.c_str(), "sm_90a"), text);
}

TEST(FatBinary, WhatIsCorruptIsNamed) {
  const std::vector<std::byte> good =
      FatBinaryBuilder().ptx(ptx_for("sm_80"), 80, Compression::kZstd).bytes();
  const auto broken = [&](size_t at, uint8_t value) {
    std::vector<std::byte> bytes = good;
    bytes[at] = std::byte{value};
    return refusal(CUDA_ERROR_INVALID_IMAGE, [&] { read_fat_binary(bytes); });
  };
  EXPECT_THAT(broken(0, 0), HasSubstr("it starts with"));
  EXPECT_THAT(broken(9, 0xFF), HasSubstr("its header speaks of"));
  EXPECT_THAT(broken(16 + 9, 0xFF), HasSubstr("the entry at byte 16 has"));
  EXPECT_THAT(broken(16 + 4, 0), HasSubstr("the entry at byte 16 has"));
  EXPECT_THAT(broken(16 + 64, 0xA5), HasSubstr("does not decompress (zstd"));
  EXPECT_THAT(broken(16 + 56 + 7, 0x7F), HasSubstr("would decompress to"));
}

TEST(FatBinary, NoChangedBytesCrashTheReader) {
  const char* told = std::getenv("IMBREX_FUZZ_ROUNDS");
  const int rounds = told != nullptr ? std::atoi(told) : 4000;
  std::mt19937 random(20240817);
  for (const Compression how : {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    const std::vector<std::byte> good = FatBinaryBuilder()
                                            .machine_code(90)
                                            .ptx(ptx_for("sm_80"), 80, how)
                                            .ptx(ptx_for("sm_90"), 90, how)
                                            .bytes();
    int refused = 0;
    for (int i = 0; i < rounds; ++i) {
      std::vector<std::byte> bytes = good;
      for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      try {
        read_fat_binary(bytes);
      } catch (const ApiError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, rounds / 10);
  }
}

}  // namespace
}  // namespace imbrex::cuda
