// FigureLists: named figures as C arrays, valid until clear().
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include <harmonics/metric_abi.h>

namespace harmonics::engine {

class FigureLists {
 public:
  void clear() {
    lists_.clear();
    names_.clear();
  }
  const std::vector<hx_figure>& add(const std::map<std::string, double>& figures) {
    std::vector<hx_figure>& list = lists_.emplace_back();
    for (const auto& [name, value] : figures) list.push_back({names_.emplace_back(name).c_str(), value});
    return list;
  }

 private:
  std::deque<std::string> names_;  // deques, because their elements must not move
  std::deque<std::vector<hx_figure>> lists_;
};

}  // namespace harmonics::engine
