// Checks of exporters: any model is written or rejected, with equal results in every call and on every thread; errors
// of the file are passed on; an importer of the format reads the model that was written.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/core.h>
#include <harmonics/element_type.hpp>
#include <harmonics/exporter_abi.h>
#include <harmonics/philox.hpp>
#include <unistd.h>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/file_reader.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/model/imported.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

struct ModelCase {
  std::string what;
  std::map<std::string, HTensor> tensors;
  AttributeMap metadata;
};

HTensor any_tensor(const TensorType& type, uint64_t seed) {
  const auto storage = std::make_shared<Storage>(type.bytes());
  auto* at = static_cast<unsigned char*>(storage->data());
  uint64_t state = seed;
  for (size_t i = 0; i < type.bytes(); ++i) {
    state = splitmix64(state);
    at[i] = static_cast<unsigned char>(type.dtype == DType::Bool ? state & 1 : state >> 56);
  }
  return make_value(type, storage);
}

std::vector<ModelCase> model_cases(uint64_t seed) {
  std::vector<ModelCase> all;
  ModelCase& usual = all.emplace_back();
  usual.what = "a model";
  usual.tensors["token_embd.weight"] = any_tensor({DType::F32, {6, 4}}, seed);
  usual.tensors["blk.0.attn_q.weight"] = any_tensor({DType::F16, {4, 5}}, seed + 1);
  usual.tensors["output_norm.weight"] = any_tensor({DType::F32, {3}}, seed + 2);
  usual.metadata.set("general.architecture", std::string("none"))
      .set("general.name", std::string("\xC3\xA9t\xC3\xA9 \"1\"\n"))
      .set("none.block_count", int64_t{3})
      .set("none.scale", 0.5)
      .set("none.flag", true)
      .set("none.sizes", std::vector<int64_t>{1, 2, 3})
      .set("none.scores", std::vector<double>{0.5, -2})
      .set("none.words", std::vector<std::string>{"a", "\xC3\xA9", ""});
  all.push_back({"nothing", {}, {}});
  for (const ElementType& row : detail::element_types) {
    const TensorType type{row.dtype, {2, static_cast<int64_t>(row.block) * 2}};
    all.push_back({"a tensor of " + std::string(row.name), {{"w", any_tensor(type, seed)}}, {}});
  }
  for (const Shape& shape : {Shape{}, Shape{2, 1, 2, 1, 2}, Shape{0, 3}})
    all.push_back({"a tensor of shape " + shape.str(), {{"w", any_tensor({DType::F32, shape}, seed)}}, {}});
  all.push_back({"a long name", {{std::string(300, 'n'), any_tensor({DType::F32, {1}}, seed)}}, {}});
  ModelCase& numbers = all.emplace_back();
  numbers.what = "large numbers";
  numbers.metadata.set("a", INT64_MAX).set("b", INT64_MIN).set("c", std::vector<int64_t>{INT64_MAX}).set("d", 1e300);
  return all;
}

// Output of an exporter, the number of its writes, and the number of the write that fails, from 1; 0: none.
struct Written {
  std::string bytes;
  int writes = 0, fails_at = 0;
  bool after_failure = false;
};

hx_status append_to(void* host, const void* data, uint64_t bytes) {
  auto& to = *static_cast<Written*>(host);
  to.after_failure = to.after_failure || (to.fails_at && to.writes >= to.fails_at);
  if (++to.writes == to.fails_at) {
    harmonics_api()->set_error(HX_ERROR_OUTPUT, "the disk is full");
    return HX_ERROR;
  }
  to.bytes.append(static_cast<const char*>(data), bytes);
  return HX_OK;
}

hx_status begin_file(void* host, const char* name) {
  const std::string line = fmt::format("\nfile {}\n", name);
  return append_to(host, line.data(), line.size());
}

class ExporterChecks {
 public:
  ExporterChecks(const ItemPtr& item, const CheckSettings& settings, CheckLog& log)
      : item_(item),
        settings_(settings),
        log_(log),
        arguments_(arguments_to_try(*item)),
        view_(arguments_),
        cases_(model_cases(settings.seed)) {}

  void run() {
    attempt(log_, "scores names", [&] { return score_names(); });
    const bool answers = attempt(log_, "writes or refuses any model", [&] { return answer_all(); });
    if (!answers) return;
    attempt(log_, "passes errors of the file on", [&] { return fail_everywhere(); });
    attempt(log_, "is read back", [&] { return read_back(); });
    attempt(log_, "threads", [&]() -> Finding {
      const std::string text = on_four_threads(1, [&] { expect_alike(); });
      if (text.empty()) return {};
      return {Outcome::Failed, text, "functions are called from several threads at once: share no mutable state"};
    });
    attempt(log_, "many calls", [&] {
      size_t i = 0;
      return many_calls(settings_, [&] { answer(cases_[i++ % cases_.size()]); });
    });
  }

 private:
  Finding score_names() {
    for (const char* name : {"", "x", "model.bin", "model.gguf", "model.safetensors", "\xC3\xA9.npz", ".gguf"}) {
      uint32_t score = 0;
      const hx_status status = item_->table<hx_exporter_vt>().probe(item_->self, name, &score);
      if (status != HX_OK && status != HX_DECLINED) throw plugin_error(*item_, status);
      if (score > HX_PROBE_CERTAIN)
        throw Error(ErrorKind::Plugin, fmt::format("it gives '{}' the score {}; the highest is 100", name, score));
    }
    return {};
  }

  hx_status write(const ModelCase& model, Written& to) const {
    std::vector<hx_exported_tensor> all;
    for (const auto& [name, tensor] : model.tensors)
      all.push_back({sizeof(hx_exported_tensor), 0, name.c_str(), to_c(type_of(tensor)), tensor.bytes(),
                     type_of(tensor).bytes()});
    const AttributeView about(model.metadata);
    const hx_exported_model c_model = {sizeof c_model, static_cast<uint32_t>(all.size()), all.data(), *about.get()};
    const hx_export_sink sink = {sizeof sink, 0, "output.bin", &to, append_to, begin_file};
    return item_->table<hx_exporter_vt>().write(item_->self, &c_model, view_.get(), &sink);
  }

  // Returns "=" with the bytes of the file, or "!" with the exporter's error.
  std::string answer(const ModelCase& model) const {
    Written to;
    const hx_status status = write(model, to);
    if (status == HX_OK) return "=" + to.bytes;
    if (status != HX_ERROR) throw plugin_error(*item_, status);
    const std::string text = harmonics_api()->last_error(nullptr);
    if (text.empty()) throw Error(ErrorKind::Plugin, "it refuses " + model.what + " without a reason");
    return "!" + text;
  }

  Finding answer_all() {
    size_t written = 0;
    std::string refused;
    for (const ModelCase& model : cases_) {
      log_.alive();
      answers_.push_back(answer(model));
      if (answers_.back()[0] == '=')
        ++written;
      else
        refused += (refused.empty() ? "; refused are " : ", ") + model.what;
    }
    expect_alike();
    if (answers_.front()[0] == '!')
      return {Outcome::Noted, "it refuses the usual model: " + answers_.front().substr(1),
              "write tensors of f32 and f16 and metadata of every kind"};
    return {Outcome::Passed, fmt::format("{} of {} models are written{}", written, cases_.size(), refused), ""};
  }

  void expect_alike() const {
    for (size_t i = 0; i < cases_.size(); ++i)
      if (answer(cases_[i]) != answers_[i])
        throw Error(ErrorKind::Plugin, "it gives another answer for the same model: " + cases_[i].what)
            .note("the bytes depend on the model and the options alone");
  }

  Finding fail_everywhere() const {
    Written whole;
    if (write(cases_.front(), whole) != HX_OK) return {Outcome::Noted, "it writes no model to try", ""};
    for (int at = 1; at <= whole.writes; ++at) {
      Written to;
      to.fails_at = at;
      const hx_status status = write(cases_.front(), to);
      if (status == HX_OK)
        throw Error(ErrorKind::Plugin, fmt::format("it reports success though write {} failed", at))
            .note("return the status of the sink");
      if (to.after_failure)
        throw Error(ErrorKind::Plugin, fmt::format("it writes on after write {} failed", at))
            .note("return the status of the sink at once");
    }
    return {Outcome::Passed, fmt::format("{} writes fail in turn", whole.writes), ""};
  }

  Finding read_back() const {
    if (answers_.front()[0] == '!') return {Outcome::Noted, "it writes no model to read", ""};
    std::string path = (std::filesystem::temp_directory_path() / "harmonics-export-XXXXXX").string();
    const int file = ::mkstemp(path.data());
    if (file < 0) throw Error(ErrorKind::Output, "no temporary file can be created");
    const std::string_view bytes = std::string_view(answers_.front()).substr(1);
    const bool kept = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    ::close(file);
    const auto read = [&]() -> Finding {
      if (!kept) throw Error(ErrorKind::Output, "a temporary file cannot be written");
      if (!is_importable(path, bytes, Registry::global()))
        return {Outcome::Noted, "no importer that is known reads the file", ""};
      const ImportedModel model = import_model(path, Registry::global());
      const auto& expected = cases_.front().tensors;
      for (const auto& [name, tensor] : expected)
        if (!same_bits(model.tensor(name), tensor))
          throw Error(ErrorKind::Plugin, fmt::format("the tensor '{}' is read as another", name));
      if (model.tensors.size() != expected.size()) throw Error(ErrorKind::Plugin, "more tensors are read");
      return {Outcome::Passed, "importer " + model.importer->name + " reads the same tensors", ""};
    };
    try {
      Finding finding = read();
      std::filesystem::remove(path);
      return finding;
    } catch (...) {
      std::filesystem::remove(path);
      throw;
    }
  }

  ItemPtr item_;
  const CheckSettings& settings_;
  CheckLog& log_;
  AttributeMap arguments_;
  AttributeView view_;
  std::vector<ModelCase> cases_;
  std::vector<std::string> answers_;
};

}  // namespace

void check_exporter(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  ExporterChecks(item, settings, log).run();
}

}  // namespace harmonics::engine
