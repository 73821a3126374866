// Plans LSTM and GRU scans and their gradients.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

struct Scan {
  Function function;
  uint32_t per_position;  // input that defines the sizes: [N, T, parts H]
  uint32_t parts;
  uint32_t least, most;  // number of inputs; the first input stands for missing optional ones
  uint32_t workspace;    // in widths, per sample
};

bool answer_scan(const Site& site, const Scan& scan, hx_kernel& out) {
  if (!site.all_f32()) return declined("scans f32");
  const hx_type& x = site.in(scan.per_position);
  const int64_t samples = x.dims[0], width = x.dims[2] / scan.parts;
  std::vector<Operand> buffers;
  for (uint32_t i = 0; i < scan.most; ++i) buffers.push_back({i < site.inputs() ? i : 0});
  for (uint32_t i = 0; i < site.outputs(); ++i) buffers.push_back({site.inputs() + i});
  Work work(site.machine());
  buffers.push_back(work.take_workspace(site, static_cast<uint64_t>(samples * scan.workspace * width) * sizeof(float)));
  work.launch(scan.function, {static_cast<uint32_t>(samples), 1, 1, kScanThreads}, std::move(buffers),
              ScanParameters{static_cast<uint32_t>(x.dims[1]), static_cast<uint32_t>(width), site.flag("reverse"),
                             site.inputs() - scan.least});
  answer(out, std::move(work), "scan");
  return true;
}

}  // namespace

bool plan_scan(const Site& site, hx_kernel& out) {
  if (site.op() == "lstm_scan") return answer_scan(site, {lstm_function(), 0, 4, 4, 4, kScanForward}, out);
  if (site.op() == "lstm_scan_grad") return answer_scan(site, {lstm_grad_function(), 2, 4, 5, 7, kScanBackward}, out);
  if (site.op() == "gru_scan") return answer_scan(site, {gru_function(), 0, 3, 4, 4, kScanForward}, out);
  return answer_scan(site, {gru_grad_function(), 2, 4, 5, 6, kScanBackward}, out);
}

HM_PLANS(recurrent, {"lstm_scan", plan_scan}, {"lstm_scan_grad", plan_scan}, {"gru_scan", plan_scan},
         {"gru_scan_grad", plan_scan})

}  // namespace harmonics::cuda
