// SPDX-License-Identifier: Apache-2.0
// The exact text form of a function; parser.cpp reads it back.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "ir/ir.h"

namespace imbrex::ir {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  return out + "\"";
}

/// Shortest text that reads back to the same number, always recognisable as floating point.
std::string float_text(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string out = fmt::format("{}", value);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string attr_text(const AttrValue& value) {
  struct Visitor {
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(const std::vector<int64_t>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(double v) const { return float_text(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(DataType v) const { return std::string(v.name()); }
    std::string operator()(const layout::Layout& v) const { return v.to_string(); }
  };
  return std::visit(Visitor{}, value);
}

bool is_identifier(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  for (char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  return true;
}

class Printer {
 public:
  /// `home` is the file whose lines are printed as @line.
  explicit Printer(const char* home) : home_(home) {}
  std::string take() { return std::move(out_); }

  void print(const Function& f) {
    out_ += "kernel " + (is_identifier(f.name) ? f.name : quoted(f.name)) + "(";
    values(f.params, true);
    out_ += fmt::format(") target {} warps {}", f.target, f.warps);
    if (f.cluster != std::vector<int64_t>{1, 1, 1})
      out_ += fmt::format(" cluster [{}]", fmt::join(f.cluster, ", "));
    if (f.max_registers) out_ += fmt::format(" max_registers {}", *f.max_registers);
    if (f.shared_bytes) out_ += fmt::format(" shared {}", f.shared_bytes);
    if (f.tensor_memory_columns) out_ += fmt::format(" tensor_memory {}", f.tensor_memory_columns);
    if (f.where.is_known()) out_ += fmt::format(" from {}:{}", quoted(f.where.file), f.where.line);
    out_ += " {\n";
    if (!f.host.ops.empty() || !f.grid.empty()) {
      out_ += "  host {\n";
      for (const Op* op : f.host.ops) print(*op, 4);
      if (!f.grid.empty()) {
        out_ += "    grid ";
        values(f.grid, false);
        out_ += '\n';
      }
      out_ += "  }\n";
    }
    for (const Op* op : f.body.ops) print(*op, 2);
    out_ += "}\n";
  }

  void print(const Op& op, int indent) {
    out_.append(indent, ' ');
    if (!op.results.empty()) {
      values(op.results, true);
      out_ += " = ";
    }
    out_ += op.info().mnemonic;
    if (!op.regions.empty() && !op.body().args.empty()) {
      out_ += ' ';
      values(op.body().args, true);
      out_ += " in";
    }
    if (!op.operands.empty()) {
      out_ += ' ';
      values(op.operands, false);
    }
    attrs(op);
    location(op.where);
    for (size_t i = 0; i < op.regions.size(); ++i) {
      const Block& region = *op.regions[i];
      if (i > 0 && region.ops.empty()) continue;  // an empty else
      out_ += i == 0 ? " {\n" : " else {\n";
      for (const Op* inner : region.ops) print(*inner, indent + 2);
      out_.append(indent, ' ');
      out_ += '}';
    }
    out_ += '\n';
  }

 private:
  void values(const std::vector<Value*>& list, bool with_types) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (i) out_ += ", ";
      out_ += list[i] ? ir::print(*list[i]) : "<null>";
      if (with_types) out_ += ": " + list[i]->type.to_string();
    }
  }

  void attrs(const Op& op) {
    if (op.attrs.empty()) return;
    out_ += " {";
    bool first = true;
    for (const AttrSpec& spec : op.info().attrs) {  // the table's order, whatever order they were set in
      const AttrValue* value = op.attr(spec.name);
      if (!value) continue;
      out_ += fmt::format("{}{} = {}", first ? "" : ", ", spec.name, attr_text(*value));
      first = false;
    }
    out_ += '}';
  }

  void location(const SourceLocation& where) {
    if (!where.is_known()) return;
    if (home_ && std::strcmp(where.file, home_) == 0)
      out_ += fmt::format(" @{}", where.line);
    else
      out_ += fmt::format(" @{}:{}", quoted(where.file), where.line);
  }

  const char* home_;
  std::string out_;
};

}  // namespace

std::string print(const Value& value) {
  return "%" + (value.name.empty() ? std::to_string(value.id) : value.name);
}

std::string print(const Op& op) {
  Printer printer(nullptr);
  printer.print(op, 0);
  return printer.take();
}

std::string print(const Function& function) {
  Printer printer(function.where.is_known() ? function.where.file : nullptr);
  printer.print(function);
  return printer.take();
}

}  // namespace imbrex::ir
