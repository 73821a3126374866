// A minimal shared library as bytes, for the descriptor reader; every ELF field can be changed.
#pragma once

#include <cstddef>
#include <cstring>
#include <elf.h>
#include <string>
#include <vector>

#include <harmonics/abi.h>

namespace harmonics::engine::testing {

inline hx_plugin_abi good_descriptor() {
  hx_plugin_abi d{};
  std::memcpy(d.magic, "HXPLUG1", 8);
  d.struct_size = sizeof d;
  d.abi_major = HX_ABI_MAJOR;
  d.abi_minor = HX_ABI_MINOR;
  d.abi_min_minor = HX_ABI_MIN_MINOR;
  std::strcpy(d.id, "org.example.image");
  std::strcpy(d.version, "1.2.3");
  return d;
}

struct ElfImage {
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  Elf64_Shdr symbols_section{}, strings_section{};
  Elf64_Sym symbol{};
  std::string strings{std::string("\0harmonics_plugin_abi\0", 22)};
  hx_plugin_abi descriptor = good_descriptor();

  static constexpr size_t kSegment = sizeof(Elf64_Ehdr), kSections = kSegment + sizeof(Elf64_Phdr),
                          kSymbol = kSections + 2 * sizeof(Elf64_Shdr), kStrings = kSymbol + sizeof(Elf64_Sym),
                          kDescriptor = 512;

  ElfImage() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
#if defined(__aarch64__)
    header.e_machine = EM_AARCH64;
#else
    header.e_machine = EM_X86_64;
#endif
    header.e_phoff = kSegment;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    header.e_shoff = kSections;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 2;
    segment.p_type = PT_LOAD;
    segment.p_vaddr = 0x1000;
    segment.p_offset = 0;
    segment.p_filesz = kDescriptor + sizeof(hx_plugin_abi);
    symbols_section.sh_type = SHT_DYNSYM;
    symbols_section.sh_offset = kSymbol;
    symbols_section.sh_size = symbols_section.sh_entsize = sizeof(Elf64_Sym);
    symbols_section.sh_link = 1;
    strings_section.sh_type = SHT_STRTAB;
    strings_section.sh_offset = kStrings;
    strings_section.sh_size = strings.size();
    symbol.st_name = 1;
    symbol.st_shndx = 1;
    symbol.st_value = 0x1000 + kDescriptor;
    symbol.st_size = sizeof(hx_plugin_abi);
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(kDescriptor + sizeof(hx_plugin_abi));
    const auto put = [&](size_t at, const void* from, size_t size) { std::memcpy(all.data() + at, from, size); };
    put(0, &header, sizeof header);
    put(kSegment, &segment, sizeof segment);
    put(kSections, &symbols_section, sizeof symbols_section);
    put(kSections + sizeof(Elf64_Shdr), &strings_section, sizeof strings_section);
    put(kSymbol, &symbol, sizeof symbol);
    put(kStrings, strings.data(), strings.size());
    put(kDescriptor, &descriptor, sizeof descriptor);
    return all;
  }
};

}  // namespace harmonics::engine::testing
