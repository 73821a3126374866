#include "producers/file/tokens.hpp"

#include <algorithm>
#include <limits>

#include <harmonics/quantity.hpp>

namespace harmonics {

std::shared_ptr<Producer> read_tokens(const FileBytesPtr& file, const TokenOptions& options) {
  if (!options.dtype.empty() && options.dtype != "u16" && options.dtype != "u32")
    throw Error(ErrorKind::Usage, "dtype=" + options.dtype + " of '" + file->name() +
                                      "' is not a token type; write dtype=u16 or dtype=u32");
  SymbolRow symbols{file, 0, options.dtype == "u32" ? size_t{4} : size_t{2}, nullptr};
  if (file->size() % symbols.width)
    refuse_file(file->name(),
                "has " + quantity(file->size(), "byte") + ", which are not tokens of " +
                    quantity(symbols.width, "byte") + " each",
                "correct dtype=");
  uint64_t classes = options.vocab;
  if (classes == 0)
    for (uint64_t i = 0; i < symbols.count(); ++i) classes = std::max<uint64_t>(classes, symbols.at(i) + uint64_t{1});
  if (classes > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
    refuse_file(file->name(), "holds tokens up to " + std::to_string(classes - 1) + ", too large for a vocabulary",
                "correct dtype=, or give vocab=");
  return std::make_shared<WindowProducer>(std::move(symbols), options.windows, "tokens", static_cast<int64_t>(classes),
                                          std::vector<std::string>{});
}

}  // namespace harmonics
