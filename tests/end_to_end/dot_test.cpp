// SPDX-License-Identifier: Apache-2.0
// dot of any types: tensor cores where they are exact, the threads' arithmetic elsewhere.
#include "kit.h"

namespace imbrex::testing {
namespace {

struct Types {
  DataType a, b, c;
};

TEST(Dot, OfEveryTypeAndExtent) {
  const Types types[] = {
      {float32, float32, float32},  {float64, float64, float64}, {float16, float16, float32},
      {bfloat16, float32, float32}, {int32, int32, int32},       {int8, int8, int32},
      {uint8, int16, int32},        {int64, int32, int64},       {float16, float64, float64}};
  const int64_t shapes[][3] = {{16, 8, 16}, {32, 32, 16}, {5, 7, 3}, {1, 64, 8}, {48, 20, 9}, {64, 64, 16}};
  for (const Types& t : types)
    for (const auto& [m, n, k] : shapes) {
      SCOPED_TRACE(::testing::Message()
                   << t.a.name() << " " << t.b.name() << " " << m << " " << n << " " << k);
      Machine machine;
      DeviceTensor a = machine.random(t.a, {m, k}), b = machine.random(t.b, {k, n}),
                   c = machine.random(t.c, {m, n}), d = machine.output(t.c, {m, n});
      machine.run(
          [t, m = m, n = n, k = k](Ptr<> a_ptr, Ptr<> b_ptr, Ptr<> c_ptr, Ptr<> d_ptr) {
            grid(1);
            auto left = load_global(global_view(a_ptr, t.a, {m, k}), {0, 0}, {m, k});
            auto right = load_global(global_view(b_ptr, t.b, {k, n}), {0, 0}, {k, n});
            auto sum = load_global(global_view(c_ptr, t.c, {m, n}), {0, 0}, {m, n});
            store_global(global_view(d_ptr, t.c, {m, n}), dot(left, right, sum), {0, 0});
          },
          a, b, c, d);
      if (t.c.is_integer()) {
        const std::vector<int64_t> x = [&] {
          std::vector<int64_t> out;
          for (double v : a.to_host().to_doubles()) out.push_back(static_cast<int64_t>(v));
          return out;
        }();
        const std::vector<double> y = b.to_host().to_doubles(), z = c.to_host().to_doubles();
        if (t.c == int64) continue;  // doubles do not hold them: the next test
        expect_elements(d, [&](int64_t i, int64_t j) {
          uint32_t sum = static_cast<uint32_t>(static_cast<int64_t>(z[i * n + j]));
          for (int64_t p = 0; p < k; ++p)
            sum += static_cast<uint32_t>(x[i * k + p]) *
                   static_cast<uint32_t>(static_cast<int64_t>(y[p * n + j]));
          return static_cast<int32_t>(sum);
        });
        continue;
      }
      const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles(),
                                z = c.to_host().to_doubles();
      expect_elements(
          d,
          [&](int64_t i, int64_t j) {
            double sum = z[i * n + j];
            for (int64_t p = 0; p < k; ++p) sum += x[i * k + p] * y[p * n + j];
            return sum;
          },
          t.c == float64 ? 1e-13 : 1e-5, 4);
    }
}

TEST(Dot, OfLongIntegersWraps) {
  Machine machine;
  DeviceTensor a = machine.random(int64, {8, 4}), b = machine.random(int64, {4, 8}),
               d = machine.output(int64, {8, 8});
  machine.run(
      [](Ptr<int64> a_ptr, Ptr<int64> b_ptr, Ptr<int64> d_ptr) {
        grid(1);
        warps(1);
        store_global(global_view(d_ptr, {8, 8}),
                     dot(load_global(global_view(a_ptr, {8, 4}), {0, 0}, {8, 4}),
                         load_global(global_view(b_ptr, {4, 8}), {0, 0}, {4, 8})),
                     {0, 0});
      },
      a, b, d);
  const std::vector<uint64_t> x = values<uint64_t>(a), y = values<uint64_t>(b), got = values<uint64_t>(d);
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 8; ++j) {
      uint64_t sum = 0;
      for (int64_t k = 0; k < 4; ++k) sum += x[i * 4 + k] * y[k * 8 + j];
      EXPECT_EQ(got[i * 8 + j], sum) << i << " " << j;
    }
}

TEST(Dot, InALoopOverSharedMemory) {
  // A product in float32 as the fallback is meant: tiles through shared memory, sums that stay where they are.
  Machine machine;
  constexpr int64_t m = 96, n = 80, k = 70;
  DeviceTensor a = machine.random(float32, {m, k}), b = machine.random(float32, {n, k}),
               c = machine.output(float32, {m, n});
  machine.run(
      [](Ptr<float32> a_ptr, Ptr<float32> b_ptr, Ptr<float32> c_ptr) {
        grid(2, 2);
        Int32 i = 64 * block_idx.x, j = 64 * block_idx.y;
        auto s_a = shared_tensor(float32, {64, 16}), s_b = shared_tensor(float32, {64, 16});
        RegisterTensor sum = zeros(float32, {64, 64});
        for (Int32 p : range(0, k, 16)) {
          store_shared(s_a, load_global(global_view(a_ptr, {m, k}), {i, p}, {64, 16}));
          store_shared(s_b, load_global(global_view(b_ptr, {n, k}), {j, p}, {64, 16}));
          sync_threads();
          sum = dot(load_shared(s_a), load_shared(s_b.transpose()), sum);
          sync_threads();
        }
        store_global(global_view(c_ptr, {m, n}), sum, {i, j});
      },
      a, b, c);
  const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles();
  expect_elements(
      c,
      [&](int64_t i, int64_t j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += x[i * k + p] * y[j * k + p];
        return sum;
      },
      1e-5, 4);
}

TEST(Dot, SaysWhatDoesNotMeet) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {8, 8});
  const auto fails = [&](auto body) { return error_of<CompileError>([&] { machine.launch(body, x); }); };
  EXPECT_THAT(fails([](Ptr<float32> p) {
                grid(1);
                auto t = load_global(global_view(p, {8, 8}), {0, 0}, {8, 8});
                dot(t, t.reshape({16, 4}));
              }),
              ::testing::HasSubstr("inner sizes differ, a has k = 8 and b has k = 16"));
  EXPECT_THAT(fails([](Ptr<float32> p) {
                grid(1);
                auto t = load_global(global_view(p, {8, 8}), {0, 0}, {8, 8});
                dot(t, t, zeros(int32, {8, 8}));
              }),
              ::testing::HasSubstr("float32 x float32 is summed in int32"));
}

}  // namespace
}  // namespace imbrex::testing
