// SPDX-License-Identifier: Apache-2.0
// Tensors with strides, and views of memory of other programs, on the virtual GPU: copies against plain loops, what
// lies between their rows, kernels that take strides, and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "imbrex/core/error.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/device/strides.h"
#include "scale_kernel.h"

namespace imbrex {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Device virtual_gpu(const char* target = "sm_80") {
  return Device::virtual_gpu({.target = target, .checks = vgpu::CheckSet::all()});
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "not refused";
}

void expect_contains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_THAT(text, HasSubstr(part));
}

/// The elements' places, in row-major order, in units of elements.
std::vector<int64_t> places(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  std::vector<int64_t> all{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t at : all)
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(at + i * strides[d]);
    all = std::move(next);
  }
  return all;
}

TEST(Strides, RowsCoverEveryElementOnce) {
  std::mt19937 random(std::random_device{}());
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)); };
  for (int round = 0; round < 300; ++round) {
    const int64_t rank = up_to(4);
    std::vector<int64_t> shape, order(static_cast<size_t>(rank));
    for (int64_t d = 0; d < rank; ++d) shape.push_back(1 + up_to(4));
    const auto strides = [&] {  // a random order of the dimensions, with random gaps
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, random);
      std::vector<int64_t> all(shape.size());
      int64_t stride = 1 + up_to(1);
      for (int64_t d : order) all[d] = stride, stride *= shape[d] + up_to(1);
      return all;
    };
    const std::vector<int64_t> to = strides(), from = strides();
    const std::vector<int64_t> to_places = places(shape, to), from_places = places(shape, from);
    EXPECT_FALSE(runtime::may_overlap(shape, to));
    EXPECT_EQ(*runtime::span_of(shape, to, 16), to_places.back() + 1);
    const bool is_dense =
        to_places.back() + 1 == static_cast<int64_t>(to_places.size()) && std::ranges::is_sorted(to_places);
    EXPECT_EQ(runtime::is_dense(shape, to), is_dense);
    int64_t prefix = 0;
    while (prefix < static_cast<int64_t>(to_places.size()) && to_places[prefix] == prefix) ++prefix;
    EXPECT_LE(runtime::dense_prefix(shape, to), prefix);
    std::map<int64_t, int64_t> expected, got;
    for (size_t i = 0; i < to_places.size(); ++i)
      for (int64_t byte : {0, 1}) expected[2 * to_places[i] + byte] = 2 * from_places[i] + byte;
    runtime::for_each_rows(shape, to, from, 16, [&](int64_t t, int64_t f, const runtime::ByteRows& rows) {
      for (int64_t i = 0; i < rows.height; ++i)
        for (int64_t b = 0; b < rows.width; ++b)
          EXPECT_TRUE(got.emplace(t + i * rows.to_pitch + b, f + i * rows.from_pitch + b).second);
    });
    EXPECT_EQ(got, expected);
  }
}

TEST(Strides, SetsOfRowsAreFew) {
  const auto sets = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    int count = 0;
    runtime::for_each_rows(shape, runtime::dense_strides(shape), strides, 16,
                           [&](int64_t, int64_t, const runtime::ByteRows&) { ++count; });
    return count;
  };
  EXPECT_EQ(sets({4, 8, 16}, {128, 16, 1}), 1);  // dense
  EXPECT_EQ(sets({4, 8, 16}, {160, 20, 1}), 1);  // padded rows
  EXPECT_EQ(sets({4, 8, 16}, {200, 20, 1}), 4);  // padded matrices of padded rows
  EXPECT_EQ(sets({4, 8, 16}, {1, 4, 32}), 32);
}

TEST(Strides, ElementsThatShareMemory) {
  EXPECT_TRUE(runtime::may_overlap({4, 8}, {0, 1}));
  EXPECT_TRUE(runtime::may_overlap({4, 8}, {7, 1}));
  EXPECT_FALSE(runtime::may_overlap({4, 8}, {8, 1}));
  EXPECT_FALSE(runtime::may_overlap({1, 8}, {0, 1}));
  EXPECT_FALSE(runtime::may_overlap({0, 8}, {0, 0}));
}

/// What a tensor of [rows, columns] in memory of `pitch` elements per row looks like, copied by every way.
TEST(StridedTensor, CopiesHonourStridesAndLeaveGapsAlone) {
  const Device device = virtual_gpu();
  for (DataType dtype : {float16, float32, int8}) {
    const int64_t rows = 7, columns = 13, pitch = 19;
    const HostTensor before = HostTensor::random(dtype, {rows + 2, pitch}, 1);
    const HostTensor host = HostTensor::random(dtype, {rows, columns}, 2);
    const std::vector<double> old = before.to_doubles(), fresh = host.to_doubles();
    const auto expect_written = [&](const DeviceTensor& whole, bool is_transposed) {
      const std::vector<double> now = whole.to_host().to_doubles();
      for (int64_t i = 0; i < rows + 2; ++i)
        for (int64_t j = 0; j < pitch; ++j) {
          const bool is_inside = i >= 1 && i <= rows && j >= 3 && j < 3 + columns;
          const int64_t at = is_transposed ? (j - 3) * rows + i - 1 : (i - 1) * columns + j - 3;
          ASSERT_EQ(now[i * pitch + j], is_inside ? fresh[at] : old[i * pitch + j]) << i << " " << j;
        }
    };
    const auto part_of = [&](const DeviceTensor& whole) { return whole.slice({1, 3}, {rows, columns}); };
    {
      const DeviceTensor whole = DeviceTensor::from_host(device, before);
      DeviceTensor part = part_of(whole);
      EXPECT_EQ(part.strides(), (std::vector{pitch, int64_t{1}}));
      EXPECT_FALSE(part.is_dense());
      EXPECT_EQ(part.address(), whole.address() + static_cast<uint64_t>((pitch + 3) * dtype.bytes()));
      EXPECT_EQ(part.bytes(), ((rows - 1) * pitch + columns) * dtype.bytes());
      part.copy_from(host);
      expect_written(whole, false);
      EXPECT_EQ(part.to_host().to_doubles(), fresh);
      HostTensor back(dtype, {rows, columns});
      part.copy_to_async(back);
      EXPECT_EQ(back.to_doubles(), fresh);
      const DeviceTensor row = part[2];
      EXPECT_EQ(row.shape(), std::vector{columns});
      EXPECT_TRUE(row.is_dense());
      for (int64_t j = 0; j < columns; ++j) EXPECT_EQ(row.to_host().get(j), fresh[2 * columns + j]);
    }
    {
      const DeviceTensor whole = DeviceTensor::from_host(device, before);
      DeviceTensor part = part_of(whole);
      part.copy_from_async(host);
      expect_written(whole, false);
    }
    {  // a transposed view: host tensors of its shape
      const DeviceTensor whole = DeviceTensor::from_host(device, before);
      HostTensor turned(dtype, {columns, rows});
      for (int64_t i = 0; i < columns * rows; ++i) turned.set(i, host.get(i));
      DeviceTensor part = part_of(whole).transpose();
      EXPECT_EQ(part.strides(), (std::vector{int64_t{1}, pitch}));
      part.copy_from(turned);
      expect_written(whole, true);
      EXPECT_EQ(part.to_host().to_doubles(), turned.to_doubles());
      part.poison();
      part.copy_from_async(turned);
      expect_written(whole, true);
    }
    {  // between tensors of other strides
      const DeviceTensor whole = DeviceTensor::from_host(device, before);
      const DeviceTensor other = DeviceTensor::empty(device, dtype, {columns, 4, rows});
      DeviceTensor from = other.slice({0, 2, 0}, {columns, 1, rows}).permute({2, 1, 0});
      DeviceTensor to =
          DeviceTensor::view(device, part_of(whole).address(), dtype, {rows, 1, columns}, {pitch, 5, 1});
      HostTensor host3(dtype, {rows, 1, columns});
      for (int64_t i = 0; i < rows * columns; ++i) host3.set(i, host.get(i));
      from.copy_from(host3);
      to.copy_from(from);
      expect_written(whole, false);
    }
    {  // bytes of elements only
      const DeviceTensor whole = DeviceTensor::from_host(device, before);
      part_of(whole).fill(0);
      const std::vector<double> now = whole.to_host().to_doubles();
      EXPECT_EQ(now[pitch + 3], 0);
      EXPECT_EQ(now[pitch + 2], old[pitch + 2]);
      EXPECT_EQ(now[pitch + 3 + columns], old[pitch + 3 + columns]);
    }
  }
}

TEST(StridedTensor, RepeatsWhatAStrideOfZeroNames) {
  const Device device = virtual_gpu();
  const DeviceTensor row = DeviceTensor::random(device, float32, {5}, 1);
  DeviceTensor rows = DeviceTensor::view(device, row.address(), float32, {3, 5}, {0, 1});
  EXPECT_EQ(rows.bytes(), 20);
  EXPECT_TRUE(rows.may_overlap());
  const HostTensor host = rows.to_host(), one = row.to_host();
  for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(host.get(i), one.get(i % 5));
  for (const std::string& told :
       {refusal([&] { rows.copy_from(host); }), refusal([&] { rows.copy_from_async(host); }),
        refusal([&] { rows.poison(); }),
        refusal([&] { rows.copy_from(DeviceTensor::from_host(device, host)); })})
    expect_contains(told, {"elements share memory", "float32[3, 5] with strides [0, 1]", "is for reading"});
}

TEST(StridedTensor, OfElementsOfLessThanAByte) {
  const Device device = virtual_gpu();
  const DeviceTensor whole = DeviceTensor::random(device, float4_e2m1, {6, 20}, 1);
  const HostTensor all = whole.to_host();
  const HostTensor part = whole.slice({1, 4}, {5, 8}).to_host();
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(part.get(i), all.get((1 + i / 8) * 20 + 4 + i % 8));
  expect_contains(refusal([&] { whole.slice({0, 3}, {6, 8}); }), {"element 3 of 4 bits", "whole byte"});
  expect_contains(refusal([&] { whole.transpose(); }),
                  {"dimension 0", "20 elements of 4 bits", "rows of whole bytes"});
}

TEST(StridedTensor, ViewsStayInsideTheirTensor) {
  const Device device = virtual_gpu();
  DeviceTensor t = DeviceTensor::random(device, float32, {4, 6}, 1);
  expect_contains(refusal([&] {
                    t.slice({0, 3}, {4, 4});
                  }),
                  {"4 elements from 3 on along dimension 1, which has 6", "float32[4, 6]"});
  expect_contains(refusal([&] { t.slice({-1, 0}, {1, 1}); }), {"from -1 on along dimension 0"});
  expect_contains(refusal([&] { t.slice({0}, {1, 1}); }), {"1 offsets and 2 extents for 2 dimensions"});
  expect_contains(refusal([&] { t[4]; }), {"index 4 of a tensor of 4"});
  expect_contains(refusal([&] { t.permute({0, 0}); }), {"[0, 0] is no order of 2 dimensions"});
  expect_contains(refusal([&] { t.permute({0}); }), {"[0] is no order of 2 dimensions"});
  expect_contains(refusal([&] { t[0].transpose(); }), {"1 dimensions"});
  const DeviceTensor part = t.slice({1, 1}, {2, 2});
  t.release();
  EXPECT_EQ(part.address(), 0u);
  expect_contains(refusal([&] { part.to_host(); }), {"released", "float32[2, 2] with strides [6, 1]"});
}

/// y = 2 x of matrices whose rows lie apart.
struct ScaleRows {
  void operator()(Int32 m, Int32 n, Ptr<float32> x_ptr, Int64 x_stride, Ptr<float32> y_ptr,
                  Int64 y_stride) const {
    grid(cdiv(m, 8), cdiv(n, 64));
    warps(4);
    Int32 row = 8 * block_idx.x, column = 64 * block_idx.y;
    auto x = load_global(global_view(x_ptr, {m, n}, {x_stride, 1}), {row, column}, {8, 64});
    store_global(global_view(y_ptr, {m, n}, {y_stride, 1}), x * 2.0f, {row, column});
  }
};

TEST(StridedTensor, IsAnArgumentOfKernelsThatTakeStrides) {
  const Device device = virtual_gpu();
  const int64_t m = 21, n = 75;
  const DeviceTensor in = DeviceTensor::random(device, float32, {m, n + 11}, 1);
  DeviceTensor out = DeviceTensor::random(device, float32, {m, n + 30}, 2);
  const HostTensor before = out.to_host();
  const DeviceTensor x = in.slice({0, 5}, {m, n}), y = out.slice({0, 7}, {m, n});
  Kernel<ScaleRows> kernel({}, device);
  kernel(m, n, x, x.strides()[0], y, y.strides()[0]).expect_clean();
  const HostTensor after = out.to_host(), read = x.to_host();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n + 30; ++j) {
      const bool is_inside = j >= 7 && j < 7 + n;
      EXPECT_EQ(after.get(i * (n + 30) + j),
                is_inside ? 2 * read.get(i * n + j - 7) : before.get(i * (n + 30) + j));
    }
  // A row repeated: the same element of memory is read again and again.
  const DeviceTensor repeated = DeviceTensor::view(device, in.address(), float32, {m, n}, {0, 1});
  kernel(m, n, repeated, 0, y, y.strides()[0]).expect_clean();
  for (int64_t i = 0; i < m * n; ++i) EXPECT_EQ(y.to_host().get(i), 2 * in.to_host().get(i % n));
}

TEST(StridedTensor, IsRefusedWhereTheKernelExpectsNoStrides) {
  const Device device = virtual_gpu();
  const int64_t n = 300;
  const DeviceTensor x = DeviceTensor::random(device, float32, {3, n + 4}, 1),
                     y = DeviceTensor::empty(device, float32, {3 * n});
  Kernel<Scale> kernel({}, device);
  const DeviceTensor part = x.slice({0, 4}, {3, n});
  expect_contains(
      refusal([&] { kernel(3 * n, 2, part, y); }),
      {"argument 3 (x_ptr) is not dense, and the kernel views it as if it were",
       "float32[3, 300] with strides [304, 1]", "view    [900] with strides [1]", "global_view(pointer"});
  expect_contains(refusal([&] { kernel(n, 2, x.transpose(), y); }), {"x_ptr) is not dense", "[1, 304]"});
  kernel(n, 2, part, y).expect_clean();                // a row of it
  kernel(3 * n, 2, part.address(), y).expect_clean();  // as told
}

TEST(View, IsMemoryOfAnotherOwner) {
  const Device device = virtual_gpu();
  const int64_t n = 300;
  DeviceTensor owner = DeviceTensor::random(device, float32, {2, n}, 1);
  DeviceTensor y = DeviceTensor::empty(device, float32, {n});
  Kernel<Scale> kernel({}, device);
  {
    const DeviceTensor row = DeviceTensor::view(device, owner.address() + 4 * n, float32, {1, n}, {12345, 1});
    EXPECT_EQ(row.bytes(), 4 * n);
    kernel(n, 2, row, y).expect_clean();
  }
  const HostTensor all = owner.to_host(), out = y.to_host();  // which the view did not free
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.get(i), 2 * all.get(n + i));
  DeviceTensor view = DeviceTensor::view(device, owner.address(), float32, {2, n}, {n, 1});
  view.release();
  expect_contains(refusal([&] { view.to_host(); }), {"released"});
  EXPECT_NE(owner.address(), 0u);
}

TEST(View, RefusesWhatKernelsCannotUse) {
  const Device device = virtual_gpu();
  const int64_t n = 300;
  DeviceTensor owner = DeviceTensor::random(device, float32, {2, n}, 1);
  const uint64_t at = owner.address();
  const auto view = [&](uint64_t address, std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
    return refusal([&] { DeviceTensor::view(device, address, float32, shape, strides); });
  };
  EXPECT_EQ(view(at, {2, n}, {n, 1}), "not refused");
  EXPECT_EQ(view(at, {n, 2}, {1, n}), "not refused");
  EXPECT_EQ(view(at, {5, n}, {0, 1}), "not refused");
  expect_contains(view(at, {2, n}, {n + 4, 1}), {"float32[2, 300] with strides [304, 1], 2416 bytes"});
  expect_contains(view(at, {2, n}, {1}), {"DeviceTensor::view", "1 strides for 2 dimensions"});
  expect_contains(view(at, {2, n}, {-n, 1}), {"DeviceTensor::view", "dimension 0", "stride of -300",
                                              "0 or more", "[-300, 1]", "lowest address"});
  expect_contains(view(at, {3, 3}, {INT64_MAX / 2, 1}), {"more memory than 64 bits address"});
  expect_contains(view(0, {n}), {"address is null"});
  expect_contains(view(at + 2, {n}), {"not a multiple of 4", "align"});
  expect_contains(view(at, {-1}), {"negative extent"});
  expect_contains(view(at, {3, n}), {"DeviceTensor::view", "float32[3, 300], 3600 bytes", " 3600 bytes at 0x",
                                     "are not inside one"});
  owner.release();
  expect_contains(view(at, {n}), {"DeviceTensor::view", "float32[300]"});
  EXPECT_EQ(view(at, {0}), "not refused");
}

TEST(View, OfFreedMemoryIsFoundByTheLaunch) {
  const Device device = virtual_gpu();
  const int64_t n = 300;
  DeviceTensor owner = DeviceTensor::random(device, float32, {n}, 1);
  DeviceTensor y = DeviceTensor::empty(device, float32, {n});
  const DeviceTensor view = DeviceTensor::view(device, owner.address(), float32, {n});
  owner.release();
  Kernel<Scale> kernel({}, device);
  EXPECT_FALSE(kernel(n, 2, view, y).clean());
}

/// Copies a matrix by TMA.
struct TmaCopy {
  static constexpr const char* target = "sm_90a";
  void operator()(Int32 m, Int32 n, Ptr<float16> x_ptr, Int64 x_stride, Ptr<float16> y_ptr,
                  Int64 y_stride) const {
    grid(cdiv(m, 64), cdiv(n, 64));
    warps(4);
    Int32 row = 64 * block_idx.x, column = 64 * block_idx.y;
    auto tile = shared_tensor(float16, {64, 64});
    Barrier full = mbarrier::alloc({1})[0];
    sync();
    if (auto warp = single_warp(0)) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(full, tile.nbytes());
      tma::global_to_shared(global_view(x_ptr, {m, n}, {x_stride, 1}), tile, {row, column}, full);
    }
    mbarrier::wait(full, 0);
    store_global(global_view(y_ptr, {m, n}, {y_stride, 1}), load_shared(tile), {row, column});
  }
};

TEST(StridedTensor, TmaTakesStridesOf16Bytes) {
  const Device device = virtual_gpu("sm_90a");
  const int64_t m = 70, n = 90;
  const DeviceTensor in = DeviceTensor::random(device, float16, {m, 104}, 1);
  DeviceTensor out = DeviceTensor::empty(device, float16, {m, n + 1});
  out.poison();
  const DeviceTensor x = in.slice({0, 8}, {m, n}), y = out.slice({0, 1}, {m, n});
  Kernel<TmaCopy> kernel({}, device);
  kernel(m, n, x, x.strides()[0], y, y.strides()[0]).expect_clean();
  EXPECT_EQ(y.to_host().to_doubles(), x.to_host().to_doubles());
  const DeviceTensor row = DeviceTensor::view(device, in.address(), float16, {m, n}, {0, 1});
  kernel(m, n, row, 0, y, y.strides()[0]).expect_clean();
  EXPECT_EQ(y.to_host().to_doubles(), row.to_host().to_doubles());

  const DeviceTensor odd = DeviceTensor::random(device, float16, {m, 100}, 2);
  expect_contains(refusal([&] { kernel(m, n, odd, 100, y, y.strides()[0]); }),
                  {"TMA copy of x_ptr: a stride of 200 bytes is not a multiple of 16", "extent 90",
                   "stride 200 bytes", "multiples of 8 elements of float16", "copy_async"});
  expect_contains(refusal([&] {
                    kernel(m, n, in.slice({0, 7}, {m, n}), 104, y, y.strides()[0]);
                  }),
                  {"argument 3 (x_ptr)", "not a multiple of 16"});
}

}  // namespace
}  // namespace imbrex
