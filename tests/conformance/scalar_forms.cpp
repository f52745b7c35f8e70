// SPDX-License-Identifier: Apache-2.0
#include "scalar_forms.h"

#include <fmt/format.h>

#include <cstdlib>

#include "scalar_form_list.h"

namespace imbrex::conformance {
namespace {

void integers(List& list) {
  list.family("integer");
  for (const std::string t : {"s16", "u16", "s32", "u32", "s64", "u64"}) {
    const std::string b = bits_of(t);
    for (const char* op : {"add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem"})
      list.add(fmt::format("{}.{} %d, %a, %b", op, t), b, {b, b});
    list.add(fmt::format("mad.lo.{} %d, %a, %b, %c", t), b, {b, b, b});
    list.add(fmt::format("mad.hi.{} %d, %a, %b, %c", t), b, {b, b, b});
    list.add(fmt::format("sad.{} %d, %a, %b, %c", t), b, {b, b, b});
    list.add(fmt::format("shr.{} %d, %a, %b", t), b, {b, "b32"});
    if (t[0] == 's') {
      list.add(fmt::format("abs.{} %d, %a", t), b, {b});
      list.add(fmt::format("neg.{} %d, %a", t), b, {b});
    }
    if (b != "b64") {
      list.add(fmt::format("mul.wide.{} %d, %a, %b", t), b == "b16" ? "b32" : "b64", {b, b});
      list.add(fmt::format("mad.wide.{} %d, %a, %b, %c", t), b == "b16" ? "b32" : "b64",
               {b, b, b == "b16" ? "b32" : "b64"});
    }
    if (b != "b16") {
      list.add(fmt::format("bfe.{} %d, %a, %b, %c", t), b, {b, "b32", "b32"});
      list.add(fmt::format("bfind.{} %d, %a", t), "b32", {b});
      list.add(fmt::format("bfind.shiftamt.{} %d, %a", t), "b32", {b});
    }
  }
  for (const char* op :
       {"add.sat.s32", "sub.sat.s32", "mul24.lo.s32", "mul24.hi.s32", "mul24.lo.u32", "mul24.hi.u32"})
    list.add(fmt::format("{} %d, %a, %b", op), "b32", {"b32", "b32"});
  for (const char* op : {"mad.hi.sat.s32", "mad24.lo.s32", "mad24.hi.u32", "dp4a.s32.s32", "dp4a.u32.u32",
                         "dp4a.s32.u32", "dp2a.lo.s32.s32", "dp2a.hi.u32.s32"})
    list.add(fmt::format("{} %d, %a, %b, %c", op), "b32", {"b32", "b32", "b32"});
}

void bits(List& list) {
  list.family("bits");
  for (const std::string b : {"b16", "b32", "b64"}) {
    for (const char* op : {"and", "or", "xor"}) list.add(fmt::format("{}.{} %d, %a, %b", op, b), b, {b, b});
    list.add(fmt::format("not.{} %d, %a", b), b, {b});
    list.add(fmt::format("cnot.{} %d, %a", b), b, {b});
    list.add(fmt::format("shl.{} %d, %a, %b", b), b, {b, "b32"});
    if (b == "b16") continue;
    list.add(fmt::format("popc.{} %d, %a", b), "b32", {b});
    list.add(fmt::format("clz.{} %d, %a", b), "b32", {b});
    list.add(fmt::format("brev.{} %d, %a", b), b, {b});
    list.add(fmt::format("bfi.{} %d, %a, %b, 5, 9", b), b, {b, b});
    list.add(fmt::format("bfi.{} %d, %a, %b, %c, 40", b), b, {b, b, "b32"});
  }
  list.each({"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"}, "prmt.b32{} %d, %a, %b, %c", "b32",
            {"b32", "b32", "b32"});
  list.each({"0x80", "0xfe", "0x96", "0xe8", "0x1d"}, "lop3.b32 %d, %a, %b, %c, {}", "b32",
            {"b32", "b32", "b32"});
  list.each({"l.clamp", "l.wrap", "r.clamp", "r.wrap"}, "shf.{}.b32 %d, %a, %b, %c", "b32",
            {"b32", "b32", "b32"});
  list.each({"clamp", "wrap"}, "bmsk.{}.b32 %d, %a, %b", "b32", {"b32", "b32"});
  list.each({"clamp.s32", "wrap.s32", "clamp.u32", "wrap.u32"}, "szext.{} %d, %a, %b", "b32", {"b32", "b32"});
}

void floats(List& list) {
  list.family("float32");
  const Strings roundings{"rn", "rz", "rm", "rp"}, tails{"", ".ftz", ".sat", ".ftz.sat"};
  for (const std::string& r : roundings)
    for (const std::string& tail : tails) {
      for (const char* op : {"add", "sub", "mul"})
        list.add(fmt::format("{}.{}{}.f32 %d, %a, %b", op, r, tail), "f32", {"f32", "f32"});
      list.add(fmt::format("fma.{}{}.f32 %d, %a, %b, %c", r, tail), "f32", {"f32", "f32", "f32"});
    }
  for (const std::string& r : roundings)
    for (const char* tail : {"", ".ftz"}) {
      list.add(fmt::format("mul.{}{}.f32 %d, %a, %b", r, tail), "f32", {"f32", "f32"}, "f32 edge");
      list.add(fmt::format("fma.{}{}.f32 %d, %a, %b, %c", r, tail), "f32", {"f32", "f32", "f32"}, "f32 edge");
    }
  for (const std::string& r : roundings)
    for (const char* ftz : {"", ".ftz"}) {
      list.add(fmt::format("div.{}{}.f32 %d, %a, %b", r, ftz), "f32", {"f32", "f32"});
      list.add(fmt::format("rcp.{}{}.f32 %d, %a", r, ftz), "f32", {"f32"});
      list.add(fmt::format("sqrt.{}{}.f32 %d, %a", r, ftz), "f32", {"f32"});
    }
  for (const char* ftz : {"", ".ftz"}) {
    list.add(fmt::format("div.approx{}.f32 %d, %a, %b", ftz), "f32", {"f32", "f32"});
    list.add(fmt::format("div.full{}.f32 %d, %a, %b", ftz), "f32", {"f32", "f32"});
    for (const char* op : {"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"})
      list.add(fmt::format("{}.approx{}.f32 %d, %a", op, ftz), "f32", {"f32"});
    for (const char* op : {"min", "max"})
      for (const char* tail : {"", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"})
        list.add(fmt::format("{}{}{}.f32 %d, %a, %b", op, ftz, tail), "f32", {"f32", "f32"});
    list.add(fmt::format("abs{}.f32 %d, %a", ftz), "f32", {"f32"});
    list.add(fmt::format("neg{}.f32 %d, %a", ftz), "f32", {"f32"});
  }
  list.add("tanh.approx.f32 %d, %a", "f32", {"f32"});
  list.add("copysign.f32 %d, %a, %b", "f32", {"f32", "f32"});
  for (const char* t : {"f32", "f64"})
    list.each({"finite", "infinite", "number", "notanumber", "normal", "subnormal"},
              fmt::format("testp.{{}}.{} %d, %a", t), "pred", {t});

  list.family("float64");
  for (const std::string& r : roundings) {
    for (const char* op : {"add", "sub", "mul", "div"})
      list.add(fmt::format("{}.{}.f64 %d, %a, %b", op, r), "f64", {"f64", "f64"});
    list.add(fmt::format("fma.{}.f64 %d, %a, %b, %c", r), "f64", {"f64", "f64", "f64"});
    list.add(fmt::format("rcp.{}.f64 %d, %a", r), "f64", {"f64"});
    list.add(fmt::format("sqrt.{}.f64 %d, %a", r), "f64", {"f64"});
  }
  list.add("rcp.approx.ftz.f64 %d, %a", "f64", {"f64"});
  for (const char* op : {"min", "max", "copysign"})
    list.add(fmt::format("{}.f64 %d, %a, %b", op), "f64", {"f64", "f64"});
  for (const char* op : {"abs", "neg"}) list.add(fmt::format("{}.f64 %d, %a", op), "f64", {"f64"});
}

void halves(List& list) {
  list.family("half");
  for (const std::string t : {"f16", "f16x2", "bf16", "bf16x2"}) {
    const std::string b = t.ends_with("x2") ? "b32" : "b16";
    const std::string values = t.starts_with("bf16") ? "bf16" : "f16";
    const bool is_f16 = values == "f16";
    for (const char* op : {"add", "sub", "mul"}) {
      list.add(fmt::format("{}.rn.{} %d, %a, %b", op, t), b, {b, b}, values);
      if (!is_f16) continue;
      for (const char* tail : {".ftz", ".sat", ".ftz.sat"})
        list.add(fmt::format("{}.rn{}.{} %d, %a, %b", op, tail, t), b, {b, b}, values);
    }
    list.add(fmt::format("fma.rn.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
    list.add(fmt::format("fma.rn.relu.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
    if (is_f16) {
      list.add(fmt::format("fma.rn.ftz.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
      list.add(fmt::format("fma.rn.sat.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
    }
    if (is_f16) {
      list.add(fmt::format("mul.rn.ftz.{} %d, %a, %b", t), b, {b, b}, "f16 edge");
      list.add(fmt::format("fma.rn.ftz.{} %d, %a, %b, %c", t), b, {b, b, b}, "f16 edge");
      list.add(fmt::format("fma.rn.ftz.sat.{} %d, %a, %b, %c", t), b, {b, b, b}, "f16 edge");
      list.add(fmt::format("fma.rn.ftz.relu.{} %d, %a, %b, %c", t), b, {b, b, b}, "f16 edge");
    }
    for (const char* op : {"min", "max"})
      for (const char* tail : {"", ".NaN", ".xorsign.abs"})
        list.add(fmt::format("{}{}.{} %d, %a, %b", op, tail, t), b, {b, b}, values);
    list.add(fmt::format("neg.{} %d, %a", t), b, {b}, values);
    list.add(fmt::format("abs.{} %d, %a", t), b, {b}, values);
    list.add(fmt::format("tanh.approx.{} %d, %a", t), b, {b}, values);
    list.add(fmt::format("ex2.approx{}.{} %d, %a", is_f16 ? "" : ".ftz", t), b, {b}, values);
  }
}

void comparisons(List& list) {
  list.family("comparison");
  for (const std::string t : {"s16", "u16", "s32", "u32", "s64", "u64"})
    for (const char* c : {"eq", "ne", "lt", "le", "gt", "ge"})
      list.add(fmt::format("setp.{}.{} %d, %a, %b", c, t), "pred", {bits_of(t), bits_of(t)});
  for (const std::string t : {"f32", "f64", "f16", "bf16"}) {
    const std::string b = t == "f16" || t == "bf16" ? "b16" : t;
    for (const char* c :
         {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"})
      list.add(fmt::format("setp.{}.{} %d, %a, %b", c, t), "pred", {b, b}, t);
  }
  for (const char* c : {"eq", "lt", "geu", "nan"}) {
    list.add(fmt::format("setp.{}.ftz.f32 %d, %a, %b", c), "pred", {"f32", "f32"});
    list.add(fmt::format("set.{}.u32.f32 %d, %a, %b", c), "b32", {"f32", "f32"});
    list.add(fmt::format("set.{}.f32.f32 %d, %a, %b", c), "f32", {"f32", "f32"});
  }
  list.add("slct.s32.s32 %d, %a, %b, %c", "b32", {"b32", "b32", "b32"});
  list.add("slct.f32.f32 %d, %a, %b, %c", "f32", {"f32", "f32", "f32"});
  list.add("slct.ftz.u64.f32 %d, %a, %b, %c", "b64", {"b64", "b64", "f32"});
}

void conversions(List& list) {
  list.family("conversion");
  const Strings integers{"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"};
  for (const std::string& to : integers)
    for (const std::string& from : integers) {
      list.add(fmt::format("cvt.{}.{} %d, %a", to, from), bits_of(to), {bits_of(from)});
      // ptxas takes .sat only where the result can be out of range.
      auto width = [](const std::string& type) { return std::atoi(type.c_str() + 1); };
      const bool fits = from[0] == 'u' ? width(to) > width(from) || (to[0] == 'u' && width(to) == width(from))
                                       : to[0] == 's' && width(to) >= width(from);
      if (!fits) list.add(fmt::format("cvt.sat.{}.{} %d, %a", to, from), bits_of(to), {bits_of(from)});
    }
  for (const std::string f : {"f16", "f32", "f64"}) {
    const std::string fb = f == "f16" ? "b16" : f;
    for (const std::string& i : integers) {
      list.each({"rni", "rzi", "rmi", "rpi"}, fmt::format("cvt.{{}}.{}.{} %d, %a", i, f), bits_of(i), {fb},
                f);
      list.each({"rn", "rz", "rm", "rp"}, fmt::format("cvt.{{}}.{}.{} %d, %a", f, i), fb, {bits_of(i)});
    }
    list.each({"rni", "rzi", "rmi", "rpi"}, fmt::format("cvt.{{}}.{}.{} %d, %a", f, f), fb, {fb}, f);
  }
  list.each({"rni", "rzi"}, "cvt.{}.ftz.s32.f32 %d, %a", "b32", {"f32"});
  list.add("cvt.f64.f32 %d, %a", "f64", {"f32"});
  list.add("cvt.f32.f16 %d, %a", "f32", {"b16"}, "f16");
  list.add("cvt.f32.bf16 %d, %a", "f32", {"b16"}, "bf16");
  list.add("cvt.f64.f16 %d, %a", "f64", {"b16"}, "f16");
  list.each({"rn", "rz", "rm", "rp", "rn.sat", "rz.ftz"}, "cvt.{}.f32.f64 %d, %a", "f32", {"f64"});
  list.each({"rn", "rz", "rm", "rp", "rn.sat", "rn.ftz"}, "cvt.{}.f16.f32 %d, %a", "b16", {"f32"});
  list.each({"rn", "rz", "rn.relu", "rn.satfinite"}, "cvt.{}.bf16.f32 %d, %a", "b16", {"f32"});
  list.each({"rn", "rz", "rn.relu", "rz.relu", "rn.satfinite"}, "cvt.{}.f16x2.f32 %d, %a, %b", "b32",
            {"f32", "f32"});
  list.each({"rn", "rz", "rn.relu", "rz.relu", "rn.satfinite"}, "cvt.{}.bf16x2.f32 %d, %a, %b", "b32",
            {"f32", "f32"});
  list.each({"rna", "rna.satfinite", "rn", "rz", "rn.relu"}, "cvt.{}.tf32.f32 %d, %a", "b32", {"f32"});
  for (const char* t : {"e4m3x2", "e5m2x2"}) {
    list.each({"", ".relu"}, fmt::format("cvt.rn.satfinite{{}}.{}.f32 %d, %a, %b", t), "b16", {"f32", "f32"});
    list.each({"", ".relu"}, fmt::format("cvt.rn.satfinite{{}}.{}.f16x2 %d, %a", t), "b16", {"b32"}, "f16");
    list.each({"", ".relu"}, fmt::format("cvt.rn{{}}.f16x2.{} %d, %a", t), "b32", {"b16"});
  }
  for (const char* t : {"s16", "u16"})
    list.add(fmt::format("cvt.pack.sat.{}.s32 %d, %a, %b", t), "b32", {"b32", "b32"});
  for (const char* t : {"s8", "u8"})
    list.add(fmt::format("cvt.pack.sat.{}.s32.b32 %d, %a, %b, %c", t), "b32", {"b32", "b32", "b32"});
}

}  // namespace

std::vector<Form> forms() {
  List list;
  integers(list);
  bits(list);
  floats(list);
  halves(list);
  comparisons(list);
  conversions(list);
  add_rarer_forms(list);
  return list.forms;
}

}  // namespace imbrex::conformance
