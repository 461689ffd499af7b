// The build's tool for .metal sources: headers put in, attributes turned into C++, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "flatten.h"
#include "tokens.h"
#include "translate.h"

namespace lily {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

msl::Translation run(const std::string& text) {
  return msl::translate("# 1 \"k.metal\"\n" + text, msl::Target::kRun, "table");
}

class Flatten : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("msl_test_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_ / "include");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  std::filesystem::path folder_;
};

TEST_F(Flatten, PutsEachHeaderInOnceAndKeepsPlaces) {
  write("a.h", "#pragma once\nstruct A {};\n");
  write("include/b.h", "#include \"a.h\"\nstruct B {};\n");
  write("k.metal", "#include <metal_stdlib>\n#include \"a.h\"\n#include \"b.h\"\nkernel\n");
  std::filesystem::current_path(folder_);
  const auto text = msl::flatten("k.metal", {"include", "."});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text,
            "#line 1 \"k.metal\"\n#include <metal_stdlib>\n"
            "#line 1 \"a.h\"\n\nstruct A {};\n#line 3 \"k.metal\"\n"
            "#line 1 \"include/b.h\"\n#line 2 \"include/b.h\"\nstruct B {};\n#line 4 \"k.metal\"\nkernel\n");
}

TEST_F(Flatten, NamesAHeaderThatIsMissing) {
  write("k.metal", "\n#include \"none.h\"\n");
  const auto text = msl::flatten(folder_ / "k.metal", {});
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, HasSubstr("k.metal:2: error: no header \"none.h\""));
}

TEST(Tokens, KeepEveryByteAndTheirPlaces) {
  const std::string text = "# 7 \"x.metal\"\na[b[0]] [[c]] 1.5e-3f \"]]\"\n";
  std::string joined;
  std::vector<std::string> code;
  for (const msl::Token& token : msl::tokenize(text)) {
    joined += token.text;
    if (!token.is_code()) continue;
    code.emplace_back(token.text);
    EXPECT_EQ(token.line, 7);
    EXPECT_EQ(token.file, "x.metal");
  }
  EXPECT_EQ(joined, text);
  EXPECT_THAT(code, ElementsAre("a", "[", "b", "[", "0", "]", "]", "[[", "c", "]]", "1.5e-3f", "\"]]\""));
}

TEST(Translate, TurnsParametersIntoDefaultArguments) {
  const auto t =
      run("kernel void k(device float* x [[buffer(2)]], threadgroup half* t [[threadgroup(0)]],\n"
          "  uint i [[thread_position_in_grid]]) { x[i] = 1.0f; }\n");
  EXPECT_THAT(t.problems, IsEmpty());
  EXPECT_THAT(t.kernels, ElementsAre("k"));
  EXPECT_THAT(t.text, HasSubstr("void k(device float* x = ::emu::buffer<2>(), "
                                "threadgroup half* t = ::emu::threadgroup_argument<0>(),\n"
                                "  uint i = ::emu::thread_position_in_grid()) { x[i] = 1.0f; }"));
  EXPECT_THAT(t.text, HasSubstr("{\"k\", [] { k(); }, 1024}"));
}

TEST(Translate, ListsInstancesWithTheirLimits) {
  const auto t =
      run("template <int N, typename T>\n"
          "[[kernel, max_total_threads_per_threadgroup(128)]] void k(device T* x [[buffer(0)]]) {}\n"
          "template [[host_name(\"k_4\")]] [[kernel]] decltype(k<4, float>) k<4, float>;\n"
          "[[max_total_threads_per_threadgroup(64)]] kernel void l(device int* x [[buffer(0)]]) {}\n");
  EXPECT_THAT(t.problems, IsEmpty());
  EXPECT_THAT(t.kernels, ElementsAre("k_4", "l"));
  EXPECT_THAT(t.text, HasSubstr("{\"k_4\", [] { k<4, float>(); }, 128}"));
  EXPECT_THAT(t.text, HasSubstr("{\"l\", [] { l(); }, 64}"));
}

TEST(Translate, SharesThreadgroupVariablesButNotPointers) {
  const auto t =
      run("kernel void k(device float* x [[buffer(0)]]) {\n"
          "  threadgroup float a[4][8], b;\n"
          "  threadgroup float* p = a[0];\n"
          "  for (;;) { threadgroup vec<half, 4> c[2]; }\n}\n");
  EXPECT_THAT(t.problems, IsEmpty());
  EXPECT_THAT(t.text, HasSubstr("using msl_type_of_a = float[4][8]; threadgroup msl_type_of_a &a = "));
  EXPECT_THAT(t.text, HasSubstr("using msl_type_of_b = float; "));
  EXPECT_THAT(t.text, HasSubstr("  threadgroup float* p = a[0];\n"));
  EXPECT_THAT(t.text, HasSubstr("using msl_type_of_c = vec<half, 4>[2]; "));
}

TEST(Translate, ReadsFunctionConstantsFromThePipeline) {
  const std::string source =
      "constant uint FC_n [[function_constant(3)]];\nconstant uint FC_m = FC_n * 2;\nconstant float kPi = "
      "3.0f;\n"
      "kernel void k(device uint* x [[buffer(0)]]) { if (is_function_constant_defined(FC_n)) x[0] = FC_m; "
      "}\n";
  const auto t = run(source);
  EXPECT_THAT(t.problems, IsEmpty());
  EXPECT_THAT(t.text, HasSubstr("#define FC_n (::emu::function_constant<uint>(3, \"FC_n\"))"));
  EXPECT_THAT(t.text, HasSubstr("#define FC_m (uint(FC_n * 2))"));
  EXPECT_THAT(t.text, HasSubstr("constant float kPi = 3.0f;"));
  EXPECT_THAT(t.text, HasSubstr("if (::emu::function_constant_is_set(3))"));
  const auto check = msl::translate(source, msl::Target::kCheck, "");
  EXPECT_THAT(check.text, HasSubstr("constant uint FC_n = uint(1);"));
  EXPECT_THAT(check.text, Not(HasSubstr("emu")));
}

TEST(Translate, KeepsTheLines) {
  const std::string source =
      "kernel void k(\n  device float* x\n    [[buffer(0)]]) {\n  threadgroup\n  float t;\n}\nint last;";
  const std::string text = run(source).text;
  const std::string start = text.substr(0, text.find("int last"));
  EXPECT_EQ(std::count(start.begin(), start.end(), '\n'), 3 + 6) << text;
}

TEST(Translate, RefusesWhatIsNotMetal) {
  const auto problem = [](const std::string& source) {
    const auto t = run(source);
    return t.problems.empty() ? "" : t.problems[0];
  };
  EXPECT_EQ(problem("\ndouble d;"), "k.metal:2: error: 'double' is not Metal");
  EXPECT_EQ(problem("struct S { virtual void f(); };"), "k.metal:1: error: 'virtual' is not Metal");
  EXPECT_EQ(problem("[[unheard_of]] int x;"), "k.metal:1: error: unknown attribute [[unheard_of]]");
  EXPECT_EQ(problem("kernel int k() {}"), "k.metal:1: error: expected `kernel void name(...)`");
  EXPECT_EQ(problem("kernel void k(uint i) {}"), "k.metal:1: error: kernel k: no attribute on 'uint i'");
  EXPECT_EQ(problem("kernel void k(float* x [[buffer(0)]]) {}"),
            "k.metal:1: error: kernel k: no address space in 'float* x'");
  EXPECT_EQ(problem("kernel void k(uint i [[thread_number]]) {}"),
            "k.metal:1: error: kernel k: unknown attribute on 'uint i'");
  EXPECT_EQ(problem("namespace n { kernel void k() {} }"),
            "k.metal:1: error: a kernel has to be in the global namespace");
  EXPECT_EQ(problem("void f() { threadgroup float t[2]; }"),
            "k.metal:1: error: threadgroup variable outside a kernel's body");
  EXPECT_EQ(problem("template [[host_name(\"x\")]] [[kernel]] void k<int>(device int* x [[buffer(0)]]);"),
            "k.metal:1: error: expected `template [[host_name(\"x\")]] [[kernel]] decltype(f<...>) f<...>;`");
  EXPECT_EQ(problem("template [[host_name(\"x\")]] [[kernel]] decltype(k<int>) k<float>;"),
            "k.metal:1: error: decltype(k<int>) declares another function: k<float>");
}

}  // namespace
}  // namespace lily
