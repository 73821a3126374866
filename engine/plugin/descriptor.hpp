// Reads a plugin's descriptor from an ELF file. Treats the file as untrusted bytes and runs none of its code.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <harmonics/abi.h>

namespace harmonics::engine {

// Returns the descriptor. Throws ErrorKind::Plugin, with the reason and `name`, if the bytes are not a shared library
// for this machine with a well-formed descriptor.
hx_plugin_abi parse_descriptor(std::span<const std::byte> file, const std::string& name);

// Throws ErrorKind::Plugin if this program does not support the contract version that the plugin requires.
void check_contract(const hx_plugin_abi& descriptor, const std::string& name);

// Returns whether the library exports the symbol.
bool defines_symbol(std::span<const std::byte> file, const std::string& name, std::string_view symbol);

}  // namespace harmonics::engine
