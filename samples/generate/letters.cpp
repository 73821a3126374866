// The loop around a character model: the producer 'letters' returns the text so far, and the consumer 'letters' appends
// the letter with the highest score. Each waits for the other, so one step of the cycle writes one letter.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <harmonics/plugin.hpp>

HARMONICS_PLUGIN("org.example.letters", "0.1.0", "MIT", "Example");

namespace {

using harmonics::DType;
using harmonics::HTensor;
using harmonics::Shape;

// A text shared by producer and consumer, identified by the path of their addresses.
struct Text {
  std::mutex mutex;
  std::condition_variable longer;
  std::string letters;           // the alphabet, in the order of the model's classes
  std::vector<int32_t> numbers;  // the text as indices in `letters`
  size_t given = 0;              // length of the text in the latest sample
  size_t window = 0;
};

std::shared_ptr<Text> text_named(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Text>> all;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Text>& text = all[path];
  if (!text) text = std::make_shared<Text>();
  return text;
}

class Reader : public harmonics::Producer {
 public:
  Reader(std::shared_ptr<Text> text, const std::string& prompt, size_t window, size_t count)
      : text_(std::move(text)), count_(count) {
    for (const char letter : prompt) {
      const size_t number = text_->letters.find(letter);
      if (number == std::string::npos)
        throw harmonics::Error(harmonics::ErrorKind::Usage,
                               "the prompt has '" + std::string(1, letter) + "', which the model has not learned");
      text_->numbers.push_back(static_cast<int32_t>(number));
    }
    if (prompt.empty()) throw harmonics::Error(harmonics::ErrorKind::Usage, "the prompt is empty");
    text_->window = window;
    std::fputs(prompt.c_str(), stdout);
  }

  // Returns the last letters of the text, padded with zeros: the model is causal, so padding after a position has no
  // effect.
  HTensor next() override {
    if (read_ == count_) return {};
    std::unique_lock<std::mutex> lock(text_->mutex);
    text_->longer.wait(lock, [&] { return text_->numbers.size() > text_->given; });
    ++read_;
    text_->given = text_->numbers.size();
    std::vector<int32_t> shown(text_->window, 0);
    const size_t length = std::min(text_->window, text_->given);
    std::copy(text_->numbers.end() - static_cast<std::ptrdiff_t>(length), text_->numbers.end(), shown.begin());
    return HTensor::from(Shape{static_cast<int64_t>(text_->window)}, shown);
  }
  std::size_t size() const override { return count_; }
  std::optional<harmonics::StreamInfo> describe() override {
    harmonics::StreamInfo info;
    info.dtype = DType::I32;
    info.sample = Shape{static_cast<int64_t>(text_->window)};
    info.size = count_;
    info.classes = static_cast<int64_t>(text_->letters.size());
    info.position_axes = 1;
    for (const char letter : text_->letters) info.symbols.emplace_back(1, letter);
    return info;
  }

 private:
  std::shared_ptr<Text> text_;
  size_t count_, read_ = 0;
};

class Writer : public harmonics::Consumer {
 public:
  explicit Writer(std::shared_ptr<Text> text) : text_(std::move(text)) {}

  void push(const HTensor& scores) override {
    const std::lock_guard<std::mutex> lock(text_->mutex);
    const auto letters = static_cast<std::ptrdiff_t>(scores.shape().back());
    const auto last = static_cast<std::ptrdiff_t>(std::min(text_->window, text_->given)) - 1;
    const float* row = scores.data<float>() + last * letters;
    const auto best = std::max_element(row, row + letters) - row;
    text_->numbers.push_back(static_cast<int32_t>(best));
    std::fputc(text_->letters.at(static_cast<size_t>(best)), stdout);
    text_->longer.notify_one();
  }
  void finish() override {
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }

 private:
  std::shared_ptr<Text> text_;
};

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  using harmonics::Argument;
  registry.register_producer(
      "letters",
      [](const std::string& path, const harmonics::Arguments& options) {
        const std::shared_ptr<Text> text = text_named(path);
        text->letters = options.text("letters");
        return std::make_shared<Reader>(text, options.text("prompt"), static_cast<size_t>(options.integer("window")),
                                        static_cast<size_t>(options.integer("count")));
      },
      "the text so far, once for every letter to write",
      {Argument::text("letters", "\n ,.abdehilmnorstwy", "the letters that the model has learned, in its order"),
       Argument::text("prompt", "the ", "the beginning of the text"),
       Argument::integer("window", 24, "letters that the model sees at once"),
       Argument::integer("count", 40, "letters to write")});
  registry.register_consumer(
      "letters",
      [](const std::string& path, const harmonics::Arguments&) { return std::make_shared<Writer>(text_named(path)); },
      "appends the letter of the best score and prints it", {});
}
