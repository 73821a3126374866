// Reading a plugin's descriptor out of an ELF file: plain bytes looked at, no code run, nothing trusted.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <harmonics/abi.h>

namespace harmonics {

// ErrorKind::Plugin with the reason when the bytes are not a shared library of this machine with a well-formed
// descriptor. `name` stands in the messages.
hx_plugin_abi parse_descriptor(std::span<const std::byte> file, const std::string& name);

// Throws ErrorKind::Plugin when this program does not speak the contract the plugin was built for.
void check_contract(const hx_plugin_abi& descriptor, const std::string& name);

// Every symbol the library defines for others to see.
bool defines_symbol(std::span<const std::byte> file, const std::string& name, std::string_view symbol);

}  // namespace harmonics
