// Implementations of dense products, and what the planning of several of them uses.
#pragma once

#include "families.hpp"

namespace harmonics::cpu {

struct OwnedGrid : MatmulContext {
  std::vector<int64_t> a_storage, b_storage;
};

struct Route {
  enum Features { none, invariant = 1, descends = 2 };  // of Product
  unsigned features;
  bool (*applies)(const Product&);
  double (*nanoseconds)(const Product&);  // estimated, on one thread
  void (*answer)(std::unique_ptr<OwnedGrid>, double nanoseconds, hx_kernel&);
};

namespace routes {
#define HM_ROUTE(name) extern const Route name;
#include "routes.inc"
#undef HM_ROUTE
}  // namespace routes

constexpr int64_t kLeastPackedDepth = 64;  // for a smaller depth, rows of B are read in place
constexpr int64_t kShortDepth = 128;
constexpr int64_t kLeastKeptRows = 48;
constexpr int64_t kManyRows = 1024;
// A B of this many floats exceeds the L2 cache. For fewer than kManyRows rows it is read in place, since a packed copy
// would double the memory traffic, or the memory if it were kept.
constexpr int64_t kLargeFloats = int64_t{1} << 19;

inline int64_t panels(int64_t n, int64_t panel) { return (n + panel - 1) / panel; }

double flops_of(const Product& p);
double packed_nanoseconds(const Product& p);
bool is_small(const Product& p, double flops);
bool is_large(const Product& p);
// Whether the packed kernel is at least as fast as oneDNN's, which also allocates memory in every run.
bool is_packed_here(const Product& p);
// Chooses the grid of parts: batches first, then rows and columns so that operands are read as few times as possible.
void cut_grid(MatmulContext& c, uint32_t all);
// If A is packed for all parts anyway, row slices cost no more: choose the more even division.
bool is_cut_by_columns(const Product& p, uint32_t parts);
// Slices the longer side of the weight, so that each thread finds its slice in its cache in the next run. Slices of the
// depth exchange partial sums of C, which are smaller than the A that all column slices would read. Unsupported if C is
// accumulated into.
uint32_t depth_parts_of(const Product& p, uint32_t parts);

}  // namespace harmonics::cpu
