// What a terminal is shown of text that others made.
#include <catch2/catch.hpp>
#include <string>

#include "dapple/core/characters.h"

using namespace dapple;

TEST_CASE("what a reader does not see is a question mark") {
  CHECK(printable("a\x1b[31mb\n") == "a?[31mb?");
  CHECK(printable("\x7f") == "?");
  CHECK(printable("a\u009Bb") == "a?b");
  for (const char* hidden :
       {"\u00AD", "\u061C", "\u200B", "\u200F", "\u2028", "\u202E", "\u2060", "\u2066", "\u3164",
        "\uFE0F", "\uFEFF", "\uFFFE", "\uFFFF", "\U000E0041"}) {
    INFO(hidden);
    CHECK(printable(std::string("a") + hidden + "b") == "a?b");
  }
  CHECK(printable("größe 模型 😀 \u00A0\u200A\u2010\u2027\u202F\u2070") ==
        "größe 模型 😀 \u00A0\u200A\u2010\u2027\u202F\u2070");
  CHECK(printable("") == "");
}

TEST_CASE("hidden characters of JSON are escaped, and nothing else") {
  CHECK(with_hidden_escaped("{\n \"a\": \"模型 é 😀\"\n}") == "{\n \"a\": \"模型 é 😀\"\n}");
  CHECK(with_hidden_escaped("\u202e|\u200b|\ufeff|\x7f|\u0085") ==
        "\\u202e|\\u200b|\\ufeff|\\u007f|\\u0085");
  CHECK(with_hidden_escaped("\U000e0041") == "\\udb40\\udc41");
  CHECK(with_hidden_escaped("a\x80z\xff") == "a\x80z\xff");
  CHECK(with_hidden_escaped("").empty());
}

TEST_CASE("each byte that is no UTF-8 is a question mark") {
  CHECK(printable("\xff") == "?");
  CHECK(printable("a\x80z") == "a?z");
  CHECK(printable("\xc3") == "?");
  CHECK(printable("\xe2\x82") == "??");
  CHECK(printable("\xe2\x82z") == "??z");
  CHECK(printable("\xc0\xaf") == "??");            // longer than need be
  CHECK(printable("\xe0\x80\xaf") == "???");       // likewise
  CHECK(printable("\xed\xa0\x80") == "???");       // half of a pair
  CHECK(printable("\xf4\x90\x80\x80") == "????");  // beyond U+10FFFF
  CHECK(printable("\xf5\x80\x80\x80") == "????");
  CHECK(printable("\xf4\x8f\xbf\xbd") == "\xf4\x8f\xbf\xbd");
}

TEST_CASE("characters have the length and the number of their bytes") {
  CHECK(first_character("é").code == 0xE9);
  CHECK(first_character("é").length == 2);
  CHECK(first_character("模型").code == 0x6A21);
  CHECK(first_character("😀").code == 0x1F600);
  CHECK(first_character("😀").length == 4);
  CHECK_FALSE(first_character("\xf0\x9f\x98").is_valid);
  CHECK(is_control(0x9F));
  CHECK_FALSE(is_control(0xA0));
  CHECK_FALSE(is_control(0x202E));
}
