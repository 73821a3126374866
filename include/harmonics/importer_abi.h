/* Items of kind HX_IMPORTER and HX_TOKENIZER: C11, with the rules of abi.h, but not yet part of contract 1.
 *
 * Both are extensions. A plugin requests the version it was built for from hx_api.extension and registers its items
 * through the result; NULL: the program lacks it. An incompatible change gets a new number ("hx.importer/1"), and a
 * program may support several versions. The tables become part of contract 1 when importers of several formats use
 * them.
 */
#ifndef HARMONICS_IMPORTER_ABI_H
#define HARMONICS_IMPORTER_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_IMPORTER_EXTENSION "hx.importer/0"
#define HX_TOKENIZER_EXTENSION "hx.tokenizer/0"

enum { HX_TOKENIZER = 16 }; /* an hx_kind */

/* The result of hx_api.extension for either name. */
typedef struct hx_item_extension {
  uint32_t struct_size;
  uint32_t reserved;
  /* As hx_api.register_item, only for items of the extension's kind: hx_importer_vt or hx_tokenizer_vt. */
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

/* Scores of probe. The item with the highest score reads the file. Equal scores are an error; the user must name an
 * item. */
enum {
  HX_PROBE_NO = 0,
  HX_PROBE_POSSIBLE = 25, /* no contradiction found */
  HX_PROBE_LIKELY = 50,   /* numbers in the file are consistent with each other and with its size */
  HX_PROBE_CERTAIN = 100  /* the file starts with the format's signature */
};

/* ---- importers ------------------------------------------------------------------------------------------------- */

/* The file to import, mapped by the host. Bytes stay readable until close. If a file is truncated meanwhile, the
 * missing bytes read as zeros and the host discards the result. */
typedef struct hx_import_source {
  uint32_t struct_size;
  uint32_t reserved;
  const char* path; /* for messages */
  const void* data; /* the whole file */
  uint64_t bytes;
  void* host; /* passed to open_beside */
  /* Maps another file of the same folder; `name` has no folders. *index: its number for hx_imported_tensor.file. */
  hx_status (*open_beside)(void* host, const char* name, uint32_t* index, const void** data, uint64_t* bytes);
  /* Present if struct_size covers it. Allocates zeroed memory that counts as another file, for converted tensors. The
   * importer fills it before open returns. */
  hx_status (*open_memory)(void* host, uint64_t bytes, uint32_t* index, void** data);
} hx_import_source;

/* The location of a tensor in a file: dense, row-major, little-endian. */
typedef struct hx_imported_tensor {
  uint32_t struct_size;
  uint32_t file;    /* 0: the source; else an index of open_beside or open_memory */
  const char* name; /* as in GGUF: "token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight" */
  hx_type type;
  uint64_t offset, bytes; /* bytes: exactly the size of the type */
  const char* origin;     /* if struct_size covers it: its name in the file, for messages; NULL: the same */
} hx_imported_tensor;

/* The description of a model. Owned by the importer until close. A tensor "X" of rank 3 may be replaced by tensors
 * "X[0]", "X[1]", ... of rank 2, one matrix per expert. */
typedef struct hx_imported_model {
  uint32_t struct_size;
  uint32_t n_tensors;
  const hx_imported_tensor* tensors; /* struct_size is the stride; tensors may share bytes */
  /* Ints, floats, strings, bools and lists, including lists of texts. Keys as in GGUF: "general.architecture" =
   * "llama", "llama.block_count". "<architecture>.rope.pairing" = "interleaved" or "half" tells which elements of a
   * head are rotated together. */
  hx_attributes metadata;
} hx_imported_model;

typedef struct hx_importer_vt { /* functions are called from any thread, also concurrently */
  uint32_t struct_size;
  hx_status (*probe)(void* self, const hx_file_start* file, uint32_t* score);
  /* Describes the model without copying weights. `options`: the item's arguments. An importer that omits long lists of
   * metadata, such as vocabularies, has the flag "whole", which the host sets to convert a file. */
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
  const void* data; /* the whole file, or a part of a model's file; readable only during open */
  uint64_t bytes;
  const hx_attributes* metadata; /* of the model; NULL: none */
  void* host;                    /* if struct_size covers it: passed to open_beside */
  /* If struct_size covers it; NULL: there is no folder. As in hx_import_source; the bytes are readable only during
   * open. */
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
  HX_ENCODE_BOS = 1,     /* adds the begin id, if there is one */
  HX_ENCODE_EOS = 2,     /* adds the end id, if there is one */
  HX_ENCODE_SPECIAL = 4, /* encodes the text of a special token as its id, not as plain text */
  HX_ENCODE_WHOLE = 8    /* adds the begin and end ids that the tokenizer defines for whole texts */
};

enum { HX_DECODE_WRITTEN = -2 };

typedef struct hx_tokenizer_vt { /* functions are called from any thread, also concurrently, except close */
  uint32_t struct_size;
  hx_status (*probe)(void* self, const hx_file_start* file, uint32_t* score);
  hx_status (*open)(void* self, const hx_tokenizer_source* source, const hx_attributes* options, void** tokenizer);
  /* On entry out->struct_size is the host's; the tokenizer leaves members that it does not know unchanged. */
  hx_status (*describe)(void* tokenizer, hx_tokenizer_info* out);
  /* *count: number of ids of the text. The ids are written only if all of them fit capacity. flags: HX_ENCODE_... */
  hx_status (*encode)(void* tokenizer, const char* text, uint64_t bytes, uint32_t flags, int32_t* ids,
                      uint64_t capacity, uint64_t* count);
  /* Returns the bytes of one token after the token `previous` (-1: none); they may be part of a character. With
   * HX_DECODE_WRITTEN as `previous`, special tokens are decoded to the text that HX_ENCODE_SPECIAL accepts; tokenizers
   * that do not know it treat it as -1. *size: number of bytes. They are written only if all of them fit capacity. */
  hx_status (*decode)(void* tokenizer, int32_t id, int32_t previous, char* dst, uint64_t capacity, uint64_t* size);
  void (*close)(void* tokenizer);
  void (*destroy)(void* self);
} hx_tokenizer_vt;

#ifdef __cplusplus
}
#endif
#endif
