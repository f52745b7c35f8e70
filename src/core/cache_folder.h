// SPDX-License-Identifier: Apache-2.0
// Where what is kept between runs lies.
#pragma once

#include <string>

namespace imbrex {

/// IMBREX_CACHE_DIR, else the user's folder for caches. "" where IMBREX_CACHE_DIR is set to nothing: nothing is kept.
std::string cache_folder();

}  // namespace imbrex
