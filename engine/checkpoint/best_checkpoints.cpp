#include "engine/checkpoint/best_checkpoints.hpp"

#include <algorithm>
#include <cmath>

#include <boost/json.hpp>

#include <harmonics/error.hpp>

#include "engine/base/read_file.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr size_t kLargestList = size_t{1} << 20;
constexpr const char* kListName = "/best.json";

const json::value* field_of(const json::value& object, std::string_view key) {
  return object.is_object() ? object.get_object().if_contains(key) : nullptr;
}

std::optional<BestCheckpoint> best_of(const json::value& one) {
  const json::value *file = field_of(one, "file"), *step = field_of(one, "step"), *loss = field_of(one, "loss");
  if (!file || !file->is_string() || !step || !step->is_int64() || !loss || !loss->is_number()) return std::nullopt;
  BestCheckpoint best{std::string(file->get_string()), step->get_int64(), loss->to_number<double>()};
  if (best.file.empty() || best.file.find('/') != std::string::npos || best.step < 0 || !std::isfinite(best.loss))
    return std::nullopt;
  return best;
}

}  // namespace

std::optional<std::vector<BestCheckpoint>> parse_best(std::string_view text) {
  json::error_code failed;
  const json::value root = parse_json(text, failed);
  const json::value *version = failed ? nullptr : field_of(root, "version"),
                    *all = failed ? nullptr : field_of(root, "best");
  if (!version || *version != 1 || !all || !all->is_array()) return std::nullopt;
  std::vector<BestCheckpoint> list;
  for (const json::value& one : all->get_array()) {
    std::optional<BestCheckpoint> best = best_of(one);
    if (!best) return std::nullopt;
    list.push_back(std::move(*best));
  }
  return list;
}

std::string best_text(const std::vector<BestCheckpoint>& best) {
  json::array all;
  for (const BestCheckpoint& one : best)
    all.push_back(json::object{{"file", one.file}, {"step", one.step}, {"loss", one.loss}});
  return json::serialize(json::object{{"version", 1}, {"best", std::move(all)}}) + "\n";
}

BestCheckpoints::BestCheckpoints(std::string folder, size_t most, FileCalls& calls)
    : folder_(std::move(folder)), most_(std::max<size_t>(most, 1)), calls_(calls) {
  try {
    list_ = parse_best(read_file(folder_ + kListName, kLargestList)).value_or(std::vector<BestCheckpoint>());
  } catch (const Error&) {
  }
  std::stable_sort(list_.begin(), list_.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
  if (list_.size() > most_) list_.resize(most_);
}

bool BestCheckpoints::wants(double loss) const {
  return std::isfinite(loss) && (list_.size() < most_ || loss < list_.back().loss);
}

void BestCheckpoints::add(BestCheckpoint checkpoint) {
  std::erase_if(list_, [&](const BestCheckpoint& known) { return known.file == checkpoint.file; });
  const auto behind = std::upper_bound(list_.begin(), list_.end(), checkpoint.loss,
                                       [](double loss, const BestCheckpoint& known) { return loss < known.loss; });
  list_.insert(behind, std::move(checkpoint));
  if (list_.size() > most_) list_.resize(most_);
  write_file_atomically(folder_ + kListName, best_text(list_), calls_);
}

std::set<std::string> BestCheckpoints::files() const {
  std::set<std::string> files;
  for (const BestCheckpoint& one : list_) files.insert(one.file);
  return files;
}

}  // namespace harmonics::engine
