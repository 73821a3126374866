#include "recording.hpp"

#include <algorithm>

namespace harmonics::cuda {
namespace {

const Extent kEverything{0, ~uint64_t{0}, true};

bool meet(const Extent& a, const Extent& b) { return a.begin < b.end && b.begin < a.end && (a.writes || b.writes); }

}  // namespace

// Returns the operations to depend on, without those that another of them already depends on.
Recording::Operations Recording::found(const std::vector<Extent>& extents) const {
  std::vector<bool> all(operations_.size());
  for (const Use& use : uses_)
    if (!all[use.operation])
      all[use.operation] =
          std::any_of(extents.begin(), extents.end(), [&](const Extent& e) { return meet(e, use.extent); });
  Operations needed;
  for (auto i = static_cast<uint32_t>(all.size()); i-- > 0;) {
    const auto waits = [&](uint32_t later) { return operations_[later].waits_for[i]; };
    if (all[i] && std::none_of(needed.begin(), needed.end(), waits)) needed.push_back(i);
  }
  return needed;
}

int Recording::set_front(const Operations& operations) {
  front_.clear();
  for (const uint32_t i : operations)
    front_.insert(front_.end(), operations_[i].last.begin(), operations_[i].last.end());
  return driver_.set_front(stream_, front_);
}

void Recording::add(const std::vector<Extent>& extents, const Operations& before, std::vector<void*> last) {
  const auto own = static_cast<uint32_t>(operations_.size());
  Operation added{std::move(last), std::vector<bool>(own)};
  for (const uint32_t b : before) {
    added.waits_for[b] = true;
    const std::vector<bool>& earlier = operations_[b].waits_for;
    for (size_t i = 0; i < earlier.size(); ++i)
      if (earlier[i]) added.waits_for[i] = true;
  }
  operations_.push_back(std::move(added));
  // Drops covered uses: a later operation that conflicts with one depends on this operation, which depends on it.
  std::erase_if(uses_, [&](const Use& use) {
    return std::any_of(extents.begin(), extents.end(), [&](const Extent& e) {
      return e.writes && e.begin <= use.extent.begin && use.extent.end <= e.end;
    });
  });
  for (const Extent& e : extents) uses_.push_back({e, own});
}

int Recording::close_foreign() {
  if (!foreign_) return 0;
  foreign_ = false;
  std::vector<void*> last;
  if (const int code = driver_.front(stream_, last)) return code;
  add({kEverything}, found({kEverything}), std::move(last));
  return 0;
}

int Recording::begin(const std::vector<Extent>& extents) {
  if (const int code = close_foreign()) return code;
  extents_ = extents;
  before_ = found(extents);
  return set_front(before_);
}

int Recording::end() {
  std::vector<void*> last;
  if (const int code = driver_.front(stream_, last)) return code;
  if (last != front_) add(extents_, before_, std::move(last));  // else nothing was captured
  return 0;
}

int Recording::join(bool foreign) {
  if (const int code = close_foreign()) return code;
  foreign_ = foreign;
  return set_front(found({kEverything}));
}

}  // namespace harmonics::cuda
