// SPDX-License-Identifier: Apache-2.0
// Steps V0, V2 and V4 of the ladder as they were published for another language, statement by statement: V2 and V4
// wait with .relaxed semantics, and V2 starts loads beyond K that it never waits for. Judged by the letter, where
// the finding names the wait, and in practice.
#include <fmt/format.h>

#include <set>

#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/vgpu/bent_rule.h"
#include "kit.h"

namespace imbrex {
namespace {

constexpr int kBlockM = 128, kBlockN = 64, kEBlockN = 16, kBlockK = 32;
constexpr const char* kFile = "published_ladder_test.cpp";
/// Lines of the kernels' waits.
std::set<int>& relaxed_waits() {
  static std::set<int> lines;
  return lines;
}
void wait_relaxed(const Barrier& barrier, const ScalarArg& phase,
                  SourceLocation where = SourceLocation::current()) {
  relaxed_waits().insert(static_cast<int>(where.line));
  mbarrier::wait(barrier, phase, {.sem = Sem::kRelaxed, .scope = Scope::kCta}, where);
}

void store_by_slices(const TMemoryTensor& t_acc, const GlobalTensor& g_c, const ScalarArg& offset_m,
                     const ScalarArg& offset_n) {
  auto s_c = shared_tensor(float16, {kBlockM, kEBlockN});
  for (Int32 e_offset_n : range(0, kBlockN, kEBlockN)) {
    auto r_acc = tcgen05::load(t_acc.slice({0, e_offset_n}, {kBlockM, kEBlockN}));
    tcgen05::wait_load();
    store_shared(s_c, r_acc.to(float16));
    fence::proxy_async();
    sync();
    if (auto warp = single_warp()) {
      tma::shared_to_global(s_c, g_c, {offset_m, offset_n + e_offset_n});
      tma::commit_group();
      tma::wait_group(0, {.read = true});
    }
    sync();
  }
  sync();
}

struct PublishedV0 {
  static constexpr const char* target = "sm_100a";
  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    grid(cdiv(m_size, kBlockM), cdiv(n_size, kBlockN));
    warps(4);
    Int32 offset_m = kBlockM * block_idx.x;
    Int32 offset_n = kBlockN * block_idx.y;
    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    auto s_a = shared_tensor(float16, {kBlockM, kBlockK});
    auto s_b = shared_tensor(float16, {kBlockN, kBlockK});
    auto t_acc = tcgen05::alloc(float32, {kBlockM, kBlockN});
    auto mbarriers = mbarrier::alloc({1});
    UInt32 phase = 0;
    sync();
    for (Int32 offset_k : range(0, k_size, kBlockK)) {
      copy_async(g_a, s_a, {offset_m, offset_k});
      copy_async(g_b, s_b, {offset_n, offset_k});
      copy_async_wait_all();
      sync();
      if (auto warp = single_warp()) {
        tcgen05::mma(s_a, s_b.transpose(), t_acc, {.enable_input_d = offset_k != 0});
        tcgen05::commit(mbarriers[0]);
        mbarrier::wait(mbarriers[0], phase);
      }
      sync();
      phase ^= 1;
    }
    auto r_acc = tcgen05::load(t_acc);
    auto g_c = global_view(c_ptr, float16, {m_size, n_size});
    store_global(g_c, r_acc.to(float16), {offset_m, offset_n});
    sync();
    tcgen05::dealloc(t_acc);
  }
};

struct PublishedV2 {
  static constexpr const char* target = "sm_100a";
  int stages = 3;
  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    grid(cdiv(m_size, kBlockM), cdiv(n_size, kBlockN));
    warps(4);
    Int32 offset_m = kBlockM * block_idx.x;
    Int32 offset_n = kBlockN * block_idx.y;
    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    auto s_a = shared_tensor(float16, {stages, kBlockM, kBlockK});
    auto s_b = shared_tensor(float16, {stages, kBlockN, kBlockK});
    auto t_acc = tcgen05::alloc(float32, {kBlockM, kBlockN});
    auto tma_barriers = mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1));
    auto mma_barrier = mbarrier::alloc(1);
    UInt32 tma_phase = 0;
    UInt32 mma_phase = 0;
    sync();
    for (int i = 0; i < stages - 1; ++i)
      if (auto warp = single_warp()) {
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(tma_barriers[i], s_a[i].nbytes() + s_b[i].nbytes());
        tma::global_to_shared(g_a, s_a[i], {offset_m, i * kBlockK}, tma_barriers[i]);
        tma::global_to_shared(g_b, s_b[i], {offset_n, i * kBlockK}, tma_barriers[i]);
      }
    sync();
    Int32 current_stage = 0;
    Int32 preload_stage = stages - 1;
    for (Int32 offset_k : range(0, k_size, kBlockK, {.unroll = stages})) {
      if (auto warp = single_warp()) {
        Int32 preload_offset_k = offset_k + (stages - 1) * kBlockK;
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(tma_barriers[preload_stage],
                                         s_a[preload_stage].nbytes() + s_b[preload_stage].nbytes());
        tma::global_to_shared(g_a, s_a[preload_stage], {offset_m, preload_offset_k},
                              tma_barriers[preload_stage]);
        tma::global_to_shared(g_b, s_b[preload_stage], {offset_n, preload_offset_k},
                              tma_barriers[preload_stage]);
        wait_relaxed(tma_barriers[current_stage], tma_phase);
        tcgen05::mma(s_a[current_stage], s_b[current_stage].transpose(), t_acc,
                     {.enable_input_d = offset_k != 0});
        tcgen05::commit(mma_barrier);
        wait_relaxed(mma_barrier, mma_phase);
      }
      preload_stage = (preload_stage + 1) % stages;
      current_stage = (current_stage + 1) % stages;
      tma_phase ^= current_stage == 0;
      mma_phase ^= 1;
      sync();
    }
    store_by_slices(t_acc, global_view(c_ptr, float16, {m_size, n_size}), offset_m, offset_n);
    tcgen05::dealloc(t_acc);
  }
};

/// The Pipeline of V4, with its relaxed waits.
struct PublishedPipeline {
  int num_stages;
  BarrierArray empty_barriers, full_barriers;
  Int32 producer_stage = 0, consumer_stage = 0;
  UInt32 producer_phase = mbarrier::producer_initial_phase;
  UInt32 consumer_phase = mbarrier::consumer_initial_phase;

  explicit PublishedPipeline(int stages)
      : num_stages(stages),
        empty_barriers(mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1))),
        full_barriers(mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1))) {}
  void producer_acquire(SourceLocation where = SourceLocation::current()) {
    wait_relaxed(empty_barriers[producer_stage], producer_phase, where);
  }
  Barrier producer_barrier() { return full_barriers[producer_stage]; }
  void producer_advance() {
    producer_stage = (producer_stage + 1) % num_stages;
    producer_phase ^= producer_stage == 0;
  }
  void consumer_acquire(SourceLocation where = SourceLocation::current()) {
    wait_relaxed(full_barriers[consumer_stage], consumer_phase, where);
  }
  Barrier consumer_barrier() { return empty_barriers[consumer_stage]; }
  void consumer_advance() {
    consumer_stage = (consumer_stage + 1) % num_stages;
    consumer_phase ^= consumer_stage == 0;
  }
};

struct PublishedV4 {
  static constexpr const char* target = "sm_100a";
  int stages = 2, swizzle_size = 4;
  void operator()(Int32 m_size, int n_size, int k_size, Ptr<float16> a_ptr, Ptr<float16> b_ptr,
                  Ptr<float16> c_ptr) const {
    Int32 num_m_blocks = cdiv(m_size, kBlockM);
    const int num_n_blocks = cdiv(n_size, kBlockN);
    grid(num_m_blocks * num_n_blocks);
    warps(4);
    auto [m_block, n_block] =
        kernels::compute_block_coord(block_idx.x, num_m_blocks, num_n_blocks, swizzle_size);
    Int32 offset_m = m_block * kBlockM;
    Int32 offset_n = n_block * kBlockN;
    auto g_a = global_view(a_ptr, float16, {m_size, k_size});
    auto g_b = global_view(b_ptr, float16, {n_size, k_size});
    auto g_c = global_view(c_ptr, float16, {m_size, n_size});
    auto s_a = shared_tensor(float16, {stages, kBlockM, kBlockK});
    auto s_b = shared_tensor(float16, {stages, kBlockN, kBlockK});
    auto t_acc = tcgen05::alloc(float32, {kBlockM, kBlockN});
    PublishedPipeline tma_pipe(stages);
    auto flush_barrier = mbarrier::alloc(1);
    sync();
    if (auto tma_warp = single_warp(0))
      for (Int32 offset_k : range(0, k_size, kBlockK, {.unroll = stages})) {
        tma_pipe.producer_acquire();
        auto s_a_stage = s_a[tma_pipe.producer_stage];
        auto s_b_stage = s_b[tma_pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(tma_pipe.producer_barrier(),
                                         s_a_stage.nbytes() + s_b_stage.nbytes());
        tma::global_to_shared(g_a, s_a_stage, {offset_m, offset_k}, tma_pipe.producer_barrier());
        tma::global_to_shared(g_b, s_b_stage, {offset_n, offset_k}, tma_pipe.producer_barrier());
        tma_pipe.producer_advance();
      }
    if (auto mma_warp = single_warp(1)) {
      for (Int32 offset_k : range(0, k_size, kBlockK, {.unroll = stages})) {
        tma_pipe.consumer_acquire();
        tcgen05::mma(s_a[tma_pipe.consumer_stage], s_b[tma_pipe.consumer_stage].transpose(), t_acc,
                     {.enable_input_d = offset_k != 0});
        tcgen05::commit(tma_pipe.consumer_barrier());
        tma_pipe.consumer_advance();
      }
      tcgen05::commit(flush_barrier);
      mbarrier::wait(flush_barrier, 0);
    }
    sync();
    store_by_slices(t_acc, g_c, offset_m, offset_n);
    tcgen05::dealloc(t_acc);
  }
};

/// Runs the kernel and compares with a plain loop.
template <class K>
vgpu::Report run(vgpu::Strictness strictness, uint64_t seed) {
  constexpr int kM = 256, kN = 128, kK = 256;
  const Device device = Device::virtual_gpu(
      {.target = K::target, .host_threads = 1, .seed = seed, .strictness = strictness, .max_findings = 1000});
  DeviceTensor a = DeviceTensor::random(device, float16, {kM, kK}, seed + 1);
  DeviceTensor b = DeviceTensor::random(device, float16, {kN, kK}, seed + 2);
  DeviceTensor c = DeviceTensor::empty(device, float16, {kM, kN});
  c.poison();
  const LaunchReport report = Kernel<K>({}, device)(kM, kN, kK, a, b, c);
  const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles(),
                            z = c.to_host().to_doubles();
  double worst = 0;  // in units of what float16 rounds to
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      double sum = 0;
      for (int k = 0; k < kK; ++k)
        sum += x[static_cast<size_t>(i * kK + k)] * y[static_cast<size_t>(j * kK + k)];
      const double error =
          std::fabs(z[static_cast<size_t>(i * kN + j)] - sum) / (std::fabs(sum) * 0x1p-11 + 1e-4);
      worst = error <= worst ? worst : error;  // keeps a NaN
    }
  EXPECT_LT(worst, 1.1) << report.virtual_report.format();
  EXPECT_TRUE(report.virtual_report.completed) << report.virtual_report.format();
  return report.virtual_report;
}

/// A race whose text names one of the kernel's relaxed waits.
bool names_a_relaxed_wait(const vgpu::Finding& f) {
  if (f.kind != vgpu::FindingKind::kRace || f.rule != vgpu::BentRule::kRelaxedWait) return false;
  const std::string text = f.format();
  for (const int line : relaxed_waits())
    if (text.find(fmt::format("{}:{} ", kFile, line)) != std::string::npos &&
        text.find(".relaxed: it would order the two") != std::string::npos)
      return true;
  return false;
}
/// Loads that V2 starts and never waits for.
bool is_left_in_flight(const vgpu::Finding& f) { return f.kind == vgpu::FindingKind::kAsyncInFlight; }

TEST(PublishedLadder, V0IsClean) {
  for (const uint64_t seed : {0, 1, 2})
    for (const vgpu::Strictness strictness : {vgpu::Strictness::kStrict, vgpu::Strictness::kPractical}) {
      const vgpu::Report report = run<PublishedV0>(strictness, seed);
      EXPECT_TRUE(report.clean() && report.notes.empty()) << report.format();
    }
}

template <class K>
void expect_relaxed_waits(bool leaves_in_flight) {
  for (const uint64_t seed : {0, 1, 2}) {
    const vgpu::Report strict = run<K>(vgpu::Strictness::kStrict, seed);
    EXPECT_TRUE(strict.notes.empty());
    int64_t races = 0, in_flight = 0;
    for (const vgpu::Finding& f : strict.findings) {
      EXPECT_TRUE(names_a_relaxed_wait(f) || (leaves_in_flight && is_left_in_flight(f))) << f.format();
      races += names_a_relaxed_wait(f);
      in_flight += is_left_in_flight(f);
    }
    EXPECT_GT(races, 0);
    EXPECT_EQ(in_flight > 0, leaves_in_flight);
    const vgpu::Report practical = run<K>(vgpu::Strictness::kPractical, seed);
    EXPECT_EQ(practical.findings.size(), static_cast<size_t>(in_flight)) << practical.format();
    for (const vgpu::Finding& f : practical.findings) EXPECT_TRUE(is_left_in_flight(f)) << f.format();
    EXPECT_EQ(practical.notes.size(), static_cast<size_t>(races)) << practical.format();
    for (const vgpu::Finding& f : practical.notes) EXPECT_TRUE(names_a_relaxed_wait(f)) << f.format();
  }
}

TEST(PublishedLadder, V2WaitsRelaxedAndLeavesLoadsInFlight) { expect_relaxed_waits<PublishedV2>(true); }
TEST(PublishedLadder, V4WaitsRelaxed) { expect_relaxed_waits<PublishedV4>(false); }

}  // namespace
}  // namespace imbrex
