// SPDX-License-Identifier: Apache-2.0
// What the first call of a product loads where its machine code was shipped: a GPU that takes everything, computes nothing
// and notes what it was given compiled, and what it found at hand.
#include "runtime/assemble/shipped_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/fused_matmul.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/rows/row_tile.h"
#include "rows/quantise_codes.h"
#include "runtime/assemble/assembler.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

class NotingDevice : public DeviceBackend {
 public:
  std::vector<std::string> compiled, at_hand;

  bool is_virtual() const override { return false; }
  std::string name() const override { return "a GPU that notes"; }
  std::string target() const override { return "sm_90a"; }
  int multiprocessors() const override { return 132; }
  void synchronize() override {}
  uint64_t allocate(int64_t bytes) override {
    return std::exchange(next_, next_ + static_cast<uint64_t>(bytes + 255) / 256 * 256);
  }
  void free(uint64_t, SourceLocation) noexcept override {}
  void check_memory(uint64_t, int64_t) const override {}
  void start_copy_to_device(uint64_t, const void*, int64_t, OnStream) override {}
  void start_copy_from_device(void*, uint64_t, int64_t, OnStream) override {}
  void start_copy_on_device(uint64_t, uint64_t, int64_t, OnStream) override {}
  void start_fill(uint64_t, uint8_t, int64_t, OnStream) override {}
  void check_adopted(CUstream_st*) const override {}
  void synchronize(CUstream_st*) override {}
  std::unique_ptr<DeviceEvent> create_event() override { return nullptr; }
  uint64_t number_of_stream(CUstream_st*) override { return 0; }
  std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) override {
    compiled.push_back(kernel.name);
    return std::make_shared<LoadedKernel>();
  }
  std::shared_ptr<LoadedKernel> load_at_hand(const codegen::CompiledKernel& kernel,
                                             const std::string& ptx_digest) override {
    if (!shipped_code(kernel, ptx_digest)) return nullptr;
    at_hand.push_back(kernel.name);
    return std::make_shared<LoadedKernel>();
  }
  LaunchReport launch(LoadedKernel&, const LaunchPlan&) override { return {}; }
  std::shared_ptr<LoadedModule> load_ptx(const std::string&, const std::string&) override { return nullptr; }
  LaunchReport launch_ptx(LoadedModule&, const std::string&, const vgpu::Launch&, CUstream_st*) override {
    return {};
  }
  void encode_tensor_map(const codegen::TensorMapPlan&, std::span<const int64_t>, void*) override {}

 private:
  uint64_t next_ = 1 << 20;
};

/// A product of 512 rows that gates, or of a few that does not, with scales of blocks or of whole rows.
void call(const std::shared_ptr<NotingDevice>& backend, bool is_gated, int64_t n, bool of_rows) {
  const Device device(backend);
  const int64_t m = is_gated ? 512 : 8, k = 64;
  const auto tensor = [&](DataType type, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, type, std::move(shape));
  };
  const DeviceTensor a = tensor(bfloat16, {m, k}), b = tensor(bfloat16, {n, k}),
                     up = tensor(bfloat16, {n, k}), c = tensor(float8_e4m3, {m, n}),
                     scale = of_rows ? tensor(float32, {m}) : tensor(float32, {(n + 127) / 128, m});
  if (is_gated)
    gated_matmul(a, b, up, c, {.activation = Activation::kSilu, .scale_c = scale});
  else
    quantised_matmul(a, b, c, {.scale_c = scale});
}

class ShippedCode : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::path(testing::TempDir()) / ("shipped_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    setenv("IMBREX_CODE_DIR", folder_.c_str(), 1);
    setenv("IMBREX_CACHE_DIR", "", 1);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static inline std::filesystem::path folder_;
};

TEST_F(ShippedCode, HasWhatQuantisesBehindAProduct) {
  if (find_ptxas() == nullptr) IMBREX_SKIP(ptxas);
  Cache folder(folder_, INT64_MAX);
  int shipped = 0;
  for (const MatmulCode& code : quantise_codes()) {
    const bool is_tried = code.name.find("rows of 1024 ") != std::string::npos ||
                          code.name.find(" at a time") != std::string::npos ||
                          code.name.find("rows of 32 columns, a scale for 128") != std::string::npos;
    if (is_tried) code.ship(folder), ++shipped;
  }
  ASSERT_EQ(shipped, 5);
  const auto behind = [](bool is_gated, int64_t n, bool of_rows) {
    const auto device = std::make_shared<NotingDevice>();
    call(device, is_gated, n, of_rows);
    EXPECT_EQ(device->compiled.size(), 1u);  // the product, of which nothing was shipped here
    return device->at_hand;
  };
  const auto quantise = ElementsAre(StartsWith("quantise_rows"));
  EXPECT_THAT(behind(true, 1024, false), quantise);
  EXPECT_THAT(behind(true, 1024, true), quantise);
  EXPECT_THAT(behind(true, 528, false), quantise);  // 16 divides it, and no more
  EXPECT_THAT(behind(true, 16400, false), quantise);
  EXPECT_THAT(behind(true, 20000, true), quantise);
  EXPECT_THAT(behind(true, 16, false), quantise);
  EXPECT_THAT(behind(false, 1008, true), quantise);
}

TEST(QuantiseCodes, ThereIsOneForRowsOfEachLength) {
  std::set<std::string> names;
  for (const MatmulCode& code : quantise_codes()) EXPECT_TRUE(names.insert(code.name).second) << code.name;
  for (int64_t n = 16; n <= 65536; n += 16) {
    const std::string start = "bfloat16 to float8 behind a product, rows of " +
                              std::to_string(kernels::tile_columns_of(n)) + " columns" +
                              (n > kernels::RowTile::kMostColumns ? " at a time" : "");
    for (const char* scales : {", a scale for each", ", a scale for 128 of them"})
      ASSERT_TRUE(names.contains(start + scales)) << n;
  }
}

}  // namespace
}  // namespace imbrex::runtime
