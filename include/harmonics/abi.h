/* The contract between the Harmonics host and everything that is loaded into it. C11, append-only.
 *
 * Only what stands in this file crosses the boundary of a shared library. The C++ headers beside it are a
 * header-only face over these functions, so a plugin links nothing and may be built by another compiler, with
 * another C++ standard or another string ABI.
 *
 * Rules: every struct that may grow starts with `struct_size`; members are only ever added at the end; whoever reads
 * a struct reads at most `struct_size` bytes of it. Memory is released by the side that made it. No exception, no
 * RTTI, no standard library type crosses. Strings are UTF-8, end with NUL and belong to the caller unless said
 * otherwise.
 *
 * Contract 1 is frozen: whatever was built for 1.x loads into every host of 1.y that has the minor it needs at least
 * (hx_plugin_abi.abi_min_minor). What a later minor adds stands at the end of its struct, table or list of numbers and
 * says which minor it came with. The tables of the other kinds of items stand beside this file: metric_abi.h,
 * functional_abi.h, training_abi.h, augmentation_abi.h; what embedders call in graph_abi.h.
 */
#ifndef HARMONICS_ABI_H
#define HARMONICS_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_ABI_MAJOR 1
#define HX_ABI_MINOR 5
#define HX_ABI_MIN_MINOR 0
#define HX_MAX_RANK 8

/* ---- status, errors ------------------------------------------------------------------------------------------- */

typedef enum hx_status {
  HX_OK = 0,
  HX_ERROR = 1,        /* text through hx_api.last_error (host) or passed to hx_api.set_error (plugin) */
  HX_NEEDS_VALUES = 2, /* a traced value was asked for its numbers */
  HX_END = 3,          /* a stream has ended */
  HX_DECLINED = 4,     /* "I do not serve this": no gradient, no kernel, no fused form; set_error may say why */
  HX_NEEDS_WIDTH = 5,  /* a layer asked for a width that is not known yet */
  /* Never given: any number of 32 bits that comes from the other side may be held and compared. */
  HX_STATUS_LEAST = -2147483647 - 1,
  HX_STATUS_MOST = 2147483647
} hx_status;

/* The same numbers as harmonics::ErrorKind. */
typedef enum hx_error_kind {
  HX_ERROR_INTERNAL = 0,
  HX_ERROR_SYNTAX = 1,
  HX_ERROR_NAME = 2,
  HX_ERROR_SHAPE = 3,
  HX_ERROR_TYPE = 4,
  HX_ERROR_WEIGHTS = 5,
  HX_ERROR_PLUGIN = 6,
  HX_ERROR_DEVICE = 7,
  HX_ERROR_STREAM = 8,        /* data that cannot be understood */
  HX_ERROR_NO_INPUT = 9,      /* a file that is not there */
  HX_ERROR_USAGE = 10,
  HX_ERROR_OUTPUT = 11,       /* a file that cannot be written */
  HX_ERROR_DIVERGED = 12,     /* numbers stopped being finite */
  HX_ERROR_INPUT_OUTPUT = 13, /* a disk, or another device, that fails */
  HX_ERROR_DENIED = 14,       /* not allowed */
  HX_ERROR_UNAVAILABLE = 15,  /* a peer that does not answer or went away */
  HX_ERROR_MEMORY = 16        /* not enough memory; contract 1.5 */
} hx_error_kind;

/* ---- tensors --------------------------------------------------------------------------------------------------- */

typedef enum hx_dtype {
  HX_BOOL = 0,
  HX_U8 = 1,
  HX_I8 = 2,
  HX_I16 = 3,
  HX_U16 = 4,
  HX_I32 = 5,
  HX_U32 = 6,
  HX_I64 = 7,
  HX_U64 = 8,
  HX_F16 = 9,
  HX_BF16 = 10,
  HX_F32 = 11,
  HX_F64 = 12
} hx_dtype;

typedef struct hx_type { /* dense, row-major; rank 0 is a scalar */
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[HX_MAX_RANK];
} hx_type;

typedef struct hx_value hx_value; /* a tensor, or a value of the program being traced; counted; owned by the host */

typedef enum hx_attribute_kind {
  HX_ATTR_INT = 1,
  HX_ATTR_FLOAT = 2,
  HX_ATTR_STRING = 3,
  HX_ATTR_BOOL = 4, /* in `i` */
  HX_ATTR_INTS = 5,
  HX_ATTR_FLOATS = 6,
  HX_ATTR_VALUE = 7 /* a tensor: a further source layer named by an argument */
} hx_attribute_kind;

typedef struct hx_attribute {
  const char* name;
  uint32_t kind;
  uint32_t count; /* of ints or floats */
  union {
    int64_t i;
    double f;
    const char* s;
    const int64_t* ints;
    const double* floats;
    hx_value* value;
  } as;
} hx_attribute;

typedef struct hx_attributes {
  const hx_attribute* items;
  uint32_t count;
} hx_attributes;

/* ---- parameters of layers -------------------------------------------------------------------------------------- */

typedef struct hx_scope hx_scope; /* what a layer body may ask of the graph it stands in; valid during the call only */

typedef enum hx_init_kind {
  HX_INIT_CONSTANT = 0,        /* a */
  HX_INIT_UNIFORM = 1,         /* [a, b) */
  HX_INIT_NORMAL = 2,          /* mean a, deviation b */
  HX_INIT_KAIMING_UNIFORM = 3  /* He et al. 2015 as PyTorch's Linear and Conv: U(-1/sqrt(a), 1/sqrt(a)), a = fan-in */
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
  HX_IMPORTER = 14,      /* reserved: a host of 1.0 has no use for it and refuses it */
  HX_EXPORTER = 15       /* reserved likewise */
} hx_kind;

typedef enum hx_argument_type {
  HX_ARG_INT = 1,
  HX_ARG_FLOAT = 2,
  HX_ARG_BOOL = 3,
  HX_ARG_STRING = 4,
  HX_ARG_INTS = 5,
  HX_ARG_LAYER = 6 /* the name of a further source; the body receives its value (HX_ATTR_VALUE) */
} hx_argument_type;

/* One argument of a registered function. Positional arguments of a call bind in the order of this table. */
typedef struct hx_argument_spec {
  uint32_t struct_size;
  uint32_t type;
  const char* name;
  const char* default_text; /* as it would be written in a flow; NULL: required; "": optional, absent unless given */
  const char* description;
  /* What values are possible: "0..1", "1..", "..8", "0<..<1" (ends left out), or one of "none|tanh"; the numbers of a list
   * each. NULL or "": any. The host refuses others before the function sees them. */
  const char* range;
} hx_argument_spec;

typedef enum hx_item_flags {
  HX_TAKES_CLASSES = 1,   /* loss: an integer target one rank below the prediction holds class indices */
  HX_SHIFTS_TARGET = 2,   /* loss: compares position t with the target's position t+1 */
  HX_IDENTITY_SKIP = 4,   /* layer: hands its source on unchanged (residual) */
  HX_MODE_ONLY = 8,       /* layer: acts only while training (dropout, noise): does not replace the implied affine map */
  HX_AFTER_MAP = 16,      /* layer: an activation with parameters (prelu): does not replace the implied affine map */
  HX_TWO_CLASSES_IN_ONE = 32, /* loss that takes classes: two of them are one output, their second's probability */
  HX_TAKES_NUMBERS = 64,      /* metric: compares numbers; with HX_TAKES_CLASSES, or neither: both */
  HX_OWN_GRADIENT = 128,      /* functional, implementation: brings the gradient */
  HX_NEEDS_END = 256,         /* schedule: has to know when the run ends */
  HX_BY_CLOCK = 512           /* predicate: its answer depends on more than the run, so runs may differ */
} hx_item_flags;

typedef struct hx_item {
  uint32_t struct_size;
  uint32_t kind;  /* hx_kind */
  uint32_t flags; /* hx_item_flags */
  uint32_t n_arguments;
  const char* name; /* producers and consumers: the scheme before the colon of an address; implementations: FUNCTIONAL.NAME */
  const char* description;
  const hx_argument_spec* arguments;
  void* self;         /* given back to every function of the table */
  const void* vtable; /* hx_activation_vt, hx_loss_vt, ... by kind; must outlive the library's use */
} hx_item;

/* Threads: functions of these tables are called from any thread, never twice at once for one object, except
 * `apply` functions, which must be pure. Each table starts with struct_size. `destroy` may be NULL. */

typedef struct hx_activation_vt {
  uint32_t struct_size;
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* x, hx_value** y);
  /* dx from x, y = apply(x) and dy; NULL or HX_DECLINED: no own gradient */
  hx_status (*gradient)(void* self, const hx_attributes* args, hx_value* x, hx_value* y, hx_value* dy, hx_value** dx);
  void (*destroy)(void* self);
} hx_activation_vt;

typedef struct hx_loss_vt {
  uint32_t struct_size;
  /* Any shape with the leading batch and position axes of the prediction, or a scalar: the host sums over the other
   * axes and averages over batch and positions. */
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* prediction, hx_value* target, hx_value** out);
  /* Same on the value before `activation` (identity "plugin-id/name"; "" when there was none). HX_DECLINED: use
   * apply; HX_ERROR: the pair makes no sense, the text says what to write. May be NULL. */
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
  uint32_t position_axes;  /* 0, or 1: the first axis of a sample is a sequence (text windows) */
  hx_type sample;          /* of one sample; rank and dims exact */
  uint64_t size;           /* samples in one pass; 0: unbounded */
  int64_t classes;         /* integer samples: how many classes or symbols there are; 0: unknown */
  uint32_t live;           /* nonzero: no end, cannot be read twice */
  uint32_t n_symbols;      /* text sources: the symbol of each index; owned by the producer */
  const char* const* symbols;
  const char* notes;       /* contract 0.3: lines for people about the data; NULL: none; owned by the producer */
} hx_stream_info;

enum { HX_STREAM_WAITING = 0, HX_STREAM_RECEIVING = 1, HX_STREAM_ENDED = 2, HX_STREAM_FAILED = 3 };

/* Contract 1.1: how a live source is. Counts are of this process; what a source does not know stays 0. */
typedef struct hx_stream_health {
  uint32_t struct_size;
  uint32_t state;              /* HX_STREAM_... */
  uint32_t senders, connected; /* that came, that are there now */
  uint32_t wants_durable;      /* nonzero: who sends can keep no more until durable() is called */
  uint32_t at_most_once;       /* nonzero: what is lost on the way is not sent again */
  uint64_t samples, bytes;     /* arrived */
  uint64_t queued_samples, queued_bytes, window_bytes; /* arrived and not yet given; the most that may be */
  uint64_t lost, duplicates, refused, resent;
  double idle_seconds;         /* since something arrived */
  char last_error[256];        /* "": none */
} hx_stream_health;

/* What joins samples of live streams: samples of one sender have growing numbers; `sender` differs between senders, and between
 * incarnations of one that begin to number anew, and is the same in every process. */
typedef struct hx_sample_number {
  uint64_t number;
  uint64_t sender;
} hx_sample_number;

typedef struct hx_producer_vt { /* self is a producer object made by a factory */
  uint32_t struct_size;
  hx_status (*describe)(void* self, hx_stream_info* out);      /* optional: else the first sample is looked at */
  hx_status (*next)(void* self, hx_value** out);               /* one sample; HX_END at the end of a pass */
  /* Optional: up to n samples of describe()'s type, back to back, straight into dst. *got < n only at the end. */
  hx_status (*read)(void* self, uint64_t n, void* dst, uint64_t* got);
  hx_status (*rewind)(void* self, uint64_t epoch);             /* back to the start; NULL: cannot */
  uint64_t (*size)(void* self);                                /* 0: unbounded or unknown */
  void (*destroy)(void* self);
  /* Optional, for sources with describe() whose passes are all the same: the samples of these numbers in a pass, back to
   * back, straight into dst. Reading goes on where it stood. n = 0 asks whether it can: HX_OK or HX_DECLINED. The host then
   * shuffles by number instead of keeping blocks of samples. */
  hx_status (*read_at)(void* self, const uint64_t* numbers, uint64_t n, void* dst);
  /* Optional, contract 0.3: to sample `index` of pass `epoch`, both from 0; the same samples follow as after rewind(epoch) and
   * `index` calls of next. HX_DECLINED: cannot; the host then rewinds and skips. */
  hx_status (*seek)(void* self, uint64_t epoch, uint64_t index);
  /* The rest is of contract 1.1, optional, and for live sources, whose samples are numbered from 0 in the order they are given,
   * over restarts. [any thread] may be called while another function runs; all others never are.
   *
   * restore: called once, before the first sample, by hosts that keep checkpoints or a spool: durable() will be called. Goes on
   * before sample `index`, where position(index) of this or an earlier process said; "" with index 0: from the beginning.
   * HX_DECLINED: this source has no positions. Never called: nothing that is given is kept by anybody. */
  hx_status (*restore)(void* self, uint64_t index, const char* position);
  /* [any thread] Where restore goes on before sample `index`, which lies between the last durable() and what was given: a text.
   * *size is its length; written with its NUL when capacity is larger, else not at all. */
  hx_status (*position)(void* self, uint64_t index, char* dst, uint64_t capacity, uint64_t* size);
  /* [any thread] The samples before `index` are not asked for again, even if the process ends now. Does not wait. */
  hx_status (*durable)(void* self, uint64_t index);
  /* [any thread] next and read, waiting now or called later, give what they have and then the end. */
  hx_status (*cancel)(void* self);
  hx_status (*health)(void* self, hx_stream_health* out); /* [any thread] */
  /* Optional, contract 1.2: of the last n samples that the last next or read gave, in their order, the numbers that their sender gave
   * them. HX_DECLINED: they have none. n = 0 asks whether they do, before the first sample. */
  hx_status (*numbers)(void* self, uint64_t n, hx_sample_number* to);
} hx_producer_vt;

typedef struct hx_consumer_vt {
  uint32_t struct_size;
  hx_status (*push)(void* self, hx_value* sample); /* one sample, without batch axis */
  hx_status (*finish)(void* self);                 /* flush; may be NULL */
  void (*destroy)(void* self);
} hx_consumer_vt;

/* What an item of kind HX_PRODUCER or HX_CONSUMER registers as its vtable. `path` is the address after the scheme,
 * without options and fragment; `args` hold the options of the address that the schema names (checked, with defaults)
 * and "#", the fragment, when there was one. */
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

/* One operation of a fused elementwise chain: registers are numbered inputs first, then results in order. */
typedef struct hx_scalar_op {
  const char* op; /* an elementwise primitive */
  uint32_t a, b, c;
  uint32_t dtype;   /* of the result */
} hx_scalar_op;

enum {
  HX_SITE_FP16_CHUNKS = 1, /* f32 products may have their operands rounded to fp16 and short partial sums kept in it,
                            * with totals in f32 */
  HX_SITE_TRAINING = 2,    /* asked of implementations: the call belongs to a training step */
  /* Contract 1.4. f32 products may have their operands rounded to bf16; or to fp8 (E4M3), each operand scaled as a whole so
   * that its largest number fits. Sums are in f32. Where an operand does not suit, it may be rounded less. */
  HX_SITE_BF16 = 4,
  HX_SITE_FP8 = 8
};

typedef struct hx_call_site {
  uint32_t struct_size;
  uint32_t flags; /* HX_SITE_... */
  const char* op; /* primitive or functional name; "fused_elementwise" for a chain in `chain` */
  const hx_attributes* attributes;
  uint32_t n_inputs, n_outputs;
  const hx_type* inputs;
  const hx_type* outputs;
  uint32_t n_chain; /* fused_elementwise: inputs broadcast to the output's shape by aligning trailing axes (sizes 1
                     * or equal); registers listed in chain_outputs are stored, all of the outputs' one shape */
  const hx_scalar_op* chain;
  const uint32_t* chain_outputs;
  const char* device; /* the name of the device that the program is compiled for */
} hx_call_site;

#define HX_MAX_PHASES 4

/* Contract 1.2: devices with memory of their own. A buffer is a number that only the device understands (an address, a
 * cl_mem); a place is a byte of it. Offsets the host makes up are multiples of hx_device_info.alignment. */
typedef struct hx_queue hx_queue;     /* what is put there runs in that order, beside the host */
typedef struct hx_event hx_event;     /* a point of a queue */
typedef struct hx_capture hx_capture; /* the work of a queue between two calls, to be put there again as a whole */

typedef struct hx_place {
  uint64_t buffer, offset;
} hx_place;

/* A kernel found for one call site. The host calls run(context, buffers, phase, part) for every part of phase 0, then of
 * phase 1, ...; parts of one phase may run at the same time on several threads and in any order. The number of parts
 * depends on the call site only, never on the machine's threads: results are the same for any number of threads.
 * buffers: inputs, then outputs, then one workspace (64-byte aligned). One kernel is never run for two places of a program at
 * once; different kernels are. */
typedef struct hx_kernel {
  uint32_t struct_size;
  uint32_t phases;
  uint32_t parts[HX_MAX_PHASES];
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
  void* context;
  void (*destroy)(void* context); /* may be NULL */
  uint64_t workspace;             /* bytes */
  const char* name;               /* for people: "oneDNN matmul", "softmax avx2"; static */
  uint32_t in_place;              /* bit i: output 0 may be the same memory as input i */
  /* Contract 1.2, of devices with memory of their own: puts the kernel at the end of the queue and does not wait for it.
   * `places` as `buffers` above; one kernel gets the same ones again and again. Instead of run, which is then NULL, as
   * are phases and parts. A kernel with run alone gets host memory, to which the host copies. Set only where the host's
   * struct_size, which it writes before it asks, has room for it. */
  hx_status (*enqueue)(const void* context, hx_queue* queue, const hx_place* places);
  /* Contract 1.4, optional beside enqueue, for what steps parameters: as enqueue, but the outputs keep what they hold when the
   * f32 at `number` is infinite or no number by the time the queue comes there. Set only where there is room, as above. */
  hx_status (*enqueue_if_finite)(const void* context, hx_queue* queue, const hx_place* places, const hx_place* number);
} hx_kernel;

enum { HX_DEVICE_OTHER = 0, HX_DEVICE_CPU = 1, HX_DEVICE_GPU = 2, HX_DEVICE_FPGA = 3 };

typedef struct hx_device_info {
  uint32_t struct_size;
  uint32_t sort;                            /* HX_DEVICE_... */
  uint64_t memory, free_memory, most_bytes; /* of all, now, of one buffer; 0: unknown */
  uint32_t alignment;                       /* of offsets: a power of two, 64 at most; larger ones cannot be served */
  uint32_t reserved;
  char name[128], driver[128], capability[256]; /* "": nothing to say */
  char unavailable[512];                    /* why nothing can run there and what to do; "": it can */
} hx_device_info;

typedef struct hx_device_vt {
  uint32_t struct_size;
  const char* (*describe)(void* self);                                     /* one line: name, instruction set, libraries */
  hx_status (*find)(void* self, const hx_call_site* site, hx_kernel* out); /* HX_DECLINED: no kernel */
  void (*destroy)(void* self);
  /* Optional. Has the device kernels that make use of these HX_SITE_... flags? The flags it has any for: of FP16_CHUNKS, BF16
   * and FP8. */
  uint32_t (*flags)(void* self);
  /* The rest is of contract 1.2. info: optional, also for devices that share the host's memory. */
  hx_status (*info)(void* self, hx_device_info* out);
  /* A device with memory of its own has these, down to synchronize; all of them, or none. Different queues are used from
   * different threads at once, one queue by one thread at a time; find may run beside them. What fails later than the call
   * that asked for it is said by the next synchronize. */
  hx_status (*open_queue)(void* self, hx_queue** out);
  void (*close_queue)(void* self, hx_queue* queue); /* waits for what is in it */
  hx_status (*allocate)(void* self, uint64_t bytes, uint64_t* buffer); /* bytes > 0; what it holds at first is nobody's business */
  void (*release)(void* self, uint64_t buffer);                        /* nothing that is queued uses it */
  /* These return at once where the device can; host memory stays as it is until synchronize, or await_event of a later event. */
  hx_status (*upload)(void* self, hx_queue* queue, const hx_place* to, const void* from, uint64_t bytes);
  hx_status (*download)(void* self, hx_queue* queue, void* to, const hx_place* from, uint64_t bytes);
  hx_status (*copy)(void* self, hx_queue* queue, const hx_place* to, const hx_place* from, uint64_t bytes); /* which do not overlap */
  hx_status (*synchronize)(void* self, hx_queue* queue); /* everything before it is done */
  /* Optional, by themselves: starts what is queued without waiting for it. */
  hx_status (*submit)(void* self, hx_queue* queue);
  /* Optional, both or none: host memory that the device copies from and to without a detour. */
  hx_status (*allocate_host)(void* self, uint64_t bytes, void** out);
  void (*release_host)(void* self, void* memory);
  /* Optional, all or none: one queue waits for a point of another, without the host. */
  hx_status (*record)(void* self, hx_queue* queue, hx_event** out);
  hx_status (*wait)(void* self, hx_queue* queue, hx_event* event);
  void (*release_event)(void* self, hx_event* event);
  /* Optional, all or none: kernels and copies queued between begin_capture and end_capture do not run then; launch puts them
   * all on the queue, with the places they had. HX_DECLINED from end_capture: this work cannot be captured, and is lost. */
  hx_status (*begin_capture)(void* self, hx_queue* queue);
  hx_status (*end_capture)(void* self, hx_queue* queue, hx_capture** out);
  hx_status (*launch)(void* self, hx_queue* queue, hx_capture* capture);
  void (*release_capture)(void* self, hx_capture* capture);
  /* Optional, contract 1.3, both or none, beside record. record_time: an event that also keeps the time at which the queue
   * came there. elapsed: the seconds, at least 0, from one such event to a later one of the same queue, when synchronize has
   * found both done. HX_DECLINED from either: no times are kept. */
  hx_status (*record_time)(void* self, hx_queue* queue, hx_event** out);
  hx_status (*elapsed)(void* self, hx_event* from, hx_event* to, double* seconds);
  /* Optional, contract 1.4, both or none, beside record and allocate_host: a whole training step is then queued at once, and the
   * loss is looked at while the device goes on. copy_if_finite: as copy, but `to` keeps what it holds when the f32 at `number` is
   * infinite or no number by then. await_event: the host waits until the queue has come to the event; what has failed by then it
   * may say. Downloads into memory of allocate_host and record may then also come between begin_capture and end_capture: each
   * launch reaches the event anew, and await_event waits for the last one. */
  hx_status (*copy_if_finite)(void* self, hx_queue* queue, const hx_place* to, const hx_place* from, uint64_t bytes, const hx_place* number);
  hx_status (*await_event)(void* self, hx_event* event);
} hx_device_vt;

/* ---- the host's table --------------------------------------------------------------------------------------------- */

typedef struct hx_api {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;

  /* Errors. last_error: text of this thread's last HX_ERROR. set_error: what a plugin says before it returns HX_ERROR. */
  const char* (*last_error)(uint32_t* kind);
  void (*set_error)(uint32_t kind, const char* text);

  /* Values. create: data NULL gives zeros. All returned values carry one reference for the caller. */
  void (*retain)(hx_value* v);
  void (*release)(hx_value* v);
  hx_status (*create)(const hx_type* type, const void* data, hx_value** out);
  hx_status (*type_of)(const hx_value* v, hx_type* out);
  hx_status (*data)(const hx_value* v, const void** out);       /* HX_NEEDS_VALUES on a traced value */
  hx_status (*mutable_data)(hx_value** v, void** out);          /* copies first when shared (replaces *v) */

  /* Operations: a primitive ("add") or a functional ("layer_norm") by name. outs has room for max_outs. Traced when an
   * input is traced, else evaluated at once. */
  hx_status (*apply)(const char* op, const hx_attributes* attributes, hx_value* const* inputs, uint32_t n_inputs,
                     hx_value** outs, uint32_t max_outs, uint32_t* n_outs);

  /* What a layer body may ask. */
  hx_status (*scope_parameter)(hx_scope*, const char* name, const hx_type* type, const hx_init* init, hx_value** out);
  hx_status (*scope_state)(hx_scope*, const char* name, const hx_type* type, const hx_init* init, hx_value** out);
  hx_status (*scope_update)(hx_scope*, const char* name, hx_value* value);
  /* Uniform [0,1) numbers of the given f32 shape, fresh each step (Philox 4x32-10 keyed by seed and parameter path). */
  hx_status (*scope_random)(hx_scope*, const hx_type* type, hx_value** out);
  int32_t (*scope_training)(hx_scope*);
  uint32_t (*scope_leading)(hx_scope*);                      /* batch axis + position axes of x */
  hx_status (*scope_width)(hx_scope*, int64_t* width);       /* of the arrow's target; HX_NEEDS_WIDTH */
  hx_status (*scope_classes)(hx_scope*, int64_t* classes);   /* symbols of x's stream; 0: unknown */

  /* Registration. The host copies names, descriptions and schema; it owns self from here on (destroy), even when it
   * refuses the item. */
  hx_status (*register_item)(hx_registry*, const hx_item* item);

  /* Optional parts by name and version ("hx.graph/0"); NULL when the host lacks it. */
  const void* (*extension)(const char* id);

  /* Says that the layer's result has so many leading axes (batch and positions), where they are not those of x. */
  hx_status (*scope_set_leading)(hx_scope*, uint32_t leading);
} hx_api;

/* What harmonics_register receives. The C++ face calls it harmonics::FunctionRegistry&. */
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

/* The host's one export for embedders; a plugin does not need it. */
const hx_api* harmonics_api(void);

#ifdef __cplusplus
}
#endif
#endif
