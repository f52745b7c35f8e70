// SPDX-License-Identifier: Apache-2.0
// imbrex.parallel: this process as one of several ranks, and what they do together with arrays.
#include "imbrex/parallel.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>

#include "experts.h"
#include "operators.h"
#include "python_line.h"

namespace imbrex::python {
using namespace nb::literals;
using namespace parallel;
namespace {

/// Rank, ranks, and what they call themselves, of a program that knows; else the environment's variables say.
struct Place {
  std::optional<int> rank, size;
  std::string job;
  ServerOfRank server;
};

Ranks ranks_of(const std::string& gpus, const std::string& target, double patience, uint64_t seed, const Place& at) {
  vgpu::Options options{.target = target, .seed = seed};
  Ranks ranks = at.rank && at.size ? Ranks::of_process(*at.rank, *at.size, at.job, gpus, options, at.server)
                                   : Ranks::from_environment(gpus, options);
  return ranks.patience(patience);
}

std::vector<int64_t> shape_of(const Array& array) { return {array.shape().begin(), array.shape().end()}; }

/// The ranks, as one of them has them. Symmetric memory is taken as calls need it, and kept.
class Group {
 public:
  Group(const std::string& gpus, const std::string& target, double patience, uint64_t seed,
        const std::optional<int>& rank, const std::optional<int>& size, const std::string& job, int gpu,
        int ranks_of_server, const std::string& address)
      : target_(target), ranks_([&] {
          const nb::gil_scoped_release released;
          const Place at{rank, size, job, {gpu, ranks_of_server, address}};
          return Communicator::join(ranks_of(gpus, target, patience, seed, at));
        }()) {}

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  Device device() const { return ranks_.device(); }
  void leave(const std::string& why) { ranks_.leave(why); }
  void barrier() {
    const SourceLocation where = python_line();
    const nb::gil_scoped_release released;
    ranks_.barrier(where);
  }
  std::vector<std::string> gather(const std::string& text) {
    const SourceLocation where = python_line();
    const nb::gil_scoped_release released;
    return ranks_.gather(text, where);
  }
  void synchronize(uintptr_t stream) {
    const SourceLocation where = python_line();
    const nb::gil_scoped_release released;
    if (stream == 0) return ranks_.synchronize(where);
    ranks_.synchronize(Stream::adopt(ranks_.device(), reinterpret_cast<void*>(stream)), where);
  }

  nb::object all_reduce(nb::handle x_object, nb::handle out_object) {
    const Array x("x", x_object);
    Result out(x, out_object, x.shape(), x.dtype);
    expect(out.array, x.dtype, x.shape());
    Call call("all_reduce", {&x, &out.array}, target_);
    return collective("all_reduce", call, x, out, [&](const DeviceTensor& from, const DeviceTensor& to, At where) {
      const SymmetricTensor sent = buffer(0, x.dtype, shape_of(x), where), sum = buffer(1, x.dtype, shape_of(x), where);
      copy(sent.mine(), from, call);
      if (!all_reduce_) all_reduce_.emplace(ranks_, kCtas, std::nullopt, where);
      LaunchReport report = (*all_reduce_)(sent, sum, AllReduce::Kind::kAuto, call.stream(), where);
      copy(to, sum.mine(), call);
      return report;
    });
  }

  nb::object all_gather(nb::handle x_object, nb::handle out_object) {
    const Array x("x", x_object);
    if (x.rank == 0) x.refuse("has no dimension", "give it one");
    std::vector<int64_t> shape = shape_of(x), rows = shape;
    shape[0] *= size();
    rows.insert(rows.begin(), size());
    Result out(x, out_object, shape, x.dtype);
    expect(out.array, x.dtype, shape);
    Call call("all_gather", {&x, &out.array}, target_);
    return collective("all_gather", call, x, out, [&](const DeviceTensor& from, const DeviceTensor& to, At where) {
      const DeviceTensor row = buffer(0, x.dtype, shape_of(x), where).mine();
      copy(row, from, call);
      if (!all_gather_) all_gather_.emplace(ranks_, kCtas, std::nullopt, where);
      LaunchReport report = (*all_gather_)(row, buffer(1, x.dtype, rows, where), call.stream(), where);
      copy(to, buffer(1, x.dtype, shape, where).mine(), call);
      return report;
    });
  }

  nb::object reduce_scatter(nb::handle x_object, nb::handle out_object) {
    const Array x("x", x_object);
    if (x.rank == 0 || x.extents[0] % size() != 0)
      x.refuse(fmt::format("is {}, for {} ranks", x.text(), size()), "make its first extent a multiple of the ranks");
    std::vector<int64_t> shape = shape_of(x);
    shape[0] /= size();
    std::vector<int64_t> rows = shape;
    rows.insert(rows.begin(), size());
    Result out(x, out_object, shape, x.dtype);
    expect(out.array, x.dtype, shape);
    Call call("reduce_scatter", {&x, &out.array}, target_);
    return collective("reduce_scatter", call, x, out, [&](const DeviceTensor& from, const DeviceTensor& to, At where) {
      copy(buffer(0, x.dtype, shape_of(x), where).mine(), from, call);
      const DeviceTensor sum = buffer(1, x.dtype, shape, where).mine();
      if (!reduce_scatter_) reduce_scatter_.emplace(ranks_, kCtas, std::nullopt, where);
      LaunchReport report = (*reduce_scatter_)(buffer(0, x.dtype, rows, where), sum, call.stream(), where);
      copy(to, sum, call);
      return report;
    });
  }

  nb::object all_gather_matmul(nb::handle x_object, nb::handle w_object, nb::handle bias_object,
                               nb::handle activation, const std::optional<int64_t>& rows, nb::handle out_object) {
    const Array x("x", x_object);
    Array w("w", w_object);
    const Optional bias("bias", bias_object);
    weight(x, w);
    const int64_t m = rows.value_or(x.extents[0] * size()), k = x.extents[1];
    const int64_t shape[] = {m, w.extents[0]};
    Result out(x, out_object, shape, x.dtype);
    expect(out.array, x.dtype, shape);
    Call call("all_gather_matmul", {&x, &w, &out.array, bias.get()}, target_);
    const DeviceTensor &tx = call.in(x), &tw = call.in(w), &to = call.out(out.array);
    const FusedOptions options = fused_options(call, bias, activation);
    const SourceLocation where = python_line();
    call.run([&] {
      ranks_.agree("all_gather_matmul", x.dtype, {m, k}, where);
      grow(all_gather_matmul_, {.m = m, .k = k, .dtype = x.dtype}, where);
      return (*all_gather_matmul_.call)(tx, tw, to, options, where);
    });
    return out.take();
  }

  nb::object matmul_reduce_scatter(nb::handle x_object, nb::handle w_object, nb::handle bias_object,
                                   nb::handle activation, nb::handle out_object) {
    const Array x("x", x_object);
    Array w("w", w_object);
    const Optional bias("bias", bias_object);
    weight(x, w);
    const int64_t m = x.extents[0], n = w.extents[0];
    const int64_t shape[] = {RowsOfRank::of(m, size(), rank()).count, n};
    Result out(x, out_object, shape, x.dtype);
    expect(out.array, x.dtype, shape);
    Call call("matmul_reduce_scatter", {&x, &w, &out.array, bias.get()}, target_);
    const DeviceTensor &tx = call.in(x), &tw = call.in(w), &to = call.out(out.array);
    const FusedOptions options = fused_options(call, bias, activation);
    const SourceLocation where = python_line();
    call.run([&] {
      ranks_.agree("matmul_reduce_scatter", x.dtype, {m, n, x.extents[1]}, where);
      grow(matmul_reduce_scatter_, {.m = m, .n = n, .dtype = x.dtype}, where);
      return (*matmul_reduce_scatter_.call)(tx, tw, to, options, where);
    });
    return out.take();
  }

  nb::object matmul_all_reduce(nb::handle x_object, nb::handle w_object, nb::handle bias_object,
                               nb::handle activation, nb::handle out_object) {
    const Array x("x", x_object);
    Array w("w", w_object);
    const Optional bias("bias", bias_object);
    weight(x, w);
    const std::vector<int64_t> shape{x.extents[0], w.extents[0]};
    Result out(x, out_object, shape, x.dtype);
    expect(out.array, x.dtype, shape);
    Call call("matmul_all_reduce", {&x, &w, &out.array, bias.get()}, target_);
    const DeviceTensor &tx = call.in(x), &tw = call.in(w), &to = call.out(out.array);
    const FusedOptions options = fused_options(call, bias, activation);
    const SourceLocation where = python_line();
    call.run([&] {
      ranks_.agree("matmul_all_reduce", x.dtype, {shape[0], shape[1], x.extents[1]}, where);
      grow(matmul_all_reduce_, {.m = shape[0], .n = shape[1], .dtype = x.dtype}, where);
      const SymmetricTensor y = buffer(1, x.dtype, shape, where);
      LaunchReport report = (*matmul_all_reduce_.call)(tx, tw, y, options, where);
      copy(to, y.mine(), call);
      return report;
    });
    return out.take();
  }

  nb::object expert_exchange(int64_t tokens, int64_t width, int experts, int chosen, nb::handle dtype) {
    const SourceLocation where = python_line();
    const ExpertSizes sizes{tokens, width, experts, chosen, dtype_of(dtype)};
    {
      const nb::gil_scoped_release released;
      ranks_.agree("expert_exchange", sizes.dtype, {tokens, width, experts, chosen}, where);
    }
    return make_exchange(ranks_, target_, sizes, where);
  }

 private:
  using At = const SourceLocation&;
  static constexpr int kCtas = 128;  // of each rank, at most

  /// A fused product, and the largest call that it was made for.
  template <class Product>
  struct Grown {
    std::optional<Product> call;
    FusedSizes largest{};
  };

  template <class Product>
  void grow(Grown<Product>& product, const FusedSizes& needed, At where) {
    FusedSizes& has = product.largest;
    if (product.call && needed.m <= has.m && needed.n <= has.n && needed.k <= has.k && needed.dtype == has.dtype)
      return;
    has = {std::max(has.m, needed.m), std::max(has.n, needed.n), std::max(has.k, needed.k), needed.dtype};
    product.call.emplace(ranks_, has, where);
  }

  /// Symmetric memory, of which each call uses the beginning. All ranks ask for the same.
  SymmetricTensor buffer(size_t number, DataType dtype, const std::vector<int64_t>& shape, At where) {
    int64_t bits = dtype.bits();
    for (const int64_t extent : shape) bits *= extent;
    SymmetricTensor& memory = buffers_[number];
    const auto bytes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(bits / 8, 4096))));
    if (number_of_bytes_[number] < bytes) {
      memory = ranks_.symmetric(uint8, {bytes}, where);
      number_of_bytes_[number] = bytes;
    }
    return memory.viewed_as(dtype, shape, where);
  }

  static void copy(DeviceTensor to, const DeviceTensor& from, const Call& call) { to.copy_from(from, call.stream()); }

  template <class Body>
  nb::object collective(const char* name, Call& call, const Array& x, Result& out, const Body& body) {
    if (!out.is_empty()) {
      const DeviceTensor &from = call.in(x), &to = call.out(out.array);
      const SourceLocation where = python_line();
      call.run([&] {
        // Before anything is made for it: where ranks differ, each is told what the others called.
        ranks_.agree(name, x.dtype, {x.elements()}, where);
        return body(from, to, where);
      });
    }
    return out.take();
  }

  /// w as the kernels take it: [n, k].
  static void weight(const Array& x, Array& w) {
    for (const Array* each : {&x, static_cast<const Array*>(&w)})
      if (each->rank != 2) each->refuse(fmt::format("is {}", each->text()), "give it two dimensions");
    if (x.extents[1] != w.extents[0])
      w.refuse(fmt::format("is {}, x is {}: inner sizes {} and {} differ", w.text(), x.text(), x.extents[1], w.extents[0]),
               "x is [m, k], w is [k, n]");
    w.transpose();
    if (!w.is_dense()) w.refuse("does not lie as [n, k]", "pass the view weight.T of a dense [n, k]");
    if (!x.is_dense()) x.refuse("is not dense", "pass x.contiguous(), or numpy.ascontiguousarray(x)");
  }
  static FusedOptions fused_options(Call& call, const Optional& bias, nb::handle activation) {
    FusedOptions options;
    options.bias = call.in(bias);
    options.activation = activation_of(activation);
    options.stream = call.stream();
    return options;
  }

  std::string target_;
  Communicator ranks_;
  SymmetricTensor buffers_[2];
  int64_t number_of_bytes_[2] = {};
  std::optional<AllReduce> all_reduce_;
  std::optional<AllGather> all_gather_;
  std::optional<ReduceScatter> reduce_scatter_;
  Grown<AllGatherMatmul> all_gather_matmul_;
  Grown<MatmulReduceScatter> matmul_reduce_scatter_;
  Grown<MatmulAllReduce> matmul_all_reduce_;
};

}  // namespace

void bind_parallel(nb::module_& m) {
  bind_experts(m);
  using Released = nb::call_guard<nb::gil_scoped_release>;
  const nb::object none = nb::none();
  nb::class_<Group>(m, "RankGroup", "imbrex.parallel.Communicator stands on it.")
      .def(nb::init<const std::string&, const std::string&, double, uint64_t, const std::optional<int>&,
                    const std::optional<int>&, const std::string&, int, int, const std::string&>(),
           "gpus"_a, "target"_a, "patience"_a, "seed"_a, "rank"_a.none() = none, "size"_a.none() = none, "job"_a = "",
           "gpu"_a = -1, "ranks_of_server"_a = 0, "address"_a = "")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("size", &Group::size)
      .def_prop_ro("device", &Group::device)
      .def("barrier", &Group::barrier)
      .def("gather", &Group::gather, "text"_a)
      .def("synchronize", &Group::synchronize, "stream"_a = 0)
      .def("leave", &Group::leave, "why"_a = "", Released())
      .def("all_reduce", &Group::all_reduce, "x"_a, "out"_a.none() = none)
      .def("all_gather", &Group::all_gather, "x"_a, "out"_a.none() = none)
      .def("reduce_scatter", &Group::reduce_scatter, "x"_a, "out"_a.none() = none)
      .def("all_gather_matmul", &Group::all_gather_matmul, "x"_a, "w"_a, "bias"_a.none() = none,
           "activation"_a.none() = none, "rows"_a.none() = none, "out"_a.none() = none)
      .def("matmul_reduce_scatter", &Group::matmul_reduce_scatter, "x"_a, "w"_a, "bias"_a.none() = none,
           "activation"_a.none() = none, "out"_a.none() = none)
      .def("matmul_all_reduce", &Group::matmul_all_reduce, "x"_a, "w"_a, "bias"_a.none() = none,
           "activation"_a.none() = none, "out"_a.none() = none)
      .def("expert_exchange", &Group::expert_exchange, "tokens"_a, "width"_a, "experts"_a, "chosen"_a, "dtype"_a);
}

}  // namespace imbrex::python
