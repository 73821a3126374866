// Any text is an address, a condition, a call of an optimizer or a schedule, a manifest, or a plugin cache, or an
// error. An accepted text prints as one with the same meaning.
#include <sys/mman.h>
#include <sys/stat.h>

#include <boost/crc.hpp>
#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/bound/bound_graph.hpp"
#include "engine/plugin/discovery.hpp"
#include "engine/plugin/kinds.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

bool same(const Address& a, const Address& b) {
  const auto option = [](const AddressOption& x, const AddressOption& y) {
    return x.key == y.key && x.value == y.value;
  };
  return a.scheme == b.scheme && a.path == b.path && a.fragment == b.fragment &&
         std::equal(a.options.begin(), a.options.end(), b.options.begin(), b.options.end(), option);
}

void try_address(const std::string& text) {
  const Address address = parse_address(text);
  require(same(parse_address(address.str()), address), "an address that is another when it is written");
}

void try_manifest(const std::string& text) {
  for (const auto& [kind, name] : parse_manifest(text, "input")) {
    require(kind_row(kind).kind == kind, "a kind that is none");
    require(is_item_name(name), "a name that is none");
  }
}

// Tries the text as the cache of discovered plugins, with a correct checksum. Entries of libraries that are not
// requested are dropped.
void try_memory(const std::string& text) {
  static const int file = [] {
    const int made = ::memfd_create("memory", 0);
    require(made >= 0 && ::fchmod(made, 0600) == 0, "no file in memory");
    return made;
  }();
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  const std::string whole = text + fmt::format("end\t{:08x}\n", crc.checksum());
  const bool written =
      ::ftruncate(file, 0) == 0 && ::pwrite(file, whole.data(), whole.size(), 0) == static_cast<ssize_t>(whole.size());
  require(written, "a file that is not written");
  require(discover_plugins({}, "/proc/self/fd/" + std::to_string(file)).plugins.empty(), "plugins out of nowhere");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  refusing([&] { try_address(text); });
  refusing([&] { parse_binding(text); });
  refusing([&] { parse_comparison(text); });
  refusing([&] {
    const Optimizer optimizer = parse_optimizer(text);
    require(parse_optimizer(optimizer.str()).str() == optimizer.str(),
            "an optimizer that is another when it is written");
  });
  refusing([&] {
    const Schedule schedule = parse_schedule(text);
    require(parse_schedule(schedule.str()).str() == schedule.str(), "a schedule that is another when it is written");
  });
  refusing([&] { try_manifest(text); });
  try_memory(text);
  return 0;
}
