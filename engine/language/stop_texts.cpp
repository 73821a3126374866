#include "engine/language/stop_texts.hpp"

#include <algorithm>
#include <utility>

namespace harmonics::engine {

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const std::string& text) { return text.empty(); });
}

std::string StopTexts::push(const std::string& more) {
  if (found_) return "";
  held_ += more;
  size_t first = std::string::npos;
  for (const std::string& text : texts_) first = std::min(first, held_.find(text));
  if (first != std::string::npos) {
    found_ = true;
    return std::exchange(held_, "").substr(0, first);
  }
  size_t kept = 0;  // bytes at the end that may start a stop string
  for (const std::string& text : texts_)
    for (size_t length = std::min(text.size() - 1, held_.size()); length > kept; --length)
      if (held_.compare(held_.size() - length, length, text, 0, length) == 0) {
        kept = length;
        break;
      }
  std::string sure = held_.substr(0, held_.size() - kept);
  held_.erase(0, sure.size());
  return sure;
}

std::string StopTexts::finish() { return found_ ? "" : std::exchange(held_, ""); }

}  // namespace harmonics::engine
