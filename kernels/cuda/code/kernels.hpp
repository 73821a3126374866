// Kernels and their parameters, shared by host and device code. Comments list the buffers, which precede the
// parameters.
#pragma once

#include <cstdint>

namespace harmonics::cuda {

// Default number of threads per block.
constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostRank = 8;

// Handle of a kernel for the driver, or for the emulated device.
using Function = const void*;

// A walk through arrays: sizes and, per array, strides and offset in elements.
template <int kArrays>
struct Steps {
  uint32_t rank;
  uint32_t sizes[kMostRank];
  int64_t strides[kArrays][kMostRank];
  int64_t offsets[kArrays];
};

// ---- layout.cu
struct CopyParameters {
  uint32_t count;
  Steps<2> walk;  // to, from
};
struct TransposeParameters {  // to [batch, rows, columns] = from [batch, columns, rows]
  uint32_t rows, columns;
};
struct FillParameters {
  uint32_t count;
  uint64_t bits;
};
struct IotaParameters {
  uint32_t count, size, inner, dtype;
};
struct RandomParameters {
  uint32_t count;
  uint64_t stream;
};
Function copy_function(uint32_t element_bytes);  // from, to; also 16 bytes
struct CopyIfFiniteParameters {
  uint64_t bytes;
};
// from, to, number: words of 4 bytes, then the remaining bytes; any number of threads
Function copy_if_finite_function();
constexpr uint32_t kTransposedTile = 64;
Function transpose_function(uint32_t element_bytes);  // from, to; tiles in blocks {columns, rows, batch}
Function fill_function(uint32_t element_bytes);       // to
Function iota_function();                             // to
Function random_function();                           // counter, to; four numbers per thread

// ---- index.cu: x [outer, size, inner]; `indices` indices of any integer type
struct GatherParameters {
  uint32_t count, size, inner, indices, dtype;
};
struct LinkParameters {
  uint32_t indices, size, dtype;
};
enum class Joining : uint32_t { set, add, largest, least };
struct AddParameters {
  uint32_t indices, size, inner, dtype;
  Joining joining;
};
struct BlockParameters {
  uint32_t count, rank, dtype;
  uint32_t block[kMostRank], whole[kMostRank];
};
struct TopParameters {
  uint32_t size, k;
};
// Positions along several axes. A position has k indices, for axes of these sizes, and selects a row of its batch.
struct PositionParameters {
  uint32_t count, places, inner, k, dtype;
  uint32_t sizes[kMostRank];
};
Function gather_function(uint32_t element_bytes);  // x, indices, y
Function link_function();  // indices, links: for each the next with the same index, and whether it is the first
// updates, indices, links, y: combines updates with y; null: unsupported type; blocks {indices, outer}
Function add_function(uint32_t dtype);
// updates, indices, y [size, inner]: sums of the updates; null: unsupported type; blocks {size, columns}
Function collect_function(uint32_t dtype);
Function gather_nd_function(uint32_t element_bytes);      // x, indices, y
Function rows_function();                                 // indices, rows: the row of each position, u32
Function dynamic_slice_function(uint32_t element_bytes);  // x, starts, y
Function update_slice_function(uint32_t element_bytes);   // block, starts, y
Function top_function(uint32_t dtype);                    // x, values, indices; a block per row

// ---- sort.cu: lines of `size` elements, `inner` apart
struct SortParameters {
  uint32_t count, size, inner, run, descending;
};
Function begin_sort_function();                         // order: 0, 1 ... for every line
Function merge_function(uint32_t dtype);                // x, order, merged: merges runs of `run` elements in pairs
Function finish_sort_function(uint32_t element_bytes);  // x, order, values, indices

// ---- reduce.cu
enum class Reduction : uint32_t { sum, product, maximum, minimum };
struct ReduceParameters {
  uint32_t results, terms, chunks, chunk;  // terms: per result; chunk: terms per chunk
  Steps<1> kept, reduced;
};
// Types of x and y: the same, or one of them f32 and the other of 16 bits; null: unsupported.
Function reduce_rows_function(uint32_t from, uint32_t to, Reduction);        // x, y [results, chunks]; a block for each
Function reduce_short_rows_function(uint32_t from, uint32_t to, Reduction);  // likewise, a warp for each
// x, y [chunks, results]; a thread for each, blocks {results, chunks}
Function reduce_columns_function(uint32_t from, uint32_t to, Reduction);
constexpr uint32_t kJoinedResults = 32;
// x [terms, results], y; a block per kJoinedResults results
Function join_chunks_function(uint32_t from, uint32_t to, Reduction);
struct LaneParameters {
  uint32_t lanes, size, inner, largest;
};
Function arg_extreme_function(uint32_t dtype);  // x, indices; a block per lane
Function cumsum_function(uint32_t dtype);       // x, y; a thread per lane

// ---- product.cu: c [batch, m, n] dense
struct ProductParameters {
  uint32_t m, n, k;
  int64_t a_row, a_column, b_row, b_column;
  Steps<2> batch;  // a, b
};
constexpr uint32_t kProductTile = 64;
Function product_function(uint32_t dtype);  // a, b, c; blocks {columns, rows, batch}
// ---- small_product.cu: c [batch, m, n] dense = activation(a b + bias), in f32
struct SmallOperand {
  int64_t row, term, batch;  // strides; for b, row is the stride of columns. row or term is 1.
  uint32_t wide;             // terms are contiguous, and rows are aligned to 16 bytes
};
struct SmallProductParameters {
  uint32_t m, n, k, has_bias, relu;
  uint32_t parts, terms;  // split-k: parts, and terms per part, a multiple of kSmallTerms; only without a batch
  SmallOperand a, b;
};
constexpr uint32_t kSmallTerms = 64;
enum class SmallSum : uint32_t { none, a, b };  // also sums this operand over k; only without a batch
constexpr uint32_t kSmallTiles[][2] = {{16, 16}, {32, 32}, {64, 32}, {64, 64}};  // rows, columns
// a, b, c, bias, sums; blocks {columns, rows, batch}, or {columns, rows, parts} with c and sums for each part
Function small_product_function(uint32_t tile, SmallSum sum);
struct SmallJoinParameters {
  uint32_t count, columns, beside, parts, has_bias, relu;  // count: elements of c; beside: elements of the sums
};
Function small_join_function();  // parts of c, parts of the sums, bias, c, sums

enum class Activation : uint32_t { none, relu, tanh, logistic, gelu };
struct FinishParameters {
  uint32_t count, columns, places;  // y [..., columns, places]; a bias per column
  Activation activation;
  uint32_t has_bias;
};
Function finish_function(uint32_t dtype);  // bias, y (one float type): y = activation(y + bias)
struct RoundParameters {
  uint32_t count;
};
Function round_function(uint32_t dtype);  // from f32, to f16 or bf16; finite values saturate at the range of f16
Function widen_function();                // from f16, to f32
constexpr uint32_t kLargestParts = kThreads;
Function largest_function();  // x f32 [count], the largest finite |x| per part; a block for each
// Rounds to fp8 (E4M3) after scaling by the power of two that brings the largest value into range. Writes dense [batch,
// rows, columns] and the scale.
struct ScaledParameters {
  uint32_t rows, columns;
  int64_t row, column, batch;  // strides of x
};
constexpr uint32_t kRoundedTile = 32;
Function round_scaled_function();  // x f32, maxima of parts, y, scale; blocks {columns, rows, batch}

// ---- rows.cu: contiguous rows
struct RowsParameters {
  uint32_t rows, columns;
  uint32_t label_dtype;
  float epsilon;
};
// A kernel for rows of a given length; rows and threads per block.
struct RowKernel {
  Function function;
  uint32_t rows, threads;
};
RowKernel softmax_kernel(uint32_t columns, bool logarithm);       // x, y
RowKernel softmax_grad_kernel(uint32_t columns, bool logarithm);  // y, dy, dx
RowKernel cross_entropy_kernel(uint32_t columns);                 // x, labels, loss, lse
RowKernel cross_entropy_grad_kernel(uint32_t columns);            // x, labels, lse, dloss, dx
RowKernel layer_norm_kernel(uint32_t columns);                    // x, gain, bias, y, mean, rstd
RowKernel rms_norm_kernel(uint32_t columns);                      // x, gain, y, rstd

// ---- norms.cu
struct NormGradParameters {
  uint32_t rows, columns, blocks;
};
constexpr uint32_t kMostSummedColumns = 8192;  // largest width whose sums fit the registers of a block
struct NormGradKernel {
  Function function;
  uint32_t rows, threads, most_blocks;  // rows: rows per block at a time
};
NormGradKernel layer_norm_grad_kernel(uint32_t columns);  // x, gain, mean, rstd, dy, dx, sums [2, blocks, columns]
NormGradKernel rms_norm_grad_kernel(uint32_t columns);    // x, gain, rstd, dy, dx, sums [1, blocks, columns]
// One block per kSummedColumns columns.
constexpr uint32_t kSummedColumns = 32;
Function sum_blocks_function();      // sums, dgain: only the first sum
Function sum_two_blocks_function();  // sums, dgain, dbias
struct ChannelParameters {
  uint32_t batch, channels, places;
  uint32_t groups;
  float epsilon;
};
Function batch_norm_function();       // x, gain, bias, y, mean, rstd; a block per channel
Function batch_norm_grad_function();  // x, gain, mean, rstd, dy, dx, dgain, dbias
Function group_norm_function();       // x, gain, bias, y, mean, rstd; a block per group of a sample
Function group_norm_grad_function();  // x, gain, mean, rstd, dy, dx
Function group_norm_sums_function();  // x, mean, rstd, dy, dgain, dbias; a block per channel

// ---- optimizer.cu: many tensors per launch, each with its own blocks
struct OptimizerParameters {
  uint32_t count;      // LAMB
  uint32_t wide_step;  // the step number is i64, else i32
  uint32_t decoupled, nesterov, adapts, blocks;
  uint32_t run;  // update: elements per block
  double momentum, beta1, beta2, epsilon, weight_decay, alpha;
};
// Tensors of one parameter, and its first block.
struct TensorRow {
  float* at[9];
  uint32_t count, first_block;
};
constexpr uint32_t kMostTensors = 48;
// The only argument of a kernel; every driver allows 4 KiB.
struct TensorTable {
  OptimizerParameters settings;
  const float* lr;
  const void* step;
  double* sums;
  const float* number;  // the update is skipped if this is not finite; null: never
  uint32_t tensors;
  TensorRow rows[kMostTensors];
};
static_assert(sizeof(TensorTable) <= 4096, "more than a launch takes");
enum class UpdateRule : uint32_t {
  sgd,
  sgd_momentum,
  adam,
  rmsprop,
  rmsprop_moving,
  rmsprop_centered,
  rmsprop_both,
  lion
};
constexpr uint32_t kUpdateRun = 1024;       // OptimizerParameters::run is a multiple of this
Function update_function(UpdateRule rule);  // rows: w, g, moments ..., w', moments' ...
Function lamb_moments_function();           // w, g, m, v, step, m', v', sums [blocks, 2], number
Function lamb_step_function();              // w, m', v', lr, step, sums, w', number; a thread per element
constexpr uint32_t kNormRun = 8192;         // elements per block of squares
struct GlobalNormParameters {
  uint32_t count;  // number of sums
};
Function squares_function();  // rows: x; sums: one per block
Function norm_function();     // sums, norm

// ---- window.cu: planes of one to three axes
struct WindowParameters {
  uint32_t count, rank, planes, plane, places, taps;
  int32_t size[3], kernel[3], step[3], low[3], apart[3], place[3];
  uint32_t include_padding;
  uint64_t fill;  // bits of the element
};
// Windows over any axes.
struct ReduceWindowParameters {
  uint32_t count, rank;
  Joining joining;
  int32_t place[kMostRank], size[kMostRank], window[kMostRank], step[kMostRank], low[kMostRank], apart[kMostRank];
};
Function reduce_window_function(uint32_t dtype);    // x, y
Function patches_function(uint32_t element_bytes);  // x, columns
Function unpatches_function(uint32_t dtype);        // columns, x
Function max_pool_function();                       // x, y, indices
Function max_pool_grad_function();                  // indices, dy, dx; a block per plane
Function avg_pool_function();                       // x, y
Function avg_pool_grad_function();                  // dy, dx

// ---- convolution.cu: the gradient of a weight [outputs, channels, taps_high, taps_wide] over planes
struct WeightGradientParameters {
  uint32_t batch, channels, outputs, taps_high, taps_wide, high, wide;  // high, wide: of a plane of dy
  int32_t size_high, size_wide, step_high, step_wide, apart_high, apart_wide, low_high, low_wide;
  int64_t part;  // positions per part, a multiple of 32
};
struct SumPartsParameters {
  uint32_t count, parts;
};
constexpr uint32_t kGradientColumns = 64;  // columns of a tile
// x, dy, parts; `rows`: of a tile, 16, 32 or 64; blocks {columns, rows, parts}
Function weight_gradient_function(uint32_t rows);
Function sum_parts_function();  // parts [parts, count], y; 32 elements per block

// ---- attention.cu: with optional inputs, and over caches
constexpr uint32_t kWidestHead = 256;
constexpr uint32_t kCacheBlock = 32, kCacheBytes = 34;  // elements and bytes of a q8_0 block
enum class CacheType : uint32_t { f32, f16, bf16, q8_0 };
struct AttendParameters {
  uint32_t batch, heads, shared, queries, keys, width, values;              // width, values: elements of a head's rows
  uint32_t q_head, q_row, k_head, k_row, v_head, v_row, out_head, out_row;  // strides
  uint32_t mask_item, mask_head, bias_item, bias_head;
  uint32_t causal, window;
  CacheType key_type, value_type;
  uint32_t has_lengths, has_mask, has_bias, has_sinks;
  uint32_t entries, page, pool;  // pages of a batch item, keys of a page, pages of the pool; entries 0: no pages
  float scale, cap;
};
// All f32, except keys, values, lengths, mask and pages. `statistics`: four numbers per query.
Function attend_function();          // q, k, v, lengths, mask, bias, sinks, pages, out, lse; a warp per query
Function attend_queries_function();  // q, k, v, dout, lengths, mask, bias, sinks, dq, statistics; a warp per query
Function attend_keys_function();     // q, k, v, dout, lengths, mask, bias, statistics, dk, dv; a warp per key
Function attend_bias_function();     // q, k, v, dout, lengths, mask, bias, statistics, dbias; a warp per bias element
Function attend_sinks_function();    // sinks, statistics, dsinks; a thread per head

// ---- tiled_attention.cu: without optional inputs; heads of at most `width` numbers
constexpr uint32_t kWidestTiledHead = 64, kAttentionQueries = 64, kAttentionKeys = 32;
Function attend_tiles_function(uint32_t width);  // q, k, v, out, lse; a block per kAttentionQueries queries of a head
// q, k, v, out, dout, dq, statistics (three numbers per query); a block per kAttentionKeys queries of a head
Function attend_tiles_queries_function(uint32_t width);
// q, k, v, dout, statistics, dk, dv; a block per kAttentionKeys keys of a shared head
Function attend_tiles_keys_function(uint32_t width);

// ---- sequence.cu: rotary position embedding, caches
struct TurnParameters {
  uint32_t count;                                  // rotated pairs, and elements that are not rotated
  uint32_t width, half, positions, repeats, item;  // item: rows per item of the first axis
  uint32_t has_positions, own_positions, has_frequencies, interleaved;
  int32_t offset;
  double decay, sign;
};
Function turn_function();  // x, positions, frequencies, y: f32
struct AppendParameters {
  uint32_t count, capacity, rows, row;
  uint32_t all, entries, pool;  // with pages: rows of all batch items, pages of an item, pages of the pool; else 0
};
Function append_function(uint32_t element_bytes);  // rows, start, pages, cache; rows and cache have one type
Function append_half_function(uint32_t dtype);     // rows (f32), start, pages, cache (f16 or bf16)
Function append_blocks_function();  // rows (f32), start, pages, cache (q8_0); count and row are in blocks

// ---- storage.cu: integers with a scale and a zero point per tensor, or per index of an axis
struct ChannelsParameters {
  uint32_t count, size, inner;
};
Function quantize_function(uint32_t dtype);    // x, scale, zero, y; null: unsupported type
Function dequantize_function(uint32_t dtype);  // x, scale, zero, y

// ---- recurrent.cu: a block per sample
constexpr uint32_t kScanThreads = 512;
// Workspace per sample, in widths: two states; or gradients of gates, of h and c, and partial sums.
constexpr uint32_t kScanForward = 2, kScanBackward = 6 + kScanThreads / 32;
struct ScanParameters {
  uint32_t positions, width, reverse;
  uint32_t given;  // number of optional inputs
};
Function lstm_function();       // x, weight, h0, c0, y, c, gates, memory
Function lstm_grad_function();  // weight, c, gates, c0, dy, dc, dgates, dx, dh0, dc0, memory
Function gru_function();        // x, weight, bias, h0, y, gates, memory
Function gru_grad_function();   // weight, y, gates, h0, dy, dgates, dx, dpast, dh0, memory

}  // namespace harmonics::cuda
