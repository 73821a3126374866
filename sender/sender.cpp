// Implements the C functions of harmonics/sender_abi.h with the sending ends of the transports.
#pragma GCC visibility push(default)
#include <harmonics/sender_abi.h>
#pragma GCC visibility pop

#include <unistd.h>

#include <cstring>
#include <functional>

#include <harmonics/error.hpp>

#include "plugins/sockets/sender.hpp"
#ifdef HARMONICS_WITH_ZMQ
#include "plugins/zmq/sender.hpp"
#endif

using namespace harmonics;

struct harmonics_sender {
  std::shared_ptr<void> end;  // keeps the outbox alive
  wire::Outbox* outbox = nullptr;
  std::vector<size_t> bytes;  // per tensor of a sample
};

namespace {

thread_local std::string last_error;

int guarded(const std::function<void()>& body) {
  ErrorKind kind = ErrorKind::Internal;
  try {
    body();
    return 0;
  } catch (const Error& e) {
    kind = e.kind();
    last_error = e.what();
    for (const std::string& note : e.notes()) last_error += "\n" + note;
  } catch (const std::exception& e) {
    last_error = e.what();
  }
  return static_cast<int>(kind) + 1;
}

std::string text(const char* given, const std::string& otherwise = "") { return given && *given ? given : otherwise; }

template <typename End>
void hold(harmonics_sender& sender, std::shared_ptr<End> end) {
  sender.outbox = &end->outbox();
  sender.end = std::move(end);
}

#ifdef HARMONICS_WITH_ZMQ
zmq::Address zmq_address(zmq::Pattern pattern, const std::string& path, const harmonics_sender_options& o) {
  zmq::Address address = zmq::parse_address(pattern, path);
  if (!text(o.key_file).empty()) {
    address.security.own = zmq::read_key_pair(o.key_file);
    if (text(o.server_key).empty())
      throw Error(ErrorKind::Usage, address.str() + ": the server's public key is missing")
          .note("give its public key, or the file with it");
    address.security.server = zmq::read_public_key(o.server_key);
  }
  zmq::check_security(address, o.insecure != 0);
  return address;
}
#endif

void connect(harmonics_sender& sender, const std::string& address, const harmonics_sender_options& o,
             wire::OutboxOptions outbox) {
  const size_t colon = address.find(':');
  const std::string scheme = address.substr(0, colon),
                    path = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (scheme == "tcp")
    return hold(sender,
                std::make_shared<sockets::Sender>(sockets::tcp_endpoint(path, o.insecure != 0), std::move(outbox)));
  if (scheme == "unix")
    return hold(sender, std::make_shared<sockets::Sender>(sockets::unix_endpoint(path), std::move(outbox)));
#ifdef HARMONICS_WITH_ZMQ
  for (const zmq::Pattern pattern : {zmq::Pattern::Dealer, zmq::Pattern::Push, zmq::Pattern::Pub})
    if (scheme == zmq::scheme_of(pattern))
      return hold(sender, std::make_shared<zmq::Sender>(zmq_address(pattern, path, o), std::move(outbox)));
#endif
  throw Error(ErrorKind::Usage, "nothing is sent to '" + address + "'")
      .note(
          "write tcp:127.0.0.1:5555, unix:PATH, or, where this library was built with libzmq, "
          "zmq+dealer://127.0.0.1:5555");
}

wire::OutboxOptions outbox_options(const std::string& address, const harmonics_sender_options& o,
                                   const harmonics_sent_tensor* tensors, uint32_t count) {
  wire::OutboxOptions outbox;
  outbox.where = address;
  outbox.producer = text(o.producer, "process " + std::to_string(getpid()));
  outbox.stream = text(o.stream, outbox.stream);
  outbox.whole_source = o.whole_source != 0;
  if (o.durable) outbox.acknowledgement = wire::Acknowledgement::Durable;
  if (o.patience_seconds > 0)
    outbox.patience = std::chrono::milliseconds(static_cast<int64_t>(o.patience_seconds * 1000));
  if (o.batch_bytes > 0) outbox.batch_bytes = o.batch_bytes;
  if (count == 0) throw Error(ErrorKind::Usage, address + ": samples without tensors").note("name at least one tensor");
  for (uint32_t i = 0; i < count; ++i) {
    if (tensors[i].dtype > static_cast<uint32_t>(DType::F64) || tensors[i].rank > HX_MAX_RANK)
      throw Error(ErrorKind::Shape,
                  address + ": '" + text(tensors[i].name) + "' has no type, or more than 8 dimensions");
    outbox.tensors.push_back({text(tensors[i].name),
                              static_cast<DType>(tensors[i].dtype),
                              Shape(tensors[i].dims, tensors[i].dims + tensors[i].rank),
                              {},
                              o.classes ? o.classes[i] : 0});
    if (outbox.tensors.back().classes > 0 && !wire::is_integer(outbox.tensors.back().dtype))
      throw Error(ErrorKind::Usage,
                  address + ": classes are whole numbers, but '" + text(tensors[i].name) + "' has other numbers");
  }
  return outbox;
}

}  // namespace

extern "C" {

int harmonics_sender_open(const char* address, const harmonics_sender_options* given,
                          const harmonics_sent_tensor* tensors, uint32_t count, harmonics_sender** out) {
  return guarded([&] {
    harmonics_sender_options options{};  // a caller built with an older header has a shorter structure
    if (given) std::memcpy(&options, given, std::min<size_t>(given->struct_size, sizeof options));
    wire::OutboxOptions outbox = outbox_options(text(address), options, tensors, count);
    auto sender = std::make_unique<harmonics_sender>();
    for (const wire::TensorPart& part : outbox.tensors) sender->bytes.push_back(tensor_bytes(part.dtype, part.sample));
    connect(*sender, text(address), options, std::move(outbox));
    *out = sender.release();
  });
}

int harmonics_sender_send(harmonics_sender* sender, const void* const* tensors) {
  return guarded([&] {
    std::vector<std::span<const std::byte>> pieces;
    for (size_t i = 0; i < sender->bytes.size(); ++i) {
      if (!tensors[i] && sender->bytes[i] > 0)
        throw Error(ErrorKind::Usage, "tensor " + std::to_string(i) + " of a sample, counted from 0, has no values")
            .note("give the address of its first value");
      pieces.emplace_back(static_cast<const std::byte*>(tensors[i]), sender->bytes[i]);
    }
    sender->outbox->push(pieces);
  });
}

int harmonics_sender_next(harmonics_sender* sender, uint64_t* number) {
  return guarded([&] { *number = sender->outbox->next_seq(); });
}

int harmonics_sender_finish(harmonics_sender* sender) {
  return guarded([&] { sender->outbox->finish(); });
}

void harmonics_sender_close(harmonics_sender* sender) { delete sender; }

const char* harmonics_sender_error(void) { return last_error.c_str(); }
}
