// SPDX-License-Identifier: Apache-2.0
#include "c_api/handles.h"

#include <fmt/format.h>

#include <new>

#include "imbrex/core/parse_error.h"

namespace imbrex::c {
namespace {

thread_local std::string last_error;

imbrex_status failed(imbrex_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();  // no memory for the text either
  }
  return status;
}

}  // namespace

imbrex_status guard(const std::function<void()>& body) noexcept {
  try {
    body();
    return IMBREX_OK;
  } catch (const LaunchError& error) {
    return failed(IMBREX_INVALID_CALL, error.what());
  } catch (const CompileError& error) {
    return failed(IMBREX_COMPILE_ERROR, error.what());
  } catch (const ParseError& error) {
    return failed(IMBREX_PARSE_ERROR, error.what());
  } catch (const Error& error) {
    return failed(IMBREX_DEVICE_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    return failed(IMBREX_OUT_OF_MEMORY, "this machine does not have enough memory for that");
  } catch (const std::exception& error) {
    return failed(IMBREX_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(IMBREX_INTERNAL_ERROR, "imbrex: internal error: an exception of an unknown type");
  }
}

void refuse(const char* function, const std::string& message, const std::string& help,
            std::vector<std::string> facts) {
  throw LaunchError(Diagnostic{{}, fmt::format("{}: {}", function, message), std::move(facts), help});
}

void require_given(const char* function, const char* argument, const void* pointer) {
  if (pointer == nullptr) refuse(function, fmt::format("{} is null", argument), "pass what imbrex/c.h says");
}

void require_size(const char* function, const char* structure, size_t size, size_t least) {
  if (size < least)
    refuse(function, fmt::format("struct_size is {}, {} has {} bytes", size, structure, least),
           fmt::format("set struct_size to sizeof({})", structure));
}

DataType dtype_of(const char* function, int32_t code) {
  if (code < 0 || code >= DataType::kCount)
    refuse(function, fmt::format("{} is no element type", code),
           fmt::format("an imbrex_dtype is 0 to {}", DataType::kCount - 1));
  return {static_cast<DataType::Code>(code)};
}

DeviceTensor tensor_of(const char* function, const char* argument, const Device& device,
                       const imbrex_tensor* tensor) {
  require_given(function, argument, tensor);
  constexpr int kMostDimensions = 8;
  if (tensor->rank < 0 || tensor->rank > kMostDimensions)
    refuse(function, fmt::format("{} has rank {}", argument, tensor->rank),
           fmt::format("a rank is 0 to {}", kMostDimensions));
  if (tensor->rank > 0)
    require_given(function, fmt::format("the shape of {}", argument).c_str(), tensor->shape);
  const auto list = [&](const int64_t* from) {
    return from == nullptr ? std::vector<int64_t>() : std::vector<int64_t>(from, from + tensor->rank);
  };
  try {
    return DeviceTensor::view(device, tensor->address, dtype_of(function, tensor->dtype), list(tensor->shape),
                              list(tensor->strides));
  } catch (const LaunchError& error) {
    Diagnostic found = error.diagnostics().front();
    found.message = fmt::format("{}: {}: {}", function, argument, found.message);
    throw LaunchError(found);
  }
}

Stream stream_of(const Device& device, void* stream) { return Stream::adopt(device, stream); }

void hand_over(LaunchReport&& launch, imbrex_report** out) {
  if (out == nullptr) return launch.expect_clean();
  auto report = std::make_unique<imbrex_report>();
  report->launch = std::move(launch);
  report->text = report->launch.virtual_report.format();
  for (const auto* list : {&report->launch.virtual_report.findings, &report->launch.virtual_report.notes})
    for (const vgpu::Finding& finding : *list) report->findings.push_back(finding.format());
  *out = report.release();
}

}  // namespace imbrex::c

extern "C" const char* imbrex_last_error(void) { return imbrex::c::last_error.c_str(); }
