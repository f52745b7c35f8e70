// SPDX-License-Identifier: Apache-2.0
// The objects behind a program's handles. A handle is the object's address; the registry of its kind knows which are
// alive, so that a destroyed or invented one is answered, not followed.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <unordered_map>

#include "cuda_host/abi/api_error.h"

namespace imbrex::cuda {

template <class Object>
class Handles {
 public:
  explicit Handles(const char* kind) : kind_(kind) {}

  template <class... Arguments>
  Object& make(Arguments&&... arguments) {
    auto object = std::make_unique<Object>(std::forward<Arguments>(arguments)...);
    Object& result = *object;
    alive_.emplace(&result, std::move(object));
    return result;
  }
  Object* find(const void* handle) const {
    const auto at = alive_.find(handle);
    return at == alive_.end() ? nullptr : at->second.get();
  }
  /// Throws CUDA_ERROR_INVALID_HANDLE for what is no live object of this kind.
  Object& get(const void* handle) const {
    Object* object = find(handle);
    if (object == nullptr)
      refuse(CUDA_ERROR_INVALID_HANDLE,
             handle == nullptr ? fmt::format("the {} is null", kind_)
                               : fmt::format("{} is no {}, or it was destroyed before", handle, kind_));
    return *object;
  }
  void destroy(const void* handle) { alive_.erase(&get(handle)); }
  /// No handle from now on; the object lives as long as it is kept.
  std::shared_ptr<Object> take(const void* handle) {
    const auto at = alive_.find(&get(handle));
    std::shared_ptr<Object> object = std::move(at->second);
    alive_.erase(at);
    return object;
  }
  const std::unordered_map<const void*, std::unique_ptr<Object>>& all() const { return alive_; }

 private:
  const char* kind_;
  std::unordered_map<const void*, std::unique_ptr<Object>> alive_;
};

}  // namespace imbrex::cuda
