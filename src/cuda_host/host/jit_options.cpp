// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/jit_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace imbrex::cuda {

JitLog::JitLog(unsigned count, int* options, void** values) {
  for (unsigned i = 0; i < count && options != nullptr && values != nullptr; ++i) {
    if (options[i] == kJitErrorLogBuffer) errors_ = static_cast<char*>(values[i]);
    if (options[i] == kJitErrorLogBytes) {
      errors_bytes_ = reinterpret_cast<uintptr_t>(values[i]) & 0xFFFFFFFFu;
      errors_written_ = &values[i];
    }
    if (options[i] == kJitInfoLogBuffer) info_ = static_cast<char*>(values[i]);
    if (options[i] == kJitInfoLogBytes) info_written_ = &values[i];
  }
}

void JitLog::write(const std::string& text) const {
  if (info_ != nullptr && info_written_ != nullptr && *info_written_ != nullptr) info_[0] = '\0';
  if (info_written_ != nullptr) *info_written_ = nullptr;
  if (errors_ == nullptr || errors_bytes_ == 0) return;
  const size_t length = std::min(text.size(), errors_bytes_ - 1);
  std::memcpy(errors_, text.data(), length);
  errors_[length] = '\0';
  if (errors_written_ != nullptr) *errors_written_ = reinterpret_cast<void*>(length);
}

void JitLog::write_current_exception() const {
  try {
    throw;
  } catch (const ApiError& error) {
    write(error.message);
  } catch (const std::exception& error) {
    write(error.what());
  }
}

std::string read_image_file(const char* name) {
  std::ifstream in(&not_null(name, "the file's name"), std::ios::binary);
  if (!in) refuse(CUDA_ERROR_FILE_NOT_FOUND, fmt::format("'{}' cannot be read", name));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace imbrex::cuda
