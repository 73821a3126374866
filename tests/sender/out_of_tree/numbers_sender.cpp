// numbers_sender ADDRESS COUNT: sends vectors of two and their sums, without the engine.
#include <harmonics/sender.hpp>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    harmonics::SenderOptions options;
    options.producer = "numbers";
    harmonics::Sender sender(argv[1], options);
    for (int64_t i = 0; i < std::atoll(argv[2]); ++i) {
      const float pair[] = {static_cast<float>(i), 0.5f};
      const double sum = pair[0] + pair[1];
      sender.send({harmonics::SentTensor::of("pair", pair, {2}), harmonics::SentTensor::of("sum", &sum)});
    }
    try {
      sender.send(
          {harmonics::SentTensor::of<float>("pair", nullptr, {2}), harmonics::SentTensor::of<double>("sum", nullptr)});
      return 3;
    } catch (const harmonics::Error& e) {
      if (e.kind() != harmonics::ErrorKind::Usage) throw;
    }
    sender.finish();
    std::printf("%llu\n", static_cast<unsigned long long>(sender.next()));
  } catch (const harmonics::Error& e) {
    std::fprintf(stderr, "%u %s\n", static_cast<unsigned>(e.kind()), e.what());
    return 1;
  }
  return 0;
}
