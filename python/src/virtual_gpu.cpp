// SPDX-License-Identifier: Apache-2.0
// Devices, and PTX of any compiler on them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <deque>

#include "arrays.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/ptx_module.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "report.h"

namespace imbrex::python {
namespace {

Device make_virtual(const std::string& target, uint64_t seed, const std::string& checks, int64_t budget,
                    bool timeline, int64_t cta, bool strict) {
  vgpu::Options options;
  options.target = target;
  options.seed = seed;
  options.instruction_budget = budget;
  if (!strict) options.strictness = vgpu::Strictness::kPractical;
  if (checks == "all")
    options.checks = vgpu::CheckSet::all();
  else if (checks == "off")
    options.checks = vgpu::CheckSet::none();
  else if (checks != "on")
    refuse(fmt::format("checks is '{}'", checks), "give 'on', 'off' or 'all'");
  options.timeline.record = timeline;
  options.timeline.cta = cta;
  return Device::virtual_gpu(options);
}

/// Bytes of a number, as a parameter of this size takes it. A size alone does not tell int from float: Python's type
/// does.
std::vector<std::byte> bytes_of(const std::string& what, nb::handle value, int64_t size) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  const auto put = [&](const auto& number) { std::memcpy(bytes.data(), &number, sizeof number); };
  if (nb::isinstance<nb::bytes>(value)) {
    const auto given = nb::cast<nb::bytes>(value);
    if (static_cast<int64_t>(given.size()) != size)
      refuse(fmt::format("{} is {} bytes, the parameter takes {}", what, given.size(), size), "pass as many");
    std::memcpy(bytes.data(), given.c_str(), given.size());
  } else if (nb::isinstance<nb::float_>(value)) {
    const auto real = nb::cast<double>(value);
    if (size == 4)
      put(static_cast<float>(real));
    else if (size == 8)
      put(real);
    else
      refuse(fmt::format("{} is a float, the parameter takes {} bytes", what, size),
             "pass a numpy scalar of the right type, or bytes");
  } else if (const nb::object index = nb::steal(PyNumber_Index(value.ptr())); index.is_valid()) {
    const auto number = nb::cast<int64_t>(index);
    if (size > 8) refuse(fmt::format("{} is an int, the parameter takes {} bytes", what, size), "pass bytes");
    const int64_t limit = size == 8 ? 0 : int64_t{1} << (8 * size);
    if (size < 8 && (number >= limit || number < -limit / 2))
      refuse(fmt::format("{} is {}, the parameter takes {} bytes", what, number, size), "pass a smaller number");
    std::memcpy(bytes.data(), &number, static_cast<size_t>(size));
  } else {
    PyErr_Clear();
    const nb::object as_bytes = nb::getattr(value, "tobytes", nb::none());  // a numpy scalar
    if (as_bytes.is_none())
      refuse(fmt::format("{} is {}", what, to_text(nb::repr(value))), "pass an array, a number or bytes");
    return bytes_of(what, as_bytes(), size);
  }
  return bytes;
}

vgpu::Dim3 extents(const std::vector<int64_t>& given) {
  vgpu::Dim3 made;
  if (given.size() > 3) refuse(fmt::format("[{}] has {} extents", fmt::join(given, ", "), given.size()), "give x, y, z");
  if (!given.empty()) made.x = given[0];
  if (given.size() > 1) made.y = given[1];
  if (given.size() > 2) made.z = given[2];
  return made;
}

Report launch_ptx(const PtxModule& module, std::string kernel, const std::vector<int64_t>& grid,
                  const std::vector<int64_t>& block, const nb::sequence& given, const std::vector<int64_t>& cluster,
                  int64_t shared_bytes, bool cooperative) {
  const std::vector<std::string> names = module.kernel_names();
  if (kernel.empty()) {
    if (names.size() != 1)
      refuse(fmt::format("the PTX has {} kernels", names.size()),
             fmt::format("name one of them by entry=: {}", fmt::join(names, ", ")));
    kernel = names.front();
  }
  const std::vector<vgpu::Parameter>& parameters = module.parameters(kernel);
  const size_t count = nb::len(given);
  if (count != parameters.size())
    refuse(fmt::format("{}: {} arguments given, {} expected", kernel, count, parameters.size()),
           "give an array or a number for each parameter, in order");
  OnDevice tensors(module.device());
  std::deque<Array> arrays;
  std::deque<std::string> argument_names;
  std::vector<std::vector<std::byte>> values;
  Stream stream;
  for (size_t i = 0; i < count; ++i) {
    const nb::object value = given[i];
    argument_names.push_back(fmt::format("argument {} ({})", i + 1, parameters[i].name));
    const bool is_number = nb::isinstance<nb::int_>(value) || nb::isinstance<nb::float_>(value) ||
                           nb::isinstance<nb::bytes>(value) || !nb::hasattr(value, "__getitem__") ||
                           (nb::hasattr(value, "tobytes") && nb::hasattr(value, "ndim") && nb::cast<int>(value.attr("ndim")) == 0);
    if (is_number) {
      values.push_back(bytes_of(argument_names.back(), value, parameters[i].bytes));
      continue;
    }
    const Array& array = arrays.emplace_back(argument_names.back().c_str(), value);
    if (array.is_cuda == module.device().is_virtual())
      array.refuse(fmt::format("is on {}, the kernel runs on '{}'", array.is_cuda ? "a CUDA GPU" : "the host", module.device().name()),
                   module.device().is_virtual() ? "pass NumPy arrays, or x.cpu()" : "move it to the GPU");
    if (parameters[i].bytes != 8)
      array.refuse(fmt::format("is an array, the parameter takes {} bytes", parameters[i].bytes), "pass a number");
    const uint64_t address = tensors.add_unknown(array).address();
    values.emplace_back(8);
    std::memcpy(values.back().data(), &address, 8);
    if (array.is_cuda) stream = tensors.stream(array);
  }
  std::vector<void*> pointers;
  for (std::vector<std::byte>& value : values) pointers.push_back(value.data());
  vgpu::Launch launch;
  launch.grid = extents(grid), launch.block = extents(block), launch.cluster = extents(cluster);
  launch.dynamic_shared_bytes = shared_bytes;
  launch.cooperative = cooperative;
  launch.arguments = pointers;
  Report report{{}, kernel};
  {
    const nb::gil_scoped_release released;
    report.launch = module.launch(kernel, launch, stream);
  }
  tensors.finish();
  return report;
}

}  // namespace

void bind_virtual_gpu(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Device>(m, "Device", "A GPU: a CUDA one, or the virtual GPU.")
      .def_static("virtual", &make_virtual, "target"_a, nb::kw_only(), "seed"_a = 0, "checks"_a = "on", "budget"_a = 0,
                  "timeline"_a = false, "cta"_a = -1, "strict"_a = true)
      .def_static("cuda", &Device::cuda, "ordinal"_a = 0)
      .def_prop_ro("is_virtual", &Device::is_virtual)
      .def_prop_ro("name", &Device::name)
      .def_prop_ro("target", &Device::target)
      .def_prop_ro("multiprocessors", &Device::multiprocessors)
      .def("can_run", &Device::can_run, "target"_a)
      .def("synchronize", [](const Device& device) {
        const nb::gil_scoped_release released;
        device.synchronize();
      })
      .def("__repr__", [](const Device& device) { return "<" + device.name() + ">"; });
  m.def("has_cuda", [] { return Device::has_cuda(); });
  m.def("set_default_virtual_gpu", &set_default_virtual_gpu, "target"_a, "device"_a.none());
  nb::class_<PtxModule>(m, "PtxModule")
      .def(nb::init<const Device&, std::string, std::string>(), "device"_a, "ptx"_a, "name"_a = "module.ptx")
      .def_prop_ro("kernels", &PtxModule::kernel_names)
      .def("launch", &launch_ptx, "kernel"_a, "grid"_a, "block"_a, "arguments"_a, nb::kw_only(),
           "cluster"_a = std::vector<int64_t>(), "shared_bytes"_a = 0, "cooperative"_a = false);
}

}  // namespace imbrex::python
