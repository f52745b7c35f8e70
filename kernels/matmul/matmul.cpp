// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul: what it takes, and the kernels found for it. Which one a product gets is chosen in
// matmul_choice.cpp; operands that are not dense are placed in placement.cpp.
#include "imbrex/kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/runtime/caller_line.h"
#include "matmul/block_scaled.h"
#include "matmul/integer_columns.h"
#include "matmul/matmul_launch.h"
#include "matmul/placement.h"
#include "tensor_fact.h"
#include "whole_rows.h"

namespace imbrex {

kernels::Factors factors_of(const DeviceTensor& t, kernels::Factors several) {
  if (t.is_null()) return kernels::Factors::kNone;
  return t.bytes() == float32.bytes() ? kernels::Factors::kOne : several;
}

bool is_column_bias(const DeviceTensor& bias, int64_t n) {
  const std::vector<int64_t>& shape = bias.shape();
  return (shape.size() == 1 || (shape.size() == 2 && shape[0] == 1)) && shape.back() == n;
}

namespace {

/// The kernel for a choice on a device: made on the first request and kept, and with it the device.
const Launch& find(const Variant& variant, const Device& device) {
  using Kernels = std::map<std::pair<const void*, Variant>, Launch>;
  static Kernels& kernels = *new Kernels;  // never freed: at exit the driver may be unloaded first
  Launch& launch = kernels[{&device.backend(), variant}];
  if (!launch.run) launch = (variant.has_strides ? make_batch_launch : make_dense_launch)(variant, device);
  return launch;
}

[[noreturn]] void refuse(std::string message, std::vector<std::string> facts, std::string help) {
  throw LaunchError(Diagnostic{{}, "matmul: " + std::move(message), std::move(facts), std::move(help)});
}

/// A tensor of the options, if it is there: on a's device, and not freed.
void check_tensor(std::string_view name, const DeviceTensor& t, const DeviceTensor& a) {
  if (t.is_null()) return;
  const auto facts = [&] { return std::vector{tensor_fact(name, t), tensor_fact("a", a)}; };
  if (t.address() == 0) refuse(fmt::format("{} has been released", name), facts(), "call before release()");
  if (&t.device().backend() != &a.device().backend())
    refuse(fmt::format("{} is on another device than a: '{}', a on '{}'", name, t.device().name(),
                       a.device().name()),
           facts(), "copy it to a's");
}

Problem check(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c, const MatmulOptions& o) {
  const std::pair<const char*, const DeviceTensor*> tensors[] = {{"a", &a}, {"b", &b}, {"c", &c}};
  for (const auto& [name, t] : tensors)
    if (t->is_null() || t->address() == 0)
      refuse(fmt::format("{} is null or released", name), {},
             "make it before the call, and release it after");
  const auto facts = [&] {
    return std::vector{tensor_fact("a", a), tensor_fact("b", b), tensor_fact("c", c)};
  };
  for (const auto& [name, t] : tensors)
    if (const size_t rank = t->shape().size(); rank != 2 && rank != 3)
      refuse(fmt::format("{} has {} dimensions; operands are matrices, or batches of them", name, rank),
             facts(), "give it two dimensions, or three with the batch's first");
  const bool is_batch = c.shape().size() == 3;
  const int64_t matrices = is_batch ? c.shape()[0] : 1;
  const auto check_batch = [&](const char* name, const DeviceTensor& t) {
    if (t.shape().size() == 3 && !(is_batch && (t.shape()[0] == matrices || t.shape()[0] == 1)))
      refuse(is_batch ? fmt::format("{} has {} matrices, c {}", name, t.shape()[0], matrices)
                      : fmt::format("{} is a batch of matrices, c is one matrix", name),
             facts(), "give c a matrix for each product; a and b as many, or one that all products share");
  };
  check_batch("a", a);
  check_batch("b", b);
  // Extents of a matrix: dimension 0 is its rows.
  const auto extent = [](const DeviceTensor& t, size_t d) { return t.shape()[t.shape().size() - 2 + d]; };
  const Problem p{matrices, extent(a, o.a_is_km ? 1 : 0), extent(b, o.b_is_kn ? 1 : 0),
                  extent(a, o.a_is_km ? 0 : 1)};
  const int64_t b_k = extent(b, o.b_is_kn ? 0 : 1);
  if (p.k != b_k)
    refuse(fmt::format("inner sizes differ, a has k = {} and b has k = {}", p.k, b_k), facts(),
           fmt::format("a is {}, b is {} (a_is_km, b_is_kn)", o.a_is_km ? "[k, m]" : "[m, k]",
                       o.b_is_kn ? "[k, n]" : "[n, k]"));
  if (extent(c, 0) != p.m || extent(c, 1) != p.n)
    refuse(fmt::format("c is [{}, {}], the product is [{}, {}]", extent(c, 0), extent(c, 1), p.m, p.n),
           facts(), "c is [m, n]");
  if (p.matrices < 1 || p.m < 1 || p.n < 1 || p.k < 1)
    refuse(fmt::format("{} products of m = {}, n = {}, k = {}; each is 1 or more", p.matrices, p.m, p.n, p.k),
           facts(), "leave the call out where there is nothing to compute");
  const bool is_half = a.dtype() == float16 || a.dtype() == bfloat16;
  if (a.dtype() != b.dtype() || !(is_half || a.dtype() == float8_e4m3 || a.dtype() == int8))
    refuse("a and b are not both float16, both bfloat16, both float8_e4m3 or both int8", facts(),
           "convert them");
  if (c.dtype() != float16 && c.dtype() != bfloat16 && c.dtype() != float32)
    refuse("c is not float16, bfloat16 or float32", facts(), "give it one of these types");
  check_tensor("b", b, a);
  check_tensor("c", c, a);
  if (c.may_overlap())
    refuse("elements of c share memory", facts(), "write to a tensor without strides of 0");
  const int64_t row = c.strides()[c.strides().size() - 2], column = c.strides().back();
  if (p.m > 1 && p.n > 1 && row != 1 && column != 1)
    refuse(fmt::format("neither rows nor columns of c are neighbours in memory: their strides are {} and {}",
                       row, column),
           facts(), "give c a stride of 1 along one of its last two dimensions, or copy from a dense tensor");
  if (!a.device().can_run("sm_90a"))
    refuse(fmt::format("no kernel for {} ({})", a.device().name(), a.device().target()), facts(),
           "products run on devices of target sm_90a");
  return p;
}

void check_options(const Problem& p, const DeviceTensor& a, const DeviceTensor& c, const MatmulOptions& o) {
  const auto check_scale = [&](std::string_view name, const DeviceTensor& t, int64_t rows, const char* what) {
    if (t.is_null()) return;
    check_tensor(name, t, a);
    if (t.dtype() != float32 || (t.bytes() != 4 && t.bytes() != 4 * rows) || !t.is_dense())
      refuse(fmt::format("{} is neither one float32 nor {}, one per {}", name, rows, what),
             {tensor_fact(name, t)}, fmt::format("make it float32 [1] or [{}], dense", rows));
  };
  if (!has_block_scales(p, o)) {
    check_scale("scale_a", o.scale_a, p.m, "row of A");
    check_scale("scale_b", o.scale_b, p.n, "row of B, a column of C");
  }
  if (!o.bias.is_null()) {
    check_tensor("bias", o.bias, a);
    const auto facts = [&] { return std::vector{tensor_fact("bias", o.bias), tensor_fact("c", c)}; };
    if (!is_column_bias(o.bias, p.n) && o.bias.shape() != std::vector<int64_t>{p.m, 1})
      refuse("bias does not fit c", facts(),
             fmt::format("make it [{}], one per column, or [{}, 1], one per row", p.n, p.m));
    if (o.bias.dtype() != c.dtype() && o.bias.dtype() != float32)
      refuse("bias is neither of c's type nor float32", facts(), "convert it");
  }
  if (!o.residual.is_null()) {
    check_tensor("residual", o.residual, a);
    const std::vector<int64_t>& shape = c.shape();
    const bool is_shared = o.residual.shape() == std::vector(shape.end() - 2, shape.end());
    if ((o.residual.shape() != shape && !is_shared) || o.residual.dtype() != c.dtype())
      refuse("residual is not like c", {tensor_fact("residual", o.residual), tensor_fact("c", c)},
             "give it c's shape and type");
  }
}

/// What a product's kernel depends on.
struct Call {
  const void* device;
  int64_t matrices, m, n, k;
  int bits;  // of an element
  bool a_is_km, b_is_kn, is_plain, has_strides, is_integer;
  friend auto operator<=>(const Call&, const Call&) = default;
};

/// The kernel for a call, and the numbers of its launch.
struct Found {
  const Launch* launch = nullptr;
  int ctas = 0, parts = 1;
  size_t choices = 0;  // so many were made for the call; this is the last
};
/// What is kept of it.
struct Choices {
  Found last;
  std::vector<MatmulChoice> all;
};

/// One more choice for a call; it depends on the size of an element too, and not on strides.
void choose(Choices& choices, const Call& call, const Device& device) {
  const int halves = 16 / call.bits;  // elements per 16 bits: rows of equally many bytes take equally long
  MatmulChoice choice =
      choose_matmul(call.m, call.n, cdiv(call.k, halves), call.is_plain, device.multiprocessors(),
                    call.matrices, choices.all, call.a_is_km || call.b_is_kn);
  Found& found = choices.last;
  found.ctas = std::exchange(choice.ctas, 0);  // whatever they are, the kernel is the same
  found.parts = std::exchange(choice.parts, 1);
  choices.all.push_back(choice);
  choice.block_k *= halves;
  if (call.is_integer) fit_integers(choice);
  found.launch = &find({choice, call.a_is_km, call.b_is_kn, call.has_strides}, device);
  found.choices = choices.all.size();
}

/// Choosing takes longer than a launch should, so choices are kept. `refused`: so many of them did not compile.
Found find(const Call& call, const Device& device, size_t refused) {
  constexpr size_t kMost = 4096;
  static std::mutex turn;
  static auto& known = *new std::map<Call, Choices>;
  const std::lock_guard lock(turn);
  if (known.size() > kMost) known.clear();
  Choices& choices = known[call];
  while (choices.all.size() <= refused) choose(choices, call, device);
  return choices.last;
}

/// `p` as dense kernels take it.
Product dense_product(const Problem& p, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                      const MatmulOptions& o) {
  const auto address_of = [](const DeviceTensor& t, uint64_t otherwise) {
    return t.is_null() ? otherwise : t.address();
  };
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .dtype = a.dtype(),
          .c_type = c.dtype(),
          .a = a.address(),
          .b = b.address(),
          .c = c.address(),
          .a_is_km = o.a_is_km,
          .b_is_kn = o.b_is_kn,
          .alpha = o.alpha,
          .scales_a = factors_of(o.scale_a, kernels::Factors::kPerRow),
          .scales_b = factors_of(o.scale_b, kernels::Factors::kPerColumn),
          .scale_a = address_of(o.scale_a, 0),
          .scale_b = address_of(o.scale_b, 0),
          .bias = o.bias,
          .is_column_bias = !o.bias.is_null() && is_column_bias(o.bias, p.n),
          .beta = o.beta,
          .residual = address_of(o.residual, c.address()),
          .activation = o.activation,
          .strides = {}};
}

LaunchReport run(Until until, Product p, int64_t matrices, const Device& device, const Stream& stream) {
  const bool is_plain = p.c_type.bits() == 16 && p.alpha == 1 && p.beta == 0 &&
                        p.scales_a == kernels::Factors::kNone && p.scales_b == kernels::Factors::kNone &&
                        p.bias.is_null() && p.activation == Activation::kNone;
  const Call call{&device.backend(), matrices,  p.m,       p.n,      p.k,
                  p.dtype.bits(),    p.a_is_km, p.b_is_kn, is_plain, p.strides.has_value(),
                  p.dtype == int8};
  // Registers may not suffice for the largest tiles with every type, order and step: then the next best serve.
  constexpr size_t kMostRefused = 4;
  for (size_t refused = 0;;) {
    const Found found = find(call, device, refused);
    p.ctas = found.ctas;
    p.parts = found.parts;
    try {
      return found.launch->run(until, p, stream);
    } catch (const CompileError&) {
      refused = found.choices;
      if (refused >= kMostRefused) throw;
    }
  }
}

LaunchReport run(Until until, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                 const MatmulOptions& options) {
  const Problem p = check(a, b, c, options);
  check_options(p, a, c, options);
  if (has_block_scales(p, options)) return run_block_scaled(until, p, a, b, c, options);
  if (is_dense_call(a, b, c, options))
    return run(until, dense_product(p, a, b, c, options), 1, a.device(), options.stream);
  if (is_dense_but_for_k(a, b, c, options)) {
    WholeRows whole(a.device(), options.stream, until == Until::kLaunched);
    const DeviceTensor a_rows = whole(a), b_rows = whole(b);
    LaunchReport copies = whole.copy();
    const Problem padded{p.matrices, p.m, p.n, a_rows.shape()[1]};
    LaunchReport report =
        run(until, dense_product(padded, a_rows, b_rows, c, options), 1, a.device(), options.stream);
    return copies.clean() ? report : copies;
  }
  Placement placement(until, p, a, b, c, options);
  LaunchReport report = run(until, placement.product, p.matrices, a.device(), options.stream);
  return placement.copies.clean() ? report : std::move(placement.copies);
}

}  // namespace

std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors) {
  return choose_matmul(m, n, k, true, multiprocessors).text();
}

LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  return run(Until::kLaunched, a, b, c, options);
}

void prepare_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options) {
  run(Until::kCompiled, a, b, c, options);
}

}  // namespace imbrex
