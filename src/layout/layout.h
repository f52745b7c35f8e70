// SPDX-License-Identifier: Apache-2.0
// What the algebra's own files and the compiler call the public header.
#pragma once

#include "imbrex/lang/layout.h"
