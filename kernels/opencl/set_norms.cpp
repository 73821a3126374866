// Normalisation over sets of elements: a channel of a batch (batch_norm), or a group of channels of one sample
// (group_norm). One work-group per set; the order of summation depends only on shapes.
#include "rows.hpp"

namespace harmonics::opencl {
namespace {

// Element e of set s is at offset s * apart + e / run * jump + e % run; its gain is at index
// s % repeat * gains + e / run * step.
const char* kSets = R"(
#define GROUP 64
#define SETS uint n, uint run, uint jump, uint apart, uint repeat, uint gains, uint step
#define EACH for (uint e = me; e < n; e += GROUP)
#define PLACE (get_group_id(0) * apart + e / run * jump + e % run)
#define OWN (get_group_id(0) % repeat * gains + e / run * step)
#define ALONE kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
T total_of(T x, local T* parts) {
  parts[get_local_id(0)] = x;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    for (uint k = 1; k < GROUP; ++k) x += parts[k];
    parts[0] = x;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const T y = parts[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return y;
}
#define TOTAL(x) total_of(x, parts)

ALONE normalise(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), SETS, T epsilon) {
  local T parts[GROUP];
  const uint me = get_local_id(0);
  T mean = 0, rest = 0, square = 0;
  EACH mean += X_READ(0, PLACE);
  mean = TOTAL(mean) / n;
  EACH { const T x = X_READ(0, PLACE) - mean; rest += x; square += x * x; }
  rest = TOTAL(rest) / n;
  square = TOTAL(square) / n;
  const T rstd = 1 / sqrt(variance_of(square, rest) + epsilon);
  EACH X_WRITE(3, PLACE, (X_READ(0, PLACE) - mean - rest) * rstd * GAIN_READ(1, OWN) + GAIN_READ(2, OWN));
  if (me != 0) return;
  STATISTIC_WRITE(4, get_group_id(0), mean + rest);
  STATISTIC_WRITE(5, get_group_id(0), rstd);
}

ALONE gradients(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), SETS) {
  local T parts[GROUP];
  const uint me = get_local_id(0);
  const T mean = STATISTIC_READ(2, get_group_id(0)), rstd = STATISTIC_READ(3, get_group_id(0));
  T sum = 0, product = 0;
  EACH {
    const T d = X_READ(4, PLACE) * GAIN_READ(1, OWN);
    sum += d;
    product += d * ((X_READ(0, PLACE) - mean) * rstd);
  }
  sum = TOTAL(sum) / n;
  product = TOTAL(product) / n;
  EACH X_WRITE(5, PLACE, rstd * (X_READ(4, PLACE) * GAIN_READ(1, OWN) - sum - (X_READ(0,
      PLACE) - mean) * rstd * product));
}

// Of gain and bias: a group takes a channel. The statistics of sample b are number b * statistics + channel / share.
ALONE sums_of(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), SETS, uint statistics, uint share) {
  local T parts[GROUP];
  const uint me = get_local_id(0), channel = get_group_id(0);
  T gain = 0, bias = 0;
  EACH {
    const uint s = e / run * statistics + channel / share;
    const T d = X_READ(3, PLACE);
    gain += d * ((X_READ(0, PLACE) - STATISTIC_READ(1, s)) * STATISTIC_READ(2, s));
    bias += d;
  }
  gain = TOTAL(gain);
  bias = TOTAL(bias);
  if (me != 0) return;
  GAIN_WRITE(4, channel, gain);
  GAIN_WRITE(5, channel, bias);
}
)";

struct Sets {
  int64_t number, n, run, jump, apart, repeat, gains, step;

  void give(Launch& launch) const {
    for (const int64_t v : {n, run, jump, apart, repeat, gains, step}) launch.with(static_cast<cl_uint>(v));
    launch.groups(static_cast<size_t>(number), 1, 1, 64);
  }
};

struct Channels {
  int64_t batch, channels, places, groups;  // groups: of channels; 0: batch_norm

  explicit Channels(const Site& site)
      : batch(site.in(0).dims[0]),
        channels(site.in(0).dims[1]),
        places(count(site.in(0)) / batch / channels),
        groups(site.op().substr(0, 5) == "batch" ? 0 : site.integer("groups")) {}
  Sets each() const { return {channels, batch * places, places, channels * places, places, channels, 1, 0}; }
  Sets sets() const {
    if (groups == 0) return each();
    const int64_t own = channels / groups;
    return {batch * groups, own * places, places, places, own * places, groups, own, 1};
  }
};

bool is_served(const Site& site, uint32_t statistic) {
  if (!is_float(site.in(0).dtype)) return declined("normalises floats only");
  const bool alike = site.in(1).dtype == site.in(0).dtype && site.in(site.inputs() - 1).dtype == site.in(0).dtype &&
                     type_name(statistic) == std::string(type_name(site.in(0).dtype));
  return alike || declined("normalises within one type only");
}

std::string head(const Site& site, uint32_t statistic) {
  return std::string("#define T ") + type_name(site.in(0).dtype) + "\n" + element_macros("X", site.in(0).dtype) +
         element_macros("GAIN", site.in(1).dtype) + element_macros("STATISTIC", statistic) + kVariance + kSets;
}

}  // namespace

// x, gain, bias -> y, mean, rstd
bool plan_set_norm(const Site& site, hx_kernel& out) {
  if (!is_served(site, site.out(1).dtype)) return false;
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), head(site, site.out(1).dtype), "normalise",
                                              std::vector<uint32_t>{0, 1, 2, 3, 4, 5});
  const Channels channels(site);
  channels.sets().give(launch);
  launch.with_number(site.in(0).dtype, site.number("epsilon", 1e-5));
  answer(out, std::move(work), channels.groups == 0 ? "batch norm" : "group norm").in_place = 1;
  return true;
}

// x, gain, mean, rstd, dy -> dx, dgain, dbias
bool plan_set_norm_grad(const Site& site, hx_kernel& out) {
  if (!is_served(site, site.in(2).dtype)) return false;
  const std::string text = head(site, site.in(2).dtype);
  const Channels channels(site);
  Work work;
  Launch& sums = work.launches.emplace_back(site.machine(), text, "sums_of", std::vector<uint32_t>{0, 2, 3, 4, 6, 7});
  channels.each().give(sums);
  sums.with(static_cast<cl_uint>(channels.groups))
      .with(static_cast<cl_uint>(channels.groups == 0 ? 1 : channels.channels / channels.groups));
  Launch& gradients =
      work.launches.emplace_back(site.machine(), text, "gradients", std::vector<uint32_t>{0, 1, 2, 3, 4, 5});
  channels.sets().give(gradients);
  // In place: x and dy are read before dx is written.
  answer(out, std::move(work), channels.groups == 0 ? "batch norm" : "group norm").in_place = 1 | 1 << 4;
  return true;
}

HM_PLANS(set_norms, {"batch_norm", plan_set_norm}, {"batch_norm_grad", plan_set_norm_grad},
         {"group_norm", plan_set_norm}, {"group_norm_grad", plan_set_norm_grad})

}  // namespace harmonics::opencl
