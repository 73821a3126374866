#include "dsl/load.hpp"

#include "dsl/hmx/parser.hpp"
#include "engine/base/read_file.hpp"

namespace harmonics {

namespace {

constexpr size_t kLargestFile = size_t{16} << 20;

}  // namespace

Flow parse_flow(std::shared_ptr<const SourceText> source) {
  if (source->text().size() > kLargestFile) {
    throw Error(ErrorKind::Syntax, "'" + source->name() + "' holds " + std::to_string(source->text().size()) +
                                       " bytes; a flow has at most " + std::to_string(kLargestFile));
  }
  return hmx::parse(std::move(source));
}

Flow parse_flow_file(const std::string& path) {
  return parse_flow(std::make_shared<const SourceText>(path, read_file(path, kLargestFile)));
}

}  // namespace harmonics
