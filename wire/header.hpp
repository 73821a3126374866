// The Protobuf header of a frame. Only header.cpp includes Protobuf.
#pragma once

#include "wire/frame.hpp"

namespace harmonics::wire {

// Throws "<place>: <what>" as ErrorKind::Stream, with a remedy.
[[noreturn]] void refuse(const std::string& place, const std::string& what, const std::string& remedy);

// Appends the header of a frame.
void write_header(const Frame& frame, std::vector<std::byte>& to);

// Returns the frame of this header, its tensors still without bytes. Checks all that can be checked without the
// payload.
Frame read_header(Kind kind, std::span<const std::byte> bytes, const Limits& limits);

// Checks the rules for every frame, read or written: names, numbers, and which fields its kind uses.
void check_fields(const Frame& frame, const Limits& limits);

}  // namespace harmonics::wire
