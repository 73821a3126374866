// The header of a frame as Protobuf writes it. The one source that sees Protobuf is header.cpp.
#pragma once

#include "wire/frame.hpp"

namespace harmonics::wire {

// "<place>: <what>" as ErrorKind::Stream, with what to do.
[[noreturn]] void refuse(const std::string& place, const std::string& what, const std::string& remedy);

// Appends the header of a frame.
void write_header(const Frame& frame, std::vector<std::byte>& to);

// The frame of this header; its tensors have no bytes yet. Checks what can be said without the payload.
Frame read_header(Kind kind, std::span<const std::byte> bytes, const Limits& limits);

// What holds of every frame, read or to be written: names, numbers, and which fields its kind uses.
void check_fields(const Frame& frame, const Limits& limits);

}  // namespace harmonics::wire
