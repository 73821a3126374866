// Texts that end a generated text. What may become one of them is held back.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

class StopTexts {
 public:
  // Empty texts are ignored.
  explicit StopTexts(std::vector<std::string> texts);
  // Takes more text and returns what is certain to be before any stop text; nothing once one was found.
  std::string push(const std::string& more);
  // The text ends: returns what was held back.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace harmonics::engine
