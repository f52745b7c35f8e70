// SPDX-License-Identifier: Apache-2.0
// Precompiled for tests/: see std_headers.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "std_headers.h"
