// SPDX-License-Identifier: Apache-2.0
// What an error says.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "imbrex/core/error.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {

/// The text of the `E` that `action` throws; any other outcome is text that no expectation matches.
template <class E, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another kind of error) ") + error.what();
  }
  return "(no error)";
}

inline Device checked_device(const char* target) {
  vgpu::Options options;
  options.target = target;
  return Device::virtual_gpu(options);
}

}  // namespace imbrex
