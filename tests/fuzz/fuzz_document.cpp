// Any text is a document within its limits, or an error with its position.
#include "dsl/document/document.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

size_t values_of(const document::Node& node, size_t depth) {
  require(depth <= 16, "a tree deeper than its limit");
  size_t count = 1;
  for (const document::Node& item : node.items) count += values_of(item, depth + 1);
  for (const document::Entry& entry : node.entries) {
    require(node.find(entry.key) == &entry.value, "a key that is not unique");
    require(entry.place.line > 0, "a key without a place");
    count += values_of(entry.value, depth + 1);
  }
  document::whole_of(node);
  document::truth_of(node);
  require(!document::whole_of(node) || document::real_of(node), "a whole number that is not real");
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = std::make_shared<const SourceText>(
      "input", std::string(reinterpret_cast<const char*>(data), std::min<size_t>(size, 1 << 16)));
  return refusing([&] {
    document::Limits limits;
    limits.depth = 16;
    limits.nodes = 2000;
    const document::Document read = document::parse_document(source, limits);
    require(values_of(read.root, 0) <= 2 * limits.nodes, "more values than the limit");
  });
}
