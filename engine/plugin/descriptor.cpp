#include "engine/plugin/descriptor.hpp"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <optional>

#include <fmt/core.h>

#include <harmonics/error.hpp>
#include <harmonics/quantity.hpp>

namespace harmonics::engine {

namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr const char* kMachineName = "AArch64";
#else
#error "this machine's ELF number is not known"
#endif

constexpr const char* kBuildHere = "build it for this machine, or get the release made for it";
constexpr uint32_t kLeastDescriptor = sizeof(hx_plugin_abi);  // size in contract 1.0; later versions only add fields

class ElfFile {
 public:
  ElfFile(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    const std::string_view magic(ELFMAG, SELFMAG);
    if (bytes_.size() < SELFMAG || std::memcmp(bytes_.data(), magic.data(), SELFMAG) != 0)
      refuse("it is not an ELF file", "give the shared library that was built, such as libmine.so");
    header_ = read<Elf64_Ehdr>(0, "ELF header");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64) refuse("it is not a 64-bit ELF file", kBuildHere);
    if (header_.e_ident[EI_DATA] != ELFDATA2LSB) refuse("its byte order is not this machine's", kBuildHere);
    if (header_.e_machine != kMachine)
      refuse(fmt::format("it is built for another machine (number {}), not {}", header_.e_machine, kMachineName),
             kBuildHere);
    if (header_.e_type != ET_DYN)
      refuse("it is not a shared library", "link it with -shared, or build it with harmonics_add_plugin");
    if (header_.e_shnum && header_.e_shentsize != sizeof(Elf64_Shdr)) refuse("its section headers have a wrong size");
    if (header_.e_phnum && header_.e_phentsize != sizeof(Elf64_Phdr)) refuse("its program headers have a wrong size");
  }

  // Returns the defined dynamic symbol of this name.
  std::optional<Elf64_Sym> symbol(std::string_view wanted) const {
    for (uint32_t i = 0; i < header_.e_shnum; ++i) {
      const auto section = element<Elf64_Shdr>(header_.e_shoff, i, "section header");
      if (section.sh_type != SHT_DYNSYM) continue;
      if (section.sh_entsize != sizeof(Elf64_Sym)) refuse("its dynamic symbols have a wrong size");
      if (section.sh_link >= header_.e_shnum) refuse("its dynamic symbols refer to a missing section");
      const auto strings = element<Elf64_Shdr>(header_.e_shoff, section.sh_link, "section header");
      if (auto found = symbol_in(section, strings, wanted)) return found;
    }
    return std::nullopt;
  }

  // Returns the bytes of the file that are mapped to the virtual address `address`.
  std::span<const std::byte> at_address(uint64_t address, uint64_t size, const char* what) const {
    for (uint32_t i = 0; i < header_.e_phnum; ++i) {
      const auto segment = element<Elf64_Phdr>(header_.e_phoff, i, "program header");
      if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
      const uint64_t offset = address - segment.p_vaddr;
      if (offset > segment.p_filesz || size > segment.p_filesz - offset) continue;
      if (segment.p_offset > bytes_.size()) refuse(fmt::format("it ends before its {}", what));
      return range(segment.p_offset + offset, size, what);
    }
    refuse(fmt::format("its {} is outside of the loaded segments", what));
  }

  [[noreturn]] void refuse(const std::string& reason,
                           const char* remedy = "the file is damaged: build it or copy it again") const {
    throw Error(ErrorKind::Plugin, fmt::format("'{}' is not a Harmonics plugin: {}", name_, reason)).note(remedy);
  }

 private:
  std::span<const std::byte> range(uint64_t offset, uint64_t size, const char* what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) refuse(fmt::format("it ends before its {}", what));
    return bytes_.subspan(offset, size);
  }
  template <typename T>
  T read(uint64_t offset, const char* what) const {
    T value;
    std::memcpy(&value, range(offset, sizeof(T), what).data(), sizeof(T));
    return value;
  }
  template <typename T>
  T element(uint64_t table, uint64_t index, const char* what) const {
    if (table > bytes_.size()) refuse(fmt::format("it ends before its {}", what));
    return read<T>(table + index * sizeof(T), what);
  }
  std::optional<Elf64_Sym> symbol_in(const Elf64_Shdr& symbols, const Elf64_Shdr& strings,
                                     std::string_view wanted) const {
    const auto table = range(symbols.sh_offset, symbols.sh_size, "dynamic symbols");
    const auto names = range(strings.sh_offset, strings.sh_size, "dynamic symbols' names");
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table.size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, table.data() + at, sizeof symbol);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names.size()) continue;
      if (names.size() - symbol.st_name <= wanted.size()) continue;
      const auto* text = reinterpret_cast<const char*>(names.data()) + symbol.st_name;
      if (std::memcmp(text, wanted.data(), wanted.size()) == 0 && text[wanted.size()] == 0) return symbol;
    }
    return std::nullopt;
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  Elf64_Ehdr header_{};
};

template <size_t N>
bool terminated(const char (&text)[N]) {
  return std::memchr(text, 0, N) != nullptr;
}

}  // namespace

hx_plugin_abi parse_descriptor(std::span<const std::byte> file, const std::string& name) {
  const ElfFile elf(file, name);
  std::optional<Elf64_Sym> symbol = elf.symbol("harmonics_plugin_abi");
  if (!symbol) symbol = elf.symbol("harmonics_plugin_abi_default");
  if (!symbol) elf.refuse("it has no descriptor", "include <harmonics/plugin.hpp> in one of its sources");
  if (symbol->st_size < kLeastDescriptor)
    elf.refuse(fmt::format("its descriptor has only {}", quantity(symbol->st_size, "byte")));
  const auto bytes = elf.at_address(symbol->st_value, kLeastDescriptor, "descriptor");
  hx_plugin_abi result;
  std::memcpy(&result, bytes.data(), sizeof result);
  if (std::memcmp(result.magic, "HXPLUG1", 8) != 0) elf.refuse("its descriptor does not start with HXPLUG1");
  if (result.struct_size < kLeastDescriptor)
    elf.refuse(
        fmt::format("its descriptor declares {} bytes, the minimum is {}", result.struct_size, kLeastDescriptor));
  if (!terminated(result.id) || !terminated(result.version) || !terminated(result.license) ||
      !terminated(result.vendor) || !terminated(result.built_with))
    elf.refuse("a string of its descriptor is not terminated");
  return result;
}

void check_contract(const hx_plugin_abi& d, const std::string& name) {
  if (d.abi_major == HX_ABI_MAJOR && d.abi_min_minor <= HX_ABI_MINOR) return;
  const std::string is =
      d.abi_major == HX_ABI_MAJOR
          ? fmt::format("needs contract {}.{} or a later {}.x", d.abi_major, d.abi_min_minor, d.abi_major)
          : fmt::format("is built for contract {}.{}", d.abi_major, d.abi_minor);
  throw Error(ErrorKind::Plugin,
              fmt::format("plugin '{}' {}, this program has {}.{}", name, is, HX_ABI_MAJOR, HX_ABI_MINOR))
      .note("build it again with this program's headers, or get the release made for it");
}

bool defines_symbol(std::span<const std::byte> file, const std::string& name, std::string_view symbol) {
  return ElfFile(file, name).symbol(symbol).has_value();
}

}  // namespace harmonics::engine
