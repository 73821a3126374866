/* Items of kind HX_IMPORTER and HX_TOKENIZER: C11, with the rules of abi.h, but not yet part of contract 1.
 *
 * Both are extensions. A plugin asks hx_api.extension for the one it was built for and registers through the result;
 * NULL means that the program lacks it. A change that breaks existing plugins gets a new number ("hx.importer/1"), and
 * a program may offer both. The tables join contract 1 when importers of several formats use them.
 */
#ifndef HARMONICS_IMPORTER_ABI_H
#define HARMONICS_IMPORTER_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_IMPORTER_EXTENSION "hx.importer/0"
#define HX_TOKENIZER_EXTENSION "hx.tokenizer/0"

enum { HX_TOKENIZER = 16 }; /* an hx_kind, beside HX_IMPORTER */

/* What hx_api.extension returns for either name. */
typedef struct hx_item_extension {
  uint32_t struct_size;
  uint32_t reserved;
  /* As hx_api.register_item, for items of the extension's kind only: hx_importer_vt or hx_tokenizer_vt. */
  hx_status (*register_item)(hx_registry* registry, const hx_item* item);
} hx_item_extension;

/* The beginning of a file, to decide whether an item reads it. */
typedef struct hx_file_start {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;  /* of the file, without folders */
  const void* first; /* the first n_first bytes: the whole file, or at least 64 KiB */
  uint64_t n_first;
  uint64_t size; /* of the file */
} hx_file_start;

/* Scores of probe. Of several items the one with the highest score reads the file; equal scores are an error that asks
 * the user to name one. */
enum {
  HX_PROBE_NO = 0,
  HX_PROBE_POSSIBLE = 25, /* nothing speaks against it */
  HX_PROBE_LIKELY = 50,   /* numbers of the file agree with each other and with its size */
  HX_PROBE_CERTAIN = 100  /* the file starts with the format's signature */
};

/* ---- importers ------------------------------------------------------------------------------------------------- */

/* The host maps the files. Bytes stay readable until close; they read as zeros where a file was truncated meanwhile,
 * and the host then discards the result. */
typedef struct hx_import_source {
  uint32_t struct_size;
  uint32_t reserved;
  const char* path; /* for messages */
  const void* data; /* the whole file */
  uint64_t bytes;
  void* host; /* passed to open_beside */
  /* Maps a further file of the same folder: `name` has no folders. *index is its number for hx_imported_tensor.file. */
  hx_status (*open_beside)(void* host, const char* name, uint32_t* index, const void** data, uint64_t* bytes);
  /* Present if struct_size covers it. Zeroed memory that counts as a further file, for converted tensors, which no file
   * contains in this form. The importer fills it before open returns. */
  hx_status (*open_memory)(void* host, uint64_t bytes, uint32_t* index, void** data);
} hx_import_source;

/* The location of a tensor in a file: dense, row-major, little-endian. */
typedef struct hx_imported_tensor {
  uint32_t struct_size;
  uint32_t file;    /* 0: the source; others from open_beside */
  const char* name; /* as in GGUF: "token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight" */
  hx_type type;
  uint64_t offset, bytes; /* bytes: exactly those of the type */
  const char* origin;     /* if struct_size says so: its name in the file, for messages; NULL: the same */
} hx_imported_tensor;

/* The description of a model. Owned by the importer until close. Instead of a tensor "X" of rank 3, tensors "X[0]",
 * "X[1]", ... of rank 2 may hold its matrices, one for each expert. */
typedef struct hx_imported_model {
  uint32_t struct_size;
  uint32_t n_tensors;
  const hx_imported_tensor* tensors; /* each as long as its struct_size; tensors may share bytes */
  /* Ints, floats, strings, bools and lists, of texts too. Keys as in GGUF: "general.architecture" = "llama",
   * "llama.block_count".
   * "<architecture>.rope.pairing" = "interleaved" or "half" says which elements of a head rotate together. */
  hx_attributes metadata;
} hx_imported_model;

typedef struct hx_importer_vt { /* functions are called from any thread, also concurrently */
  uint32_t struct_size;
  hx_status (*probe)(void* self, const hx_file_start* file, uint32_t* score);
  /* Describes the model; copies no weights. `options` follow the item's arguments. An importer that leaves out long
   * lists of the metadata, such as vocabularies, has the flag "whole", which the host sets to convert a file. */
  hx_status (*open)(void* self, const hx_import_source* source, const hx_attributes* options,
                    const hx_imported_model** out);
  void (*close)(void* self, const hx_imported_model* model); /* releases the description */
  void (*destroy)(void* self);
} hx_importer_vt;

/* ---- tokenizers ------------------------------------------------------------------------------------------------ */

typedef struct hx_tokenizer_source {
  uint32_t struct_size;
  uint32_t reserved;
  const char* path; /* for messages */
  const void* data; /* the whole file, or a part of a model's file; readable during open only */
  uint64_t bytes;
  const hx_attributes* metadata; /* of the model; NULL: none */
  void* host;                    /* if struct_size says so: passed to open_beside */
  /* Likewise; NULL: there is no folder. As of hx_import_source; readable during open only. */
  hx_status (*open_beside)(void* host, const char* name, const void** data, uint64_t* bytes);
} hx_tokenizer_source;

typedef struct hx_tokenizer_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t tokens;                    /* ids are 0 .. tokens-1 */
  int64_t bos, eos, unknown, padding; /* ids: begin and end of a text, unknown, padding; -1: none */
  uint64_t longest;                   /* bytes of the longest token; 0: unknown */
} hx_tokenizer_info;

enum {
  HX_ENCODE_BOS = 1,     /* the begin id first, if there is one */
  HX_ENCODE_EOS = 2,     /* the end id last, if there is one */
  HX_ENCODE_SPECIAL = 4, /* the text of a special token becomes its id; otherwise it is text like any other */
  HX_ENCODE_WHOLE = 8    /* the begin and the end id where the tokenizer says that whole texts have them */
};

enum { HX_DECODE_WRITTEN = -2 };

typedef struct hx_tokenizer_vt { /* functions are called from any thread, also concurrently, but for close */
  uint32_t struct_size;
  hx_status (*probe)(void* self, const hx_file_start* file, uint32_t* score);
  hx_status (*open)(void* self, const hx_tokenizer_source* source, const hx_attributes* options, void** tokenizer);
  /* out->struct_size is the host's on entry; members that the tokenizer does not know stay unchanged. */
  hx_status (*describe)(void* tokenizer, hx_tokenizer_info* out);
  /* *count: all ids of the text. They are written only if capacity holds all. flags: HX_ENCODE_... */
  hx_status (*encode)(void* tokenizer, const char* text, uint64_t bytes, uint32_t flags, int32_t* ids,
                      uint64_t capacity, uint64_t* count);
  /* The bytes of one token after the token `previous` (-1: none), which may be a part of a character. With
   * HX_DECODE_WRITTEN as `previous`, special tokens too give their text, as HX_ENCODE_SPECIAL reads it; tokenizers that
   * do not know it treat it as -1. *size: all bytes. They are written only if capacity holds all. */
  hx_status (*decode)(void* tokenizer, int32_t id, int32_t previous, char* dst, uint64_t capacity, uint64_t* size);
  void (*close)(void* tokenizer);
  void (*destroy)(void* self);
} hx_tokenizer_vt;

#ifdef __cplusplus
}
#endif
#endif
