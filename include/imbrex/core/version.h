// SPDX-License-Identifier: Apache-2.0
// The version of the library.
#pragma once

namespace imbrex {

/// "0.1.0": of the library that is linked. Part of every key of the cache.
const char* version();

}  // namespace imbrex
