#include <catch2/catch.hpp>

#include <fstream>
#include <functional>
#include <iterator>

#include "engine/plugin/descriptor.hpp"
#include "engine/plugin/loader.hpp"
#include "tests/engine/plugin/elf_image.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string refused_descriptor(const std::vector<std::byte>& bytes) {
  try {
    parse_descriptor(bytes, "x.so");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Plugin);
    return e.what();
  }
  return "accepted";
}

std::string bent(const std::function<void(ElfImage&)>& bend) {
  ElfImage image;
  bend(image);
  return refused_descriptor(image.bytes());
}

std::string contract(uint16_t major, uint16_t minor, uint16_t min_minor) {
  hx_plugin_abi d = good_descriptor();
  d.abi_major = major;
  d.abi_minor = minor;
  d.abi_min_minor = min_minor;
  try {
    check_contract(d, "x.so");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

std::vector<std::byte> built_plugin() {
  std::ifstream file(HARMONICS_BINARY_DIR "/lib/harmonics/plugins/libharmonics_activations.so", std::ios::binary);
  REQUIRE(file);
  const std::vector<char> chars((std::istreambuf_iterator<char>(file)), {});
  const auto* first = reinterpret_cast<const std::byte*>(chars.data());
  return {first, first + chars.size()};
}

}  // namespace

TEST_CASE("descriptor: is read from a library's bytes") {
  const hx_plugin_abi d = parse_descriptor(ElfImage().bytes(), "x.so");
  CHECK(std::string(d.id) == "org.example.image");
  CHECK(std::string(d.version) == "1.2.3");
}

TEST_CASE("descriptor: a built plugin's is read without loading it") {
  const hx_plugin_abi d = read_descriptor(HARMONICS_BINARY_DIR "/lib/harmonics/plugins/libharmonics_activations.so");
  CHECK(std::string(d.id) == "harmonics.activations");
  CHECK(std::string(d.license) == "Apache-2.0");
  CHECK(std::string(d.built_with).find_first_of("0123456789") != std::string::npos);
}

TEST_CASE("descriptor: files that are not plugins are refused with the reason") {
  const std::string no = "'x.so' is not a Harmonics plugin: ";
  const auto text = [](const std::string& s) {
    const auto* first = reinterpret_cast<const std::byte*>(s.data());
    return std::vector<std::byte>(first, first + s.size());
  };
  CHECK(refused_descriptor({}) == no + "it is not an ELF file");
  CHECK(refused_descriptor(text("#!/bin/sh\necho hello\n")) == no + "it is not an ELF file");
  CHECK(refused_descriptor(text("\x7f"
                                "ELF")) == no + "it ends before its ELF header");
  CHECK(bent([](ElfImage& i) { i.header.e_ident[EI_CLASS] = ELFCLASS32; }) == no + "it is not a 64-bit ELF file");
  CHECK(bent([](ElfImage& i) { i.header.e_ident[EI_DATA] = ELFDATA2MSB; }) ==
        no + "its byte order is not this machine's");
  CHECK(bent([](ElfImage& i) {
          i.header.e_machine = EM_RISCV;
        }).rfind(no + "it is built for another machine (number 243)", 0) == 0);
  CHECK(bent([](ElfImage& i) { i.header.e_type = ET_EXEC; }) == no + "it is not a shared library");
  CHECK(bent([](ElfImage& i) { i.header.e_shnum = 0; }) == no + "it has no descriptor");
  CHECK(bent([](ElfImage& i) { i.strings[3] = 'X'; }) == no + "it has no descriptor");
  CHECK(bent([](ElfImage& i) { i.symbol.st_shndx = SHN_UNDEF; }) == no + "it has no descriptor");
}

TEST_CASE("descriptor: false offsets and sizes are refused, never followed") {
  const std::string no = "'x.so' is not a Harmonics plugin: ";
  CHECK(bent([](ElfImage& i) { i.header.e_shoff = ~0ull - 8; }) == no + "it ends before its section header");
  CHECK(bent([](ElfImage& i) { i.header.e_shoff = 1u << 20; }) == no + "it ends before its section header");
  CHECK(bent([](ElfImage& i) { i.header.e_shentsize = 1; }) == no + "its section headers have a wrong size");
  CHECK(bent([](ElfImage& i) { i.header.e_phentsize = 1; }) == no + "its program headers have a wrong size");
  CHECK(bent([](ElfImage& i) { i.header.e_phoff = ~0ull; }) == no + "it ends before its program header");
  CHECK(bent([](ElfImage& i) { i.header.e_phnum = 0; }) == no + "its descriptor is outside of the loaded segments");
  CHECK(bent([](ElfImage& i) { i.symbols_section.sh_entsize = 7; }) == no + "its dynamic symbols have a wrong size");
  CHECK(bent([](ElfImage& i) { i.symbols_section.sh_link = 9; }) ==
        no + "its dynamic symbols refer to a missing section");
  CHECK(bent([](ElfImage& i) { i.symbols_section.sh_size = ~0ull; }) == no + "it ends before its dynamic symbols");
  CHECK(bent([](ElfImage& i) { i.strings_section.sh_offset = ~0ull; }) ==
        no + "it ends before its dynamic symbols' names");
  CHECK(bent([](ElfImage& i) { i.strings_section.sh_size = 10; }).rfind(no + "it has no descriptor", 0) == 0);
  CHECK(bent([](ElfImage& i) { i.symbol.st_name = ~0u; }).rfind(no + "it has no descriptor", 0) == 0);
  CHECK(bent([](ElfImage& i) { i.symbol.st_value = 0; }) == no + "its descriptor is outside of the loaded segments");
  CHECK(bent([](ElfImage& i) { i.symbol.st_value = ~0ull; }) ==
        no + "its descriptor is outside of the loaded segments");
  CHECK(bent([](ElfImage& i) { i.symbol.st_size = 8; }) == no + "its descriptor has only 8 bytes");
  CHECK(bent([](ElfImage& i) {
          i.segment.p_filesz = ~0ull;
          i.symbol.st_value = ~0ull - 0x2000;
        }) == no + "it ends before its descriptor");
  CHECK(bent([](ElfImage& i) { i.segment.p_offset = ~0ull - 16; }) == no + "it ends before its descriptor");
}

TEST_CASE("descriptor: a malformed one is refused") {
  const std::string no = "'x.so' is not a Harmonics plugin: ";
  CHECK(bent([](ElfImage& i) { i.descriptor.magic[0] = 'Y'; }) == no + "its descriptor does not start with HXPLUG1");
  CHECK(bent([](ElfImage& i) { i.descriptor.struct_size = 4; }).rfind(no + "its descriptor declares 4 bytes", 0) == 0);
  CHECK(bent([](ElfImage& i) { std::memset(i.descriptor.id, 'a', sizeof i.descriptor.id); }) ==
        no + "a string of its descriptor is not terminated");
}

TEST_CASE("descriptor: other contracts are refused with both versions") {
  CHECK(contract(HX_ABI_MAJOR, HX_ABI_MINOR, HX_ABI_MIN_MINOR) == "accepted");
  CHECK(contract(2, 3, 0) == "plugin 'x.so' is built for contract 2.3, this program has 1.5");
  CHECK(contract(1, 4, 99) == "plugin 'x.so' needs contract 1.99 or a later 1.x, this program has 1.5");
  CHECK(contract(1, 9, 0) == "accepted");  // built later, requires only this version
  CHECK(contract(0, 3, 1) == "plugin 'x.so' is built for contract 0.3, this program has 1.5");
}

TEST_CASE("descriptor: a truncated plugin is refused or read, never overrun") {
  const std::vector<std::byte> whole = built_plugin();
  size_t refused = 0;
  for (size_t size = 0; size < whole.size(); size += size < 4096 ? 7 : 509) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    if (refused_descriptor(cut) != "accepted") {
      ++refused;
    } else {  // only unused section headers are missing
      CHECK(std::string(parse_descriptor(cut, "x.so").id) == "harmonics.activations");
      CHECK(size + 8192 > whole.size());
    }
  }
  CHECK(refused > 600);
  CHECK(refused_descriptor(whole) == "accepted");
}
