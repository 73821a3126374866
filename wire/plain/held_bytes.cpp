#include "wire/plain/held_bytes.hpp"

#include "wire/plain/record.hpp"

namespace harmonics::plain {

bool LineCutter::next(HeldBytes& held, bool ended, std::string_view& line, bool& longer) {
  const std::string_view rest = held.rest();
  size_t end = rest.find('\n', looked_);
  if (end == std::string_view::npos) {
    looked_ = rest.size();
    if (rest.size() > kMostRecord) held.pass(rest.size()), looked_ = 0, passing_ = true;
    if (!ended || (held.size() == 0 && !passing_)) return false;
    end = held.size();
  }
  longer = std::exchange(passing_, false) || end > kMostRecord;
  line = held.rest().substr(0, end);
  held.pass(std::min(end + 1, held.size()));
  looked_ = 0;
  ++number_;
  return true;
}

}  // namespace harmonics::plain
