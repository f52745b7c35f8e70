// SPDX-License-Identifier: Apache-2.0
// TMA copies: boxes of every kind, edges, views, reductions, multicast, what is refused and when, and what
// the virtual GPU says of a wait or fence that is missing.
#include <gmock/gmock.h>

#include <set>

#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

constexpr Arch kTmaArchs[] = {Arch::kSm90a, Arch::kSm100a};

/// Loads the tile, waits for it in the whole CTA. Call once a kernel.
void load_and_wait(const GlobalTensor& from, const SharedTensor& tile, const Scalars& offsets,
                   const tma::LoadOptions& options = {}) {
  auto barrier = mbarrier::alloc(1);
  sync();
  if (auto warp = single_warp()) {
    if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
    tma::global_to_shared(from, tile, offsets, barrier, options);
  }
  mbarrier::wait(barrier, 0);
}

/// Stores the tile that the CTA has written with store_shared().
void fence_and_store(const SharedTensor& tile, const GlobalTensor& to, const Scalars& offsets,
                     const tma::StoreOptions& options = {}) {
  fence::proxy_async();
  sync();
  if (auto warp = single_warp()) {
    tma::shared_to_global(tile, to, offsets, options);
    tma::commit_group();
    tma::wait_group(0, {.read = true});
  }
}

struct Problem {
  DataType type;
  int64_t m, n;           // of the tensor
  int64_t rows, columns;  // of the tile

  friend std::ostream& operator<<(std::ostream& out, const Problem& p) {
    return out << p.type.name() << " " << p.m << "x" << p.n << " by " << p.rows << "x" << p.columns;
  }
};

class Tiles : public ::testing::TestWithParam<Problem> {};

TEST_P(Tiles, ArriveWithZerosOutside) {
  const Problem p = GetParam();
  for (Arch arch : kTmaArchs)
    for (uint64_t seed : {0, 1}) {
      Machine machine(arch, seed);
      DeviceTensor x = machine.random(p.type, {p.m, p.n}), y = machine.output(p.type, {p.m + 3, p.n + 5});
      machine.run(
          [p](Int32 m, Ptr<> x_ptr, Ptr<> y_ptr) {
            // The output is larger than the input, so that what lies outside is seen too.
            grid(cdiv(m + 3, p.rows), cdiv(p.n + 5, p.columns));
            Int32 i = p.rows * block_idx.x, j = p.columns * block_idx.y;
            auto tile = shared_tensor(p.type, {p.rows, p.columns});
            load_and_wait(global_view(x_ptr, p.type, {m, p.n}), tile, {i, j});
            store_global(global_view(y_ptr, p.type, {m + 3, p.n + 5}), load_shared(tile), {i, j});
          },
          p.m, x, y);
      const std::vector<double> in = x.to_host().to_doubles();
      expect_elements(y, [&](int64_t i, int64_t j) { return i < p.m && j < p.n ? in[i * p.n + j] : 0; });
    }
}

TEST_P(Tiles, LeaveOutWhatIsOutside) {
  const Problem p = GetParam();
  for (Arch arch : kTmaArchs) {
    Machine machine(arch, 1);
    DeviceTensor x = machine.random(p.type, {p.m, p.n}), y = machine.output(p.type, {p.m, p.n});
    machine.run(
        [p](Int32 m, Ptr<> x_ptr, Ptr<> y_ptr) {
          grid(cdiv(m, p.rows), cdiv(p.n, p.columns));
          Int32 i = p.rows * block_idx.x, j = p.columns * block_idx.y;
          auto tile = shared_tensor(p.type, {p.rows, p.columns});
          store_shared(tile, load_global(global_view(x_ptr, p.type, {m, p.n}), {i, j}, {p.rows, p.columns}));
          fence_and_store(tile, global_view(y_ptr, p.type, {m, p.n}), {i, j});
        },
        p.m, x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[i * p.n + j]; });
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Tiles,
                         ::testing::Values(Problem{float16, 64, 64, 32, 64},    // one box, 128-byte rows
                                           Problem{float16, 37, 40, 16, 16},    // 32-byte rows, ragged
                                           Problem{float16, 50, 200, 16, 128},  // two boxes
                                           Problem{float16, 600, 16, 512, 16},  // more than 256 rows
                                           Problem{float32, 33, 100, 8, 32},    //
                                           Problem{float32, 20, 12, 8, 24},     // rows no power of two
                                           Problem{int8, 20, 48, 16, 64},       //
                                           Problem{int64, 9, 14, 4, 8},         //
                                           Problem{bfloat16, 130, 136, 96, 64}),
                         ParamName());

TEST(Tma, TilesOfTensorsOfHigherRank) {
  // A tensor [b, m, h, n]: tiles of m by n at one b and h.
  constexpr int64_t kB = 3, kM = 40, kH = 2, kN = 64;
  Machine machine(Arch::kSm90a);
  DeviceTensor x = machine.random(float16, {kB, kM, kH, kN}), y = machine.output(float16, {kB, kH, kM, kN});
  machine.run(
      [](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
        grid(kB, kH);
        auto tile = shared_tensor(float16, {kM, kN});
        load_and_wait(global_view(x_ptr, {kB, kM, kH, kN}), tile, {block_idx.x, 0, block_idx.y, 0},
                      {.dims = {1, 3}});
        store_global(global_view(y_ptr, {kB, kH, kM, kN}), load_shared(tile),
                     {block_idx.x, block_idx.y, 0, 0});
      },
      x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(
      y, [&](int64_t b, int64_t h, int64_t m, int64_t n) { return in[((b * kM + m) * kH + h) * kN + n]; });
}

TEST(Tma, TransposedTilesAndViews) {
  // Tile [n, m] of the transpose of rows 8 ... of a matrix: dimension 0 is the contiguous one.
  constexpr int64_t kM = 48, kN = 64;
  for (bool by_dims : {true, false}) {
    Machine machine(Arch::kSm90a);
    DeviceTensor x = machine.random(float16, {kM + 8, kN}), y = machine.output(float16, {kN, kM});
    machine.run(
        [by_dims](Int32 m, Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
          grid(1);
          auto tile = shared_tensor(float16, {kN, kM});
          auto rows = global_view(x_ptr, {m + 8, kN}).slice({8, 0}, {kM, kN});
          if (by_dims)
            load_and_wait(rows, tile, {0, 0}, {.dims = {1, 0}});
          else
            load_and_wait(rows.transpose(), tile, {0, 0});
          store_global(global_view(y_ptr, {kN, kM}), load_shared(tile), {0, 0});
        },
        kM, x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t n, int64_t m) { return in[(m + 8) * kN + n]; });
  }
}

TEST(Tma, RowsApartByStrides) {
  Machine machine(Arch::kSm90a);
  constexpr int64_t kRows = 20, kPitch = 96, kColumns = 32;
  DeviceTensor x = machine.random(float32, {kRows, kPitch}), y = machine.output(float32, {kRows, kColumns});
  machine.run(
      [](Int32 pitch, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto tile = shared_tensor(float32, {kRows, kColumns});
        load_and_wait(global_view(x_ptr, {kRows, kColumns}, {pitch, 1}), tile, {0, 0},
                      {.cache_policy = tma::CachePolicy::kEvictFirst});
        store_global(global_view(y_ptr, {kRows, kColumns}), load_shared(tile), {0, 0});
      },
      kPitch, x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) { return in[i * kPitch + j]; });
}

TEST(Tma, OneThreadIssuesToo) {
  Machine machine(Arch::kSm90a);
  DeviceTensor x = machine.random(float16, {16, 64}), y = machine.output(float16, {16, 64});
  machine.run(
      [](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
        grid(1);
        auto tile = shared_tensor(float16, {16, 64});
        auto barrier = mbarrier::alloc(1);
        sync();
        if (auto thread = single_thread(5)) {
          mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
          tma::global_to_shared(global_view(x_ptr, {16, 64}), tile, {0, 0}, barrier);
          mbarrier::wait(barrier, 0);
          // What a load wrote, a store may read without a fence.
          tma::shared_to_global(tile, global_view(y_ptr, {16, 64}), {0, 0});
          tma::commit_group();
          tma::wait_group(0);
        }
      },
      x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) { return in[i * 64 + j]; });
}

TEST(Tma, ReductionsCombineWithWhatIsThere) {
  constexpr int64_t kCtas = 5;
  for (tma::Reduce reduce : {tma::Reduce::kAdd, tma::Reduce::kMax}) {
    Machine machine(Arch::kSm90a, 3);
    DeviceTensor y = machine.tensor(int32, std::vector<int32_t>(8 * 32, 100));
    machine.run(
        [reduce](Ptr<int32> y_ptr) {
          grid(kCtas);
          auto tile = shared_tensor(int32, {8, 32});
          store_shared(tile, full(int32, {8, 32}, 99 + block_idx.x));
          fence_and_store(tile, global_view(y_ptr, {8, 32}), {0, 0}, {.reduce = reduce});
        },
        y);
    const int64_t sum = 100 + 99 * kCtas + kCtas * (kCtas - 1) / 2;
    expect_elements(y, [&](int64_t) { return reduce == tma::Reduce::kAdd ? sum : 99 + kCtas - 1; });
  }
}

TEST(Tma, MulticastServesEveryCtaOfTheCluster) {
  constexpr int64_t kCtas = 4;
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm90a, seed);
    DeviceTensor x = machine.random(float16, {16, 64}), y = machine.output(float16, {kCtas, 16, 64});
    machine.run(
        [](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
          grid(kCtas);
          cluster(kCtas);
          auto tile = shared_tensor(float16, {16, 64});
          auto barrier = mbarrier::alloc(1);
          cluster_sync();
          if (auto warp = single_warp()) {
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
            if (auto leader = when(cluster_rank() == 0))
              tma::global_to_shared(global_view(x_ptr, {16, 64}), tile, {0, 0}, barrier,
                                    {.multicast_mask = 0b1111});
          }
          mbarrier::wait(barrier, 0);
          store_global(global_view(y_ptr, {kCtas, 16, 64}), load_shared(tile).reshape({1, 16, 64}),
                       {block_idx.x, 0, 0});
          cluster_sync();
        },
        x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t, int64_t i, int64_t j) { return in[i * 64 + j]; });
  }
}

/// Pairs of CTAs load halves of their tile for one another, as a mask says that is computed from the rank.
TEST(Tma, MulticastMasksMayBeComputed) {
  constexpr int64_t kCtas = 4;
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm90a, seed);
    DeviceTensor x = machine.random(float16, {2, 16, 64}), y = machine.output(float16, {kCtas, 16, 64});
    const LaunchReport report = machine.run(
        [](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
          grid(kCtas);
          cluster(kCtas);
          auto tile = shared_tensor(float16, {16, 64});
          auto barrier = mbarrier::alloc(1);
          cluster_sync();
          Int32 rank = cluster_rank(), pair = rank / 2, half = rank % 2;
          if (auto warp = single_warp()) {
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
            tma::global_to_shared(global_view(x_ptr, {2, 16, 64})[pair], tile.slice({8 * half, 0}, {8, 64}),
                                  {8 * half, 0}, barrier, {.multicast_mask = 3 << (2 * pair)});
          }
          mbarrier::wait(barrier, 0);
          store_global(global_view(y_ptr, {kCtas, 16, 64}), load_shared(tile).reshape({1, 16, 64}),
                       {block_idx.x, 0, 0});
          cluster_sync();
        },
        x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t cta, int64_t i, int64_t j) { return in[(cta / 2 * 16 + i) * 64 + j]; });
  }
}

TEST(TmaRefusals, MasksWithoutACluster) {
  Machine machine(Arch::kSm90a);
  const std::string said = error_of<CompileError>([&] {
    machine.launch(
        [](Ptr<float32> x_ptr, Int32 mask) {
          grid(1);
          auto tile = shared_tensor(float32, {8, 32});
          auto barrier = mbarrier::alloc(1);
          sync();
          if (auto warp = single_warp())
            tma::global_to_shared(global_view(x_ptr, {8, 32}), tile, {0, 0}, barrier,
                                  {.multicast_mask = mask});
        },
        machine.random(float32, {8, 32}), 1);
  });
  EXPECT_THAT(said, HasSubstr("names CTAs by a mask, in a cluster of one"));
}

TEST(Cluster, BarriersOfOtherCtasAreArrivedAt) {
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm90a, seed);
    DeviceTensor y = machine.output(int32, {1});
    machine.run(
        [](Ptr<int32> y_ptr) {
          grid(2);
          cluster(2);
          auto barrier = mbarrier::alloc(2 * 128);
          cluster_sync();
          mbarrier::arrive(remote_barrier(barrier, 0));
          if (auto leader = when(cluster_rank() == 0)) {
            mbarrier::wait(barrier, 0, {.scope = Scope::kCluster});
            store_global(global_view(y_ptr, {1}), full(int32, {1}, 7), {0});
          }
          cluster_sync();
        },
        y);
    expect_elements(y, [](int64_t) { return 7; });
  }
}

TEST(Cluster, CtasStoreInEachOthersSharedMemory) {
  // CTA r gives CTA d its row d, and everyone stores what it was given: a transpose of blocks.
  constexpr int kCtas = 4, kRows = 32, kColumns = 48;
  for (DataType dtype : {float32, float16, int8})
    for (uint64_t seed : {0, 1, 2}) {
      Machine machine(Arch::kSm90a, seed);
      constexpr int64_t kTile = kRows * kColumns, kElements = kCtas * kCtas * kTile;
      DeviceTensor x = machine.random(dtype, {kElements}), y = machine.output(dtype, {kElements});
      machine.run(
          [=](Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(kCtas);
            cluster(kCtas);
            auto g_x = global_view(x_ptr, dtype, {kCtas, kCtas, kRows, kColumns});
            auto g_y = global_view(y_ptr, dtype, {kCtas, kCtas, kRows, kColumns});
            auto given = shared_tensor(dtype, {kCtas, kRows, kColumns});
            auto arrived = mbarrier::alloc(kCtas * 128);
            Int32 rank = cluster_rank();
            cluster_sync();
            for (Int32 to : range(0, kCtas)) {
              store_remote_shared(given[rank], load_global(g_x, {rank, to, 0, 0}, {kRows, kColumns}), to);
              mbarrier::arrive(remote_barrier(arrived, to));
            }
            mbarrier::wait(arrived, 0, {.scope = Scope::kCluster});
            for (Int32 from : range(0, kCtas))
              store_global(g_y, load_shared(given[from]), {rank, from, 0, 0});
            cluster_sync();
          },
          x, y);
      const std::vector<double> in = x.to_host().to_doubles();
      expect_elements(y, [&](int64_t i) {
        return in[static_cast<size_t>((i / kTile % kCtas * kCtas + i / kTile / kCtas) * kTile + i % kTile)];
      });
    }
}

TEST(Cluster, CtasLoadFromEachOthersSharedMemory) {
  // Of a tile that TMA wrote, and so in the layout that a swizzle gives it.
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm90a, seed);
    DeviceTensor x = machine.random(float16, {128 * 64}), y = machine.output(float16, {128 * 64});
    machine.run(
        [](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
          grid(2);
          cluster(2);
          auto tile = shared_tensor(float16, {64, 64});
          auto loaded = mbarrier::alloc(1);
          Int32 rank = cluster_rank();
          cluster_sync();
          if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(loaded, tile.nbytes());
          if (auto warp = single_warp())
            tma::global_to_shared(global_view(x_ptr, {128, 64}), tile, {rank * 64, 0}, loaded);
          mbarrier::wait(loaded, 0);
          cluster_sync();
          store_global(global_view(y_ptr, {128, 64}), load_remote_shared(tile, 1 - rank), {rank * 64, 0});
          cluster_sync();
        },
        x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i) { return in[static_cast<size_t>((i + 64 * 64) % (128 * 64))]; });
  }
}

TEST(Cluster, SharedMemoryReadBeforeItIsHandedOverIsReported) {
  enum HandOver { kNothing, kRelaxed, kOwnSync, kRelease };
  for (HandOver how : {kNothing, kRelaxed, kOwnSync, kRelease}) {
    Machine machine(Arch::kSm90a);
    DeviceTensor y = machine.output(float32, {2 * 128});
    const LaunchReport report = machine.launch(
        [=](Ptr<float32> y_ptr) {
          grid(2);
          cluster(2);
          auto given = shared_tensor(float32, {128});
          auto arrived = mbarrier::alloc(128);
          Int32 rank = cluster_rank();
          store_shared(given, full(float32, {128}, 0));
          cluster_sync();
          store_remote_shared(given, full(float32, {128}, 1), 1 - rank);
          if (how == kOwnSync) sync();
          if (how == kRelaxed || how == kRelease) {
            mbarrier::arrive(remote_barrier(arrived, 1 - rank),
                             {.sem = how == kRelaxed ? Sem::kRelaxed : Sem::kDefault});
            mbarrier::wait(arrived, 0, {.scope = Scope::kCluster});
          }
          store_global(global_view(y_ptr, {2 * 128}), load_shared(given), {rank * 128});
          cluster_sync();
        },
        y);
    EXPECT_EQ(report.clean(), how == kRelease) << how << "\n" << report.virtual_report.format();
  }
}

// ---- refusals

/// What the compiler or the launch says of loading a [16, 64] tile of a [32, n] float16 tensor.
template <class E, class Body>
std::string refusal(int64_t n, const Body& body) {
  Machine machine(Arch::kSm90a);
  DeviceTensor x = machine.random(float16, {32, 128});
  return error_of<E>([&] {
    machine.launch(
        [body](Int32 n, Ptr<float16> x_ptr) {
          grid(1);
          auto tile = shared_tensor(float16, {16, 64});
          body(n, x_ptr, tile);
        },
        n, x);
  });
}

TEST(TmaRefusals, StridesThatAreNoMultiplesOf16Bytes) {
  EXPECT_THAT(refusal<LaunchError>(100,
                                   [](const Int32& n, Ptr<float16> x, const SharedTensor& tile) {
                                     load_and_wait(global_view(x, {32, n}), tile, {0, 0});
                                   }),
              HasSubstr("a stride of 200 bytes is not a multiple of 16"));
  EXPECT_THAT(refusal<CompileError>(1,
                                    [](const Int32&, Ptr<float16> x, const SharedTensor& tile) {
                                      load_and_wait(global_view(x, {32, 100}), tile, {0, 0});
                                    }),
              HasSubstr("is 200 bytes, not a multiple of 16"));
}

TEST(TmaRefusals, OffsetsInsideOf16Bytes) {
  EXPECT_THAT(refusal<CompileError>(1,
                                    [](const Int32&, Ptr<float16> x, const SharedTensor& tile) {
                                      load_and_wait(global_view(x, {32, 128}), tile, {0, 4});
                                    }),
              HasSubstr("the offset 4 along the contiguous dimension is 8 bytes"));
}

TEST(TmaRefusals, ExtentsNotKnownAtLaunch) {
  EXPECT_THAT(refusal<CompileError>(1,
                                    [](const Int32&, Ptr<float16> x, const SharedTensor& tile) {
                                      load_and_wait(global_view(x, {block_idx.x + 1, 128}), tile, {0, 0});
                                    }),
              HasSubstr("is not known at launch"));
}

TEST(TmaRefusals, TilesAcrossTheContiguousDimension) {
  EXPECT_THAT(refusal<CompileError>(
                  1,
                  [](const Int32&, Ptr<float16> x, const SharedTensor& tile) {
                    load_and_wait(global_view(x, {4, 16, 64, 2}), tile, {0, 0, 0, 0}, {.dims = {1, 2}});
                  }),
              HasSubstr("no dimension of the tile runs along dimension 3"));
}

TEST(TmaRefusals, RowsOfLessThan16Bytes) {
  Machine machine(Arch::kSm90a);
  DeviceTensor x = machine.random(float16, {32, 128});
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Ptr<float16> x_ptr) {
                      grid(1);
                      auto tile = shared_tensor(float16, {16, 4});
                      load_and_wait(global_view(x_ptr, {32, 128}), tile, {0, 0});
                    },
                    x);
              }),
              HasSubstr("are not a multiple of 16 bytes"));
}

// The unit writes 16 bytes at a time: the last of a row of 60 would be followed by 4 that are not the view's.
template <class Error, class Kernel, class... Args>
std::string error_of_store(const Kernel& kernel, const Args&... args) {
  Machine machine(Arch::kSm90a);
  DeviceTensor y = machine.output(float16, {16, 64});
  return error_of<Error>([&] { machine.launch(kernel, y, args...); });
}
void store_tile(const GlobalTensor& y) {
  auto tile = shared_tensor(float16, {16, 64});
  store_shared(tile, zeros(float16, {16, 64}));
  fence::proxy_async();
  sync();
  if (auto warp = single_warp()) {
    tma::shared_to_global(tile, y, {0, 0});
    tma::commit_group();
    tma::wait_group(0);
  }
}

TEST(TmaRefusals, StoresThatWouldOverwriteWhatIsBehindARow) {
  const auto compiled = error_of_store<CompileError>([](Ptr<float16> y_ptr) {
    grid(1);
    store_tile(global_view(y_ptr, {16, 60}, {64, 1}));
  });
  EXPECT_THAT(compiled, HasSubstr("are 120 bytes; TMA stores multiples of 16"));
  const auto launched = error_of_store<LaunchError>(
      [](Ptr<float16> y_ptr, Int32 n) {
        grid(1);
        store_tile(global_view(y_ptr, {16, n}, {64, 1}));
      },
      60);
  EXPECT_THAT(launched, HasSubstr("rows of 120 bytes; stores write multiples of 16"));
}

// ---- forgotten

/// Findings of a kernel that copies x to y by way of a tile; the flags leave something out.
struct Omission {
  bool wait = false, fence = false, read = false;
};
vgpu::Report findings_without(const Omission& left_out, uint64_t seed) {
  Machine machine(Arch::kSm90a, seed);
  DeviceTensor x = machine.random(float16, {16, 64}), y = machine.output(float16, {16, 64});
  return machine
      .launch(
          [left_out](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
            grid(1);
            auto tile = shared_tensor(float16, {16, 64});
            auto other = shared_tensor(float16, {16, 64});
            auto barrier = mbarrier::alloc(1);
            sync();
            if (auto warp = single_warp()) {
              if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
              tma::global_to_shared(global_view(x_ptr, {16, 64}), tile, {0, 0}, barrier);
            }
            if (!left_out.wait) mbarrier::wait(barrier, 0);
            store_shared(other, load_shared(tile) + 1);
            if (left_out.wait) mbarrier::wait(barrier, 0);
            if (!left_out.fence) fence::proxy_async();
            sync();
            if (auto warp = single_warp()) {
              tma::shared_to_global(other, global_view(y_ptr, {16, 64}), {0, 0});
              tma::commit_group();
              if (!left_out.read) tma::wait_group(0, {.read = true});
            }
          },
          x, y)
      .virtual_report;
}

/// The kinds found in some of a few schedules.
std::set<vgpu::FindingKind> kinds_without(const Omission& left_out) {
  std::set<vgpu::FindingKind> kinds;
  for (uint64_t seed = 0; seed < 6; ++seed)
    for (const vgpu::Finding& finding : findings_without(left_out, seed).findings) kinds.insert(finding.kind);
  return kinds;
}

TEST(TmaForgotten, NothingIsFoundWhenNothingIs) { EXPECT_TRUE(kinds_without({}).empty()); }
TEST(TmaForgotten, Wait) {
  EXPECT_THAT(kinds_without({.wait = true}), ::testing::Contains(vgpu::FindingKind::kRace));
}
TEST(TmaForgotten, ProxyFence) {
  EXPECT_THAT(kinds_without({.fence = true}), ::testing::Contains(vgpu::FindingKind::kMissingProxyFence));
}
TEST(TmaForgotten, WaitForTheStore) {
  EXPECT_THAT(kinds_without({.read = true}), ::testing::Contains(vgpu::FindingKind::kAsyncInFlight));
}

}  // namespace
}  // namespace imbrex::testing
