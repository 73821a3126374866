// Text that arrives in pieces which may end inside a character.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::engine {

// Gives out whole UTF-8 characters only and keeps the beginning of an unfinished one, at most 3 bytes. Bytes that
// cannot be part of a character become U+FFFD.
class WholeCharacters {
 public:
  // Returns the characters that are complete with these bytes.
  std::string push(std::string_view bytes);
  // Returns U+FFFD for an unfinished character, "" if there is none. The next text starts anew.
  std::string finish();
  bool unfinished() const { return !rest_.empty(); }

 private:
  std::string rest_;
};

}  // namespace harmonics::engine
