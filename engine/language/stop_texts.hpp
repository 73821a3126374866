// StopTexts: stop strings of a generated text. Holds back text that may be the start of a stop string.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

class StopTexts {
 public:
  // Ignores empty strings.
  explicit StopTexts(std::vector<std::string> texts);
  // Adds text. Returns the text that precedes any stop string for certain, and nothing after one was found.
  std::string push(const std::string& more);
  // Ends the text and returns the text held back.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace harmonics::engine
