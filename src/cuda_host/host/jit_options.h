// SPDX-License-Identifier: Apache-2.0
// The log buffers among the options of cuModuleLoadDataEx and cuLinkCreate.
#pragma once

#include <string>

#include "cuda_host/abi/api_error.h"

namespace imbrex::cuda {

class JitLog {
 public:
  JitLog() = default;
  JitLog(unsigned count, int* options, void** values);

  /// Runs `body`; what it throws is written into the program's error log too, before it goes on.
  template <class Body>
  void keep_errors(Body&& body) const {
    try {
      body();
      write("");
    } catch (...) {
      write_current_exception();
      throw;
    }
  }

 private:
  void write(const std::string& text) const;
  void write_current_exception() const;
  char* errors_ = nullptr;
  size_t errors_bytes_ = 0;
  void** errors_written_ = nullptr;  // where the driver puts how much it wrote
  char* info_ = nullptr;
  void** info_written_ = nullptr;
};

/// The bytes of a file; CUDA_ERROR_FILE_NOT_FOUND.
std::string read_image_file(const char* name);

}  // namespace imbrex::cuda
