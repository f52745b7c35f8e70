// SPDX-License-Identifier: Apache-2.0
// The scalar instruction forms: one PTX line each, on operands read from memory.
#pragma once

#include <string>
#include <vector>

namespace imbrex::conformance {

/// One form. In `text`, %d is the result and %a, %b, %c are the operands; types are PTX register types. A
/// result of type "pred" is stored as 0 or 1.
struct Form {
  std::string family;
  std::string text;
  std::string result;
  std::vector<std::string> operands;
  std::string values;  // what the operands are drawn from where their type does not say: "f16", "bf16",
      // "f32", "e4m3", ...; "f16 edge" and "f32 edge": products at the smallest normal number
};

/// Every form, in a fixed order.
std::vector<Form> forms();

}  // namespace imbrex::conformance
