#include "cli/unfinished.h"

#include <gtest/gtest.h>

namespace atl::cli {
namespace {

void expect(std::string_view language, bool unfinished, std::string_view text) {
  EXPECT_EQ(is_unfinished(*find_language(language), text), unfinished) << language << ": " << text;
}

TEST(Unfinished, Python) {
  for (const char* text : {"x = 1", "", "   ", "print('if a:')", "x = 1 # if:", "d = {'a': 1}",
                           "foo(\n1)", "if x:\n  y\n", "s = 'it''s'", "@f\ndef g(): pass\n",
                           "s = 'never closed", "x[1:]", "'''a\nb'''"})
    expect("python", false, text);
  for (const char* text : {"if x:", "if x:\n  y", "if x: # why", "foo(", "foo([1,\n2]", "'''a\nb",
                           "x = \\", "@f", "def f(a,\n b):", "d = {"})
    expect("python", true, text);
}

TEST(Unfinished, JavaScript) {
  for (const char* text : {"f(1)", "`a${1}b`", "a // {", "/* ( */ 1", "'('"})
    expect("javascript", false, text);
  for (const char* text : {"function f() {", "`a", "/* (", "[1,", "f({a: 1}"})
    expect("ts", true, text);
}

TEST(Unfinished, Bash) {
  for (const char* text : {"ls", "if a; then b; fi", "for i in 1 2; do echo $i; done", "echo 'a b'",
                           "a # 'b", "case x in x) y;; esac"})
    expect("bash", false, text);
  for (const char* text : {"if a; then", "for i in 1 2", "for i in 1 2; do", "echo 'a", "echo \\",
                           "f() {", "while true\ndo\nls"})
    expect("bash", true, text);
}

TEST(Unfinished, JavaAndR) {
  expect("java", true, "int f() {");
  expect("java", false, "int x = 1;");
  expect("r", true, "f <- function(x) {");
  expect("r", false, "x <- c(1, 2) # (");
}

TEST(Language, NamesAndFiles) {
  EXPECT_EQ(find_language("JS")->name, "javascript");
  EXPECT_EQ(find_language("cobol"), nullptr);
  EXPECT_EQ(find_language(""), nullptr);
  EXPECT_EQ(language_of_file("a/b.R")->name, "r");
  EXPECT_EQ(language_of_file("a.txt"), nullptr);
}

}  // namespace
}  // namespace atl::cli
