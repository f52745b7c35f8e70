// SPDX-License-Identifier: Apache-2.0
// Caches of latent attention of float8: the values of a row are float8_e4m3, each 128 of them with a factor of its own, and what
// of the key is no value (the part that knows positions) keeps its type. So FlashMLA and vLLM store them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A parameter of a kernel: rows of the cache are value_size bytes of float8_e4m3, at scale_ptr a float32 for each 128 of them,
/// as many as fill multiples of 16 bytes, and at rest_ptr the other elements of the key. What a value stands for is its
/// element multiplied by its factor, and rounded to the other elements' type.
struct LatentFloat8 {
  using Parameters = ParameterList<bool, Ptr<>, Ptr<>>;
  bool is_there;  ///< without it the cache is not of float8, and the pointers are not read
  Ptr<> scale_ptr, rest_ptr;

  static constexpr int kScaled = 128;  // values that share a factor
  /// Factors of a row, those that fill it included.
  static constexpr int scales_of(int value_size) { return (value_size / kScaled + 3) / 4 * 4; }

  /// Where parts of a block of rows lie: page and row.
  using Places = std::vector<std::pair<Int32, ScalarArg>>;

  /// Blocks of the cache as they lie in memory, on their way to the products' tiles: of one warp group, which loads and converts.
  class Ring {
   public:
    /// `rest`: elements of a row that are no values.
    Ring(int stages, int block_kv, int rest, int value_size, DataType dtype)
        : stages_(stages),
          block_kv_(block_kv),
          dtype_(dtype),
          s_values_(shared_tensor(float8_e4m3, {stages, block_kv, value_size})),
          s_scales_(shared_tensor(float32, {stages, block_kv, scales_of(value_size)})),
          full_(mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(stages), 1))) {
      if (rest > 0) s_rest_ = shared_tensor(dtype, {stages, block_kv, rest});
    }
    int scales() const { return static_cast<int>(s_scales_.shape(2)); }
    /// The cache's values, factors and the rest of its keys.
    void read_from(const GlobalTensor& values, const GlobalTensor& scales,
                   const std::optional<GlobalTensor>& rest) {
      g_values_ = values, g_scales_ = scales, g_rest_ = rest;
    }

    /// Starts loading a block into a stage; one warp's.
    void load(const ScalarArg& to_stage, const Places& places) const {
      Barrier full = full_[to_stage];
      auto values = s_values_[to_stage], scales = s_scales_[to_stage];
      std::optional<SharedTensor> rest;
      if (s_rest_) rest = (*s_rest_)[to_stage];
      if (auto thread = single_thread())
        mbarrier::arrive_and_expect_tx(full, values.nbytes() + scales.nbytes() + (rest ? rest->nbytes() : 0));
      const int rows = block_kv_ / static_cast<int>(places.size());
      for (int at = 0; const auto& [page, row] : places) {
        const auto copy = [&](const GlobalTensor& from, const SharedTensor& to) {
          tma::global_to_shared(from, to.slice({at, 0}, {rows, to.shape(1)}), {page, 0, row, 0}, full);
        };
        copy(*g_values_, values);
        copy(*g_scales_, scales);
        if (rest) copy(*g_rest_, *rest);
        at += rows;
      }
    }
    /// Waits for the next block.
    void acquire() const { mbarrier::wait(full_[stage], phase_); }
    /// Its values from first_column on go to `values`, `panel` columns at a time, and the rest to `rest`, with zeros in place of
    /// rows beyond the sequence's end.
    void convert(int first_column, const SharedTensor& values, const std::optional<SharedTensor>& rest,
                 int panel, const Int32& block, const Int32& length) const {
      const auto move = [&](bool is_edge) {
        const auto store = [&](RegisterTensor tile, const SharedTensor& to) {
          if (is_edge) {
            auto is_inside = register_tensor(boolean, {block_kv_, 1},
                                             [&](auto r, auto) { return block * block_kv_ + r < length; });
            tile = select(is_inside, tile, 0);
          }
          store_shared(to, tile.to(dtype_));
        };
        // Each is loaded before the one in front of it is stored: a load that comes behind a store is not moved before it.
        const auto load = [&](int column) {
          const int at = first_column + column;
          return std::pair<RegisterTensor, RegisterTensor>(
              load_shared(s_values_[stage].slice({0, at}, {block_kv_, panel})),
              load_shared(s_scales_[stage].slice({0, at / kScaled}, {block_kv_, 1})));
        };
        auto next = load(0);
        for (int column = 0; column < values.shape(1); column += panel) {
          RegisterTensor now = next.first.to(float32) * next.second;
          if (column + panel < values.shape(1)) next = load(column + panel);
          store(now, values.slice({0, column}, {block_kv_, panel}));
        }
        if (rest) store(load_shared((*s_rest_)[stage]), *rest);
      };
      // Not a step in between that may leave something out: then the columns' instructions could not be mixed.
      if (auto edge = when((block + 1) * block_kv_ > length)) move(true);
      if (auto inside = otherwise()) move(false);
    }
    void advance() {
      stage = select(stage == stages_ - 1, 0, stage + 1);
      phase_ ^= stage == 0;
    }
    Int32 stage = 0;

   private:
    int stages_, block_kv_;
    DataType dtype_;
    SharedTensor s_values_, s_scales_;
    std::optional<SharedTensor> s_rest_;
    BarrierArray full_;
    UInt32 phase_ = mbarrier::consumer_initial_phase;
    std::optional<GlobalTensor> g_values_, g_scales_, g_rest_;
  };
};

}  // namespace imbrex::kernels
