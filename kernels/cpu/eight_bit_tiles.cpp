#include "eight_bit_tiles.hpp"

#include <cstdlib>
#include <string>

#include <cpuid.h>
#include <harmonics/error.hpp>

#include "isa.hpp"

namespace harmonics::cpu {
namespace {

bool has_eight_bit_tiles() {
  constexpr unsigned kTilesOfBytes = 1u << 25, kBytePermutation = 1u << 1;
  unsigned a, b, c, d;
  return std::string_view(isa().name) == "avx512" && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTilesOfBytes) &&
         (c & kBytePermutation) && has_tile_registers();
}

const EightBitTiles* choose_tiles() {
  const char* wanted = std::getenv("HARMONICS_TILES");
  const std::string name = wanted ? wanted : "";
  if (name == "off") return nullptr;
  if (!name.empty()) throw Error(ErrorKind::Device, "HARMONICS_TILES=" + name + " is not known; use off");
  return has_eight_bit_tiles() ? &tiles::eight_bits : nullptr;
}

}  // namespace

const EightBitTiles* eight_bit_tiles() {
  static const EightBitTiles* const chosen = choose_tiles();
  return chosen;
}

}  // namespace harmonics::cpu
