// SPDX-License-Identifier: Apache-2.0
#include "ladder.h"

namespace imbrex {

const LadderPart kLadderPart = {IMBREX_LADDER, IMBREX_CANDIDATES};

}  // namespace imbrex
