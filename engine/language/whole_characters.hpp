// WholeCharacters: assembles text from pieces that may end inside a character.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::engine {

// Returns complete UTF-8 characters only and holds back an incomplete one, at most 3 bytes. Bytes that cannot be part
// of a character become U+FFFD.
class WholeCharacters {
 public:
  // Adds bytes and returns the characters that are complete.
  std::string push(std::string_view bytes);
  // Returns U+FFFD for an incomplete character, otherwise "". The object can then be used for another text.
  std::string finish();
  bool unfinished() const { return !rest_.empty(); }

 private:
  std::string rest_;
};

}  // namespace harmonics::engine
