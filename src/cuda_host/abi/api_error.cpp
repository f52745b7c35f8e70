// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/abi/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_set>

#include "core/text.h"
#include "imbrex/core/parse_error.h"

namespace imbrex::cuda {
namespace {

struct ErrorNames {
  int number;
  const char* name;
  const char* text;
};
constexpr ErrorNames kErrors[] = {
#define ERROR(number, driver_name, runtime_name, text) {number, #driver_name, text},
#define RUNTIME_ERROR(number, runtime_name, text)
#include "cuda_host/abi/errors.def"
#undef ERROR
#undef RUNTIME_ERROR
};

const ErrorNames* find(int code) {
  for (const ErrorNames& error : kErrors)
    if (error.number == code) return &error;
  return nullptr;
}

FailureListener g_listener = nullptr;

CUresult told(const char* function, CUresult code, const std::string& message) {
  if (message.empty()) return code;
  tell_once(fmt::format("{}: {} ({})", function, message, error_name(code)));
  // What the virtual GPU lacks, programs ask for to see whether it is there.
  const bool is_probe = code == CUDA_ERROR_NOT_SUPPORTED || code == CUDA_ERROR_NOT_FOUND;
  if (g_listener != nullptr && !is_probe) g_listener(function, code);
  return code;
}

std::string text_of(const Error& error) {
  const Diagnostic& first = error.diagnostics().front();
  std::string text = first.message;
  for (const std::string& fact : first.facts) text += "\n  " + fact;
  return text;  // without the help, which is for who calls the virtual GPU's own functions
}

}  // namespace

void set_failure_listener(FailureListener listener) { g_listener = listener; }

const char* error_name(int code) {
  const ErrorNames* error = find(code);
  return error == nullptr ? nullptr : error->name;
}
const char* error_text(int code) {
  const ErrorNames* error = find(code);
  return error == nullptr ? nullptr : error->text;
}

void tell_once(const std::string& line) {
  static std::mutex mutex;
  static auto* seen = new std::unordered_set<std::string>;  // outlives every destructor that may still call
  const char* quiet = std::getenv("IMBREX_QUIET");
  if (quiet != nullptr && std::string_view(quiet) == "1") return;
  const std::lock_guard lock(mutex);
  if (seen->insert(line).second) say("imbrex: {}\n", line);
}

CUresult not_supported(const char* function, const char* reason) {
  tell_once(
      fmt::format("{}: the virtual GPU does not have this: {} (CUDA_ERROR_NOT_SUPPORTED)", function, reason));
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult explain_current_exception(const char* function) {
  try {
    throw;
  } catch (const ApiError& error) {
    return told(function, error.code, error.message);
  } catch (const ParseError& error) {
    if (!error.lacking().empty()) {
      Diagnostic first = error.diagnostics().front();
      first.facts.push_back(
          fmt::format("this is of {}, which the virtual GPU does not have", error.lacking()));
      first.help = "read the memory by a pointer, as with __ldg()";
      return told(function, CUDA_ERROR_NOT_SUPPORTED, first.format());
    }
    const bool is_version = std::string_view(error.what()).find(".version") != std::string_view::npos;
    return told(function, is_version ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_ERROR_INVALID_PTX,
                error.what());
  } catch (const CompileError& error) {
    return told(function, CUDA_ERROR_NOT_SUPPORTED, error.what());
  } catch (const Error& error) {
    return told(function, CUDA_ERROR_INVALID_VALUE, text_of(error));
  } catch (const std::bad_alloc&) {
    return told(function, CUDA_ERROR_OUT_OF_MEMORY, "this machine is out of memory");
  } catch (const std::exception& error) {
    return told(function, CUDA_ERROR_UNKNOWN, error.what());
  }
}

}  // namespace imbrex::cuda
