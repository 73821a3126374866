/* The contract between the Harmonics host and the libraries it loads. C11, append-only.
 *
 * Only the declarations of the *_abi.h headers cross the boundary of a shared library. The C++ headers are a
 * header-only API over these functions, so a plugin links nothing and may be built by another compiler, with another
 * C++ standard or another string ABI.
 *
 * Rules: every struct that may grow starts with `struct_size`; members are only added at the end; a reader reads at
 * most `struct_size` bytes. Memory is released by the side that allocated it. Exceptions, RTTI and standard library
 * types do not cross the boundary. Strings are UTF-8, NUL-terminated and belong to the caller unless stated otherwise.
 *
 * Contract 1 is frozen: a library built for 1.x loads into every host 1.y with at least the minor version it needs
 * (hx_plugin_abi.abi_min_minor). Additions of a later minor version are at the end of their struct, table or enum and
 * state that version. Statuses, tensors and attributes are in value_abi.h; tables of the other kinds of items in
 * metric_abi.h, functional_abi.h, training_abi.h and augmentation_abi.h; functions for embedders in graph_abi.h.
 */
#ifndef HARMONICS_ABI_H
#define HARMONICS_ABI_H

#include <harmonics/value_abi.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_ABI_MAJOR 1
#define HX_ABI_MINOR 5
#define HX_ABI_MIN_MINOR 0

/* ---- parameters of layers -------------------------------------------------------------------------------------- */

typedef struct hx_scope hx_scope; /* a layer body's access to its graph; valid during the call only */

typedef enum hx_init_kind {
  HX_INIT_CONSTANT = 0,       /* a */
  HX_INIT_UNIFORM = 1,        /* [a, b) */
  HX_INIT_NORMAL = 2,         /* mean a, deviation b */
  HX_INIT_KAIMING_UNIFORM = 3 /* He et al. 2015, as in PyTorch's Linear: U(-1/sqrt(a), 1/sqrt(a)), a = fan-in */
} hx_init_kind;

typedef struct hx_init {
  uint32_t kind;
  double a, b;
} hx_init;

/* ---- registration ---------------------------------------------------------------------------------------------- */

typedef struct hx_registry hx_registry;

typedef enum hx_kind {
  HX_ACTIVATION = 1,
  HX_LOSS = 2,
  HX_LAYER = 3,
  HX_PRODUCER = 4,
  HX_CONSUMER = 5,
  HX_DEVICE = 6,
  HX_METRIC = 7,         /* metric_abi.h */
  HX_FUNCTIONAL = 8,     /* functional_abi.h */
  HX_IMPLEMENTATION = 9, /* functional_abi.h */
  HX_OPTIMIZER = 10,     /* training_abi.h */
  HX_SCHEDULE = 11,      /* training_abi.h */
  HX_PREDICATE = 12,     /* training_abi.h */
  HX_AUGMENTATION = 13,  /* augmentation_abi.h */
  HX_IMPORTER = 14,      /* importer_abi.h, an extension: register_item rejects it, as well as numbers 16 and 17 */
  HX_EXPORTER = 15       /* exporter_abi.h, likewise */
} hx_kind;

typedef enum hx_argument_type {
  HX_ARG_INT = 1,
  HX_ARG_FLOAT = 2,
  HX_ARG_BOOL = 3,
  HX_ARG_STRING = 4,
  HX_ARG_INTS = 5,
  HX_ARG_LAYER = 6 /* the name of an additional source; the body receives its value (HX_ATTR_VALUE) */
} hx_argument_type;

/* One argument of a registered function. Positional arguments of a call bind in the order of this table. */
typedef struct hx_argument_spec {
  uint32_t struct_size;
  uint32_t type;
  const char* name;
  const char* default_text; /* as written in a flow; NULL: required; "": optional, absent unless given */
  const char* description;
  /* Allowed values: "0..1", "1..", "..8", "0<..<1" (open interval), or one of "none|tanh"; for lists, of each
   * element. NULL or "": any. The host rejects others before the function is called. */
  const char* range;
} hx_argument_spec;

typedef enum hx_item_flags {
  HX_TAKES_CLASSES = 1, /* loss: an integer target one rank below the prediction contains class indices */
  HX_SHIFTS_TARGET = 2, /* loss: compares position t with the target's position t+1 */
  HX_IDENTITY_SKIP = 4, /* layer: passes its source through unchanged (residual) */
  HX_MODE_ONLY = 8,     /* layer: acts only while training (dropout, noise): does not replace the implied affine map */
  HX_AFTER_MAP = 16,    /* layer: an activation with parameters (prelu): does not replace the implied affine map */
  HX_TWO_CLASSES_IN_ONE = 32, /* loss that takes classes: two classes have one output, the probability of the second */
  HX_TAKES_NUMBERS = 64,      /* metric: compares numbers; with both this and HX_TAKES_CLASSES, or neither: both */
  HX_OWN_GRADIENT = 128,      /* functional, implementation: has its own gradient */
  HX_NEEDS_END = 256,         /* schedule: requires a run with a known end */
  HX_BY_CLOCK = 512           /* predicate: depends on more than the state of the run, so runs may differ */
} hx_item_flags;

typedef struct hx_item {
  uint32_t struct_size;
  uint32_t kind;  /* hx_kind */
  uint32_t flags; /* hx_item_flags */
  uint32_t n_arguments;
  const char*
      name; /* producers and consumers: the scheme before the colon of an address; implementations: FUNCTIONAL.NAME */
  const char* description;
  const hx_argument_spec* arguments;
  void* self;         /* passed to every function of the table */
  const void* vtable; /* hx_activation_vt, hx_loss_vt, ... by kind; must outlive the library's use */
} hx_item;

/* Threads: functions of these tables are called from any thread, but never concurrently for one object. Exception:
 * `apply` functions may be called concurrently and must be pure. Each table starts with struct_size. `destroy` may be
 * NULL. */

typedef struct hx_activation_vt {
  uint32_t struct_size;
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* x, hx_value** y);
  /* Computes dx from x, y = apply(x) and dy. NULL or HX_DECLINED: the gradient is derived from apply. */
  hx_status (*gradient)(void* self, const hx_attributes* args, hx_value* x, hx_value* y, hx_value* dy, hx_value** dx);
  void (*destroy)(void* self);
  /* Optional, contract 1.5: metadata that `inspect` shows, such as the name of a shader. Valid until the thread's next
   * call; NULL: none. */
  const hx_attributes* (*metadata)(void* self);
} hx_activation_vt;

typedef struct hx_loss_vt {
  uint32_t struct_size;
  /* *out has the leading batch and position axes of the prediction and any further axes, or is a scalar. The host sums
   * over the further axes and averages over batch and positions. */
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* prediction, hx_value* target, hx_value** out);
  /* Computes the loss from the input of `activation` (identity "plugin-id/name"; "" for none). HX_DECLINED: use apply.
   * HX_ERROR: the combination is invalid; the text is the remedy. May be NULL. */
  hx_status (*apply_fused)(void* self, const hx_attributes* args, const char* activation, hx_value* logits,
                           hx_value* target, hx_value** out);
  hx_status (*gradient)(void* self, const hx_attributes* args, hx_value* prediction, hx_value* target, hx_value* dloss,
                        hx_value** dprediction);
  void (*destroy)(void* self);
} hx_loss_vt;

typedef struct hx_layer_vt {
  uint32_t struct_size;
  hx_status (*apply)(void* self, const hx_attributes* args, hx_scope* scope, hx_value* x, hx_value** y);
  void (*destroy)(void* self);
} hx_layer_vt;

/* ---- streams ---------------------------------------------------------------------------------------------------- */

typedef struct hx_stream_info {
  uint32_t struct_size;
  uint32_t position_axes; /* 0, or 1: the first axis of a sample is a sequence (text windows) */
  hx_type sample;         /* of one sample; rank and dims exact */
  uint64_t size;          /* samples in one pass; 0: unbounded */
  int64_t classes;        /* integer samples: number of classes or tokens; 0: unknown */
  uint32_t live;          /* nonzero: unbounded, cannot be read twice */
  uint32_t n_symbols;     /* text sources: number of symbols, one per index; owned by the producer */
  const char* const* symbols;
  const char* notes; /* contract 0.3: notes about the data for users; NULL: none; owned by the producer */
} hx_stream_info;

enum { HX_STREAM_WAITING = 0, HX_STREAM_RECEIVING = 1, HX_STREAM_ENDED = 2, HX_STREAM_FAILED = 3 };

/* Contract 1.1: health of a live source. Counts are per process; unknown values stay 0. */
typedef struct hx_stream_health {
  uint32_t struct_size;
  uint32_t state;              /* HX_STREAM_... */
  uint32_t senders, connected; /* ever seen; currently connected */
  uint32_t wants_durable;      /* nonzero: senders' buffers are full until durable() is called */
  uint32_t at_most_once;       /* nonzero: samples lost in transit are not resent */
  uint64_t samples, bytes;     /* received */
  uint64_t queued_samples, queued_bytes, window_bytes; /* received but not consumed; their limit */
  uint64_t lost, duplicates, refused, resent;
  double idle_seconds;  /* since the last arrival */
  char last_error[256]; /* "": none */
} hx_stream_health;

/* Key for joining samples of live streams. The numbers of a sender increase. `sender` identifies a sender, and each of
 * its incarnations that restarts the numbering; it is the same in every process. */
typedef struct hx_sample_number {
  uint64_t number;
  uint64_t sender;
} hx_sample_number;

typedef struct hx_producer_vt { /* self is a producer object created by a factory */
  uint32_t struct_size;
  hx_status (*describe)(void* self, hx_stream_info* out); /* optional: otherwise the first sample is inspected */
  hx_status (*next)(void* self, hx_value** out);          /* one sample; HX_END at the end of a pass */
  /* Optional: writes up to n samples of describe()'s type contiguously to dst. *got < n only at the end of a pass. */
  hx_status (*read)(void* self, uint64_t n, void* dst, uint64_t* got);
  hx_status (*rewind)(void* self, uint64_t epoch); /* back to the start; NULL: cannot */
  uint64_t (*size)(void* self);                    /* 0: unbounded or unknown */
  void (*destroy)(void* self);
  /* Optional, for sources with describe() and identical passes: writes the samples with these indices contiguously to
   * dst. The read position is unchanged. n = 0 queries support: HX_OK or HX_DECLINED. If supported, the host shuffles
   * by index instead of buffering blocks of samples. */
  hx_status (*read_at)(void* self, const uint64_t* numbers, uint64_t n, void* dst);
  /* Optional, contract 0.3: seeks to sample `index` of pass `epoch`, both from 0; equivalent to rewind(epoch) and
   * `index` calls of next. HX_DECLINED: unsupported; the host then rewinds and skips. */
  hx_status (*seek)(void* self, uint64_t epoch, uint64_t index);
  /* The following functions are optional, of contract 1.1, and for live sources. Their samples are numbered from 0 in
   * output order, across restarts. Functions marked [any thread] may run concurrently with any other; the others never
   * run concurrently.
   *
   * restore: resumes before sample `index` from the text that position(index) returned in any process; "" with index 0:
   * from the beginning. Called once, before the first sample, by hosts with checkpoints or a spool, which then call
   * durable(). HX_DECLINED: the source has no positions. If it is not called, the host stores no samples. */
  hx_status (*restore)(void* self, uint64_t index, const char* position);
  /* [any thread] Returns the text for restore before sample `index`, which is between the last durable() and the newest
   * sample. *size is its length. It is written with its NUL if capacity is larger, else not at all. */
  hx_status (*position)(void* self, uint64_t index, char* dst, uint64_t capacity, uint64_t* size);
  /* [any thread] Declares that samples before `index` are never requested again, even if the process ends. Must not
   * block. */
  hx_status (*durable)(void* self, uint64_t index);
  /* [any thread] Makes current and later calls of next and read return the available samples and then the end. */
  hx_status (*cancel)(void* self);
  hx_status (*health)(void* self, hx_stream_health* out); /* [any thread] */
  /* Optional, contract 1.2: returns the sender's numbers of the last n samples of the last next or read, in their
   * order. HX_DECLINED: none. n = 0 queries support before the first sample. */
  hx_status (*numbers)(void* self, uint64_t n, hx_sample_number* to);
} hx_producer_vt;

typedef struct hx_consumer_vt {
  uint32_t struct_size;
  hx_status (*push)(void* self, hx_value* sample); /* one sample, without batch axis */
  hx_status (*finish)(void* self);                 /* flush; may be NULL */
  void (*destroy)(void* self);
} hx_consumer_vt;

/* The vtable of an item of kind HX_PRODUCER or HX_CONSUMER. `path`: the address after the scheme, without options and
 * fragment. `args`: the options of the address that are in the schema, validated and with defaults, and "#", the
 * fragment, if present. */
typedef struct hx_producer_factory_vt {
  uint32_t struct_size;
  hx_status (*open)(void* self, const char* path, const hx_attributes* args, const hx_producer_vt** vt, void** object);
  void (*destroy)(void* self);
} hx_producer_factory_vt;

typedef struct hx_consumer_factory_vt {
  uint32_t struct_size;
  hx_status (*open)(void* self, const char* path, const hx_attributes* args, const hx_consumer_vt** vt, void** object);
  void (*destroy)(void* self);
} hx_consumer_factory_vt;

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* One operation of a fused elementwise chain. Registers are numbered: inputs first, then results in order. */
typedef struct hx_scalar_op {
  const char* op; /* an elementwise primitive */
  uint32_t a, b, c;
  uint32_t dtype; /* of the result */
} hx_scalar_op;

enum {
  HX_SITE_FP16_CHUNKS = 1, /* f32 products may round their operands and short partial sums to fp16, with totals in
                            * f32 */
  HX_SITE_TRAINING = 2,    /* for implementations: the call belongs to a training step */
  /* Contract 1.4. f32 products may round their operands to bf16, or to fp8 (E4M3) with one scale per tensor such that
   * its maximum fits. Accumulation is in f32. An unsuitable operand may be rounded less. */
  HX_SITE_BF16 = 4,
  HX_SITE_FP8 = 8
};

/* Contract 1.5: the driver's handles of a device with its own memory, for kernels of implementations. The buffer of an
 * hx_place is then a handle of the driver: a cl_mem, or a CUdeviceptr of the device's context. */
enum { HX_NATIVE_NONE = 0, HX_NATIVE_OPENCL = 1, HX_NATIVE_CUDA = 2 };
typedef struct hx_native {
  uint32_t struct_size;
  uint32_t driver; /* HX_NATIVE_... */
  void* device;    /* OpenCL: cl_device_id. CUDA: NULL, the device of the context */
  void* context;   /* OpenCL: cl_context. CUDA: NULL, the context is current in the calling thread */
  void* queue;     /* OpenCL: cl_command_queue, in order. CUDA: CUstream. NULL at call sites */
} hx_native;

typedef struct hx_call_site {
  uint32_t struct_size;
  uint32_t flags; /* HX_SITE_... */
  const char* op; /* primitive or functional name; "fused_elementwise" for a chain in `chain` */
  const hx_attributes* attributes;
  uint32_t n_inputs, n_outputs;
  const hx_type* inputs;
  const hx_type* outputs;
  uint32_t n_chain; /* fused_elementwise: inputs broadcast to the outputs' common shape by aligning trailing axes (sizes
                     * 1 or equal); the registers listed in chain_outputs are stored */
  const hx_scalar_op* chain;
  const uint32_t* chain_outputs;
  const char* device; /* name of the device for which the program is compiled */
  /* Contract 1.5; present if struct_size covers it. Bit i: the elements of input i never change. */
  uint64_t constants;
  /* Contract 1.5, likewise, for implementations: the handles of the device's driver, valid as long as the kernel. NULL:
   * none. */
  const hx_native* native;
  /* Contract 1.5, likewise: bytes of the parameters and states that the program changes. If they exceed a cache, each
   * run evicts them from it, so that a weight is read from farther away. */
  uint64_t changed_bytes;
} hx_call_site;

#define HX_MAX_PHASES 4

/* Contract 1.2: devices with their own memory. A buffer is a number that is opaque to the host (an address, a cl_mem);
 * an hx_place is a location in it. Offsets chosen by the host are multiples of hx_device_info.alignment. */
typedef struct hx_queue hx_queue;     /* in-order work, asynchronous to the host */
typedef struct hx_event hx_event;     /* a point in the work of a queue */
typedef struct hx_capture hx_capture; /* recorded work of a queue, launched as a whole */

typedef struct hx_place {
  uint64_t buffer, offset;
} hx_place;

/* A kernel for one call site. The host calls run(context, buffers, phase, part) for all parts of phase 0, then of
 * phase 1, ...; parts of one phase may run concurrently and in any order. The number of parts must depend only on the
 * call site, not on the machine's threads, so that results are equal for any number of threads. buffers: inputs, then
 * outputs, then one workspace (64-byte aligned). Runs of one kernel never overlap; different kernels may run
 * concurrently. */
typedef struct hx_kernel {
  uint32_t struct_size;
  uint32_t phases;
  uint32_t parts[HX_MAX_PHASES];
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
  void* context;
  void (*destroy)(void* context); /* may be NULL */
  uint64_t workspace;             /* bytes */
  const char* name;               /* for display: "oneDNN matmul", "softmax avx2"; static */
  uint32_t in_place;              /* bit i: output 0 may be the same memory as input i */
  /* Contract 1.2, devices with their own memory: appends the kernel to the queue and returns. `places`: as `buffers`
   * above, the same in every call. Replaces run; run is then NULL, phases and parts are 0. A kernel with only run
   * receives host memory, which the host copies. Set it only if struct_size, which the host sets before find, covers
   * it. */
  hx_status (*enqueue)(const void* context, hx_queue* queue, const hx_place* places);
  /* Contract 1.4, optional in addition to enqueue, for parameter updates: as enqueue, but the outputs are unchanged if
   * the f32 at `number` is infinite or NaN when the kernel executes. Set it only if struct_size covers it. */
  hx_status (*enqueue_if_finite)(const void* context, hx_queue* queue, const hx_place* places, const hx_place* number);
  /* Contract 1.5, optional in addition to run, for a site with a constant input; set it only if struct_size covers it.
   * The packed form of input `packed_input` has packed_bytes, in pieces of packed_piece bytes; the last piece may be
   * shorter. The host calls pack once for each piece, in any order and from any thread, with the elements of the input
   * and 64-byte aligned memory for the piece. It passes the packed form to run as an additional buffer after the
   * workspace. `packing`, a static string, identifies layout, instruction set and version. Kernels with equal strings
   * share the packed form of an input, so the form must depend on nothing else. Without pack, packed_bytes is 0. */
  uint64_t packed_bytes, packed_piece;
  void (*pack)(const void* context, const void* input, uint64_t piece, void* packed);
  const char* packing;
  uint32_t packed_input;
  /* Contract 1.5, for implementations at a site with `native`; set it only if struct_size covers it. Appends the kernel
   * to the driver's queue native->queue and returns. Otherwise as enqueue, which it replaces, as well as run, phases
   * and parts. */
  hx_status (*enqueue_native)(const void* context, const hx_native* native, const hx_place* places);
} hx_kernel;

enum { HX_DEVICE_OTHER = 0, HX_DEVICE_CPU = 1, HX_DEVICE_GPU = 2, HX_DEVICE_FPGA = 3 };

typedef struct hx_device_info {
  uint32_t struct_size;
  uint32_t sort;                            /* HX_DEVICE_... */
  uint64_t memory, free_memory, most_bytes; /* total, free, largest buffer; 0: unknown */
  uint32_t alignment;                       /* of offsets: a power of two, at most 64 */
  uint32_t reserved;
  char name[128], driver[128], capability[256]; /* "": unknown */
  char unavailable[512];                        /* reason why the device cannot be used, and the remedy; "": it can */
} hx_device_info;

typedef struct hx_device_vt {
  uint32_t struct_size;
  const char* (*describe)(void* self); /* one line: name, instruction set, libraries */
  hx_status (*find)(void* self, const hx_call_site* site, hx_kernel* out); /* HX_DECLINED: no kernel */
  void (*destroy)(void* self);
  /* Optional. Returns the HX_SITE_... flags for which the device has kernels: of FP16_CHUNKS, BF16 and FP8. */
  uint32_t (*flags)(void* self);
  /* The following functions are of contract 1.2 or later. info: optional, also for devices in host memory. */
  hx_status (*info)(void* self, hx_device_info* out);
  /* A device with its own memory has all functions from here to synchronize. Different queues may be used concurrently;
   * one queue is used by one thread at a time; find may run concurrently. The next synchronize returns asynchronous
   * errors. */
  hx_status (*open_queue)(void* self, hx_queue** out);
  void (*close_queue)(void* self, hx_queue* queue);                    /* waits for queued work */
  hx_status (*allocate)(void* self, uint64_t bytes, uint64_t* buffer); /* bytes > 0; contents are uninitialised */
  void (*release)(void* self, uint64_t buffer);                        /* called when no queued work uses it */
  /* May be asynchronous; the host leaves its memory unchanged until synchronize, or await_event of a later event. */
  hx_status (*upload)(void* self, hx_queue* queue, const hx_place* to, const void* from, uint64_t bytes);
  hx_status (*download)(void* self, hx_queue* queue, void* to, const hx_place* from, uint64_t bytes);
  hx_status (*copy)(void* self, hx_queue* queue, const hx_place* to, const hx_place* from,
                    uint64_t bytes);                     /* no overlap */
  hx_status (*synchronize)(void* self, hx_queue* queue); /* waits for all queued work */
  /* Optional: starts queued work without waiting. */
  hx_status (*submit)(void* self, hx_queue* queue);
  /* Optional, both or none: pinned host memory. */
  hx_status (*allocate_host)(void* self, uint64_t bytes, void** out);
  void (*release_host)(void* self, void* memory);
  /* Optional, all or none: makes a queue wait for an event of another queue without blocking the host. */
  hx_status (*record)(void* self, hx_queue* queue, hx_event** out);
  hx_status (*wait)(void* self, hx_queue* queue, hx_event* event);
  void (*release_event)(void* self, hx_event* event);
  /* Optional, all or none: kernels and copies queued between begin_capture and end_capture are recorded, not executed;
   * launch enqueues all of them with the same addresses. HX_DECLINED from end_capture: the work cannot be captured and
   * is dropped. */
  hx_status (*begin_capture)(void* self, hx_queue* queue);
  hx_status (*end_capture)(void* self, hx_queue* queue, hx_capture** out);
  hx_status (*launch)(void* self, hx_queue* queue, hx_capture* capture);
  void (*release_capture)(void* self, hx_capture* capture);
  /* Optional, contract 1.3, both or none, requires record. record_time: records an event with a timestamp of its
   * execution. elapsed: returns the seconds, at least 0, from one such event to a later one of the same queue, after
   * synchronize has completed both. HX_DECLINED from either: no timestamps. */
  hx_status (*record_time)(void* self, hx_queue* queue, hx_event** out);
  hx_status (*elapsed)(void* self, hx_event* from, hx_event* to, double* seconds);
  /* Optional, contract 1.4, both or none, requires record and allocate_host: a whole training step is then enqueued at
   * once, and the host reads the loss while it runs. copy_if_finite: as copy, but `to` is unchanged if the f32 at
   * `number` is infinite or NaN when the copy executes. await_event: blocks the host until the event; may return errors
   * that occurred before it. Downloads into memory of allocate_host, and record, are then also allowed during capture:
   * each launch triggers the event again, and await_event waits for the latest. */
  hx_status (*copy_if_finite)(void* self, hx_queue* queue, const hx_place* to, const hx_place* from, uint64_t bytes,
                              const hx_place* number);
  hx_status (*await_event)(void* self, hx_event* event);
  /* Optional, contract 1.5: returns the driver's handles; without a queue if `queue` is NULL. Work that other code
   * appends to the driver's queue is ordered with the device's own work. */
  hx_status (*native)(void* self, hx_queue* queue, hx_native* out);
  /* Optional, contract 1.5: creates a device that forwards calls to `inner`, which outlives it. Both are devices in
   * host memory. `--device NAME:OTHER` selects it. The host destroys *out with the table's destroy. */
  hx_status (*wrap)(void* self, const struct hx_device_vt* inner, void* inner_self, const struct hx_device_vt** out_vt,
                    void** out);
} hx_device_vt;

/* ---- the host's table ---------------------------------------------------------------------------------------------
 */

#define HX_MAX_LOOP_RESULTS 64

/* The body of a loop, contract 1.5. step receives the carries, then one slice of each of xs. It returns the next
 * carries, of the same types, then the outputs of the step. It uses hx_api.apply and cannot read values. `outs` has
 * room for HX_MAX_LOOP_RESULTS. Called only during hx_api.scan. */
typedef struct hx_loop_body {
  uint32_t struct_size;
  hx_status (*step)(void* self, hx_value* const* operands, uint32_t n_operands, hx_value** outs, uint32_t* n_outs);
  void* self;
} hx_loop_body;

typedef struct hx_api {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;

  /* Errors. last_error: returns the text of this thread's last HX_ERROR. set_error: called by plugins before they
   * return HX_ERROR. */
  const char* (*last_error)(uint32_t* kind);
  void (*set_error)(uint32_t kind, const char* text);

  /* Values. create: NULL data means zeros. Returned values carry one reference for the caller. */
  void (*retain)(hx_value* v);
  void (*release)(hx_value* v);
  hx_status (*create)(const hx_type* type, const void* data, hx_value** out);
  hx_status (*type_of)(const hx_value* v, hx_type* out);
  hx_status (*data)(const hx_value* v, const void** out); /* HX_NEEDS_VALUES on a traced value */
  hx_status (*mutable_data)(hx_value** v, void** out);    /* copies a shared value first (replaces *v) */

  /* Operations: applies a primitive ("add") or a functional ("layer_norm") by name. outs has room for max_outs. Traced
   * if an input is traced, else evaluated immediately. */
  hx_status (*apply)(const char* op, const hx_attributes* attributes, hx_value* const* inputs, uint32_t n_inputs,
                     hx_value** outs, uint32_t max_outs, uint32_t* n_outs);

  /* Scope of a layer body. */
  hx_status (*scope_parameter)(hx_scope*, const char* name, const hx_type* type, const hx_init* init, hx_value** out);
  hx_status (*scope_state)(hx_scope*, const char* name, const hx_type* type, const hx_init* init, hx_value** out);
  hx_status (*scope_update)(hx_scope*, const char* name, hx_value* value);
  /* Returns uniform numbers in [0, 1) of this f32 type, new in each step (Philox 4x32-10 keyed by seed and parameter
   * path). */
  hx_status (*scope_random)(hx_scope*, const hx_type* type, hx_value** out);
  int32_t (*scope_training)(hx_scope*);
  uint32_t (*scope_leading)(hx_scope*);                    /* batch axis + position axes of x */
  hx_status (*scope_width)(hx_scope*, int64_t* width);     /* of the arrow's target; HX_NEEDS_WIDTH */
  hx_status (*scope_classes)(hx_scope*, int64_t* classes); /* classes or tokens of x's stream; 0: unknown */

  /* Registration. The host copies names, descriptions and schema, and takes ownership of self (destroy), even if it
   * rejects the item. */
  hx_status (*register_item)(hx_registry*, const hx_item* item);

  /* Returns an optional extension by name and version ("hx.graph/0"); NULL if the host lacks it. */
  const void* (*extension)(const char* id);

  /* Sets the number of leading axes (batch and positions) of the layer's result, if it differs from that of x. */
  hx_status (*scope_set_leading)(hx_scope*, uint32_t leading);

  /* Contract 1.5: loops over the first axis of xs, which all have the same length. The body is traced once, even if no
   * operand is traced. Other traced values that the body uses are constants of the loop. Attributes: "length" (int;
   * required without xs), "reverse" (bool; iterates from the last slice; outputs have the order of xs). Results: the
   * carries after the last step, then each output of the body for all steps, along a new first axis. `outs` has room
   * for HX_MAX_LOOP_RESULTS. */
  hx_status (*scan)(const hx_loop_body* body, const hx_attributes* attributes, hx_value* const* carries,
                    uint32_t n_carries, hx_value* const* xs, uint32_t n_xs, hx_value** outs, uint32_t* n_outs);

  /* Contract 1.5, within the apply functions of a loss: runs report the mean of `value` over the samples as `name`, in
   * addition to the loss. Has no effect unless `value` is traced. A name has no blanks, commas or comparison signs. */
  hx_status (*report_figure)(const char* name, hx_value* value);
} hx_api;

/* The argument of harmonics_register; in C++ harmonics::FunctionRegistry&. */
typedef struct hx_registration {
  uint32_t struct_size;
  const hx_api* api;
  hx_registry* registry;
} hx_registration;

/* Exported by a plugin as the constant `harmonics_plugin_abi`: no pointers, readable without loading the library. */
typedef struct hx_plugin_abi {
  char magic[8]; /* "HXPLUG1" */
  uint32_t struct_size;
  uint16_t abi_major, abi_minor, abi_min_minor, flags;
  char id[64], version[24], license[32], vendor[48], built_with[64];
} hx_plugin_abi;

/* Returns the host's table, for embedders; a plugin does not need it. */
const hx_api* harmonics_api(void);

#ifdef __cplusplus
}
#endif
#endif
