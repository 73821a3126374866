// Sealed files: safetensors files with checksums of all bytes, readable by any safetensors reader.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/file.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::engine {

// Writes `file` with two additional metadata entries: "harmonics.checksums", a JSON object with the CRC-32 of each
// tensor's bytes as eight hexadecimal digits; and "harmonics.checksum", the CRC-32 of the header, including the length,
// computed with its own digits as zeros. Uses write_file_atomically().
void save_sealed(TensorFile file, const std::string& path, FileCalls& calls = FileCalls::system());
std::string write_sealed(TensorFile file);

// Reads and verifies a file. Throws ErrorKind::Weights if it is damaged, with the damage, or has no seal.
TensorFile read_sealed(const std::string& path, FileCalls& calls = FileCalls::system());
TensorFile read_sealed(std::shared_ptr<const std::string> bytes, const std::string& name);

// Maps a file of weights: safetensors, or NPZ (npz.hpp). Verifies the seal if there is one; other programs' files have
// none. Throws ErrorKind::Weights or NoInput.
TensorFile read_weights(const std::string& path);
TensorFile read_weights(const void* data, size_t bytes, const std::string& name,
                        const std::shared_ptr<const void>& keep = nullptr);

// Metadata entry that distinguishes checkpoints from files of weights.
inline constexpr char kRunStateKey[] = "harmonics.run";
// Returns whether the file is a checkpoint. Weights and states in checkpoints have names without '/'.
inline bool holds_state(const TensorFile& file) { return file.metadata.count(kRunStateKey) != 0; }

// Returns whether a metadata entry describes one file and would be wrong in another: the seal, or the state of a run.
bool describes_one_file(std::string_view key);

}  // namespace harmonics::engine
