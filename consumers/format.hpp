// Formats samples as lines of text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

enum class LineFormat {
  Text,     // 0.5 1 2: the elements, row-major
  Json,     // [[0.5, 1], [2, 3]]: nested by axis
  Csv,      // 0.5,1,2
  Argmax,   // 3: index of the largest element along the last axis, empty if NaN or infinity makes it ambiguous;
            // integers unchanged
  Symbols,  // the symbols of those indices
};

class LineWriter {
 public:
  // `symbols` for LineFormat::Symbols: words are separated by spaces, single characters are not.
  explicit LineWriter(LineFormat format, std::vector<std::string> symbols = {});
  // Returns the sample's line without line end; valid until the next call. Numbers have the fewest digits that parse
  // back exactly, at most nine for f32.
  const std::string& line(const HTensor& sample);

 private:
  void add_elements(const hx_type& type, const char* data, const char* separator);
  void add_json(const hx_type& type, uint32_t axis, const char*& at);
  void add_indices(const hx_type& type, const char* data);
  void add_index(std::optional<int64_t> index, bool first);

  LineFormat format_;
  std::vector<std::string> symbols_;
  bool spaced_ = false;
  std::string line_;
};

}  // namespace harmonics
