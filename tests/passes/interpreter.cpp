// SPDX-License-Identifier: Apache-2.0
#include "interpreter.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

struct OutOfOps {};

class Interpreter {
 public:
  Interpreter(int64_t thread, int64_t max_ops) : thread_(thread), ops_left_(max_ops) {}

  std::string run(const ir::Function& f, const std::vector<int32_t>& params) {
    for (size_t i = 0; i < params.size(); ++i) values_[f.params[i]] = params[i];
    try {
      block(f.host);
      block(f.body);
    } catch (const OutOfOps&) {
      out_ += "...";
    }
    return out_;
  }

 private:
  static constexpr int64_t kGoesOn = -1;  // else: loops that a break has still to leave

  int64_t block(const Block& block) {
    for (const Op* op : block.ops)
      if (const int64_t leaving = visit(*op); leaving != kGoesOn) return leaving;
    return kGoesOn;
  }

  int32_t get(const Value* value) const { return values_.at(value); }
  int32_t operand(const Op& op, size_t i) const { return get(op.operands[i]); }

  int64_t visit(const Op& op) {
    if (--ops_left_ < 0) throw OutOfOps();
    switch (op.code) {
      case Opcode::kConst:
        values_[op.result()] = static_cast<int32_t>(op.int_attr("int"));
        break;
      case Opcode::kVar:
      case Opcode::kRead:
        values_[op.result()] = operand(op, 0);
        break;
      case Opcode::kAssign:
        values_[op.operands[0]] = operand(op, 1);
        break;
      case Opcode::kIf:
        return block(*op.regions[operand(op, 0) ? 0 : 1]);
      case Opcode::kThreadGroup: {
        const int64_t begin = op.int_attr("begin");
        return thread_ >= begin && thread_ < begin + op.int_attr("threads") ? block(op.body()) : kGoesOn;
      }
      case Opcode::kBreak:
        return op.int_attr("depth", 0);
      case Opcode::kLoop:
        for (;;) {
          if (--ops_left_ < 0) throw OutOfOps();
          const int64_t leaving = block(op.body());
          if (leaving != kGoesOn) return leaving == 0 ? kGoesOn : leaving - 1;
        }
      case Opcode::kFor: {
        const int64_t end = operand(op, 1), step = operand(op, 2);
        for (int64_t i = operand(op, 0); step > 0 ? i < end : i > end; i += step) {
          values_[op.body().args[0]] = static_cast<int32_t>(i);
          const int64_t leaving = block(op.body());
          if (leaving != kGoesOn) return leaving == 0 ? kGoesOn : leaving - 1;
        }
        break;
      }
      case Opcode::kPrintf:
        for (size_t i = 0; i < op.operands.size(); ++i) out_ += std::to_string(operand(op, i)) + " ";
        out_ += "\n";
        break;
      default:
        values_[op.result()] = compute(op);
    }
    return kGoesOn;
  }

  int32_t compute(const Op& op) const {
    const int64_t a = operand(op, 0), b = op.operands.size() > 1 ? operand(op, 1) : 0;
    const auto wrapped = [](int64_t x) { return static_cast<int32_t>(x); };
    switch (op.code) {
      case Opcode::kAdd:
        return wrapped(a + b);
      case Opcode::kSub:
        return wrapped(a - b);
      case Opcode::kMul:
        return wrapped(a * b);
      case Opcode::kDiv:
        return wrapped(a / b);
      case Opcode::kRem:
        return wrapped(a % b);
      case Opcode::kCeilDiv:
        return wrapped((a + b - 1) / b);
      case Opcode::kMin:
        return wrapped(std::min(a, b));
      case Opcode::kMax:
        return wrapped(std::max(a, b));
      case Opcode::kAnd:
        return wrapped(a & b);
      case Opcode::kOr:
        return wrapped(a | b);
      case Opcode::kXor:
        return wrapped(a ^ b);
      case Opcode::kShl:
        return wrapped(a << b);
      case Opcode::kShr:
        return wrapped(a >> b);
      case Opcode::kEq:
        return a == b;
      case Opcode::kNe:
        return a != b;
      case Opcode::kLt:
        return a < b;
      case Opcode::kLe:
        return a <= b;
      case Opcode::kGt:
        return a > b;
      case Opcode::kGe:
        return a >= b;
      case Opcode::kNeg:
        return wrapped(-a);
      case Opcode::kNot:
        return op.result()->type.dtype.is_bool() ? !a : wrapped(~a);
      case Opcode::kSelect:
        return a ? wrapped(b) : operand(op, 2);
      default:
        throw std::runtime_error("interpreter: no rule for " + std::string(op.info().mnemonic));
    }
  }

  const int64_t thread_;
  int64_t ops_left_;
  std::unordered_map<const Value*, int32_t> values_;
  std::string out_;
};

}  // namespace

std::string interpret(const ir::Function& function, const std::vector<int32_t>& params, int64_t thread,
                      int64_t max_ops) {
  return Interpreter(thread, max_ops).run(function, params);
}

}  // namespace imbrex::passes
