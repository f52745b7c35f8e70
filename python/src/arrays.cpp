// SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "imbrex/core/error.h"

namespace imbrex::python {
namespace {

std::optional<DataType> from_dlpack_type(dlpack::Type type) {
  if (type.lanes != 1) return std::nullopt;
  const auto of_bits = [&](DataType b8, DataType b16, DataType b32,
                           DataType b64) -> std::optional<DataType> {
    switch (type.bits) {
      case 8:
        return b8;
      case 16:
        return b16;
      case 32:
        return b32;
      case 64:
        return b64;
      default:
        return std::nullopt;
    }
  };
  switch (type.code) {
    case 0:
      return of_bits(int8, int16, int32, int64);
    case 1:
      return of_bits(uint8, uint16, uint32, uint64);
    case 2:
      return type.bits == 8 ? std::nullopt : of_bits(float16, float16, float32, float64);
    case 4:
      return bfloat16;
    case 6:
      return boolean;
    case 10:
      return float8_e4m3;
    case 12:
      return float8_e5m2;
    case 14:
      return float8_e8m0;
    default:
      return std::nullopt;
  }
}

/// What DLPack's table of functions is for each type of array: null where it has none.
const dlpack::ExchangeApi* exchange_api(PyTypeObject* type) {
  // With the interpreter's lock held. Types are few and live long; a freed one's address could only be that of
  // another type that has the attribute or not, so its entry holds a reference.
  static auto& known = *new std::unordered_map<PyTypeObject*, const dlpack::ExchangeApi*>;
  static PyTypeObject* last = nullptr;
  static const dlpack::ExchangeApi* last_api = nullptr;
  if (type == last) return last_api;
  const auto found = known.find(type);
  const dlpack::ExchangeApi* api = nullptr;
  if (found != known.end()) {
    api = found->second;
  } else {
    const nb::object capsule = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)),
                                           "__dlpack_c_exchange_api__", nb::none());
    if (!capsule.is_none()) {
      api = static_cast<const dlpack::ExchangeApi*>(
          PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
      PyErr_Clear();
      while (api != nullptr && api->version.major > 1) api = api->previous;
      if (api != nullptr && api->version.major != 1) api = nullptr;
    }
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    known.emplace(type, api);
  }
  last = type;
  last_api = api;
  return api;
}

std::string module_of(nb::handle object) {
  const nb::object name = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))),
                                      "__module__", nb::none());
  return nb::isinstance<nb::str>(name) ? to_text(name) : "";
}

Library library_of(nb::handle object) {
  const std::string module = module_of(object);
  const auto is = [&](std::string_view name) {
    return module == name || (module.starts_with(name) && module[name.size()] == '.');
  };
  if (is("numpy")) return Library::kNumpy;
  if (is("torch")) return Library::kTorch;
  if (is("cupy")) return Library::kCupy;
  if (is("jax") || is("jaxlib")) return Library::kJax;
  return Library::kOther;
}

/// "float16" for the names that libraries use for Imbrex's types.
std::optional<DataType> from_name(std::string name) {
  for (const std::string_view prefix : {"torch.", "jax.numpy.", "numpy."})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  if (name == "float8_e4m3fn") return float8_e4m3;
  if (name == "float8_e8m0fnu") return float8_e8m0;
  if (name == "half") return float16;
  if (name == "float") return float32;
  if (name == "double") return float64;
  return DataType::from_name(name);
}

std::string library_name(DataType dtype) {
  if (dtype == float8_e4m3) return "float8_e4m3fn";
  if (dtype == float8_e8m0) return "float8_e8m0fnu";
  return std::string(dtype.name());
}

/// Copies between a strided host array and dense memory.
void copy_strided(std::byte* dense, std::byte* strided, std::span<const int64_t> shape,
                  std::span<const int64_t> strides, int64_t unit, bool to_dense) {
  if (shape.empty()) {
    to_dense ? std::memcpy(dense, strided, unit) : std::memcpy(strided, dense, unit);
    return;
  }
  int64_t inner = unit;
  for (const int64_t extent : shape.subspan(1)) inner *= extent;
  for (int64_t i = 0; i < shape[0]; ++i)
    copy_strided(dense + i * inner, strided + i * strides[0] * unit, shape.subspan(1), strides.subspan(1),
                 unit, to_dense);
}

}  // namespace

std::string to_text(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  Py_ssize_t size = 0;
  const char* const from = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (from == nullptr) throw nb::python_error();
  return {from, static_cast<size_t>(size)};
}

void refuse(const std::string& message, const std::string& help, std::vector<std::string> facts) {
  throw LaunchError(Diagnostic{{}, message, std::move(facts), help});
}

void Array::refuse(const std::string& what, const std::string& help) const {
  python::refuse(fmt::format("{} {}", argument, what), help);
}

Array::Array(const char* name, nb::handle of) : argument(name), object(of) {
  if (const dlpack::ExchangeApi* api = exchange_api(Py_TYPE(of.ptr())); api != nullptr) {
    if (from_exchange_api(*api)) return;
  }
  library = library_of(of);
  if (from_numpy() || from_cuda_array_interface() || from_dlpack()) {
    if (!is_cuda && library == Library::kJax) is_read_only = true;
    return;
  }
  const nb::object type =
      nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(of.ptr()))), "__name__");
  refuse(fmt::format("is a {}, not an array", to_text(type)),
         "pass an array of NumPy, PyTorch, CuPy or JAX, or one with __dlpack__ or __cuda_array_interface__");
}

Array::~Array() {
  if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
  if (managed_ != nullptr && managed_->deleter != nullptr) managed_->deleter(managed_);
}

void Array::take(const dlpack::Tensor& tensor) {
  const std::optional<DataType> type = from_dlpack_type(tensor.dtype);
  if (!type)
    refuse(fmt::format("has elements of DLPack's type {} with {} bits", tensor.dtype.code, tensor.dtype.bits),
           "convert it to a type that kernels have: float16, bfloat16, float32, int32, ...");
  dtype = *type;
  rank = tensor.rank;
  if (rank > kMostDimensions)
    refuse(fmt::format("has {} dimensions", rank), fmt::format("reshape it to at most {}", kMostDimensions));
  int64_t dense = 1;
  for (int i = rank; i-- > 0;) {
    extents[i] = tensor.shape[i];
    steps[i] = tensor.strides != nullptr ? tensor.strides[i] : dense;
    dense *= extents[i];
  }
  address = reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset;
  switch (tensor.device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
      is_cuda = false;
      break;
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      is_cuda = true;
      ordinal = tensor.device.id;
      break;
    default:
      refuse(fmt::format("is on a device of DLPack's kind {}", tensor.device.type),
             "move it to a CUDA GPU or to the host");
  }
}

bool Array::from_exchange_api(const dlpack::ExchangeApi& api) {
  library = Library::kTorch;  // the first to have it; others are looked at below
  dlpack::Tensor tensor;
  if (api.tensor_from_object != nullptr) {
    if (api.tensor_from_object(object.ptr(), &tensor) != 0) throw nb::python_error();
    take(tensor);
  } else {
    if (api.managed_from_object(object.ptr(), &versioned_) != 0) throw nb::python_error();
    is_read_only = (versioned_->flags & dlpack::kReadOnly) != 0;
    take(versioned_->tensor);
  }
  api_ = &api;
  return true;
}

bool Array::from_numpy() {
  if (library != Library::kNumpy) return false;
  const nb::object found = nb::getattr(object, "__array_interface__", nb::none());
  if (found.is_none()) return false;
  const nb::dict facts = nb::cast<nb::dict>(found);
  const nb::object numpy_type = object.attr("dtype");
  const std::string name = to_text(numpy_type.attr("name"));
  const std::optional<DataType> type = from_name(name);
  if (!type)
    refuse("has elements of " + name, "convert it to a type that kernels have: float16, float32, int32, ...");
  if (to_text(numpy_type.attr("byteorder")) == ">")
    refuse("is big-endian", "convert it: x.astype(x.dtype.newbyteorder('='))");
  dtype = *type;
  const nb::tuple data = nb::cast<nb::tuple>(facts["data"]);
  address = nb::cast<uint64_t>(data[0]);
  is_read_only = nb::cast<bool>(data[1]);
  const nb::tuple shape = nb::cast<nb::tuple>(facts["shape"]);
  rank = static_cast<int>(nb::len(shape));
  if (rank > kMostDimensions)
    refuse(fmt::format("has {} dimensions", rank), fmt::format("reshape it to at most {}", kMostDimensions));
  const nb::tuple strides = nb::cast<nb::tuple>(object.attr("strides"));
  const int64_t unit = dtype.bits() / 8;
  for (int i = 0; i < rank; ++i) {
    extents[i] = nb::cast<int64_t>(shape[i]);
    const auto bytes = nb::cast<int64_t>(strides[i]);
    if (bytes % unit != 0)
      refuse(fmt::format("has a stride of {} bytes, elements of {}", bytes, unit), "pass a copy: x.copy()");
    steps[i] = bytes / unit;
  }
  return true;
}

bool Array::from_cuda_array_interface() {
  const nb::object found = nb::getattr(object, "__cuda_array_interface__", nb::none());
  if (found.is_none()) return false;
  const nb::dict facts = nb::cast<nb::dict>(found);
  const std::string code = to_text(facts["typestr"]);
  static const std::map<std::string, DataType, std::less<>> kTypes = {
      {"|b1", boolean}, {"|i1", int8},    {"|u1", uint8},   {"<i2", int16},   {"<u2", uint16},  {"<i4", int32},
      {"<u4", uint32},  {"<i8", int64},   {"<u8", uint64},  {"<f2", float16}, {"<f4", float32}, {"<f8", float64}};
  const auto type = kTypes.find(code);
  if (type != kTypes.end()) {
    dtype = type->second;
  } else {
    // Types that NumPy does not have are "|V2" there; the array's own dtype has their name.
    const nb::object own = nb::getattr(object, "dtype", nb::none());
    const std::optional<DataType> named = from_name(to_text(own));
    if (!named)
      refuse("has elements of " + code, "convert it to a type that kernels have: float16, float32, int32, ...");
    dtype = *named;
  }
  const nb::tuple data = nb::cast<nb::tuple>(facts["data"]);
  address = nb::cast<uint64_t>(data[0]);
  is_read_only = nb::cast<bool>(data[1]);
  is_cuda = true;
  const nb::object device = nb::getattr(object, "device", nb::none());
  if (!device.is_none()) {
    const nb::object id = nb::getattr(device, "id", nb::none());
    if (nb::isinstance<nb::int_>(id)) ordinal = nb::cast<int>(id);
  }
  const nb::tuple shape = nb::cast<nb::tuple>(facts["shape"]);
  rank = static_cast<int>(nb::len(shape));
  if (rank > kMostDimensions)
    refuse(fmt::format("has {} dimensions", rank), fmt::format("reshape it to at most {}", kMostDimensions));
  const nb::object strides = facts.contains("strides") ? nb::object(facts["strides"]) : nb::none();
  const int64_t unit = dtype.bits() / 8;
  int64_t dense = 1;
  for (int i = rank; i-- > 0;) {
    extents[i] = nb::cast<int64_t>(shape[i]);
    steps[i] = strides.is_none() ? dense : nb::cast<int64_t>(strides[i]) / unit;
    dense *= extents[i];
  }
  if (facts.contains("stream") && !nb::object(facts["stream"]).is_none())
    stream_ = reinterpret_cast<void*>(nb::cast<uintptr_t>(nb::object(facts["stream"])));
  return true;
}

bool Array::from_dlpack() {
  if (!nb::hasattr(object, "__dlpack__")) return false;
  const nb::object where = object.attr("__dlpack_device__")();
  nb::dict asked;
  // On a CUDA device the producer orders its work before the legacy default stream, which is the one used.
  if (const int kind = nb::cast<int>(where[0]); kind == dlpack::kCuda || kind == dlpack::kCudaManaged)
    asked["stream"] = 1;
  nb::object capsule;
  try {
    nb::dict versioned = nb::cast<nb::dict>(asked.attr("copy")());
    versioned["max_version"] = nb::make_tuple(1, 0);
    capsule = object.attr("__dlpack__")(**versioned);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // it does not know of versions
    capsule = object.attr("__dlpack__")(**asked);
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    versioned_ = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    if (versioned_->version.major != 1) refuse(fmt::format("speaks DLPack {}", versioned_->version.major), "DLPack 1 is understood");
    is_read_only = (versioned_->flags & dlpack::kReadOnly) != 0;
    take(versioned_->tensor);
  } else {
    managed_ = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (managed_ == nullptr) throw nb::python_error();
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    take(managed_->tensor);
  }
  if (is_cuda) stream_ = reinterpret_cast<void*>(uintptr_t{1});
  return true;
}

void* Array::current_stream() const {
  if (api_ != nullptr && api_->current_stream != nullptr) {
    void* stream = nullptr;
    if (api_->current_stream(dlpack::kCuda, ordinal, &stream) != 0) throw nb::python_error();
    return stream;
  }
  if (library == Library::kCupy) {
    static const nb::handle get = nb::object(nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")).release();
    return reinterpret_cast<void*>(nb::cast<uintptr_t>(get().attr("ptr")));
  }
  return stream_;
}

bool Array::is_dense() const {
  int64_t dense = 1;
  for (int i = rank; i-- > 0;) {
    if (extents[i] == 0) return true;
    if (extents[i] != 1 && steps[i] != dense) return false;
    dense *= extents[i];
  }
  return true;
}
int64_t Array::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape()) count *= extent;
  return count;
}
std::string Array::text() const {
  const std::string dense = fmt::format("{}[{}]", dtype.name(), fmt::join(shape(), ", "));
  return is_dense() ? dense : fmt::format("{} with strides [{}]", dense, fmt::join(strides(), ", "));
}
void Array::transpose() {
  std::swap(extents[rank - 1], extents[rank - 2]);
  std::swap(steps[rank - 1], steps[rank - 2]);
}

nb::object new_array(const Array& like, std::span<const int64_t> shape, DataType dtype) {
  nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(sizes.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  const bool is_same = dtype == like.dtype;
  switch (like.library) {
    case Library::kTorch: {
      static PyObject* const name = PyUnicode_InternFromString("new_empty");
      if (is_same) {
        nb::object made = nb::steal(PyObject_CallMethodObjArgs(like.object.ptr(), name, sizes.ptr(), nullptr));
        if (!made.is_valid()) throw nb::python_error();
        return made;
      }
      const nb::object torch = nb::module_::import_("torch");
      return like.object.attr("new_empty")(sizes, nb::arg("dtype") = torch.attr(library_name(dtype).c_str()));
    }
    case Library::kNumpy:
    case Library::kJax: {
      if (like.is_cuda) break;
      const nb::object numpy = nb::module_::import_("numpy");
      const bool is_numpy_type = dtype != bfloat16 && (!dtype.is_float() || dtype.bits() >= 16);
      const nb::object type = is_same ? nb::object(like.object.attr("dtype"))
                              : nb::object((is_numpy_type ? numpy : nb::module_::import_("ml_dtypes"))
                                               .attr(library_name(dtype).c_str()));
      return numpy.attr("empty")(sizes, nb::arg("dtype") = type);
    }
    case Library::kCupy: {
      const nb::object cupy = nb::module_::import_("cupy");
      const nb::object type =
          is_same ? nb::object(like.object.attr("dtype")) : nb::object(cupy.attr(library_name(dtype).c_str()));
      return cupy.attr("empty")(sizes, nb::arg("dtype") = type);
    }
    default:
      break;
  }
  refuse(fmt::format("the library of {} has no way to make the result that is known here", like.argument),
         "pass the result's array as out=");
}

DataType dtype_of(nb::handle object) {
  std::string name = to_text(object);
  std::optional<DataType> dtype = from_name(name);
  if (!dtype) {
    const nb::object own = nb::getattr(object, "__name__", nb::getattr(object, "name", nb::none()));
    if (!own.is_none()) dtype = from_name(to_text(own));
  }
  if (!dtype)
    refuse("'" + name + "' is no element type", "give one as \"float16\", numpy.float16 or torch.float16");
  return *dtype;
}

namespace {
std::map<std::string, Device>& set_virtual_gpus() {  // with the interpreter's lock held, as below
  static auto& set = *new std::map<std::string, Device>;
  return set;
}
}  // namespace

void set_default_virtual_gpu(const std::string& target, const std::optional<Device>& device) {
  if (device)
    set_virtual_gpus().insert_or_assign(target, *device);
  else
    set_virtual_gpus().erase(target);
}

Device virtual_gpu(const std::string& target) {
  if (const auto set = set_virtual_gpus().find(target); set != set_virtual_gpus().end()) return set->second;
  static auto& known = *new std::map<std::string, Device>;
  auto found = known.find(target);
  if (found == known.end()) found = known.emplace(target, Device::virtual_gpu({.target = target})).first;
  return found->second;
}

Device device_of(std::span<const Array* const> arrays, const std::string& target) {
  const Array& first = *arrays.front();
  for (const Array* array : arrays.subspan(1)) {
    if (array->is_cuda == first.is_cuda && array->ordinal == first.ordinal) continue;
    const auto place = [](const Array& a) {
      return a.is_cuda ? fmt::format("CUDA device {}", a.ordinal) : std::string("the host");
    };
    array->refuse(fmt::format("is on {}, {} on {}", place(*array), first.argument, place(first)),
                  fmt::format("move it to {}", place(first)));
  }
  if (!first.is_cuda) return virtual_gpu(target);
  static auto& known = *new std::map<int, Device>;
  auto found = known.find(first.ordinal);
  if (found == known.end()) found = known.emplace(first.ordinal, Device::cuda(first.ordinal)).first;
  return found->second;
}

namespace {

/// A view of a library's memory. Libraries give the same memory again and again, and looking up what CUDA knows of an
/// address takes longer than everything else here, so that the last views are kept. A view owns nothing: whether the
/// memory is there is for the array to vouch for.
std::shared_ptr<const DeviceTensor> view_of(const Array& array, const Device& device) {
  struct Known {
    const void* device = nullptr;
    std::shared_ptr<const DeviceTensor> tensor;
  };
  constexpr size_t kKept = 256;
  static auto& kept = *new std::array<Known, kKept>;  // with the interpreter's lock held
  uint64_t hash = array.address ^ static_cast<uint64_t>(array.dtype.code) << 56;
  for (int i = 0; i < array.rank; ++i)
    hash = (hash ^ static_cast<uint64_t>(array.extents[i] + array.steps[i] * 31)) * 0x9E3779B97F4A7C15u;
  Known& known = kept[hash >> 56];
  const auto is_same = [&] {
    const DeviceTensor& t = *known.tensor;
    return known.device == &device.backend() && t.address() == array.address && t.dtype() == array.dtype &&
           std::ranges::equal(t.shape(), array.shape()) && std::ranges::equal(t.strides(), array.strides());
  };
  if (known.tensor && is_same()) return known.tensor;
  const auto list = [](std::span<const int64_t> from) { return std::vector<int64_t>(from.begin(), from.end()); };
  try {
    known.tensor = std::make_shared<const DeviceTensor>(
        DeviceTensor::view(device, array.address, array.dtype, list(array.shape()), list(array.strides())));
  } catch (const LaunchError& error) {
    Diagnostic found = error.diagnostics().front();
    found.message = fmt::format("{}: {}", array.argument, found.message);
    throw LaunchError(found);
  }
  known.device = &device.backend();
  return known.tensor;
}

/// A host array's elements.
HostTensor bytes_of(const Array& array) {
  HostTensor host(array.dtype, {array.shape().begin(), array.shape().end()});
  auto* const from = reinterpret_cast<std::byte*>(array.address);
  if (array.elements() > 0 && array.is_dense())
    std::memcpy(host.bytes().data(), from, host.bytes().size());
  else if (array.elements() > 0)
    copy_strided(host.bytes().data(), from, array.shape(), array.strides(), array.dtype.bits() / 8, true);
  return host;
}

/// The same as a dense tensor on the virtual GPU.
std::shared_ptr<const DeviceTensor> copy_of(const Array& array, const Device& device) {
  return std::make_shared<const DeviceTensor>(DeviceTensor::from_host(device, bytes_of(array)));
}

}  // namespace

const DeviceTensor& OnDevice::add(const Array& array, bool may_write) {
  if (may_write && array.is_read_only)
    array.refuse("is read-only and would be written", "pass a writable array, or a copy");
  if (!array.is_cuda)
    for (Copy& copy : copies_) {  // the same array twice is one tensor, so that kernels may work in place
      const Array& other = *copy.array;
      if (other.address != array.address || other.dtype != array.dtype ||
          !std::ranges::equal(other.shape(), array.shape()) || !std::ranges::equal(other.strides(), array.strides()))
        continue;
      copy.may_write = copy.may_write || may_write;
      return *copy.tensor;
    }
  copies_.push_back({&array, array.is_cuda ? view_of(array, device_) : copy_of(array, device_), may_write});
  return *copies_.back().tensor;
}

const DeviceTensor& OnDevice::add_unknown(const Array& array) {
  const DeviceTensor& tensor = add(array, !array.is_read_only);
  for (Copy& copy : copies_)
    if (copy.tensor.get() == &tensor) copy.is_compared = array.is_read_only && !array.is_cuda;
  return tensor;
}

Stream OnDevice::stream(const Array& array) const {
  if (!array.is_cuda) return {};
  struct Known {
    const void* device = nullptr;
    void* handle = nullptr;
    Stream stream;
  };
  static auto& last = *new Known;  // programs stay on a stream for long
  void* const handle = array.current_stream();
  if (last.device != &device_.backend() || last.handle != handle)
    last = {&device_.backend(), handle, Stream::adopt(device_, handle)};
  return last.stream;
}

void OnDevice::finish() {
  for (const Copy& copy : copies_) {
    const Array& array = *copy.array;
    if (copy.is_compared && !copy.may_write && array.elements() > 0 &&
        !std::ranges::equal(copy.tensor->to_host().bytes(), bytes_of(array).bytes()))
      array.refuse("is read-only, and the kernel wrote to it", "pass a writable array, or a copy");
  }
  for (const Copy& copy : copies_) {
    const Array& array = *copy.array;
    if (array.is_cuda || !copy.may_write || array.elements() == 0) continue;
    const HostTensor host = copy.tensor->to_host();
    auto* const to = reinterpret_cast<std::byte*>(array.address);
    auto* const from = const_cast<std::byte*>(host.bytes().data());
    if (array.is_dense())
      std::memcpy(to, from, host.bytes().size());
    else
      copy_strided(from, to, array.shape(), array.strides(), array.dtype.bits() / 8, false);
  }
}

}  // namespace imbrex::python
