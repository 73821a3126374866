// The sample type of a live stream as a line of text, for the option `type` of live producers and for storage by hosts.
#pragma once

#include <charconv>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

namespace detail {
inline constexpr const char* kAnnouncedTypes[] = {"bool", "u8",  "i8",  "i16",  "u16", "i32", "u32",
                                                  "i64",  "u64", "f16", "bf16", "f32", "f64"};
}

// Returns "u8:28x28", "f32", or "i64<10" with classes. Returns "" for streams with symbols or positions, which this
// form cannot express.
HARMONICS_FACE inline std::string announced_text(const StreamInfo& info) {
  if (info.position_axes > 0 || !info.symbols.empty()) return "";
  std::string text = detail::kAnnouncedTypes[static_cast<size_t>(info.dtype)];
  for (uint32_t i = 0; i < info.sample.rank(); ++i) text += (i ? "x" : ":") + std::to_string(info.sample[i]);
  return info.classes > 0 ? text + "<" + std::to_string(info.classes) : text;
}

// Parses the result of announced_text; nullopt for other texts.
HARMONICS_FACE inline std::optional<StreamInfo> read_announced(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1) return std::nullopt;
    return value;
  };
  StreamInfo info;
  info.live = true;
  if (const size_t less = text.find('<'); less != std::string_view::npos) {
    const auto classes = number(text.substr(less + 1));
    if (!classes) return std::nullopt;
    info.classes = *classes;
    text = text.substr(0, less);
  }
  std::vector<int64_t> dims;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    std::string_view rest = text.substr(colon + 1);
    for (bool more = true; more;) {
      const size_t x = rest.find('x');
      more = x != std::string_view::npos;
      const auto dim = number(rest.substr(0, x));
      if (!dim || dims.size() == HX_MAX_RANK) return std::nullopt;
      dims.push_back(*dim);
      if (more) rest = rest.substr(x + 1);
    }
    text = text.substr(0, colon);
  }
  info.sample = Shape(dims);
  for (size_t i = 0; i < std::size(detail::kAnnouncedTypes); ++i)
    if (text == detail::kAnnouncedTypes[i]) return info.dtype = static_cast<DType>(i), info;
  return std::nullopt;
}

}  // namespace harmonics
