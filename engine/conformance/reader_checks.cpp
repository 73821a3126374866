// Checks of importers and tokenizers: any bytes are read or rejected, with equal results in every call and on every
// thread.
#include <algorithm>
#include <deque>
#include <vector>

#include <fmt/core.h>
#include <harmonics/checked.hpp>
#include <harmonics/importer_abi.h>
#include <harmonics/philox.hpp>
#include <harmonics/quantity.hpp>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/file_reader.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr uint64_t kMostLent = uint64_t{1} << 30;  // limit of the memory for one tensor

// Returns random bytes of many lengths: of few values, so that they contain small lengths and counts, and of all
// values.
std::vector<std::string> any_bytes(uint64_t seed) {
  std::vector<std::string> all = {"", std::string(1, '\0'), std::string(4096, '\0'), std::string(100, '\xff')};
  uint64_t state = seed;
  const auto next = [&state] { return state = splitmix64(state); };
  for (const size_t length : {3, 4, 8, 27, 28, 29, 64, 1000, 70'000})
    for (const uint64_t values : {2, 9, 256}) {
      std::string bytes(length, '\0');
      for (char& byte : bytes) byte = static_cast<char>(next() % values);
      all.push_back(std::move(bytes));
    }
  return all;
}

// Returns random headers of 32-bit numbers, most of which are small.
std::vector<std::string> any_numbers(uint64_t seed) {
  std::vector<std::string> all;
  uint64_t state = ~seed;
  for (int i = 0; i < 200; ++i) {
    std::string bytes;
    for (int n = 0; n < 16; ++n) {
      state = splitmix64(state);
      const auto number = static_cast<uint32_t>(state % 7 == 0 ? state >> 32 : (state >> 32) % 9);
      bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    all.push_back(std::move(bytes));
  }
  return all;
}

struct Answer {
  uint32_t score = 0;
  std::string opened;  // a description, or why the file was rejected
  friend bool operator==(const Answer&, const Answer&) = default;
};

class ReaderChecks {
 public:
  ReaderChecks(const ItemPtr& item, const CheckSettings& settings, CheckLog& log)
      : item_(item), settings_(settings), log_(log), arguments_(arguments_to_try(*item)), view_(arguments_) {
    registry_.add(std::const_pointer_cast<Item>(item));
    inputs_ = any_bytes(settings.seed);
    for (std::string& numbers : any_numbers(settings.seed)) inputs_.push_back(std::move(numbers));
  }

  void run() {
    const bool answers = attempt(log_, "reads or refuses any bytes", [&] { return answer_all(); });
    if (!settings_.address.empty()) attempt(log_, "reads the file", [&] { return read_file(); });
    if (!answers) return;
    attempt(log_, "threads", [&]() -> Finding {
      const std::string text = on_four_threads(1, [&] { expect_alike(); });
      if (text.empty()) return {};
      return {Outcome::Failed, text, "functions are called from several threads at once: share no mutable state"};
    });
    attempt(log_, "many calls", [&] {
      size_t i = 0;
      return many_calls(settings_, [&] { answer(inputs_[i++ % inputs_.size()]); });
    });
  }

 private:
  Finding answer_all() {
    size_t read = 0;
    for (const std::string& bytes : inputs_) {
      log_.alive();
      answers_.push_back(answer(bytes));
      read += answers_.back().opened[0] != '!';
    }
    expect_alike();
    return {Outcome::Passed, fmt::format("{} of {} inputs are read, the others refused", read, inputs_.size()), ""};
  }

  void expect_alike() const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!(answer(inputs_[i]) == answers_[i]))
        throw Error(ErrorKind::Plugin,
                    fmt::format("it gives another answer for the same {}", quantity(inputs_[i].size(), "byte")))
            .note("the answer depends on the bytes alone");
  }

  Answer answer(const std::string& bytes) const {
    Answer a;
    const hx_file_start start = {sizeof start, 0, "input.bin", bytes.data(), std::min<size_t>(bytes.size(), 1 << 16),
                                 bytes.size()};
    const bool importer = item_->kind == HX_IMPORTER;
    const hx_status status = importer ? item_->table<hx_importer_vt>().probe(item_->self, &start, &a.score)
                                      : item_->table<hx_tokenizer_vt>().probe(item_->self, &start, &a.score);
    if (status != HX_OK && status != HX_DECLINED) throw plugin_error(*item_, status);
    if (a.score > HX_PROBE_CERTAIN)
      throw Error(ErrorKind::Plugin, fmt::format("it gives the score {}; the highest is 100", a.score));
    a.opened = importer ? describe(bytes) : tokenize(bytes);
    return a;
  }

  // Returns "!" with the reader's error.
  std::string refusal(hx_status status) const {
    if (status != HX_ERROR) throw plugin_error(*item_, status);
    const std::string text = harmonics_api()->last_error(nullptr);
    if (text.empty()) throw Error(ErrorKind::Plugin, "it refuses a file without a reason");
    return "!" + text;
  }

  std::string describe(const std::string& bytes) const {
    const auto alone = [](void*, const char*, uint32_t*, const void**, uint64_t*) -> hx_status {
      harmonics_api()->set_error(HX_ERROR_NO_INPUT, "there is no other file");
      return HX_ERROR;
    };
    const auto lend = [](void* host, uint64_t size, uint32_t* index, void** data) -> hx_status {
      auto& lent = *static_cast<std::deque<std::vector<char>>*>(host);
      if (size > kMostLent) {
        harmonics_api()->set_error(HX_ERROR_WEIGHTS, "there is not so much memory");
        return HX_ERROR;
      }
      lent.emplace_back(size);
      *index = static_cast<uint32_t>(lent.size());
      *data = lent.back().data();
      return HX_OK;
    };
    std::deque<std::vector<char>> lent;
    const auto& table = item_->table<hx_importer_vt>();
    const hx_import_source source = {sizeof source, 0, "input.bin", bytes.data(), bytes.size(), &lent, alone, lend};
    const hx_imported_model* model = nullptr;
    const hx_status status = table.open(item_->self, &source, view_.get(), &model);
    if (status != HX_OK) return refusal(status);
    if (!model) throw Error(ErrorKind::Plugin, "it returns no description");
    std::string text = fmt::format("{} tensors", model->n_tensors);
    const char* at = reinterpret_cast<const char*>(model->tensors);
    for (uint32_t i = 0; i < model->n_tensors; ++i) {
      const auto& tensor = *reinterpret_cast<const hx_imported_tensor*>(at);
      const auto end = checked_sum<uint64_t>(tensor.offset, tensor.bytes);
      const bool known = tensor.file <= lent.size();
      const uint64_t size = !known ? 0 : tensor.file == 0 ? bytes.size() : lent[tensor.file - 1].size();
      if (!end || *end > size) text[0] = '!';  // the host rejects such a tensor
      text += fmt::format(" {} at {}", tensor.name, tensor.offset);
      at += tensor.struct_size;
    }
    table.close(item_->self, model);
    return text;
  }

  std::string tokenize(const std::string& bytes) const {
    try {
      const auto tokenizer = Tokenizer::read(bytes, "input.bin", registry_, {item_->name, {}});
      return fmt::format("{} tokens, {}", tokenizer->size(), tokenizer->encode("some text").size());
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Plugin) throw;
      return std::string("!") + e.what();
    }
  }

  Finding read_file() const {
    const auto file = MappedFile::open(settings_.address);
    const std::string_view bytes(static_cast<const char*>(file->data()), file->bytes());
    if (!find_reader(item_->kind, settings_.address, bytes, registry_))
      return {Outcome::Noted, "its probe does not recognise the file", "give --address a file that it reads"};
    if (item_->kind == HX_IMPORTER) {
      const ImportedModel model = import_model(settings_.address, registry_);
      return {Outcome::Passed,
              fmt::format("{}, {}", quantity(model.tensors.size(), "tensor"), quantity(model.parameters(), "number")),
              ""};
    }
    const auto tokenizer = Tokenizer::open(settings_.address, registry_);
    const std::string text = "One day, two cats \xC3\xA9\xE2\x82\xAC met.\n";
    const bool same = tokenizer->decode(tokenizer->encode(text)) == text;
    return {
        Outcome::Passed,
        fmt::format("{}; a text comes back {}", quantity(tokenizer->size(), "token"), same ? "unchanged" : "changed"),
        ""};
  }

  ItemPtr item_;
  mutable Registry registry_;
  const CheckSettings& settings_;
  CheckLog& log_;
  AttributeMap arguments_;
  AttributeView view_;
  std::vector<std::string> inputs_;
  std::vector<Answer> answers_;
};

}  // namespace

void check_reader(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  ReaderChecks(item, settings, log).run();
}

}  // namespace harmonics::engine
