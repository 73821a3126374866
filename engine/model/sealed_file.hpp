// Sealed files: safetensors files of which every byte is covered by a checksum. Any reader of the format reads them.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/file.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics {

// Writes `file` with two more metadata entries: "harmonics.checksums", a JSON object with the CRC-32 of each tensor's bytes as
// eight hexadecimal digits, and "harmonics.checksum", that of the header, length included, with its own digits as zeros. As
// write_file_atomically.
void save_sealed(TensorFile file, const std::string& path, FileCalls& calls = FileCalls::system());
std::string write_sealed(TensorFile file);

// Reads and checks everything. Throws ErrorKind::Weights that says what is damaged, or that the file has no seal.
TensorFile read_sealed(const std::string& path, FileCalls& calls = FileCalls::system());
TensorFile read_sealed(std::shared_ptr<const std::string> bytes, const std::string& name);

// A file of weights, mapped. Where it has a seal everything is checked; files of other programs have none. Throws
// ErrorKind::Weights, or NoInput.
TensorFile read_weights(const std::string& path);
TensorFile read_weights(const void* data, size_t bytes, const std::string& name, const std::shared_ptr<const void>& keep = nullptr);


}  // namespace harmonics
