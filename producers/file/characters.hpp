// UTF-8 in files and class names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace harmonics {

constexpr char convert_to_utf8[] = "convert it, for example with iconv -t UTF-8";

// Reads the character at `at` and advances; empty for invalid UTF-8: overlong forms, surrogates, truncated sequences.
std::optional<char32_t> character_at(std::string_view text, size_t& at);
// For messages: "caf\xE9".
std::string shown_bytes(std::string_view text);

}  // namespace harmonics
