// Hand-written safetensors files, valid and invalid.
#pragma once

#include <cstdint>
#include <string>

namespace harmonics::engine::testing {

// Length, header, data; `length` overrides the true length.
inline std::string safetensors_bytes(const std::string& header, const std::string& data = "",
                                     uint64_t length = UINT64_MAX) {
  if (length == UINT64_MAX) length = header.size();
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out + header + data;
}

}  // namespace harmonics::engine::testing
