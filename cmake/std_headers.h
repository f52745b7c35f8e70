// SPDX-License-Identifier: Apache-2.0
// Precompiled for src/: the standard headers that most of its files include, and fmt. A build convenience
// only: every file still includes what it uses, which the build with IMBREX_PCH=OFF (scripts/test-sanitizers)
// checks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
