/* The C API for embedding: graphs, training, inference. C11, append-only, with the rules of abi.h for status, errors
 * and ownership. A graph must be used by one thread at a time, except for infer and results, which any thread may call
 * at any time. While fit runs, calls fail, except for infer, results, configure_layer and stop_fit. Returned strings
 * and arrays are valid until the next call for the same graph; those of results until the thread's next call. */
#ifndef HARMONICS_GRAPH_ABI_H
#define HARMONICS_GRAPH_ABI_H

#include <harmonics/abi.h>
#include <harmonics/metric_abi.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hx_graph hx_graph;

typedef struct hx_progress {
  uint32_t struct_size;
  int64_t epoch, epochs; /* current epoch, from 0; planned epochs, 0: open-ended */
  int64_t step, samples;
  double seconds, samples_per_second;
  double fraction;       /* of the whole run; below 0: open-ended */
  double loss, accuracy; /* means of the last 100 steps; accuracy below 0: none */
} hx_progress;

/* Negative numbers and null strings: the graph's setting, or the default. */
typedef struct hx_fit_settings {
  uint32_t struct_size;
  int32_t threads; /* 0 and below: all */
  int64_t epochs, steps, batch, seed, accumulate;
  double seconds, lr, clip;
  const char *optimizer, *schedule, *device, *precision;
  const char* const* until; /* "loss<0.05" */
  uint32_t n_until;
  uint32_t deterministic;
  /* Called about ten times a second during fit; returning 0 stops after the current step. May be NULL. */
  int32_t (*progress)(void* context, const hx_progress* progress);
  void* context;
  /* Contract 1.5. Checkpoints of cycles that train. checkpoint: their folder; NULL: none. every: "90s", "5m",
   * "500steps" or "1epoch"; NULL: "5m". resume: a checkpoint or a folder of checkpoints; NULL: from the beginning.
   * keep: number of newest checkpoints to keep; 0: 3. */
  const char *checkpoint, *every, *resume;
  int64_t keep;
  const char* const* metrics; /* "f1", "topk(5)": additional metrics, also of evaluate */
  uint32_t n_metrics, reserved;
} hx_fit_settings;

/* Contract 1.5. One epoch. Names are "f1", or "output.f1" if several layers are measured. */
typedef struct hx_epoch {
  uint32_t struct_size; /* also the stride of an array */
  uint32_t n_figures, n_validation, reserved;
  int64_t epoch, steps, samples;                 /* epoch: from 1 */
  double seconds, loss, accuracy, learning_rate; /* loss and accuracy are means; accuracy below 0: none */
  const hx_figure* figures;                      /* of `metrics` */
  const hx_figure* validation;                   /* on the streams bound for HX_FOR_VALIDATION; may be empty */
} hx_epoch;
/* Samples of a stream that the last pass left unread because another stream ended first. */
typedef struct hx_left_over {
  uint32_t struct_size;
  uint32_t reserved;
  const char* producer;
  uint64_t samples;
} hx_left_over;

typedef struct hx_fit_report {
  uint32_t struct_size;
  uint32_t n_notes;
  int64_t epochs, steps, samples;
  double seconds, loss, accuracy; /* loss and accuracy of the last 100 steps; accuracy below 0: none */
  const char* stopped_by;         /* "epochs", "for", "until loss<0.05", ... */
  const char* const* notes;
  /* Contract 1.5; written if struct_size, set by the caller, covers it. */
  const hx_figure* metrics; /* at the end of the run: "loss", "accuracy", and the requested metrics */
  const hx_epoch* by_epoch;
  uint32_t n_metrics, n_epochs;
  int64_t resumed_at;            /* step of the checkpoint from which the run resumed; 0: none */
  const char* checkpoint;        /* file of the newest checkpoint; "": none */
  const hx_left_over* left_over; /* contract 1.5, written if struct_size covers it: of the training streams */
  uint64_t n_left_over;
} hx_fit_report;

typedef struct hx_evaluation {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t samples;
  double loss, accuracy;
  /* Contract 1.5; written if struct_size, set by the caller, covers it. */
  const hx_figure* figures; /* "loss", "accuracy", and the requested metrics */
  uint64_t n_figures;
  const hx_left_over* left_over; /* contract 1.5, likewise: of the test streams */
  uint64_t n_left_over;
} hx_evaluation;

typedef struct hx_layer_info {
  uint32_t struct_size;
  uint32_t rank;             /* of one sample's value */
  const char *name, *reason; /* reason for the shape; "" if it is given */
  int64_t dims[HX_MAX_RANK];
} hx_layer_info;

enum { HX_FOR_TRAINING = 0, HX_FOR_TEST = 1, HX_FOR_VALIDATION = 2 /* contract 1.5: after every epoch */ };

/* Contract 1.5. What one layer of a .ndsl model computes. */
typedef struct hx_block_spec {
  uint32_t struct_size;
  uint32_t n_ops;
  const char* variant;    /* "dense", "parallel", "moe" */
  const char* const* ops; /* "LN1", "QKV", ... */
  uint32_t use_qk_norm, ln2_on_residual_att;
  uint32_t n_weights, reserved; /* written if struct_size, set by the caller, covers the next member */
  const hx_layer_info* weights; /* tensors of the layer: "blk.0.attn_q.weight"; reasons are "" */
} hx_block_spec;

/* Contract 1.5. A model with its weights; a sequence with its keys and values. */
typedef struct hx_model hx_model;
typedef struct hx_sequence hx_sequence;

/* Contract 1.5. Null strings: the default. */
typedef struct hx_model_options {
  uint32_t struct_size;
  int32_t threads;       /* 0 and below: all */
  const char* weights;   /* for a model of an .ndsl file: a Hugging Face folder or a safetensors file; NULL: initial
                          * values, from `seed` */
  const char* set;       /* overrides settings of the model: "num_layers=2, hidden_size=64" */
  const char* device;    /* "cpu" */
  const char* precision; /* of products, as hx_fit_settings */
  uint64_t seed;
} hx_model_options;

typedef struct hx_name_scope hx_name_scope; /* a scope of registered items, until it is closed */

typedef struct hx_graph_api {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;

  /* Parses a flow from a text (`source` is its name in errors) or a file. `name` selects one of several harmonics;
   * NULL: the first. Functions are looked up by the first call that needs the graph. */
  hx_status (*parse)(const char* text, const char* source, const char* name, hx_graph** out);
  hx_status (*parse_file)(const char* path, const char* name, hx_graph** out);
  /* Restores text and weights from the bytes of save(), which are copied. */
  hx_status (*restore)(const void* data, uint64_t bytes, hx_graph** out);
  void (*destroy)(hx_graph* graph);
  hx_status (*load_plugin)(const char* path); /* for all graphs */

  /* Returns the graph's registry. Items registered in it by hx_api.register_item take precedence in this graph, from
   * the next call. New names must be registered before the first call that needs the graph; known names may be replaced
   * at any time. */
  hx_registry* (*registry)(hx_graph* graph);

  /* Binds streams. The graph takes ownership of `object`, even if the call fails. `name` NULL: the only unbound stream.
   */
  hx_status (*bind_producer)(hx_graph* graph, const char* name, uint32_t purpose, const hx_producer_vt* vt,
                             void* object);
  hx_status (*bind_consumer)(hx_graph* graph, const char* name, const hx_consumer_vt* vt, void* object);
  hx_status (*bind_producer_address)(hx_graph* graph, const char* name, uint32_t purpose, const char* address);
  hx_status (*bind_consumer_address)(hx_graph* graph, const char* name, const char* address);

  /* Runs every cycle in order, as `harmonics run` does. */
  hx_status (*fit)(hx_graph* graph, const hx_fit_settings* settings, hx_fit_report* report);
  hx_status (*evaluate)(hx_graph* graph, hx_evaluation* out); /* on the streams bound for HX_FOR_TEST */
  /* Computes the results of the first cycle for these inputs in evaluation mode. Each input is named by its producer
   * and is one sample, or a batch along a new first axis, of equal length for all inputs. Each result carries one
   * reference for the caller. While fit runs, the weights are a snapshot taken at the end of a step. */
  hx_status (*infer)(hx_graph* graph, const char* const* names, hx_value* const* inputs, uint32_t n_inputs,
                     hx_value** outs, uint32_t max_outs, uint32_t* n_outs);
  hx_status (*results)(hx_graph* graph, const char* const** names, uint32_t* count);

  /* Returns weights, streams and text as one safetensors file in memory. */
  hx_status (*save)(hx_graph* graph, const void** data, uint64_t* bytes);
  hx_status (*layers)(hx_graph* graph, const hx_layer_info** layers, uint32_t* count);
  hx_status (*weights)(hx_graph* graph, const char* const** names, uint32_t* count);
  hx_status (*weight)(hx_graph* graph, const char* name, hx_value** out); /* a copy */

  /* Selects the implementation of a functional or primitive for programs compiled later; compiled programs are
   * unchanged. `implementation` "" resets it. `graph` NULL: for all graphs of the process, callable from any thread;
   * settings of single graphs take precedence. `before` (may be NULL) receives the previous setting, valid until this
   * thread's next call. */
  hx_status (*set_override)(hx_graph* graph, const char* functional, const char* implementation, const char** before);

  /* Contract 1.2. Returns a device for hx_fit_settings: of the kind `sort` (HX_DEVICE_GPU, HX_DEVICE_FPGA), or any
   * usable accelerator (HX_DEVICE_OTHER). If there is none, the device is "cpu" and `note` gives the reason in one
   * line; else `note` is "". Both are valid until this thread's next call. */
  hx_status (*accelerator)(uint32_t sort, const char** device, const char** note);

  /* Contract 1.5. load: replaces the weights by those of a safetensors file or checkpoint. Parameters missing in the
   * file are an error of the first call that needs them, or a note of fit. save_file: writes the result of save to a
   * file atomically. */
  hx_status (*load)(hx_graph* graph, const char* path);
  hx_status (*save_file)(hx_graph* graph, const char* path);
  /* Contract 1.5. Until close_scope, items registered with scope_registry take precedence over those of plugins and the
   * library: in this graph or, if graph is NULL, in every graph that this thread calls. The latest scope takes
   * precedence. Functionals are visible to the whole process. The thread that opened a scope closes it, before its
   * graph is destroyed. */
  hx_status (*open_scope)(hx_graph* graph, hx_name_scope** out);
  hx_registry* (*scope_registry)(hx_name_scope* scope);
  void (*close_scope)(hx_name_scope* scope);
  /* Contract 1.5. As bind_producer, with options in the syntax of an address after '?', such as
   * "batch=16&shuffle=8192"; "": none. */
  hx_status (*bind_producer_options)(hx_graph* graph, const char* name, uint32_t purpose, const hx_producer_vt* vt,
                                     void* object, const char* options);

  /* Contract 1.5. Models of .ndsl files by name, for the whole process; callable from any thread. register_model: reads
   * and validates a file. models: returns all names, including built-in models. model_config: returns the numeric
   * settings, booleans as 0 and 1. block_spec: returns the operations of a layer. Results are valid until this thread's
   * next call of one of these functions. */
  hx_status (*register_model)(const char* name, const char* file);
  hx_status (*models)(const char* const** names, uint32_t* count);
  hx_status (*model_config)(const char* model, const char* const** names, const double** values, uint32_t* count);
  hx_status (*block_spec)(const char* model, int64_t layer, hx_block_spec* out);

  /* Contract 1.5. Models with weights. Callable from any thread; a sequence is used by one thread at a time. `name`: a
   * name in models(), a file or a folder. model_values: results by name for tokens i32 [tokens] or [batch, tokens]:
   * "scores", and if `all` is not 0 also those of the embedding, layers and operations ("blk.0", "blk.0.QKV.q"); valid
   * until this thread's next call. model_layer: the output of one layer for its input, f32 [tokens, hidden] or [batch,
   * tokens, hidden]. append: appends tokens i32 [tokens] to a sequence and returns the scores after each of them, f32
   * [tokens, vocabulary]. keep: truncates a sequence to its first tokens. A sequence may outlive its model's handle. */
  hx_status (*open_model)(const char* name, const hx_model_options* options, hx_model** out);
  void (*close_model)(hx_model* model);
  hx_status (*model_values)(hx_model* model, hx_value* tokens, uint32_t all, const char* const** names,
                            hx_value* const** values, uint32_t* count);
  hx_status (*model_block)(hx_model* model, int64_t layer, hx_block_spec* out);
  hx_status (*model_layer)(hx_model* model, int64_t layer, const char* precision, hx_value* hidden, hx_value** out);
  hx_status (*open_sequence)(hx_model* model, hx_sequence** out);
  void (*close_sequence)(hx_sequence* sequence);
  hx_status (*append)(hx_sequence* sequence, hx_value* tokens, hx_value** scores);
  hx_status (*keep)(hx_sequence* sequence, int64_t length);
  hx_status (*sequence_length)(hx_sequence* sequence, int64_t* out);

  /* Contract 1.5. Sets arguments of the functions on arrows into a layer, as texts ("0.3"); "" restores the default.
   * Values are validated like the text of a flow; an invalid one is an error and changes nothing. While fit runs, any
   * thread may call it; the change takes effect between two steps. `before` (may be NULL) receives the former values in
   * the same order, valid until the next call for this graph. */
  hx_status (*configure_layer)(hx_graph* graph, const char* layer, const char* const* names, const char* const* values,
                               uint32_t count, const char* const** before);
  /* Contract 1.5. Sets the device of evaluate, infer, and fits that name none. Must not be called while fit runs. */
  hx_status (*set_device)(hx_graph* graph, const char* device);
  /* Contract 1.5. Stops the running fit after its current step, also if it waits for samples of a live stream. Any
   * thread may call it. No effect if no fit runs. */
  hx_status (*stop_fit)(hx_graph* graph);
} hx_graph_api;

const hx_graph_api* harmonics_graphs(void);

#ifdef __cplusplus
}
#endif
#endif
