// SPDX-License-Identifier: Apache-2.0
// Scalar forms met less often: carry chains, packed 16-bit integers, comparisons with booleans and of every
// type, and modifiers in combination. %r0 ..., %rd0 ... and %p0 ... are free for use.
#include "scalar_form_list.h"

namespace imbrex::conformance {
namespace {

void carries(List& list) {
  list.family("integer");
  for (const std::string t : {"u32", "s32", "u64", "s64"}) {
    const std::string b = bits_of(t), r = b == "b64" ? "%rd" : "%r";
    list.add(fmt::format("add.cc.{0} {1}0, %a, %b; addc.{0} %d, %c, {1}0", t, r), b, {b, b, b});
    list.add(fmt::format("add.cc.{0} {1}0, %a, %b; addc.cc.{0} {1}1, %b, %c; addc.{0} %d, {1}1, 0", t, r), b,
             {b, b, b});
    list.add(fmt::format("sub.cc.{0} {1}0, %a, %b; subc.{0} %d, %c, {1}0", t, r), b, {b, b, b});
    list.add(fmt::format("sub.cc.{0} {1}0, %a, %b; subc.cc.{0} {1}1, %b, %c; subc.{0} %d, {1}1, 0", t, r), b,
             {b, b, b});
    for (const char* half : {"lo", "hi"}) {
      list.add(fmt::format("mad.{0}.cc.{1} {2}0, %a, %b, %c; addc.{1} %d, {2}0, 0", half, t, r), b,
               {b, b, b});
      list.add(fmt::format("add.cc.{1} {2}0, %a, %b; madc.{0}.{1} %d, %a, %b, %c", half, t, r), b, {b, b, b});
      list.add(fmt::format("add.cc.{1} {2}0, %a, %b; madc.{0}.cc.{1} {2}1, %a, %b, %c; addc.{1} %d, {2}1, 0",
                           half, t, r),
               b, {b, b, b});
    }
  }
  list.add("mad24.hi.sat.s32 %d, %a, %b, %c", "b32", {"b32", "b32", "b32"});
  list.add("mad24.lo.u32 %d, %a, %b, %c", "b32", {"b32", "b32", "b32"});
  list.add("mad24.hi.s32 %d, %a, %b, %c", "b32", {"b32", "b32", "b32"});
  for (const char* t : {"u16x2", "s16x2"})
    for (const char* op : {"add", "min", "max"})
      list.add(fmt::format("{}.{} %d, %a, %b", op, t), "b32", {"b32", "b32"});
  for (const char* op : {"min", "max"})
    for (const char* t : {"s16x2", "s32"})
      list.add(fmt::format("{}.relu.{} %d, %a, %b", op, t), "b32", {"b32", "b32"});
  for (const char* b : {"b16", "b32", "b64"}) list.add(fmt::format("shr.{} %d, %a, %b", b), b, {b, "b32"});
  list.family("bits");
  list.add("and.b32 %r0, %b, 31; bfe.s32 %r1, %c, 0, 6; fns.b32 %d, %a, %r0, %r1", "b32",
           {"b32", "b32", "b32"});
  for (const char* op : {"or", "and"}) {
    list.add(fmt::format("setp.lt.s32 %p0, %c, 0; lop3.{}.b32 %r0|%d, %a, %b, %c, 0x96, %p0", op), "pred",
             {"b32", "b32", "b32"});
    list.add(fmt::format("setp.lt.s32 %p0, %c, 0; lop3.{}.b32 _|%d, %a, %b, %c, 0x40, !%p0", op), "pred",
             {"b32", "b32", "b32"});
  }
  // Every table of lop3, 16 to a form: each result is folded into one.
  for (int first = 0; first < 256; first += 16) {
    std::string text = "mov.b32 %d, 0";
    for (int table = first; table < first + 16; ++table)
      text += fmt::format("; lop3.b32 %r0, %a, %b, %c, {}; mad.lo.u32 %d, %d, 1664525, %r0", table);
    list.add(text, "b32", {"b32", "b32", "b32"});
  }
  for (const std::string d : {"u32", "s32"})
    for (const std::string a : {"u32", "s32"}) {
      for (const char* half : {"lo", "hi"})
        list.add(fmt::format("dp2a.{}.{}.{} %d, %a, %b, %c", half, d, a), "b32", {"b32", "b32", "b32"});
      list.add(fmt::format("dp4a.{}.{} %d, %a, %b, %c", d, a), "b32", {"b32", "b32", "b32"});
    }
}

void floats(List& list) {
  list.family("float32");
  for (const char* r : {"rn", "rz", "rm", "rp"}) {
    list.each({"", ".ftz", ".sat", ".ftz.sat"}, fmt::format("mad.{}{{}}.f32 %d, %a, %b, %c", r), "f32",
              {"f32", "f32", "f32"});
    list.family("float64");
    list.add(fmt::format("mad.{}.f64 %d, %a, %b, %c", r), "f64", {"f64", "f64", "f64"});
    list.family("float32");
  }
  for (const char* r : {"rn", "rz", "rm", "rp"}) {
    list.each({"", ".ftz"}, fmt::format("div.{}{{}}.f32 %d, %a, %b", r), "f32", {"f32", "f32"},
              "quotient edge");
    list.each({"", ".ftz"}, fmt::format("rcp.{}{{}}.f32 %d, %a", r), "f32", {"f32"}, "reciprocal edge");
  }
  list.each({"div.approx.ftz", "div.full.ftz"}, "{}.f32 %d, %a, %b", "f32", {"f32", "f32"}, "quotient edge");
  list.add("rcp.approx.ftz.f32 %d, %a", "f32", {"f32"}, "reciprocal edge");
  for (const char* op : {"add", "sub", "mul"})
    list.add(fmt::format("{}.f32 %d, %a, %b", op), "f32", {"f32", "f32"});
  list.family("float64");
  for (const char* op : {"add", "sub", "mul"})
    list.add(fmt::format("{}.f64 %d, %a, %b", op), "f64", {"f64", "f64"});
  list.add("rsqrt.approx.f64 %d, %a", "f64", {"f64"});
}

void halves(List& list) {
  list.family("half");
  for (const std::string t : {"f16", "f16x2", "bf16", "bf16x2"}) {
    const std::string b = t.ends_with("x2") ? "b32" : "b16", values = t.starts_with("bf16") ? "bf16" : "f16";
    list.each({"", ".relu"}, fmt::format("fma.rn.oob{{}}.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
    for (const char* op : {"min", "max"})
      list.add(fmt::format("{}.NaN.xorsign.abs.{} %d, %a, %b", op, t), b, {b, b}, values);
    if (values == "bf16") continue;
    for (const char* op : {"min", "max"})
      list.each({".ftz", ".ftz.NaN", ".ftz.xorsign.abs", ".ftz.NaN.xorsign.abs"},
                fmt::format("{}{{}}.{} %d, %a, %b", op, t), b, {b, b}, values);
    list.each({"abs.ftz", "neg.ftz"}, fmt::format("{{}}.{} %d, %a", t), b, {b}, values);
    list.add(fmt::format("fma.rn.ftz.sat.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
    list.add(fmt::format("fma.rn.ftz.relu.{} %d, %a, %b, %c", t), b, {b, b, b}, values);
  }
}

void comparisons(List& list) {
  list.family("comparison");
  const Strings ordered{"eq", "ne", "lt", "le", "gt", "ge"},
      unordered{"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (const char* c : {"lo", "ls", "hi", "hs"})
    for (const char* t : {"u16", "u32", "u64"}) {
      list.add(fmt::format("setp.{}.{} %d, %a, %b", c, t), "pred", {bits_of(t), bits_of(t)});
      list.add(fmt::format("set.{}.u32.{} %d, %a, %b", c, t), "b32", {bits_of(t), bits_of(t)});
    }
  for (const char* b : {"b16", "b32", "b64"})
    for (const char* c : {"eq", "ne"}) {
      list.add(fmt::format("setp.{}.{} %d, %a, %b", c, b), "pred", {b, b});
      list.add(fmt::format("set.{}.s32.{} %d, %a, %b", c, b), "b32", {b, b});
    }
  for (const Strings& group : {ordered, unordered})
    for (const std::string& c : group) {
      for (const char* t : {"s16", "u16", "s32", "u32", "s64", "u64"})
        if (group.size() == ordered.size()) {
          list.add(fmt::format("set.{}.u32.{} %d, %a, %b", c, t), "b32", {bits_of(t), bits_of(t)});
          list.add(fmt::format("set.{}.f32.{} %d, %a, %b", c, t), "f32", {bits_of(t), bits_of(t)});
        }
      for (const char* t : {"f32", "f64"})
        list.each({"u32", "s32", "f32"}, fmt::format("set.{}.{{}}.{} %d, %a, %b", c, t), "b32", {t, t});
      for (const char* t : {"f16", "bf16"}) {
        for (const char* d : {"u16", "s16", "u32", "s32", t})
          list.add(fmt::format("set.{}.{}.{} %d, %a, %b", c, d, t),
                   bits_of(d) == "b16" || std::string(d) == t ? "b16" : "b32", {"b16", "b16"}, t);
        for (const char* d : {"u32", "s32"})
          list.add(fmt::format("set.{0}.{1}.{2}x2 %d, %a, %b", c, d, t), "b32", {"b32", "b32"}, t);
        list.add(fmt::format("set.{0}.{1}x2.{1}x2 %d, %a, %b", c, t), "b32", {"b32", "b32"}, t);
        list.add(fmt::format("setp.{0}.{1}x2 %p0|%p1, %a, %b; selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 2, 0, "
                             "%p1; add.u32 %d, %r0, %r1",
                             c, t),
                 "b32", {"b32", "b32"}, t);
      }
    }
  for (const char* boolean : {"and", "or", "xor"}) {
    list.add(fmt::format("setp.gt.s32 %p0, %c, 5; set.lt.{}.u32.s32 %d, %a, %b, %p0", boolean), "b32",
             {"b32", "b32", "b32"});
    list.add(fmt::format("setp.gt.s32 %p0, %c, 5; set.geu.{}.ftz.f32.f32 %d, %a, %b, !%p0", boolean), "f32",
             {"f32", "f32", "b32"});
    list.add(fmt::format("setp.gt.s32 %p0, %c, 5; set.lt.{}.f16x2.f16x2 %d, %a, %b, %p0", boolean), "b32",
             {"b32", "b32", "b32"}, "f16");
    list.add(fmt::format("setp.gt.s32 %p0, %c, 5; setp.gtu.{}.ftz.f32 %d, %a, %b, %p0", boolean), "pred",
             {"f32", "f32", "b32"});
    list.add(fmt::format("setp.gt.s32 %p0, %c, 5; setp.le.{}.u64 %d, %a, %b, !%p0", boolean), "pred",
             {"b64", "b64", "b32"});
  }
  for (const char* t : {"f16", "f16x2"}) {
    const std::string b = std::string(t) == "f16" ? "b16" : "b32";
    list.add(fmt::format("set.gt.ftz.u32.{} %d, %a, %b", t), "b32", {b, b}, "f16");
  }
  for (const char* t : {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"}) {
    const std::string name = t, b = name[0] == 'f' ? name : bits_of(t);
    list.add(fmt::format("slct.{}.s32 %d, %a, %b, %c", t), b, {b, b, "b32"});
    list.add(fmt::format("slct.{}.f32 %d, %a, %b, %c", t), b, {b, b, "f32"});
    list.add(fmt::format("slct.ftz.{}.f32 %d, %a, %b, %c", t), b, {b, b, "f32"});
  }
}

void conversions(List& list) {
  list.family("conversion");
  for (const char* t : {"s4", "u4", "s2", "u2"})
    list.add(fmt::format("cvt.pack.sat.{}.s32.b32 %d, %a, %b, %c", t), "b32", {"b32", "b32", "b32"});
  list.each({"rn", "rz", "rm", "rp", "rn.sat"}, "cvt.{}.f16.f64 %d, %a", "b16", {"f64"});
  list.each({"rn.relu", "rn.satfinite", "rz.relu", "rn.relu.satfinite"}, "cvt.{}.f16.f32 %d, %a", "b16",
            {"f32"});
  list.each({"rn.relu.satfinite", "rz.relu.satfinite", "rz.satfinite"}, "cvt.{}.f16x2.f32 %d, %a, %b", "b32",
            {"f32", "f32"});
  list.each({"rn.relu.satfinite", "rz.relu.satfinite", "rz.satfinite"}, "cvt.{}.bf16x2.f32 %d, %a, %b", "b32",
            {"f32", "f32"});
  list.each({"rn.relu.satfinite", "rz.satfinite", "rz.relu"}, "cvt.{}.bf16.f32 %d, %a", "b16", {"f32"});
  list.each({"rz.relu"}, "cvt.{}.tf32.f32 %d, %a", "b32", {"f32"});
  list.each({"cvt.ftz.f64.f32", "cvt.sat.f64.f32", "cvt.ftz.sat.f64.f32"}, "{} %d, %a", "f64", {"f32"});
  list.each({"cvt.sat.f32.f16", "cvt.ftz.f32.f16"}, "{} %d, %a", "f32", {"b16"}, "f16");
  // bf16 and everything else.
  list.each({"rn", "rz", "rm", "rp"}, "cvt.{}.bf16.f16 %d, %a", "b16", {"b16"}, "f16");
  list.each({"rn", "rz", "rm", "rp"}, "cvt.{}.f16.bf16 %d, %a", "b16", {"b16"}, "bf16");
  list.add("cvt.f64.bf16 %d, %a", "f64", {"b16"}, "bf16");
  list.each({"rn", "rz", "rm", "rp"}, "cvt.{}.bf16.f64 %d, %a", "b16", {"f64"});
  list.each({"rni", "rzi", "rmi", "rpi"}, "cvt.{}.bf16.bf16 %d, %a", "b16", {"b16"}, "bf16");
  for (const char* i : {"s16", "u16", "s32", "u32", "s64", "u64"}) {
    list.each({"rn", "rz", "rm", "rp"}, fmt::format("cvt.{{}}.bf16.{} %d, %a", i), "b16", {bits_of(i)});
    list.each({"rni", "rzi", "rmi", "rpi"}, fmt::format("cvt.{{}}.{}.bf16 %d, %a", i), bits_of(i), {"b16"},
              "bf16");
  }
}

}  // namespace

void add_rarer_forms(List& list) {
  carries(list);
  floats(list);
  halves(list);
  comparisons(list);
  conversions(list);
}

}  // namespace imbrex::conformance
