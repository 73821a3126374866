// Any input is a plugin file or a readable error; strings read from it are terminated.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <harmonics/error.hpp>

#include "engine/plugin/descriptor.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const hx_plugin_abi d = harmonics::engine::parse_descriptor(bytes, "input.so");
    if (!std::memchr(d.id, 0, sizeof d.id)) std::abort();
    harmonics::engine::defines_symbol(bytes, "input.so", "harmonics_register");
    harmonics::engine::check_contract(d, "input.so");
  } catch (const harmonics::Error& error) {
    if (error.kind() != harmonics::ErrorKind::Plugin || std::strlen(error.what()) < 20) {
      std::fprintf(stderr, "%s\n", error.what());
      std::abort();
    }
  }
  return 0;
}
