// Returns an error's message with its notes, one per line.
#pragma once

#include <functional>
#include <string>

#include <harmonics/error.hpp>

namespace harmonics {

inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    std::string s = e.what();
    for (const std::string& note : e.notes()) s += "\n" + note;
    return s;
  }
  return "no error";
}

}  // namespace harmonics
