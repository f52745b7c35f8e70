// SPDX-License-Identifier: Apache-2.0
// imbrex.parallel.ExpertExchange: rows to the ranks of their experts, and back.
#include "experts.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include "operators.h"
#include "python_line.h"

namespace imbrex::python {
using namespace nb::literals;
using namespace parallel;
namespace {

using View = nb::ndarray<nb::device::cuda, nb::c_contig>;

nb::dlpack::dtype dlpack_type(DataType dtype) {
  const auto code = dtype == bfloat16 ? nb::dlpack::dtype_code::Bfloat
                    : dtype.is_float() ? nb::dlpack::dtype_code::Float
                                       : nb::dlpack::dtype_code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(dtype.bits()), 1};
}

class Exchange {
 public:
  Exchange(const Communicator& ranks, const std::string& target, const ExpertSizes& sizes, SourceLocation where)
      : ranks_(ranks),
        target_(target),
        sizes_(sizes),
        exchange_(ranks, sizes, 128, where),
        chosen_(DeviceTensor::empty(ranks.device(), int32, {sizes.tokens * sizes.chosen})) {}

  /// The rows and where each expert's begin: on a GPU views of the exchange's memory, else new arrays.
  nb::tuple dispatch(nb::handle self, nb::handle x_object, nb::handle chosen_object) {
    const Array x("x", x_object), chosen("chosen", chosen_object);
    const int64_t tokens = x.rank == 2 ? x.extents[0] : 0;
    const int64_t x_shape[] = {tokens, sizes_.width}, chosen_shape[] = {tokens, sizes_.chosen};
    expect(x, sizes_.dtype, x_shape);
    expect(chosen, int32, chosen_shape);
    if (tokens > sizes_.tokens)
      x.refuse(fmt::format("has {} tokens, the exchange was made for {}", tokens, sizes_.tokens), "make it for more");
    for (const Array* each : {&x, &chosen})
      if (!each->is_dense()) each->refuse("is not dense", "pass a contiguous copy");
    tokens_ = tokens;
    if (x.is_cuda) {
      Call call("dispatch", {&x, &chosen}, target_);
      send(call, call.in(x), call.in(chosen));
      return nb::make_tuple(view(self, x, exchange_.rows()), view(self, x, exchange_.first_row()));
    }
    Result rows(x, nb::none(), exchange_.rows().shape(), sizes_.dtype);
    Result first_row(x, nb::none(), exchange_.first_row().shape(), int32);
    Call call("dispatch", {&x, &chosen, &rows.array, &first_row.array}, target_);
    DeviceTensor to_rows = call.out(rows.array), to_first_row = call.out(first_row.array);
    send(call, call.in(x), call.in(chosen), [&] {
      to_rows.copy_from(exchange_.rows(), call.stream());
      to_first_row.copy_from(exchange_.first_row(), call.stream());
    });
    return nb::make_tuple(rows.take(), first_row.take());
  }

  nb::object combine(nb::handle results_object, nb::handle weights_object, nb::handle out_object) {
    const Array results("results", results_object), weights("weights", weights_object);
    const int64_t weights_shape[] = {tokens_, sizes_.chosen}, shape[] = {tokens_, sizes_.width};
    expect(results, sizes_.dtype, exchange_.results().shape());
    expect(weights, float32, weights_shape);
    Result out(results, out_object, shape, sizes_.dtype);
    expect(out.array, sizes_.dtype, shape);
    Call call("combine", {&results, &weights, &out.array}, target_);
    const DeviceTensor &from = call.in(results), &by = call.in(weights), &to = call.out(out.array);
    const SourceLocation where = python_line();
    call.run([&] {
      DeviceTensor own = exchange_.results();
      if (from.address() != own.address()) own.copy_from(from, call.stream());
      return exchange_.combine(by, to, call.stream(), where);
    });
    return out.take();
  }

  /// Where grouped_matmul(out=) leaves results without a copy; None on virtual GPUs.
  nb::object results(nb::handle self, nb::handle x_object) {
    return ranks_.device().is_virtual() ? nb::none() : view(self, Array("x", x_object), exchange_.results());
  }

 private:
  template <class Behind>
  void send(Call& call, const DeviceTensor& x, const DeviceTensor& chosen, const Behind& behind) {
    // combine() reads the choices, which the caller's array need not keep until then.
    DeviceTensor kept = DeviceTensor::view(ranks_.device(), chosen_.address(), int32, chosen.shape());
    const SourceLocation where = python_line();
    call.run([&] {
      if (tokens_ > 0) kept.copy_from(chosen, call.stream());
      LaunchReport report = exchange_.dispatch(x, kept, call.stream(), where);
      behind();
      return report;
    });
  }
  void send(Call& call, const DeviceTensor& x, const DeviceTensor& chosen) {
    send(call, x, chosen, [] {});
  }
  /// On the GPU that `like` is on.
  static nb::object view(nb::handle self, const Array& like, const DeviceTensor& tensor) {
    const std::vector<int64_t>& shape = tensor.shape();
    return nb::cast(View(reinterpret_cast<void*>(tensor.address()), shape.size(),
                         reinterpret_cast<const size_t*>(shape.data()), self, nullptr, dlpack_type(tensor.dtype()),
                         nb::device::cuda::value, like.ordinal));
  }

  Communicator ranks_;
  std::string target_;
  ExpertSizes sizes_;
  ExpertExchange exchange_;
  DeviceTensor chosen_;
  int64_t tokens_ = 0;  // of the last dispatch
};

}  // namespace

nb::object make_exchange(const Communicator& ranks, const std::string& target, const ExpertSizes& sizes,
                         SourceLocation where) {
  return nb::cast(new Exchange(ranks, target, sizes, where), nb::rv_policy::take_ownership);
}

void bind_experts(nb::module_& m) {
  nb::class_<Exchange>(m, "Exchange", "imbrex.parallel.ExpertExchange stands on it.")
      .def("dispatch", [](nb::handle self, nb::handle x,
                          nb::handle chosen) { return nb::cast<Exchange&>(self).dispatch(self, x, chosen); },
           "x"_a, "chosen"_a)
      .def("combine", &Exchange::combine, "results"_a, "weights"_a, "out"_a.none() = nb::none())
      .def("results", [](nb::handle self, nb::handle x) { return nb::cast<Exchange&>(self).results(self, x); }, "x"_a);
}

}  // namespace imbrex::python
