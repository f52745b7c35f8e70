// SPDX-License-Identifier: Apache-2.0
// Block-scaled products of every kind, format and block size against float64, on one CTA and on pairs.
#include "imbrex/runtime/scale_factors.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

/// d = (a * scale_a) x (b * scale_b)^T, a [128 or 256, k].
struct Scaled {
  DataType a = float8_e4m3, b = float8_e4m3, scale = float8_e8m0;
  int64_t block = 32;  // elements that share a factor
  int64_t n = 128, k = 256;
  std::string_view kind = {};
  bool negate_b = false;
  bool a_in_tensor_memory = false;
  int ctas = 1;

  int64_t m() const { return 128 * ctas; }
  int64_t k_tiles() const { return k / block / 4; }
  int64_t n_tiles() const { return (n + 127) / 128; }
};

std::ostream& operator<<(std::ostream& out, const Scaled& p) {
  return out << p.a.name() << " x " << p.b.name() << ", " << p.scale.name() << " for " << p.block << ", n "
             << p.n << ", k " << p.k << " " << p.kind << ", CTAs " << p.ctas;
}

void multiply(const Scaled& p, const Ptr<>& a_ptr, const Ptr<>& b_ptr, const Ptr<>& scale_a_ptr,
              const Ptr<>& scale_b_ptr, const Ptr<float32>& d_ptr) {
  grid(p.ctas);
  if (p.ctas > 1) cluster(p.ctas);
  Int32 rank = 0;
  if (p.ctas > 1) rank = cluster_rank();
  const int64_t cta_n = p.n / p.ctas;
  auto s_a = shared_tensor(p.a, {128, p.k}), s_b = shared_tensor(p.b, {cta_n, p.k});
  auto s_scale_a = shared_tensor(p.scale, {1, p.k_tiles(), 2, 256}),
       s_scale_b = shared_tensor(p.scale, {p.n_tiles(), p.k_tiles(), 2, 256});
  auto t_d = tcgen05::alloc(float32, {128, p.n}, {.cta_group = p.ctas});
  std::optional<TMemoryTensor> t_a;
  if (p.a_in_tensor_memory) t_a = tcgen05::alloc(p.a, {128, p.k}, {.cta_group = p.ctas});
  auto t_scale_b = tcgen05::alloc(p.scale, {128 * p.n_tiles(), 4 * p.k_tiles()}, {.cta_group = p.ctas});
  auto t_scale_a = tcgen05::alloc(p.scale, {128, 4 * p.k_tiles()}, {.cta_group = p.ctas});
  auto loaded = mbarrier::alloc(1), done = mbarrier::alloc(1);
  sync();
  if (auto warp = single_warp()) {
    if (auto thread = single_thread())
      mbarrier::arrive_and_expect_tx(loaded,
                                     s_a.nbytes() + s_b.nbytes() + s_scale_a.nbytes() + s_scale_b.nbytes());
    tma::global_to_shared(global_view(a_ptr, p.a, {p.m(), p.k}), s_a, {rank * 128, 0}, loaded);
    tma::global_to_shared(global_view(b_ptr, p.b, {p.n, p.k}), s_b, {rank * cta_n, 0}, loaded);
    auto g_scale_a = global_view(scale_a_ptr, p.scale, {p.ctas, p.k_tiles(), 2, 256});
    tma::global_to_shared(g_scale_a, s_scale_a, {rank, 0, 0, 0}, loaded);
    auto g_scale_b = global_view(scale_b_ptr, p.scale, {p.n_tiles(), p.k_tiles(), 2, 256});
    tma::global_to_shared(g_scale_b, s_scale_b, {0, 0, 0, 0}, loaded);
  }
  mbarrier::wait(loaded, 0);
  if (p.ctas > 1)
    cluster_sync();
  else
    sync();
  if (auto warp = single_warp()) {
    if (auto leader = when(rank == 0)) {
      tcgen05::copy(tcgen05::scale_factor_matrix(s_scale_a), t_scale_a, {.cta_group = p.ctas});
      tcgen05::copy(tcgen05::scale_factor_matrix(s_scale_b), t_scale_b, {.cta_group = p.ctas});
      if (t_a) tcgen05::copy(s_a, *t_a, {.cta_group = p.ctas});
      for (bool again : {false, true}) {
        const tcgen05::MmaOptions options{
            .enable_input_d = again, .cta_group = p.ctas, .negate_b = p.negate_b, .kind = p.kind};
        if (t_a)
          tcgen05::scaled_mma(*t_a, s_b.transpose(), t_d, t_scale_a, t_scale_b, options);
        else
          tcgen05::scaled_mma(s_a, s_b.transpose(), t_d, t_scale_a, t_scale_b, options);
      }
      if (p.ctas > 1)
        tcgen05::commit(done, {.cta_group = 2, .multicast_mask = 0b11});
      else
        tcgen05::commit(done);
    }
  }
  mbarrier::wait(done, 0, {.scope = p.ctas > 1 ? Scope::kCluster : Scope::kCta});
  store_global(global_view(d_ptr, {p.m(), p.n}), tcgen05::load(t_d), {rank * 128, 0});
  if (p.ctas > 1)
    cluster_sync();
  else
    sync();
  tcgen05::dealloc(t_scale_a);
  tcgen05::dealloc(t_scale_b);
  if (t_a) tcgen05::dealloc(*t_a);
  tcgen05::dealloc(t_d);
}

/// The numbers that elements and factors stand for.
std::vector<double> values_of(const HostTensor& elements, const HostTensor& factors, int64_t block) {
  std::vector<double> values = elements.to_doubles();
  const int64_t k = elements.shape()[1], blocks = factors.shape()[1];
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] *= factors.get(at / k * blocks + at % k / block);
  }
  return values;
}

void check(const Scaled& p, int seeds = 1) {
  SCOPED_TRACE(::testing::PrintToString(p));
  for (int seed = 0; seed < seeds; ++seed) {
    Machine machine(Arch::kSm100a, static_cast<uint64_t>(seed));
    const auto random = [&](DataType type, int64_t rows, int64_t columns, int stream) {
      return HostTensor::random(type, {rows, columns}, static_cast<uint64_t>(seed * 10 + stream), 2.0);
    };
    const int64_t blocks = p.k / p.block;
    const HostTensor a = random(p.a, p.m(), p.k, 0), b = random(p.b, p.n, p.k, 1),
                     scale_a = random(p.scale, p.m(), blocks, 2), scale_b = random(p.scale, p.n, blocks, 3);
    const auto on_device = [&](const HostTensor& host) {
      return DeviceTensor::from_host(machine.device(), host);
    };
    DeviceTensor d = machine.output(float32, {p.m(), p.n});
    machine.run([p](Ptr<> a, Ptr<> b, Ptr<> scale_a, Ptr<> scale_b,
                    Ptr<float32> d) { multiply(p, a, b, scale_a, scale_b, d); },
                on_device(a), on_device(b), on_device(tile_scale_factors(scale_a)),
                on_device(tile_scale_factors(scale_b)), d);
    const std::vector<double> left = values_of(a, scale_a, p.block), right = values_of(b, scale_b, p.block);
    std::vector<double> expected;
    double squares = 0;
    for (int64_t i = 0; i < p.m(); ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t x = 0; x < p.k; ++x) sum += left[i * p.k + x] * right[j * p.k + x];
        expected.push_back(p.negate_b ? -2 * sum : 2 * sum);
        squares += expected.back() * expected.back();
      }
    // Relative to the size of the results: sums are cut 25 bits below their largest term.
    const double size = std::sqrt(squares / static_cast<double>(expected.size()));
    expect_elements(
        d, [&](int64_t i, int64_t j) { return expected[i * p.n + j]; }, 3e-6, size);
  }
}

TEST(ScaledMma, EightSixAndFourBitsByPowersOfTwo) {
  const DataType types[] = {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2, float4_e2m1};
  for (DataType a : types)
    for (DataType b : types) check({.a = a, .b = b, .kind = "mxf8f6f4"});
}

TEST(ScaledMma, FourBits) {
  check({.a = float4_e2m1, .b = float4_e2m1});  // mxf4
  check({.a = float4_e2m1, .b = float4_e2m1, .kind = "mxf4nvf4"});
  check({.a = float4_e2m1, .b = float4_e2m1, .block = 16});
  check({.a = float4_e2m1, .b = float4_e2m1, .scale = float8_ue4m3, .block = 16});
  check({.a = float4_e2m1, .b = float4_e2m1, .scale = float8_ue4m3, .block = 16, .n = 256, .k = 512}, 3);
}

TEST(ScaledMma, WidthsAndDepths) {
  for (int64_t n : {8, 40, 96, 192, 256}) check({.n = n});
  check({.k = 512, .negate_b = true});
}

TEST(ScaledMma, AInTensorMemory) {
  check({.a_in_tensor_memory = true});
  check({.a = float6_e2m3, .b = float4_e2m1, .a_in_tensor_memory = true});  // a byte each
  check({.a = float4_e2m1, .b = float4_e2m1, .a_in_tensor_memory = true});  // packed
  check({.a = float4_e2m1,
         .b = float4_e2m1,
         .scale = float8_ue4m3,
         .block = 16,
         .a_in_tensor_memory = true,
         .ctas = 2});
}

TEST(ScaledMma, Pairs) {
  check({.ctas = 2}, 3);
  check({.n = 256, .k = 128, .ctas = 2});
  check({.a = float8_e5m2, .b = float4_e2m1, .n = 96, .ctas = 2});
  check({.a = float4_e2m1, .b = float4_e2m1, .scale = float8_ue4m3, .block = 16, .n = 160, .ctas = 2}, 3);
}

}  // namespace
}  // namespace imbrex::testing
