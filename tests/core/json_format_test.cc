// How values are written. The expectations of kPythonDoubles were printed by CPython 3 with
// json.dumps(value, ensure_ascii=False) for doubles chosen by hand and by random.seed(7).
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include "core/json.h"

namespace minke {
namespace {

struct PythonDouble {
  uint64_t bits;
  const char* text;
};
constexpr PythonDouble kPythonDoubles[] = {
    {0x0000000000000000, "0.0"},
    {0x8000000000000000, "-0.0"},
    {0x3FF0000000000000, "1.0"},
    {0xBFF0000000000000, "-1.0"},
    {0x3FB999999999999A, "0.1"},
    {0x3FE0000000000000, "0.5"},
    {0x3FF8000000000000, "1.5"},
    {0x4059000000000000, "100.0"},
    {0x430C6BF526340000, "1000000000000000.0"},
    {0x4341C37937E08000, "1e+16"},
    {0x4341C37937E07FFF, "9999999999999998.0"},
    {0x437B69B4BA630F35, "1.2345678901234568e+17"},
    {0x4376345785D8A000, "1e+17"},
    {0x4480F0CF064DD592, "1e+22"},
    {0x44B52D02C7E14AF6, "1e+23"},
    {0x7FEFFFFFFFFFFFFF, "1.7976931348623157e+308"},
    {0x0000000000000001, "5e-324"},
    {0x0010000000000000, "2.2250738585072014e-308"},
    {0x3F1A36E2EB1C432D, "0.0001"},
    {0x3EE4F8B588E368F1, "1e-05"},
    {0x3F202E4B6CE5DC68, "0.00012345"},
    {0x3F1A36D1BD105B06, "9.9999e-05"},
    {0x3E7AD7F29ABCAF48, "1e-07"},
    {0x3DDB7CDFD9D7BDBB, "1e-10"},
    {0x400921FB54442D18, "3.141592653589793"},
    {0x3FE5555555555555, "0.6666666666666666"},
    {0x3FD5555555555555, "0.3333333333333333"},
    {0x3FD3333333333334, "0.30000000000000004"},
    {0x4170000010000000, "16777217.0"},
    {0x4330000000000000, "4503599627370496.0"},
    {0x4340000000000000, "9007199254740992.0"},
    {0x54B249AD2594C37D, "1e+100"},
    {0x7E41EB2D66005835, "1.5e+300"},
    {0xBEFA36E2EB1C432D, "-2.5e-05"},
    {0x40C81CD6C8B43958, "12345.678"},
    {0x444B1AE4D6E2EF50, "1e+21"},
    {0xF2A74DE452E6B438, "-1.989032661366619e+244"},
    {0x6513270E269E0D37, "7.761117632285041e+178"},
    {0x0C5C7FD0A6A3A450, "3.980498358697587e-249"},
    {0xD23F0824128B2F33, "-1.5432835417340557e+88"},
    {0x1818E811892F902B, "1.3647584518757569e-192"},
    {0x9531985D5D9DC9F8, "-1.3701135617873088e-206"},
    {0xE8E25D940ED90475, "-1.7160537630466207e+197"},
    {0x36F675CC81E74EF5, "6.294675241195386e-44"},
    {0x1600A35A099950D8, "1.0613447212142254e-202"},
    {0x6B0D549B6F03675A, "4.708325160387546e+207"},
    {0x3D9C172411E20B8F, "6.387016158513563e-12"},
    {0x8D116ECE1738F7D9, "-9.973130378568733e-246"},
    {0x0F21DDB66CAD4A26, "8.779753225680271e-236"},
    {0x90C192CFD3AC94AF, "-5.795503248498993e-228"},
    {0xF28C105D1FB17C23, "-5.988180159386011e+243"},
    {0xA170B33839263059, "-1.306052388527796e-147"},
    {0x953F48F1A09F76B5, "-2.436117699484841e-206"},
    {0x0FD630F1F29D0DA9, "2.233386999150174e-232"},
    {0x95E60AF593BD04CF, "-3.51527970626667e-203"},
    {0x0CB1E29C658CDA14, "1.5987381841032883e-247"},
    {0x3898D190F9EBDACC, "4.6678633181812096e-36"},
    {0x8E81973E0BECD7B0, "-8.441872792105456e-239"},
    {0x2217BEADDBC496CB, "1.9015657400796622e-144"},
    {0x6B4CB2424A23D596, "7.370437700706684e+208"},
    {0xBF475068C85EE648, "-0.000711489833285125"},
    {0x420A6ADB404AC668, "14182737929.346878"},
    {0x3FB02F880AC3CB10, "0.06322527182400628"},
    {0xC2671AEE49D11A27, "-793888575112.8173"},
    {0x40DB21AC66FA31A3, "27782.69378523681"},
    {0xC33C9AB1F64E2B75, "-8051388480105333.0"},
    {0xBEE2568483B7B253, "-8.744220500533537e-06"},
    {0x41AC5FC4E4B1B81B, "238019186.34710774"},
    {0x414B86DFBB586A4C, "3607999.4636357184"},
    {0x418A7047D7F82378, "55445754.9961614"},
    {0x417051D34B397528, "17112372.701527745"},
    {0xC00625963201316A, "-2.7683528811086733"},
    {0x4334EABB4881989F, "5887589630449823.0"},
    {0x3F0D579E9432A471, "5.596592611684874e-05"},
    {0x41D62E14174B1951, "1488474205.1734202"},
    {0xC0586B0F4D0A0049, "-97.6728088948886"},
};

TEST(JsonFormat, DoublesAreThoseOfPython) {
  for (const PythonDouble& expected : kPythonDoubles) {
    const auto value = std::bit_cast<double>(expected.bits);
    EXPECT_EQ(DumpJson(value, JsonStyle::kPython), expected.text);
    EXPECT_EQ(DumpJson(value, JsonStyle::kCompact), expected.text);
    // And they read back as the same bits.
    const auto parsed = ParseJson(expected.text, "number");
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(std::bit_cast<uint64_t>(parsed->as_double()), expected.bits) << expected.text;
    EXPECT_FALSE(parsed->is_integer()) << expected.text;
  }
}

TEST(JsonFormat, ValuesThatAreNoNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(DumpJson(infinity, JsonStyle::kPython), "Infinity");
  EXPECT_EQ(DumpJson(-infinity, JsonStyle::kPython), "-Infinity");
  EXPECT_EQ(DumpJson(std::numeric_limits<double>::quiet_NaN(), JsonStyle::kPython), "NaN");
  EXPECT_EQ(DumpJson(infinity, JsonStyle::kCompact), "null");
}

TEST(JsonFormat, IntegersKeepTheirDigits) {
  EXPECT_EQ(DumpJson(std::numeric_limits<int64_t>::min(), JsonStyle::kPython),
            "-9223372036854775808");
  EXPECT_EQ(DumpJson(std::numeric_limits<uint64_t>::max(), JsonStyle::kPython),
            "18446744073709551615");
  EXPECT_EQ(DumpJson(0, JsonStyle::kPython), "0");
}

TEST(JsonFormat, StringsEscapeWhatPythonEscapes) {
  const std::string text = std::string("a\"\\/\b\f\n\r\t") + '\0' + "\x01\x1f\x7f <&> \u00e9\u2028";
  EXPECT_EQ(DumpJson(text, JsonStyle::kPython),
            "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u0001\\u001f\x7f <&> \u00e9\u2028\"");
}

TEST(JsonFormat, TheThreeStyles) {
  const auto json = ParseJson(R"({"a":[1,2.0,{"b":null}],"c":{},"d":[],"e":[true,false]})", "text");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(DumpJson(*json, JsonStyle::kCompact),
            R"({"a":[1,2.0,{"b":null}],"c":{},"d":[],"e":[true,false]})");
  EXPECT_EQ(DumpJson(*json, JsonStyle::kPython),
            R"({"a": [1, 2.0, {"b": null}], "c": {}, "d": [], "e": [true, false]})");
  EXPECT_EQ(DumpJson(*json, JsonStyle::kPretty), R"({
  "a": [
    1,
    2.0,
    {
      "b": null
    }
  ],
  "c": {},
  "d": [],
  "e": [
    true,
    false
  ]
})");
}

TEST(JsonFormat, WhatIsWrittenIsReadBack) {
  const std::string text =
      R"({"k":[-1,18446744073709551615,0.1,"\u0001\\",{"x":[[],{}]}],"\n":null})";
  for (const JsonStyle style : {JsonStyle::kCompact, JsonStyle::kPython, JsonStyle::kPretty}) {
    const auto first = ParseJson(text, "text");
    ASSERT_TRUE(first.has_value());
    const auto second = ParseJson(DumpJson(*first, style), "text");
    ASSERT_TRUE(second.has_value()) << second.error().message;
    EXPECT_EQ(DumpJson(*second, JsonStyle::kCompact), text);
  }
}

}  // namespace
}  // namespace minke
