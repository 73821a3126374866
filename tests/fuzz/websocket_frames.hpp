// The server's reaction to frames that RFC 6455 requires, and a parser of the server's frames, written from the
// standard for comparison.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/utf8.hpp"

namespace harmonics::engine::testing::websocket {

enum Code : unsigned { kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

struct Frame {
  bool final = false, masked = false;
  unsigned reserved = 0, code = 0, coded = 0;  // coded: the seven bits of the length
  uint64_t length = 0;
  std::string payload;  // the available part, unmasked
  bool is_control() const { return code >= kClose; }
  bool is_whole() const { return payload.size() == length; }
};

// Returns the frame that `bytes` start with, and removes it; none: its head is incomplete.
inline std::optional<Frame> take_frame(std::string_view& bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.size() < 2) return std::nullopt;
  Frame f;
  f.final = at(0) & 0x80, f.reserved = at(0) & 0x70, f.code = at(0) & 0x0f;
  f.masked = at(1) & 0x80, f.coded = at(1) & 0x7f;
  const size_t wide = f.coded == 127 ? 8 : f.coded == 126 ? 2 : 0, head = 2 + wide + (f.masked ? 4 : 0);
  if (bytes.size() < head) return std::nullopt;
  f.length = wide ? 0 : f.coded;
  for (size_t i = 0; i < wide; ++i) f.length = f.length << 8 | at(2 + i);
  f.payload = bytes.substr(head, std::min<uint64_t>(f.length, bytes.size() - head));
  if (f.masked)
    for (size_t i = 0; i < f.payload.size(); ++i)
      f.payload[i] = static_cast<char>(static_cast<unsigned char>(f.payload[i]) ^ at(head - 4 + i % 4));
  bytes.remove_prefix(head + f.payload.size());
  return f;
}

// Returns whether more bytes can complete the invalid end `tail` of a text to valid UTF-8.
inline bool may_become_utf8(std::string_view tail) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(tail[i]); };
  const unsigned lead = at(0);
  const size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || tail.size() >= whole) return false;
  const unsigned first = lead == 0xe0   ? 0xa0
                         : lead == 0xf0 ? 0x90
                                        : 0x80,
                 last = lead == 0xed   ? 0x9f
                        : lead == 0xf4 ? 0x8f
                                       : 0xbf;
  if (tail.size() > 1 && (at(1) < first || at(1) > last)) return false;
  return tail.size() < 3 || (at(2) & 0xc0) == 0x80;
}

// The required reaction of the server.
struct Owed {
  std::vector<std::string> pongs;
  std::vector<unsigned> close;  // allowed codes of its close frame, 0 for none; empty: the connection stays open
};

inline std::vector<unsigned> answers_to_close(std::string_view payload) {
  if (payload.empty()) return {0, 1000};
  if (payload.size() == 1) return {1002};
  const unsigned code = static_cast<unsigned char>(payload[0]) * 256u + static_cast<unsigned char>(payload[1]);
  const bool reserved = code < 1000 || code == 1004 || code == 1005 || code == 1006 || (code >= 1014 && code < 3000);
  const bool invalid = find_invalid_utf8(payload.substr(2)).has_value();
  if (reserved && invalid) return {1002, 1007};
  if (reserved) return {1002};
  if (invalid) return {1002, 1007};
  return {code};
}

inline bool breaks_rules(const Frame& f, bool amid_message) {
  if (f.reserved || !f.masked) return true;
  if ((f.coded == 126 && f.length < 126) || (f.coded == 127 && f.length < 65536)) return true;
  if (f.is_control()) return f.code > kPong || !f.final || f.coded > 125;
  return f.code > kBinary || (f.code == kContinuation) != amid_message;
}

// Returns the required reaction of a server that accepts messages of up to `most` bytes and has read all of `said`.
inline Owed judge(std::string_view said, uint64_t most) {
  Owed owed;
  bool amid_message = false, is_text = false;
  std::string message;
  while (const std::optional<Frame> f = take_frame(said)) {
    if (breaks_rules(*f, amid_message)) return owed.close = {1002}, owed;
    if (f->is_control()) {
      if (!f->is_whole()) break;
      if (f->code == kPing) owed.pongs.push_back(f->payload);
      if (f->code == kClose) return owed.close = answers_to_close(f->payload), owed;
      continue;
    }
    if (f->code != kContinuation) is_text = f->code == kText, message.clear();
    if (f->length > most - message.size()) return owed.close = {1009}, owed;
    message += f->payload;
    const bool ends = f->is_whole() && f->final;
    if (const auto bad = is_text ? find_invalid_utf8(message) : std::nullopt;
        bad && (ends || !may_become_utf8(std::string_view(message).substr(*bad))))
      return owed.close = {1007}, owed;
    if (!f->is_whole()) break;
    amid_message = !f->final;
  }
  return owed;
}

}  // namespace harmonics::engine::testing::websocket
