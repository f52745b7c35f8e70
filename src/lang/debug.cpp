// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/debug.h"

#include <fmt/format.h>

#include <cstring>

#include "lang/arithmetic.h"

namespace imbrex {

using lang::Instruction;

namespace {

/// The conversions of a printf format: "d", "lld", "f", ...
std::vector<std::string> conversions(const Instruction& at, std::string_view format) {
  std::vector<std::string> found;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (i + 1 < format.size() && format[i + 1] == '%') {
      ++i;
      continue;
    }
    size_t end = format.find_first_not_of("-+ #0123456789.", i + 1);
    const size_t kind = end;
    while (end < format.size() && format[end] == 'l') ++end;
    if (end >= format.size() || !std::strchr("duxXfFeEgGc", format[end]) || end - kind > 2)
      at.fail(fmt::format("unknown conversion '{}'", format.substr(i, end - i + 1)), {},
              "it knows %d %u %x %lld %llu %llx %f %e %g %c %%");
    found.emplace_back(format.substr(kind, end - kind + 1));
    i = end;
  }
  return found;
}

}  // namespace

void printf(const char* format, detail::FirstPrintArg a1, detail::PrintArg a2, detail::PrintArg a3,
            detail::PrintArg a4, detail::PrintArg a5, detail::PrintArg a6, detail::PrintArg a7,
            detail::PrintArg a8, SourceLocation where) {
  const Instruction at("printf", where);
  std::vector<const ScalarArg*> args{&a1.value};
  for (const detail::PrintArg* a : {&a2, &a3, &a4, &a5, &a6, &a7, &a8})
    if (a->given) args.push_back(&a->value);
  const std::vector<std::string> wanted = conversions(at, format);
  if (wanted.size() != args.size())
    at.fail(fmt::format("the format has {} conversions, {} arguments are given", wanted.size(), args.size()));
  std::vector<ir::Value*> operands;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool wants_float = std::strchr("fFeEgG", wanted[i].back());
    const bool wants_wide = wanted[i][0] == 'l';
    const DataType type = args[i]->dtype;
    if (wants_float != type.is_float())
      at.fail(fmt::format("argument {} is {}, its conversion is %{}", i + 1, type.name(), wanted[i]));
    if (!wants_float && type.bits() == 64 && !args[i]->is_number() && !wants_wide)
      at.fail(fmt::format("argument {} is {}, its conversion is %{}", i + 1, type.name(), wanted[i]), {},
              "write %ll" + wanted[i]);
    // As C's variable arguments do: float64, and integers of the width the conversion reads.
    const DataType to = wants_float               ? float64
                        : wants_wide              ? (wanted[i].back() == 'd' ? int64 : uint64)
                        : wanted[i].back() == 'd' ? int32
                                                  : uint32;
    operands.push_back(lang::materialize(at, *args[i], to));
  }
  at.emit(ir::Opcode::kPrintf, std::move(operands), {}, {{"format", std::string(format)}});
}

void print_tensor(const Tensor& t, const char* header, SourceLocation where) {
  const Instruction at("print_tensor", where);
  std::vector<ir::Attr> attrs;
  if (*header) attrs.push_back({"header", std::string(header)});
  ir::Value* value = at.read(t.handle());
  if (value->type.kind == ir::TypeKind::kRegister) value = lang::without_shared_bytes(at, value);
  at.emit(ir::Opcode::kPrintTensor, {value}, {}, std::move(attrs));
}

}  // namespace imbrex
