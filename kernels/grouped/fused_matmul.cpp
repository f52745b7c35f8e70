// SPDX-License-Identifier: Apache-2.0
// imbrex::gated_matmul and imbrex::quantised_matmul: the grouped kernel of one group, with what it can do to whole tiles.
#include "imbrex/kernels/fused_matmul.h"

#include <fmt/ranges.h>

#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "grouped/fused_product.h"
#include "grouped/fused_tiles.h"
#include "grouped/quantised_parts.h"
#include "grouped/tiled_kernels.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/few_rows.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/rows/quantise.h"
#include "imbrex/runtime/caller_line.h"
#include "matmul/matmul_time.h"
#include "rows/quantise_codes.h"
#include "tensor_fact.h"
#include "whole_rows.h"

namespace imbrex {
namespace {

using FusedKernel =
    kernels::HopperGroupedMatmul<kernels::OneGroup, kernels::ScaleByFactors, kernels::ScaleByFactors,
                                 kernels::GatedBy, kernels::QuantiseBlocks, kernels::Activate,
                                 kernels::Convert>;
using FewRowsKernel =
    kernels::HopperFewRows<kernels::ScaleByFactors, kernels::ScaleByFactors, kernels::GatedBy,
                           kernels::QuantiseBlocks, kernels::Activate, kernels::Convert>;
using InTurnsKernel = kernels::HopperMatmulH8<kernels::ScaleByFactors, kernels::ScaleByFactors,
                                              kernels::GatedBy, kernels::Activate, kernels::Convert>;

/// A call, checked.
class FusedCall {
 public:
  FusedCall(const char* function, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor* up,
            const DeviceTensor& c, const FusedMatmulOptions& o)
      : function_(function), a_(a), tensors_{{"a", &a}, {"b", &b}, {"c", &c}} {
    if (up != nullptr) tensors_.insert(tensors_.begin() + 2, {"up", up});
    for (const auto& [name, t] : tensors_) check_matrix(name, *t);
    if (!a.device().can_run("sm_90a"))
      refuse(fmt::format("no kernel for {}", a.device().name()), "it runs on devices of target sm_90a");
    m = a.shape()[0], n = b.shape()[0], k = a.shape()[1];
    expect_shape("b", b, {n, k});
    if (up != nullptr) expect_shape("up", *up, {n, k});
    expect_shape("c", c, {m, n});
    if (!c.is_dense() || c.address() % 16 != 0)
      refuse("c is not dense, or does not begin at a multiple of 16 bytes", "copy it");
    const DataType type = a.dtype();
    if (type != float16 && type != bfloat16 && type != float8_e4m3)
      refuse(fmt::format("a is of {}", type.name()), "it is float16, bfloat16 or float8_e4m3");
    for (const auto& [name, t] : tensors_) {
      if (std::string_view(name) == "c") continue;  // one tensor may be given as another, too
      if (t->dtype() != type) refuse(fmt::format("a and {} are not of one type", name), "convert them");
      if (share_memory(c, *t))
        refuse(fmt::format("c and {} share memory", name),
               "write to a tensor of its own: tiles are stored while others are read");
    }
    const bool quantises = c.dtype() == float8_e4m3;
    if (!quantises && c.dtype() != float16 && c.dtype() != bfloat16)
      refuse(fmt::format("c is of {}", c.dtype().name()), "it is float16, bfloat16 or float8_e4m3");
    const int64_t n_unit = quantises ? 16 : 8;
    if (n % n_unit != 0)
      refuse(fmt::format("n is {}, not a multiple of {}", n, n_unit),
             "pad the rows of the weights and those of c: TMA stores units of 16 bytes");
    check_factors("scale_a", o.scale_a, {m});
    if (up == nullptr)
      check_factors("scale_b", o.scale_b, {n});
    else
      check_factors("scale_b", o.scale_b, {2, n});
    if (quantises == o.scale_c.is_null())
      refuse(quantises ? "c is float8_e4m3, and scale_c is null" : "c is not quantised, and there is scale_c",
             "give scale_c [n / 128, m] with c of float8_e4m3, and only then");
    if (quantises) {
      check_device("scale_c", o.scale_c);
      if (o.scale_c.shape().size() == 1)
        expect_shape("scale_c", o.scale_c, {m});
      else
        expect_shape("scale_c", o.scale_c, {(n + 127) / 128, m});
      if (o.scale_c.dtype() != float32 || (m > 1 && o.scale_c.strides().back() != 1))
        refuse("scale_c is not float32 whose rows are dense", "make it [n / 128, m], or [m]");
    }
  }
  int64_t m = 0, n = 0, k = 0;

  [[noreturn]] void refuse(const std::string& message, const std::string& help) const {
    Diagnostic told{{}, fmt::format("{}: {}", function_, message), {}, help};
    for (const auto& [name, t] : tensors_) add_fact(told, name, *t);
    throw LaunchError(std::move(told));
  }

 private:
  void check_device(const char* name, const DeviceTensor& t) const {
    if (t.is_null() || t.address() == 0)
      refuse(fmt::format("{} is null or released", name), "make it before the call, and release it after");
    if (&t.device().backend() != &a_.device().backend())
      refuse(fmt::format("{} is on '{}', a on '{}'", name, t.device().name(), a_.device().name()),
             "copy it to the same device");
  }
  void check_matrix(const char* name, const DeviceTensor& t) const {
    check_device(name, t);
    if (t.shape().size() != 2) refuse(fmt::format("{} is not a matrix", name), "give it two dimensions");
    for (const int64_t extent : t.shape())
      if (extent < 1) refuse(fmt::format("{} has an extent of {}", name, extent), "leave the call out");
  }
  void check_factors(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.is_null()) return;
    check_device(name, t);
    if (t.dtype() != float32 || !t.is_dense() || (t.bytes() != 4 && t.shape() != shape))
      refuse(fmt::format("{} is neither one float32 nor dense float32 [{}]", name, fmt::join(shape, ", ")),
             "see FusedMatmulOptions");
  }
  void expect_shape(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.shape() != shape)
      refuse(fmt::format("{} is [{}], not [{}]", name, fmt::join(t.shape(), ", "), fmt::join(shape, ", ")),
             "a is [m, k], b [n, k] and c [m, n]");
  }

  const char* function_;
  const DeviceTensor& a_;
  std::vector<std::pair<const char*, const DeviceTensor*>> tensors_;
};

/// All that a kernel with these tiles takes goes to `use`.
template <class Use>
auto with_arguments(const FusedProduct& p, const FusedKernel& tile, const Use& use) {
  return with_steps(p, [&](const auto&... steps) {
    return use(kernels::product_sizes(tile, p.m, p.n, p.k, p.multiprocessors), 1, 1, false, 0, p.dtype, p.c,
               p.a, p.b, p.c, steps...);
  });
}
template <class Use>
auto with_arguments(const FusedProduct& p, const FewRowsKernel& tile, const Use& use) {
  return with_steps(p, [&](const auto&... steps) {
    return use(kernels::product_sizes(tile, p.m, p.n, p.k, p.multiprocessors), p.dtype, p.a, p.b, p.c,
               steps...);
  });
}
template <class Use>
auto with_arguments(const FusedProduct& p, const InTurnsKernel& tile, const Use& use) {
  return use(kernels::product_sizes(tile, p.m, p.n, p.k, p.multiprocessors), p.dtype, p.a, p.b, p.c,
             static_cast<int>(p.scales_a), p.scale_a, static_cast<int>(p.scales_b), p.scale_b, p.is_gated,
             p.activation, p.up, Activation::kNone, p.c_type);
}

template <class K>
LaunchReport launch(const FusedProduct& p, const Device& device, std::span<const MatmulChoice> tiles,
                    const Stream& stream) {
  // Never freed: at exit the driver may be unloaded first.
  static auto& kernels = *new TiledKernels<K, decltype(p.steps())>;
  return kernels.run(
      device, tiles, p.m, p.columns(), p.k, p.dtype.bits(), p.steps(), [&](Kernel<K>& kernel, const K& tile) {
        return with_arguments(p, tile, [&](const auto&... all) { return kernel.on(stream)(all...); });
      });
}

}  // namespace

LaunchReport run_fused_matmul(const char* function, const DeviceTensor& a, const DeviceTensor& b,
                              const DeviceTensor* up, const DeviceTensor& c, const FusedMatmulOptions& o,
                              std::span<const MatmulChoice> tiles) {
  const FusedCall call(function, a, b, up, c, o);
  if (up == nullptr && o.scale_c.is_null())
    call.refuse("scale_c is null", "give it [n / 128, m], and c float8_e4m3");
  const auto factors_of = [](const DeviceTensor& t, kernels::Factors several) {
    if (t.is_null()) return kernels::Factors::kNone;
    return t.bytes() == 4 ? kernels::Factors::kOne : several;
  };
  const auto address_of = [&](const DeviceTensor& t) { return t.is_null() ? c.address() : t.address(); };
  const bool quantises = !o.scale_c.is_null();
  WholeRows whole(a.device(), o.stream);
  const DeviceTensor a_rows = whole(a), b_rows = whole(b), up_rows = up != nullptr ? whole(*up) : c;
  LaunchReport copies = whole.copy();
  const FusedProduct p{.m = call.m,
                       .n = call.n,
                       .k = a_rows.shape()[1],
                       .dtype = a.dtype(),
                       .c_type = c.dtype(),
                       .a = a_rows.address(),
                       .b = b_rows.address(),
                       .c = c.address(),
                       .is_gated = up != nullptr,
                       .up = up_rows.address(),
                       .activation = o.activation,
                       .scales_a = factors_of(o.scale_a, kernels::Factors::kPerRow),
                       .scales_b = factors_of(o.scale_b, kernels::Factors::kPerColumn),
                       .scale_a = address_of(o.scale_a),
                       .scale_b = address_of(o.scale_b),
                       .quantises = quantises,
                       .scale_c = address_of(o.scale_c),
                       .scale_c_stride = quantises ? o.scale_c.strides()[0] : 0,
                       .multiprocessors = a.device().multiprocessors()};
  const MatmulChoice::Method method = tiles.front().method;
  LaunchReport report =
      method == MatmulChoice::Method::kParts    ? quantise_parts(p, a.device(), tiles.front(), o.stream)
      : method == MatmulChoice::Method::kSkinny ? launch<FewRowsKernel>(p, a.device(), tiles, o.stream)
      : tiles.front().takes_turns               ? launch<InTurnsKernel>(p, a.device(), tiles, o.stream)
                                                : launch<FusedKernel>(p, a.device(), tiles, o.stream);
  return copies.clean() ? report : copies;
}

std::span<const MatmulChoice> tile_of_few_rows(bool is_gated, bool quantises, int64_t m, int64_t n,
                                               int multiprocessors) {
  const std::span<const MatmulChoice> tiles = few_row_tiles(is_gated, quantises), none = tiles.first(0);
  const auto tile = [&](size_t which) { return tiles.subspan(which, 1); };
  if (m > 128) return none;
  const size_t rows = m <= 16 ? 0 : m <= 32 ? 1 : m <= 64 ? 2 : 3;
  // Whether CTAs with 64 columns are a wave, and whether two of them could divide k.
  const bool is_narrow = cdiv(n, int64_t{64}) <= multiprocessors,
             leaves_half = 2 * cdiv(n, int64_t{64}) <= multiprocessors;
  if (is_gated) {
    if (rows < 3) return tile(rows);
    return !is_narrow ? none : leaves_half && !quantises ? tile(4) : tile(3);
  }
  constexpr int64_t kColumns = 4 * kernels::QuantiseBlocks::kBlock;  // of a cluster, with 128 rows
  if (rows == 3 && leaves_half) return tile(8);
  if (rows == 3 && !is_narrow && cdiv(n, kColumns) > clusters_at_once(4, multiprocessors)) return none;
  return tile(is_narrow ? rows : 4 + rows);
}

bool takes_two_launches(bool is_gated, int64_t m, int64_t n, int64_t k, int multiprocessors) {
  constexpr int64_t kFewRows = 64;                 // for which a second launch takes longer than it saves
  constexpr int64_t kLong = 4096, kLonger = 8192;  // k
  const int64_t ctas = cdiv(n, int64_t{64});       // with tiles of few rows
  if (m <= kFewRows || ctas > multiprocessors) return false;
  const bool leaves_half = 2 * ctas <= multiprocessors;
  if (is_gated) return leaves_half && m <= 2 * kFewRows && k >= kLonger;
  return leaves_half ? m <= 4 * kFewRows && k >= kLong : m <= 2 * kFewRows && k >= kLonger;
}

namespace {

/// Whether columns that gate follow the others in memory, and rows need not be copied: one product has both.
bool are_one_matrix(const DeviceTensor& b, const DeviceTensor& up) {
  if (b.is_null() || up.is_null() || b.shape().size() != 2 || b.shape() != up.shape()) return false;
  return b.is_dense() && up.is_dense() && up.address() == b.address() + static_cast<uint64_t>(b.bytes()) &&
         b.address() % 16 == 0 && b.shape()[1] * b.dtype().bits() % 128 == 0;
}

LaunchReport run_fastest(const char* function, const DeviceTensor& a, const DeviceTensor& b,
                         const DeviceTensor* up, const DeviceTensor& c, const FusedMatmulOptions& options);

bool has_scales_of_rows(const FusedMatmulOptions& options) {
  return !options.scale_c.is_null() && options.scale_c.shape().size() == 1;
}

/// The result in bfloat16, then that in float8: where a scale belongs to a whole row, which no tile has, and where consumers in
/// turns gain more than the second launch takes.
LaunchReport quantise_behind(const char* function, const DeviceTensor& a, const DeviceTensor& b,
                             const DeviceTensor* up, const DeviceTensor& c,
                             const FusedMatmulOptions& options) {
  const FusedCall call(function, a, b, up, c, options);
  const Workspace memory = Workspace::on(options.stream, a.device(), call.m * call.n * bfloat16.bytes());
  const DeviceTensor result = memory.tensor(bfloat16, {call.m, call.n});
  FusedMatmulOptions of_product = options;
  of_product.scale_c = {};
  LaunchReport report = up != nullptr ? run_fastest(function, a, b, up, result, of_product)
                                      : matmul(a, b, result,
                                               {.scale_a = options.scale_a,
                                                .scale_b = options.scale_b,
                                                .activation = options.activation,
                                                .stream = options.stream});
  const DeviceTensor& scale = options.scale_c;
  LaunchReport quantised =
      has_scales_of_rows(options)
          ? quantise_float8(result, c, DeviceTensor::view(a.device(), scale.address(), float32, {call.m, 1}),
                            {.stream = options.stream})
          : quantise_float8(result, c, scale.transpose(),
                            {.block = kernels::QuantiseBlocks::kBlock, .stream = options.stream});
  return report.clean() ? quantised : report;
}

/// A call by the tiles it may have.
LaunchReport run_fastest(const char* function, const DeviceTensor& a, const DeviceTensor& b,
                         const DeviceTensor* up, const DeviceTensor& c, const FusedMatmulOptions& options) {
  const bool is_gated = up != nullptr, quantises = c.dtype() == float8_e4m3;
  const bool turns = is_gated && c.shape().size() == 2 && gates_in_turns(c.shape()[0]);
  if (quantises && (turns || has_scales_of_rows(options)))
    return quantise_behind(function, a, b, up, c, options);
  std::span<const MatmulChoice> tiles = fused_tiles(is_gated, quantises);
  MatmulChoice in_parts;
  if (c.shape().size() == 2 && !a.is_null() && a.address() != 0 &&
      a.shape().size() == 2) {  // else it is refused
    const int64_t m = c.shape()[0], n = c.shape()[1], k = (a.shape()[1] * a.dtype().bits() + 15) / 16;
    const int multiprocessors = a.device().multiprocessors();
    const auto few = tile_of_few_rows(is_gated, quantises, m, n, multiprocessors);
    if (!few.empty()) tiles = few;
    if (turns) tiles = gated_tiles_in_turns();
    if (quantises && takes_two_launches(is_gated, m, n, k, multiprocessors) &&
        (!is_gated || are_one_matrix(b, *up))) {
      in_parts = choose_in_parts(m, is_gated ? 2 * n : n, k, multiprocessors);
      tiles = {&in_parts, 1};
    }
  }
  return run_fused_matmul(function, a, b, up, c, options, tiles);
}

}  // namespace

LaunchReport gated_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& up,
                          const DeviceTensor& c, const FusedMatmulOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  return run_fastest("gated_matmul", a, b, &up, c, options);
}

LaunchReport quantised_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                              const FusedMatmulOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  return run_fastest("quantised_matmul", a, b, nullptr, c, options);
}

/// Layers of language models: gated ones in bfloat16, after a normalisation and without, and results in float8.
std::vector<MatmulCode> fused_matmul_codes() {
  constexpr uint64_t kSomewhere = 4096;
  struct CodeKind {
    const char* name;
    bool is_gated, quantises;
    kernels::Factors scales_a;
  };
  using enum kernels::Factors;
  constexpr CodeKind kKinds[] = {{"gated", true, false, kNone},
                                 {"gated scale_a", true, false, kPerRow},
                                 {"gated to float8", true, true, kNone},
                                 {"to float8", false, true, kNone}};
  std::vector<MatmulCode> codes = quantise_codes();
  for (const CodeKind& kind : kKinds) {
    const auto product = [kind](int64_t k) {
      return FusedProduct{.m = 64,
                          .n = 16,
                          .k = k,
                          .dtype = bfloat16,
                          .c_type = kind.quantises ? float8_e4m3 : bfloat16,
                          .a = kSomewhere,
                          .b = kSomewhere,
                          .c = kSomewhere,
                          .is_gated = kind.is_gated,
                          .up = kSomewhere,
                          .activation = kind.is_gated ? Activation::kSilu : Activation::kNone,
                          .scales_a = kind.scales_a,
                          .scales_b = kNone,
                          .scale_a = kSomewhere,
                          .scale_b = kSomewhere,
                          .quantises = kind.quantises,
                          .scale_c = kSomewhere,
                          .scale_c_stride = 64,
                          .multiprocessors = 132};
    };
    const auto add = [&](const auto& tile, const MatmulChoice& choice, int64_t k) {
      codes.push_back({fmt::format("bfloat16 {} {}", kind.name, choice.text()),
                       [p = product(k), tile] {
                         return with_arguments(p, tile, [&](const auto&... all) {
                           return std::vector{library_kernel(tile, std::nullopt).trace(all...)};
                         });
                       },
                       [p = product(k), tile](Cache& folder) {
                         with_arguments(p, tile, [&](const auto&... all) {
                           library_kernel(tile, std::nullopt).ship(folder, all...);
                         });
                       }});
    };
    if (kind.quantises)
      codes.push_back({fmt::format("bfloat16 {} second launch", kind.name),
                       [p = product(8)] { return trace_second_launch(p); },
                       [p = product(8)](Cache& folder) { ship_second_launch(p, folder); }});
    const auto add_rings = [&](const MatmulChoice& choice) {
      const auto tile = with_tile<FusedKernel>(choice, bfloat16.bits());
      for (const int64_t k : {int64_t{8}, tile.ring()}) add(tile, choice, k);
    };
    for (const MatmulChoice& choice : fused_tiles(kind.is_gated, kind.quantises)) add_rings(choice);
    if (kind.is_gated && !kind.quantises)
      for (const MatmulChoice& choice : gated_tiles_in_turns()) {
        const auto tile = with_tile<InTurnsKernel>(choice, bfloat16.bits());
        for (const int64_t k : {int64_t{8}, tile.ring()}) add(tile, choice, k);
      }
    for (const MatmulChoice& choice : few_row_tiles(kind.is_gated, kind.quantises))
      if (choice.method == MatmulChoice::Method::kSkinny)
        add(with_tile<FewRowsKernel>(choice, bfloat16.bits()), choice, 8);
      else
        add_rings(choice);
  }
  return codes;
}

}  // namespace imbrex
