// SPDX-License-Identifier: Apache-2.0
// Kernels as Python objects: those of the library by name, and those that a plugin brings.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <optional>

#include "arrays.h"
#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/written_parameters.h"
#include "imbrex/lang/plugin.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/runtime/registry.h"
#include "report.h"

namespace imbrex::python {
namespace {

class AnyKernel : public KernelBase {
 public:
  using KernelBase::KernelBase;
  using KernelBase::launch_arguments;
  using KernelBase::prepare_arguments;
  using KernelBase::trace_arguments;
  using KernelBase::use_tuned;
};

/// A kernel with its members set, on any device.
class PyKernel {
 public:
  /// One that is registered.
  PyKernel(const RegisteredKernel& registered, const std::string& configuration)
      : entry_(registered.entry), target_(registered.target), space_(registered.space) {
    configuration_ = configuration.empty() ? space_.configuration(0) : space_.parse(configuration);
    kernel_ = registered.make(configuration_);
    make_ = registered.make;
  }
  /// One of a plugin, whose library stays loaded.
  PyKernel(const KernelPlugin& plugin, const nb::dict& settings)
      : entry_(plugin.entry), target_(plugin.target), space_(plugin.space) {
    const auto set = [&plugin](void* kernel, const std::vector<Setting>& all) {
      for (const Setting& setting : all)
        for (const detail::Member& member : plugin.members)
          if (member.name == setting.name) member.set(kernel, setting.bits);
    };
    for (const auto& [key, value] : settings) settings_.push_back(setting_of(plugin, key, value));
    const std::shared_ptr<void> made = plugin.make();
    set(made.get(), settings_);
    kernel_ = made;
    configuration_ = space_.read(made.get());
    make_ = [&plugin, set, own = settings_, space = space_](const Configuration& configuration) {
      const std::shared_ptr<void> other = plugin.make();
      set(other.get(), own);
      space.apply(other.get(), configuration);
      return std::shared_ptr<const void>(other);
    };
  }
  PyKernel(const PyKernel& other, const std::string& configuration)
      : entry_(other.entry_),
        target_(other.target_),
        space_(other.space_),
        make_(other.make_),
        settings_(other.settings_) {
    configuration_ = space_.parse(configuration);
    kernel_ = make_(configuration_);
  }

  PyKernel(PyKernel&&) = default;
  PyKernel(const PyKernel&) = delete;

  /// Whether first calls tune.
  void set_autotuned(bool is_autotuned) {
    is_autotuned_ = is_autotuned;
    on_.clear();
  }
  const std::string& target() const { return target_; }
  std::string name() const { return std::string(entry_->type_name); }
  std::string configuration() const { return space_.to_string(configuration_); }
  std::vector<std::string> space() const {
    std::vector<std::string> all;
    for (const Configuration& configuration : space_.configurations()) all.push_back(space_.to_string(configuration));
    return all;
  }

  /// Launches on the device of the arrays; `device` is where host arrays go. Nothing where `report` is asked for.
  Report launch(const nb::args& arguments, const std::optional<Device>& device, const std::string& target,
                bool timed) {
    Call call(*this, arguments);
    const Device on = call.is_cuda() || !device ? call.device(target.empty() ? target_ : target) : *device;
    if (!on.can_run(target_))
      refuse(fmt::format("{} is compiled for {}, '{}' runs {}", name(), target_, on.name(), on.target()),
             "use a device of that target");
    OnDevice tensors(on);
    Stream stream;
    const std::vector<LaunchArgument> made = call.arguments(tensors, stream);
    AnyKernel& kernel = this->on(on);
    LaunchReport report;
    {
      const nb::gil_scoped_release released;
      report = kernel.launch_arguments(made, timed, stream.is_default() ? nullptr : &stream, {});
    }
    tensors.finish();
    return {std::move(report), name()};
  }
  void prepare(const nb::args& arguments, const std::string& target) {
    Call call(*this, arguments);
    const Device on = call.device(target.empty() ? target_ : target);
    OnDevice tensors(on);
    Stream stream;
    const std::vector<LaunchArgument> made = call.arguments(tensors, stream);
    AnyKernel& kernel = this->on(on);
    const nb::gil_scoped_release released;
    kernel.prepare_arguments(made);
  }
  std::shared_ptr<ir::Function> trace(const nb::args& arguments, const std::string& target) {
    const Call call(*this, arguments);
    return AnyKernel(*entry_, kernel_, target_, std::nullopt).trace_arguments(call.constants(), target);
  }

 private:
  static Setting setting_of(const KernelPlugin& plugin, nb::handle key, nb::handle value) {
    const std::string name = to_text(key);
    for (const detail::Member& member : plugin.members) {
      if (member.name != name) continue;
      if (member.dtype == float64) return {name, std::bit_cast<int64_t>(nb::cast<double>(value))};
      if (member.dtype == any_type) return {name, dtype_of(value).code};
      return {name, integer(name, value)};
    }
    refuse("the plugin has no member " + name, "compile it anew");
  }
  static int64_t integer(const std::string& what, nb::handle value) {
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) {
      PyErr_Clear();
      refuse(fmt::format("{} is {}, the kernel takes an integer", what, to_text(nb::repr(value))),
             "pass an int");
    }
    return nb::cast<int64_t>(index);
  }

  /// One call: its numbers read, its arrays looked at.
  class Call {
   public:
    Call(const PyKernel& kernel, const nb::args& given) : kernel_(kernel) {
      const std::span<const ParameterInfo> parameters = kernel.entry_->parameters;
      if (given.size() != parameters.size())
        refuse(fmt::format("{}: {} arguments given, {} expected", kernel.name(), given.size(), parameters.size()),
               "give one for each parameter of operator(), in order; a struct's members count each");
      for (size_t i = 0; i < parameters.size(); ++i) {
        const nb::handle value = given[i];
        names_.push_back(fmt::format("argument {}", i + 1));
        LaunchArgument made;
        if (parameters[i].kind == ParameterKind::kPointer) {
          if (!value.is_none() && !nb::isinstance<nb::int_>(value)) {
            arrays_.emplace_back(names_.back().c_str(), value);
            placed_.push_back(arrays_.size());
            made_.push_back(made);
            continue;
          }
          if (!value.is_none()) made.value = nb::cast<int64_t>(value);  // None is enough to trace
        } else {
          made.value = number(names_.back(), parameters[i], value);
        }
        placed_.push_back(0);
        made_.push_back(made);
      }
    }
    bool is_cuda() const { return !arrays_.empty() && arrays_.front().is_cuda; }
    Device device(const std::string& target) const {
      std::vector<const Array*> all;
      for (const Array& array : arrays_) all.push_back(&array);
      return all.empty() ? virtual_gpu(target) : device_of(all, target);
    }
    std::vector<LaunchArgument> arguments(OnDevice& tensors, Stream& stream) {
      std::vector<LaunchArgument> made = made_;
      const std::span<const ParameterInfo> parameters = kernel_.entry_->parameters;
      for (size_t i = 0; i < made.size(); ++i) {
        if (placed_[i] == 0) continue;
        const Array& array = arrays_[placed_[i] - 1];
        if (parameters[i].dtype != any_type && array.dtype != parameters[i].dtype)
          array.refuse(fmt::format("is {}, the kernel takes {}", array.text(), parameters[i].dtype.name()),
                       "convert the array");
        made[i].tensor = &tensors.add(array, !array.is_read_only || writes(i));
        if (array.is_cuda) stream = tensors.stream(array);
      }
      return made;
    }
    const std::vector<LaunchArgument>& constants() const { return made_; }

   private:
    /// Whether the kernel may write through this parameter. It is traced for that: asked of read-only arrays only.
    bool writes(size_t parameter) const {
      const std::span<const ParameterInfo> parameters = kernel_.entry_->parameters;
      const auto place = std::count_if(parameters.begin(), parameters.begin() + static_cast<int64_t>(parameter),
                                       [](const auto& p) { return p.kind != ParameterKind::kConstant; });
      const AnyKernel kernel(*kernel_.entry_, kernel_.kernel_, kernel_.target_, std::nullopt);
      return written_parameters(*kernel.trace_arguments(made_))[static_cast<size_t>(place)];
    }
    static int64_t number(const std::string& what, const ParameterInfo& parameter, nb::handle value) {
      const bool is_constant = parameter.kind == ParameterKind::kConstant;
      if (!is_constant && parameter.dtype.is_float()) {
        const auto real = nb::cast<double>(nb::float_(value));
        return parameter.dtype == float32 ? std::bit_cast<int32_t>(static_cast<float>(real))
                                          : std::bit_cast<int64_t>(real);
      }
      if (is_constant && parameter.dtype == any_type) {
        // A bool, an enumeration, a floating-point number or an element type: Python's value says which.
        if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value) ? 1 : 0;
        if (nb::isinstance<nb::float_>(value)) return std::bit_cast<int64_t>(nb::cast<double>(value));
        if (nb::isinstance<nb::int_>(value)) return nb::cast<int64_t>(value);
        return dtype_of(value).code;
      }
      return integer(what, value);
    }

    const PyKernel& kernel_;
    std::deque<std::string> names_;  // stay where they are: arrays refer to them
    std::deque<Array> arrays_;
    std::vector<size_t> placed_;  // of each argument: 1 + its array, or 0
    std::vector<LaunchArgument> made_;
  };

  AnyKernel& on(const Device& device) {
    std::unique_ptr<AnyKernel>& known = on_[&device.backend()];
    if (!known) {
      known = std::make_unique<AnyKernel>(*entry_, kernel_, target_, device);
      if (is_autotuned_) known->use_tuned({space_, make_}, AutotuneOptions{});
    }
    return *known;
  }

  const KernelEntry* entry_;
  std::shared_ptr<const void> kernel_;
  std::string target_;
  TuningSpace space_;
  Configuration configuration_;
  std::function<std::shared_ptr<const void>(const Configuration&)> make_;
  std::vector<Setting> settings_;
  bool is_autotuned_ = false;
  std::map<const void*, std::unique_ptr<AnyKernel>> on_;  // by device
};

/// The plugin in a shared library, which is never unloaded.
const KernelPlugin& load_plugin(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw CompileError(Diagnostic{{}, fmt::format("loading {}: {}", path, dlerror()), {},
                                  "remove the file and compile it anew"});
  auto* const get = reinterpret_cast<const KernelPlugin* (*)()>(dlsym(library, "imbrex_kernel_plugin"));
  if (get == nullptr || get()->version != KernelPlugin::kVersion)
    throw CompileError(Diagnostic{{}, path + " is no plugin of this version of Imbrex", {},
                                  "remove the file and compile it anew"});
  return *get();
}

}  // namespace

void bind_kernels(nb::module_& m) {
  using namespace nb::literals;
  const auto device_argument = [](nb::handle given) -> std::optional<Device> {
    if (given.is_none()) return std::nullopt;
    return nb::cast<Device>(given);
  };
  nb::class_<PyKernel>(m, "Kernel")
      .def_static("registered", [](const std::string& name, const std::string& configuration) {
        return PyKernel(registered_kernel(name), configuration);
      })
      .def_static("plugin", [](const std::string& path, const nb::dict& settings) {
        return PyKernel(load_plugin(path), settings);
      })
      .def("configured", [](const PyKernel& k, const std::string& configuration) { return PyKernel(k, configuration); })
      .def_prop_ro("name", &PyKernel::name)
      .def_prop_ro("target", &PyKernel::target)
      .def_prop_ro("configuration", &PyKernel::configuration)
      .def_prop_ro("space", &PyKernel::space)
      .def("launch", [device_argument](PyKernel& k, const nb::args& arguments, nb::handle device, const std::string& target, bool timed) {
        return k.launch(arguments, device_argument(device), target, timed);
      }, "arguments"_a, nb::kw_only(), "device"_a.none() = nb::none(), "target"_a = "", "timed"_a = false)
      .def("__call__", [](PyKernel& k, const nb::args& arguments) {
        Report report = k.launch(arguments, std::nullopt, "", false);
        if (!report.launch.clean()) expect_clean(std::move(report.launch), report.kernel);
      })
      .def("set_autotuned", &PyKernel::set_autotuned)
      .def("prepare", [](PyKernel& k, const nb::args& arguments) { k.prepare(arguments, ""); })
      .def("ir", [](PyKernel& k, const nb::args& arguments, const std::string& after, const std::string& target) {
        return ir_after(*k.trace(arguments, target), after);
      }, "arguments"_a, nb::kw_only(), "after"_a = "trace", "target"_a = "")
      .def("ptx", [](PyKernel& k, const nb::args& arguments, const std::string& target) {
        return emit_ptx(*k.trace(arguments, target));
      }, "arguments"_a, nb::kw_only(), "target"_a = "");
  m.def("pass_names", &pass_names);
  m.def("registered_kernels", [] {
    nb::dict all;
    for (const auto& [name, kernel] : registered_kernels()) {
      nb::dict sizes;
      for (const SizeOption& size : kernel.description.sizes) sizes[size.name.c_str()] = size.otherwise;
      all[name.c_str()] = nb::make_tuple(kernel.description.summary, kernel.target, sizes);
    }
    return all;
  });
}

}  // namespace imbrex::python
