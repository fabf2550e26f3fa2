// Text of other people's making, on its way to a person's terminal: UTF-8 character by character,
// and which characters a reader does not see, or sees elsewhere than they are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dapple {

struct Character {
  char32_t code = 0;
  std::size_t length = 1;  // in bytes
  bool is_valid = true;    // else one byte that begins no character of UTF-8 (RFC 3629)
};

/// The one that the text begins with. Requires: text is not empty. O(1).
Character first_character(std::string_view text);

/// Whether the character is one of C0, C1 or DEL, which terminals obey.
bool is_control(char32_t code);

/// Control characters, line and paragraph separators, what changes the direction of text, and what
/// takes no room of its own on a line: Unicode's Default_Ignorable_Code_Point
/// (DerivedCoreProperties.txt, 15.0) and U+FFF9 to FFFB.
bool is_hidden(char32_t code);

/// The text with a '?' for each character that is_hidden() and each byte that is no UTF-8, so that
/// what is shown is all there is, and moves nothing else on the terminal. O(length).
std::string printable(std::string_view text);

/// JSON text, or a part of it, with an escape in the place of each character that is_hidden()
/// beyond ASCII and of DEL: the same values, all of which are seen. Such characters stand in
/// strings only. O(length).
std::string with_hidden_escaped(std::string_view json);

}  // namespace dapple
