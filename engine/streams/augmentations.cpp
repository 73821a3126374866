#include "engine/streams/augmentations.hpp"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include <harmonics/augment.hpp>
#include <harmonics/augmentation_abi.h>
#include <harmonics/quantity.hpp>

#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/arguments.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kOwn[] = {"shift", "rotate", "scale", "flip", "crop", "center", "cutout", "noise"};

struct WrittenStep {
  std::string text, name, arguments;
};

// Splits the text at commas outside parentheses and quotes.
std::vector<WrittenStep> steps_of(const std::string& text) {
  std::vector<WrittenStep> steps;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = end_of_argument(text, at);
    WrittenStep s{text.substr(at, end - at), "", ""};
    const size_t open = s.text.find('(');
    s.name = s.text.substr(0, open);
    if (open != std::string::npos && s.text.back() == ')')
      s.arguments = s.text.substr(open + 1, s.text.size() - open - 2);
    steps.push_back(std::move(s));
    at = end + 1;
  }
  return steps;
}

// Binds arguments such as "0.5, width=3": positional ones first, then named ones.
AttributeMap bind(const Item& item, const WrittenStep& step) {
  std::vector<std::pair<std::string, std::string>> options = split_arguments(step.arguments);
  for (size_t place = 0; place < options.size(); ++place) {
    if (!options[place].first.empty()) continue;
    if (place >= item.arguments.size())
      throw Error(
          ErrorKind::Usage,
          fmt::format("augmentation '{}' takes at most {}", item.name, quantity(item.arguments.size(), "argument")), {},
          {"it is used as " + signature(item)});
    options[place].first = item.arguments[place].name;
  }
  return bind_texts(item, options);
}

class PluginAugmentProducer final : public AugmentingProducer {
 public:
  PluginAugmentProducer(std::shared_ptr<Producer> inner, ItemPtr item, AttributeMap arguments, uint32_t ordinal)
      : AugmentingProducer(std::move(inner)),
        item_(std::move(item)),
        arguments_(std::move(arguments)),
        view_(arguments_),
        ordinal_(ordinal) {
    sample_ = make_type(from_.dtype, from_.sample);
    result_ = sample_;
    const auto& table = item_->table<hx_augmentation_vt>();
    if (HM_TABLE_HAS(table, result_type))
      if (const hx_status status = table.result_type(item_->self, view_.get(), &sample_, &result_); status != HX_OK)
        throw plugin_error(*item_, status);
    const TensorType type = from_c(result_);
    if (type.shape.count() <= 0)
      throw Error(ErrorKind::Plugin, fmt::format("{} announces the result {}", spoken_name(*item_), type.str()));
    to_.dtype = type.dtype;
    to_.sample = type.shape;
    if (to_.dtype != from_.dtype) to_.classes = 0;
  }

 private:
  void apply(uint64_t record, const void* from, void* to) override {
    const auto key = philox_key(seed(), stream_of(item_->name.data(), item_->name.size()) ^ splitmix64(epoch()));
    const hx_draw draw{sizeof draw, ordinal_, uint64_t{key[1]} << 32 | key[0], record};
    const hx_status status =
        item_->table<hx_augmentation_vt>().apply(item_->self, view_.get(), &sample_, from, &draw, &result_, to);
    if (status != HX_OK) throw plugin_error(*item_, status);
  }

  ItemPtr item_;
  AttributeMap arguments_;
  AttributeView view_;
  uint32_t ordinal_;
  hx_type sample_{}, result_{};
};

template <typename T>
void put(Augmented& all, std::shared_ptr<T> producer) {
  all.reseed.push_back([producer](uint64_t seed) { producer->set_seed(seed); });
  all.producer = std::move(producer);
}

}  // namespace

bool is_builtin_augmentation(const std::string& name) {
  return std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

Augmented augment(std::shared_ptr<Producer> producer, const std::string& text, Registry& registry) {
  Augmented all{std::move(producer), {}};
  std::string own;
  std::map<std::string, uint32_t> uses;
  const auto put_own = [&] {
    if (!own.empty()) put(all, std::make_shared<AugmentProducer>(all.producer, Augmentation::parse(own)));
    own.clear();
  };
  for (const WrittenStep& step : steps_of(text)) {
    const ItemPtr item = is_builtin_augmentation(step.name) ? nullptr : registry.find(HX_AUGMENTATION, step.name);
    if (!item) {
      own += (own.empty() ? "" : ",") + step.text;  // augment() reports unknown names
      continue;
    }
    put_own();
    put(all, std::make_shared<PluginAugmentProducer>(all.producer, item, bind(*item, step), uses[step.name]++));
  }
  put_own();
  return all;
}

}  // namespace harmonics::engine
