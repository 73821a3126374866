// Rotary position embedding, and rows appended to a key-value cache.
#include <cmath>
#include <limits>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

// The angle of a position and a pair. Frequencies known at plan time are in turns, as 64-bit fixed point: their product
// with a position wraps to the exact fraction of a turn, without f64.
const char* kFixedAngle = R"(
#define ANGLE(place, pair) ((T)(long)(turns[pair] * (ulong)(long)(place)) * (T)3.4061215800304595e-19)
)";
const char* kGivenAngle = R"(
T angle_of(int place, float frequency) {
  const double turn = (double)place * (double)frequency * 0.15915494309189535;
  return (T)((turn - rint(turn)) * 6.283185307179586);
}
#define ANGLE(place, pair) angle_of(place, FREQUENCIES[pair])
)";
// One thread per pair of a row, and one per element that is not rotated.
const char* kTurn = R"(
kernel void turn(BUFFER(0), BUFFER(1) OPTIONAL, global const ulong* turns, uint n, uint width, uint half_width,
    uint positions, uint repeats, uint item, int offset, T sign, uint interleaved) {
  const uint i = get_global_id(0), each = width - half_width;
  if (i >= n) return;
  const uint row = i / each, p = i % each, base = row * width;
  if (p >= half_width) {
    X_WRITE(1, base + half_width + p, X_READ(0, base + half_width + p));
    return;
  }
  const uint t = row / repeats % positions, left = base + (interleaved ? 2 * p : p),
      right = interleaved ? left + 1 : left + half_width;
  const T angle = ANGLE(PLACE, p), c = cos(angle), s = sin(angle) * sign, a = X_READ(0, left), b = X_READ(0, right);
  X_WRITE(1, left, a * c - b * s);
  X_WRITE(1, right, b * c + a * s);
}
)";

}  // namespace

bool plan_rope(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const uint32_t skipped = site.flag("positions_first") ? 1 : 0;
  if (!is_float(x.dtype) || x.rank < 2 + skipped) return declined("rotates floats only");
  const int64_t width = x.dims[x.rank - 1], given = static_cast<int64_t>(site.number("rotary_dims")),
                turned = given ? given : width, half = turned / 2, positions = x.dims[x.rank - 2 - skipped],
                repeats = skipped ? x.dims[x.rank - 2] : 1, rows = count(x) / width;
  if (turned % 2 || turned > width) return declined("rotates an even width only");
  std::vector<uint32_t> buffers{0, site.inputs()};
  std::string optional, place = "offset + (int)t", angle = kFixedAngle;
  bool own = false;
  const std::string names = site.text("operands");
  uint32_t input = 1;
  for (size_t at = 0; at < names.size(); ++input) {
    const size_t comma = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, comma - at), n = std::to_string(buffers.size());
    if (input >= site.inputs()) return declined("takes optional inputs by name");
    const hx_type& more = site.in(input);
    if (name == "positions" && more.dtype == HX_I32) {
      own = more.rank == 2;
      place = "AT(int, " + n + ")[" + (own ? "row / item * positions + t" : "t") + "]";
    } else if (name == "frequencies" && more.dtype == HX_F32) {
      if (!site.machine().has_f64()) return declined("turns by given frequencies where the device computes in f64");
      angle = "#define FREQUENCIES AT(float, " + n + ")" + kGivenAngle;
    } else {
      return declined("takes positions i32 and frequencies f32");
    }
    optional += ", BUFFER(" + n + ")";
    buffers.push_back(input);
    at = comma + 1;
  }
  if (input != site.inputs()) return declined("takes optional inputs by name");
  const double decay = -std::log(site.number("base", 10000)) / static_cast<double>(half);
  std::vector<uint64_t> turns;
  for (int64_t p = 0; p < half; ++p) {
    const long double turn = std::exp(static_cast<long double>(p) * decay) / 6.283185307179586476925286766559L;
    turns.push_back(static_cast<uint64_t>((turn - std::floor(turn)) * 18446744073709551616.0L));
  }
  Work work;
  const Constant& table = work.constants.emplace_back(site.machine(), turns.data(), turns.size() * sizeof(uint64_t));
  const std::string body = std::string("#define T ") + type_name(x.dtype) + "\n" + element_macros("X", x.dtype) +
                           "#define OPTIONAL " + optional + "\n#define PLACE " + place + "\n" + angle + kTurn;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "turn", buffers);
  launch.with(table.memory());
  const int64_t n = rows * (width - half);
  for (const int64_t v : {n, width, half, positions, repeats, rows / x.dims[0]}) launch.with(static_cast<cl_uint>(v));
  launch.with(static_cast<cl_int>(site.integer("offset")));
  launch.with_number(x.dtype, site.flag("inverse") ? -1 : 1);
  launch.with(static_cast<cl_uint>(site.text("pairing") == "interleaved"));
  launch.over(n);
  answer(out, std::move(work), "rope").in_place = 1;
  return true;
}

namespace {

// FIND_PLACE sets `place`, the row of the cache for appended row i / row, or returns.
const char* kInOnePiece = R"(
#define PAGES
#define SIZES_OF_PAGES
#define FIND_PLACE                                                                                 \
  const uint number = i / row, batch = number / rows;                                              \
  const ulong place = (ulong)batch * capacity + (uint)clamp(AT(int, 1)[batch], 0, (int)(capacity - rows)) + \
      number % rows;
)";
// A row without a page is not written. Of rows with one place, the last remains.
const char* kInPages = R"(
#define PAGES , BUFFER(3)
#define SIZES_OF_PAGES , uint all, uint entries, uint pool
long row_of_pool(global const int* start, global const int* pages, uint number, uint capacity, uint rows, uint entries,
    uint pool) {
  const uint batch = number / rows;
  const long at = (long)start[batch] + number % rows;
  if (at < 0 || at >= (long)entries * capacity) return -1;
  const int page = pages[batch * entries + (uint)at / capacity];
  return page < 0 || page >= (int)pool ? -1 : (long)page * capacity + (uint)at % capacity;
}
#define ROW_OF_POOL(number) row_of_pool(AT(int, 1), AT(int, 3), number, capacity, rows, entries, pool)
#define FIND_PLACE                                             \
  const uint number = i / row;                                 \
  const long place = ROW_OF_POOL(number);                      \
  if (place < 0) return;                                       \
  for (uint later = number + 1; later < all; ++later)          \
    if (ROW_OF_POOL(later) == place) return;
)";
// One thread per block of 32; a row is whole blocks.
const char* kAppendBlocks = R"(
kernel void append(BUFFER(0), BUFFER(1), BUFFER(2) PAGES, uint n, uint capacity, uint rows, uint row SIZES_OF_PAGES) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  FIND_PLACE
  global const float* from = AT(float, 0) + (ulong)i * 32;
  global uchar* to = AT(uchar, 2) + ((ulong)place * row + i % row) * 34;
  float most = 0;
  int finite = 1;
  for (uint j = 0; j < 32; ++j) {
    most = fmax(most, fabs(from[j]));
    finite = finite && isfinite(from[j]);
  }
  const float scale = finite ? most / 127 : NAN, inverse = scale > 0 ? 1 / scale : 0;
  if (finite) vstore_half_rte(scale, 0, (global half*)to);
  else *(global ushort*)to = 0x7e00;
  for (uint j = 0; j < 32; ++j)
    ((global char*)to)[2 + j] = finite ? (char)clamp(round(from[j] * inverse), -127.0f, 127.0f) : 0;
}
)";
const char* kAppend = R"(
kernel void append(BUFFER(0), BUFFER(1), BUFFER(2) PAGES, uint n, uint capacity, uint rows, uint row SIZES_OF_PAGES) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  FIND_PLACE
  Y_WRITE(2, (uint)place * row + i % row, X_READ(0, i));
}
)";

}  // namespace

bool plan_cache_append(const Site& site, hx_kernel& out) {
  const bool paged = site.inputs() == 4;
  if (paged != (site.text("operands") == "pages")) return declined("takes optional inputs by name");
  const hx_type &cache = site.in(0), &rows = site.in(1);
  const bool blocks = cache.dtype == HX_Q8_0;
  if (site.in(2).dtype != HX_I32) return declined("appends from i32 rows on");
  if (paged && (site.in(3).dtype != HX_I32 || count(cache) > std::numeric_limits<uint32_t>::max()))
    return declined("appends to pages i32, in pools of fewer than 2^32 numbers");
  if (blocks ? rows.dtype != HX_F32 : cache.dtype != rows.dtype && (!is_float(cache.dtype) || !is_float(rows.dtype)))
    return declined("appends floats to a cache of floats, or f32 to one of q8_0");
  const std::string body =
      (paged ? kInPages : kInOnePiece) +
      (blocks ? kAppendBlocks : element_macros("X", rows.dtype) + element_macros("Y", cache.dtype) + kAppend);
  const int64_t n = count(rows) / (blocks ? 32 : 1), all = rows.dims[0] * rows.dims[1];
  const uint32_t result = site.inputs();
  Work work;
  work.launches.push_back(copy_whole(site.machine(), cache, 0, result));
  std::vector<uint32_t> buffers{1, 2, result};
  if (paged) buffers.push_back(3);
  Launch& launch = work.launches.emplace_back(site.machine(), body, "append", buffers);
  for (const int64_t v : {n, cache.dims[1], rows.dims[1], n / all}) launch.with(static_cast<cl_uint>(v));
  if (paged)
    for (const int64_t v : {all, site.in(3).dims[1], cache.dims[0]}) launch.with(static_cast<cl_uint>(v));
  launch.over(n);
  answer(out, std::move(work), paged ? "paged cache append" : "cache append").in_place = 1;
  return true;
}

HM_PLANS(sequence, {"rope", plan_rope}, {"cache_append", plan_cache_append})

}  // namespace harmonics::opencl
