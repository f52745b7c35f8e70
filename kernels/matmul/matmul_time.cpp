// SPDX-License-Identifier: Apache-2.0
#include "matmul/matmul_time.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/lang/scalar.h"
#include "matmul/matmul_time_net.h"

namespace imbrex {
namespace {

using Method = MatmulChoice::Method;

constexpr double kClock = 1509;  // MHz, less what the tensor cores lose between instructions
constexpr double kL2BytesPerClock =
    42.5;  // that a multiprocessor gets from the L2 cache while all ask for them
constexpr double kAloneExponent = 0.517;  // where few ask, it gets more, by this power of their share
constexpr double kStraddledLines = 1.2;   // factor on loads whose 128-byte rows straddle two lines of memory
constexpr double kUnalignedSectors = 1.41;  // on those whose rows begin within a sector of 32
constexpr double kLoadClocks = 2415;        // from the request of a stage until its arrival
constexpr double kSmallTile = 0.92;         // tensor-core clocks of smaller tiles, which take less power
constexpr double kMemory = 4.8e6;           // bytes per microsecond
constexpr double kLaunch = 0.8;             // microseconds
constexpr double kTile = 0.907;             // microseconds: to store a tile, however small
constexpr double kTileArea = 2.43;          // microseconds: to store 128 x 256 elements of it
constexpr double kUnevenRows = 1.16;        // the same where rows of C begin at multiples of 8 only
constexpr double kStoredBehind =
    0.4;  // the share of it that is seen where the CTA has another tile to go on with
constexpr double kStoredInTurns = 0.05;  // and where another warp group multiplies meanwhile
constexpr double kSum = 1.86;            // microseconds: adding up split_k's parts
constexpr double kCluster = 0.252;       // microseconds: for each doubling of a cluster's CTAs
constexpr double kClustersOf4 = 1.06;    // on products of several waves of such clusters
constexpr double kClustersOf8 = 1.13;    // or of larger ones
constexpr double kExchange = 5.66;       // stream-K: microseconds for parts to be exchanged at all
constexpr double kExchangedPart = 2.59;  // and to add up each one of 128 x 256 elements
constexpr double kDoubt = 1.026;  // by what stream-K must be faster, because its time is modelled less well
constexpr double kSkinnyDoubt = 0.9;    // the same of the kernel for few rows
constexpr double kSecondLaunch = 0.5;   // parts of k: microseconds for the second launch
constexpr double kPartBytes = 1.1e7;    // what it reads and writes, per microsecond
constexpr double kPartStores = 2.67;    // how much longer float32 takes to store
constexpr double kLargeProduct = 2e10;  // such products run at the clock that power allows
constexpr double kPowerOfTiles =
    1.02;  // which is highest with tiles of 128 x 256 elements; the others take longer
constexpr double kOneConsumer = 0.947;     // where a single warp group multiplies
constexpr double kThreeConsumers = 0.971;  // or three do
constexpr double kTransposed = 0.964;      // where tiles are computed transposed
constexpr double kBlockNorm = 12;          // see overlapped()
constexpr double kMemoryNorm = 2.18;

/// x to the power of y, in single precision: a choice among hundreds of candidates is made of powers.
double power(double x, double y) { return std::pow(static_cast<float>(x), static_cast<float>(y)); }

/// The time of two activities that overlap but slow each other down: a norm of their times.
double overlapped(double one, double other, double norm) {
  const double longer = std::max(one, other), ratio = std::min(one, other) / longer;
  constexpr double kOfNoAccount = 0.3;  // to the power of kBlockNorm, in single precision
  if (norm == kBlockNorm && ratio < kOfNoAccount) return longer;
  return longer * power(1 + power(ratio, norm), 1 / norm);
}

/// What the estimate is made of, and the correction is a function of.
class Estimate {
 public:
  Estimate(const MatmulChoice& c, const ProductShape& p, int multiprocessors)
      : c_(c),
        p_(p),
        multiprocessors_(multiprocessors),
        cluster_(cluster_ctas(c)),
        area_(c.block_m * c.block_n) {
    constexpr double kStageBytes = 128;  // of a row, per 64 of k
    tensor_ = area_ / 32;
    if (c.takes_turns) {
      // A stage serves one warp group: shared memory, 128 bytes per clock, may take longer to receive and to give it.
      const double rows = c.swap_ab ? c.block_n : c.block_m, columns = c.swap_ab ? c.block_m : c.block_n;
      tensor_ = std::max(tensor_, 2 * rows + columns + rows * columns / 64);
    }
    loads_ = (static_cast<double>(c.block_m) / c.cluster_n + static_cast<double>(c.block_n) / c.cluster_m) *
             kStageBytes / kL2BytesPerClock *
             (p.k % 64 == 0   ? 1
              : p.k % 16 == 0 ? kStraddledLines
                              : kUnalignedSectors);
    blocks_in_flight_ = c.stages * c.block_k / 64.0;
    memory_ = 2 * elements() / kMemory;
    tiles_ = tiles_of(c, p) * c.parts;
    at_once_ = c.method == Method::kSkinny ? std::max(multiprocessors / cluster_, 1)
                                           : clusters_at_once(cluster_, multiprocessors);
    full_ = tiles_ / at_once_, left_ = tiles_ % at_once_;
    waves_ = full_ + (left_ > 0 ? 1 : 0);
    k_blocks_ = static_cast<double>(cdiv(cdiv(p.k, 64), int64_t{c.split_k} * c.parts));
    multiplying_ = tensor_ * (area_ < 30'000 ? kSmallTile : 1);
  }
  double time() const { return c_.method == Method::kStreamK ? of_stream_k() : of_tiles(); }
  /// What time() is at least: the longer of its two activities alone, for a tenth of the trouble.
  double least_time() const {
    if (c_.method == Method::kStreamK) return memory_;
    // A wave asks the L2 cache for no less than its share of the multiprocessors does.
    const auto wave = [&](int64_t clusters) {
      const double share = static_cast<double>(clusters * cluster_) / multiprocessors_,
                   busy = std::max(multiplying_, loads_ * share);
      return std::max(busy, (kLoadClocks + busy) / blocks_in_flight_);
    };
    const double blocks = static_cast<double>(full_) * wave(at_once_) + (left_ > 0 ? wave(left_) : 0);
    const double work = blocks * k_blocks_ / kClock + once();
    return std::max(work, memory_) * factor() + second_launch();
  }

  /// Natural logarithms of sizes and of ratios of times, counts and flags: the network's inputs.
  std::array<float, kNetInputs> features(double time) const {
    const double waves = static_cast<double>(waves_), busy = std::max(tensor_, loads_);
    const int rows = c_.swap_ab ? c_.block_n : c_.block_m, columns = c_.swap_ab ? c_.block_m : c_.block_n;
    const auto m = static_cast<double>(p_.m), n = static_cast<double>(p_.n);
    const auto tiles = static_cast<double>(tiles_), at_once = static_cast<double>(at_once_);
    const auto flag = [](bool is) { return is ? 1.0 : 0.0; };
    const std::array<double, kNetInputs> values{
        std::log(time),
        std::log(tensor_),
        std::log(loads_ / tensor_),
        std::log((kLoadClocks + busy) / blocks_in_flight_ / tensor_),
        std::log(waves * k_blocks_ * busy / 1700 / time),
        std::log(memory_ / time),
        std::log(k_blocks_),
        std::log(waves),
        left_ > 0 ? static_cast<double>(left_) / at_once : 1,
        std::log(m * n / (tiles / c_.parts * area_ * c_.cluster_m * c_.cluster_n)),
        std::min(tiles, at_once) * cluster_ / multiprocessors_,
        rows / 128.0,
        columns / 128.0,
        flag(c_.consumers == 1),
        flag(c_.consumers == 3),
        blocks_in_flight_ / 8,
        std::log2(c_.swap_ab ? c_.cluster_n : c_.cluster_m),
        std::log2(c_.swap_ab ? c_.cluster_m : c_.cluster_n),
        std::log2(c_.split_k),
        flag(c_.swap_ab),
        std::log(c_.parts),
        flag(c_.method == Method::kSkinny),
        flag(c_.method == Method::kParts),
        flag(c_.method == Method::kStreamK),
        flag(p_.k % 64 != 0 && p_.k % 16 == 0),
        flag(p_.k % 16 != 0),
        flag(p_.n % 16 == 0),
        flag(c_.store_stages == 2),
        flag(c_.takes_turns),
        std::log(m),
        std::log(n),
        std::log(static_cast<double>(p_.k)),
        std::log(m * c_.block_n / (n * c_.block_m)),
        std::log(2 * elements() / 4e7)};
    std::array<float, kNetInputs> inputs;
    std::ranges::transform(values, inputs.begin(), [](double value) { return static_cast<float>(value); });
    return inputs;
  }

 private:
  double elements() const {
    return static_cast<double>(p_.matrices) * static_cast<double>((p_.m + p_.n) * p_.k + p_.m * p_.n);
  }
  /// Clocks of the main loop per 64 of k, while `share` of the multiprocessors are at work.
  double block_clocks(double share) const {
    const double busy = overlapped(multiplying_, loads_ * power(share, kAloneExponent), kBlockNorm);
    // A stage is requested when the one before it in its place of the ring has been used.
    return overlapped(busy, (kLoadClocks + busy) / blocks_in_flight_, kBlockNorm);
  }
  /// To store as many tiles as a CTA has, one after the other.
  double store_time(double tiles) const {
    return (kTileArea * area_ / (128 * 256) * (p_.n % 16 == 0 ? 1 : kUnevenRows) + kTile) *
           (1 + (c_.takes_turns ? kStoredInTurns : kStoredBehind) * (tiles - 1)) *
           (c_.method == Method::kParts ? kPartStores : 1);
  }
  /// Some waves, after which comes what happens once.
  double span(int64_t waves, int64_t clusters, double once) const {
    const double share = static_cast<double>(clusters * cluster_) / multiprocessors_;
    const double work = static_cast<double>(waves) * k_blocks_ * block_clocks(share) / kClock;
    const double of_memory = static_cast<double>(waves * clusters) / static_cast<double>(tiles_);
    return overlapped(work + once, memory_ * of_memory + (once > 0 ? kLaunch : 0), kMemoryNorm);
  }
  /// What happens once: the launch, and the stores that no products hide.
  double once() const {
    return kLaunch + kCluster * std::bit_width(static_cast<unsigned>(cluster_) / 2) +
           (c_.split_k > 1 ? kSum : 0) + store_time(static_cast<double>(waves_));
  }
  /// What multiplies the time of all waves.
  double factor() const {
    double factor = c_.method == Method::kSkinny ? kSkinnyDoubt
                    : c_.consumers == 1          ? kOneConsumer
                    : c_.consumers == 3          ? kThreeConsumers
                                                 : 1;
    const double products =
        static_cast<double>(p_.matrices) * static_cast<double>(p_.m * p_.n) * static_cast<double>(p_.k);
    if (products > kLargeProduct && c_.block_m * c_.block_n != 128 * 256) factor *= kPowerOfTiles;
    if (c_.swap_ab) factor *= kTransposed;
    if (c_.method != Method::kParts && waves_ > 1 && cluster_ > 2)
      factor *= cluster_ <= 4 ? kClustersOf4 : kClustersOf8;
    return factor;
  }
  double second_launch() const {
    if (c_.method != Method::kParts) return 0;
    return kSecondLaunch + static_cast<double>((4 * c_.parts + 2) * p_.matrices * p_.m * p_.n) / kPartBytes;
  }
  double of_tiles() const {
    double time = full_ > 0 ? span(full_, at_once_, left_ > 0 ? 0 : once()) : 0;
    if (left_ > 0) time += span(1, left_, once());  // alone, each of them gets more from the L2 cache
    return time * factor() + second_launch();
  }
  /// Clusters divide the tiles that do not fill a wave, and one wave more where there is one.
  double of_stream_k() const {
    constexpr int64_t kLeastBlocks = kernels::HopperMatmulStreamK<>().min_k_blocks;
    const int64_t k_blocks = cdiv(p_.k, 64);
    const int64_t clusters = std::max<int64_t>(
        std::min(int64_t{multiprocessors_ / cluster_}, cdiv(tiles_ * k_blocks, kLeastBlocks)), 1);
    const int64_t left = tiles_ % clusters,
                  divided = left == 0 ? 0 : left + (tiles_ > clusters ? clusters : 0);
    const auto whole = static_cast<double>((tiles_ - divided) / clusters);
    const double divided_per_cluster = static_cast<double>(divided) / static_cast<double>(clusters);
    double time = kLaunch + kCluster * std::log2(cluster_);
    const double share = static_cast<double>(clusters * cluster_) / multiprocessors_;
    time += (divided_per_cluster + whole) * static_cast<double>(k_blocks) * block_clocks(share) / kClock;
    time += store_time(whole + (divided > 0 ? std::max(1.0, divided_per_cluster) : 0));
    if (divided > 0) {
      const double parts = divided < clusters ? static_cast<double>(cdiv(clusters, divided)) : 1.5;
      time += kExchange + kExchangedPart * parts * area_ / (128 * 256);
    }
    return kDoubt * overlapped(time, kLaunch + memory_, kMemoryNorm);
  }

  const MatmulChoice& c_;
  const ProductShape& p_;
  int multiprocessors_, cluster_;
  double area_, tensor_, loads_;      // elements of a tile; clocks per 64 of k
  double multiplying_;                // tensor_, at a clock that is higher for smaller tiles
  double blocks_in_flight_, memory_;  // of 64 of k; microseconds
  int64_t tiles_, at_once_, full_, left_, waves_;
  double k_blocks_;
};

/// The network: two hidden layers of rectified sums.
template <size_t kIn, size_t kOut>
std::array<float, kOut> layer(const std::array<float, kIn>& in, const float (&weights)[kIn][kOut],
                              const float (&biases)[kOut]) {
  std::array<float, kOut> out;
  std::ranges::copy(biases, out.begin());
  for (size_t i = 0; i < kIn; ++i)
    for (size_t j = 0; j < kOut; ++j) out[j] += in[i] * weights[i][j];
  return out;
}
template <size_t kCount>
std::array<float, kCount> rectified(std::array<float, kCount> values) {
  for (float& value : values) value = std::max(value, 0.0f);
  return values;
}

}  // namespace

int cluster_ctas(const MatmulChoice& c) { return c.cluster_m * c.cluster_n * c.split_k; }

int64_t clusters_at_once(int ctas, int multiprocessors) {
  const int64_t all = std::max(multiprocessors / ctas, 1);
  return ctas <= 2 ? all : std::max<int64_t>(all * 15 / 16, 1);
}

int64_t tiles_of(const MatmulChoice& c, const ProductShape& p) {
  return p.matrices * cdiv(p.m, c.block_m * c.cluster_m) * cdiv(p.n, c.block_n * c.cluster_n);
}

void set_ctas(MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  const int cluster = cluster_ctas(c);
  const int64_t at_once = clusters_at_once(cluster, multiprocessors),
                tiles = std::max(tiles_of(c, p) * c.parts, at_once);
  if (c.method == MatmulChoice::Method::kStreamK)
    c.ctas = multiprocessors;
  else if (c.method != MatmulChoice::Method::kSkinny)
    c.ctas = static_cast<int>(cluster * cdiv(tiles, cdiv(tiles, at_once)));
}

double estimated_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  return Estimate(c, p, multiprocessors).time();
}

double least_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors) {
  return Estimate(c, p, multiprocessors).least_time();
}

double corrected_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors,
                              double estimate) {
  const auto inputs = Estimate(c, p, multiprocessors).features(estimate);
  const auto first = rectified(layer(inputs, kNetFirst, kNetFirstBiases));
  const auto second = rectified(layer(first, kNetSecond, kNetSecondBiases));
  return estimate * std::exp(double{layer(second, kNetLast, kNetLastBiases)[0]});
}

}  // namespace imbrex
