// Weights in NumPy archives (NPZ): a zip whose members are NAME.npy, stored or deflated.
#pragma once

#include <memory>
#include <string>

#include "engine/model/safetensors.hpp"

namespace harmonics::engine {

bool looks_like_npz(const void* data, size_t bytes);
// Reads an archive and checks sizes and checksums of all members. Tensors of stored members are views that keep `keep`
// alive, unless they are unaligned, big-endian or in Fortran order; all others are copies. If `keep` is null, all are
// copies. Throws ErrorKind::Weights with the archive and the member.
TensorFile read_npz(const void* data, size_t bytes, const std::string& name,
                    const std::shared_ptr<const void>& keep = nullptr);

}  // namespace harmonics::engine
