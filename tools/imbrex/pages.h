// SPDX-License-Identifier: Apache-2.0
// The pages the command writes: HTML of the folder pages/, built into the program, with data put in.
#pragma once

#include <string>
#include <string_view>

namespace imbrex::command {

extern const std::string_view kExplorePage;  // /*FACTS*/null
extern const std::string_view kExplainPage;  // /*TITLE*/, /*BODY*/

/// The page with `json` where it says /*FACTS*/null.
std::string page(std::string_view html, const std::string& json);

}  // namespace imbrex::command
