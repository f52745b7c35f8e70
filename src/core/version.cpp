// SPDX-License-Identifier: Apache-2.0
#include "imbrex/core/version.h"

namespace imbrex {

const char* version() { return IMBREX_VERSION; }

}  // namespace imbrex
