#include "wire/header.hpp"

#include <fmt/format.h>

#include "hxs.pb.h"

namespace harmonics::wire {
namespace {

namespace v1 = hxs::v1;

std::string tensor_place(size_t i) { return fmt::format("header, tensors[{}]", i); }

DType dtype_of(int type, size_t i) {
  if (!v1::ElementType_IsValid(type) || type == v1::ELEMENT_TYPE_UNSPECIFIED)
    refuse(tensor_place(i), type == 0 ? "no element type" : fmt::format("there is no element type {}", type),
           fmt::format("set 'type' to a number from 1 to {}, as hxs.proto names them",
                       static_cast<int>(v1::ElementType_MAX)));
  return static_cast<DType>(type - 1);
}

TensorPart read_tensor(v1::Tensor& from, size_t i) {
  TensorPart part;
  part.name = std::move(*from.mutable_name());
  part.dtype = dtype_of(from.type(), i);
  if (from.shape_size() > HX_MAX_RANK)
    refuse(tensor_place(i), fmt::format("a shape of {} dimensions", from.shape_size()),
           "a sample has at most 8 dimensions");
  part.sample = Shape(from.shape().data(), from.shape().data() + from.shape_size());
  part.classes = from.classes();
  return part;
}

Acknowledgement acknowledgement_of(int level) {
  if (!v1::Acknowledgement_IsValid(level))
    refuse("header, acknowledgement", fmt::format("there is no level {}", level),
           "levels are 1 (received) and 2 (durable)");
  return static_cast<Acknowledgement>(level);
}

}  // namespace

void write_header(const Frame& frame, std::vector<std::byte>& to) {
  v1::Header header;
  header.set_stream(frame.stream);
  header.set_producer(frame.producer);
  header.set_epoch(frame.epoch);
  header.set_session(frame.session);
  header.set_seq(frame.seq);
  header.set_count(frame.count);
  for (const TensorPart& part : frame.tensors) {
    v1::Tensor& tensor = *header.add_tensors();
    tensor.set_name(part.name);
    tensor.set_type(static_cast<v1::ElementType>(static_cast<int>(part.dtype) + 1));
    for (int64_t dim : part.sample) tensor.add_shape(dim);
    tensor.set_classes(part.classes);
  }
  header.set_limit_seq(frame.limit_seq);
  header.set_limit_bytes(frame.limit_bytes);
  header.set_received_seq(frame.received_seq);
  header.set_durable_seq(frame.durable_seq);
  header.set_acknowledgement(static_cast<v1::Acknowledgement>(frame.acknowledgement));
  header.set_max_frame_bytes(frame.max_frame_bytes);
  header.set_code(static_cast<v1::Code>(frame.code));
  header.set_text(frame.text);
  header.set_fresh(frame.fresh);
  header.set_blocked(frame.blocked);
  header.set_number(frame.number);
  header.set_sender(frame.sender);
  const size_t begin = to.size(), size = header.ByteSizeLong();
  to.resize(begin + size);
  header.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to.data() + begin));
}

Frame read_header(Kind kind, std::span<const std::byte> bytes, const Limits& limits) {
  // The error reports malformed input; Protobuf must not log it to stderr.
  const google::protobuf::LogSilencer silence;
  v1::Header header;
  if (!header.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    refuse(fmt::format("header, {} bytes from byte {}", bytes.size(), kPrefixBytes),
           "not a Protobuf message of hxs.proto", "write it with code generated from hxs.proto; texts are UTF-8");
  if (static_cast<uint32_t>(header.tensors_size()) > limits.tensors)
    refuse("header, tensors", fmt::format("{} tensors", header.tensors_size()),
           fmt::format("a frame has at most {}", limits.tensors));
  Frame frame;
  frame.kind = kind;
  frame.stream = std::move(*header.mutable_stream());
  frame.producer = std::move(*header.mutable_producer());
  frame.epoch = header.epoch();
  frame.session = header.session();
  frame.seq = header.seq();
  frame.count = header.count();
  frame.tensors.reserve(static_cast<size_t>(header.tensors_size()));
  for (int i = 0; i < header.tensors_size(); ++i)
    frame.tensors.push_back(read_tensor(*header.mutable_tensors(i), static_cast<size_t>(i)));
  frame.limit_seq = header.limit_seq();
  frame.limit_bytes = header.limit_bytes();
  frame.received_seq = header.received_seq();
  frame.durable_seq = header.durable_seq();
  frame.acknowledgement = acknowledgement_of(header.acknowledgement());
  frame.max_frame_bytes = header.max_frame_bytes();
  // Codes of later releases are kept as text only.
  frame.code = v1::Code_IsValid(header.code()) ? static_cast<Code>(header.code()) : Code::None;
  frame.text = std::move(*header.mutable_text());
  frame.fresh = header.fresh();
  frame.blocked = header.blocked();
  frame.number = header.number();
  frame.sender = header.sender();
  return frame;
}

}  // namespace harmonics::wire
