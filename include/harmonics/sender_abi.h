/* The C API of <harmonics/sender.hpp>: sends samples to a Harmonics receiver. Link Harmonics::Sender. Structs that may
 * grow start with struct_size; members are added at the end. Functions of one sender may be called from any thread. */
#ifndef HARMONICS_SENDER_ABI_H
#define HARMONICS_SENDER_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct harmonics_sender harmonics_sender;

/* One tensor of each sample. dtype: a number of hx_dtype (value_abi.h). */
typedef struct harmonics_sent_tensor {
  const char* name;
  uint32_t dtype;
  uint32_t rank;
  const int64_t* dims;
} harmonics_sent_tensor;

/* Zeros and NULL: the default. */
typedef struct harmonics_sender_options {
  uint32_t struct_size;
  uint32_t durable;        /* keep samples until the receiver has stored them on disk; 0: until it has received them */
  uint32_t whole_source;   /* the program sends its source from the first sample; received ones are skipped */
  uint32_t insecure;       /* allow unencrypted connections to other machines */
  const char* producer;    /* name of the sender; NULL: the process id */
  const char* stream;      /* NULL: "samples" */
  double patience_seconds; /* time limit without a receiver; 0: 10 */
  uint64_t batch_bytes;    /* size of the samples in one frame; 0: 256 KiB */
  const char* key_file;    /* ZeroMQ: own key pair, created by 'harmonics keys' */
  const char* server_key;  /* ZeroMQ: the receiver's public key, or its file */
  const uint32_t* classes; /* by tensor: number of classes, announced to the receiver; 0: none. NULL: none for all */
} harmonics_sender_options;

/* Functions return 0, or an error kind + 1 (error.hpp). harmonics_sender_error() then returns the message, then
 * remedies. */
int harmonics_sender_open(const char* address, const harmonics_sender_options* options,
                          const harmonics_sent_tensor* tensors, uint32_t count, harmonics_sender** out);
/* Sends one sample: the values of the tensors, row-major, in the order of open; copies them. Blocks while the receiver
 * grants no credit. */
int harmonics_sender_send(harmonics_sender* sender, const void* const* tensors);
/* Returns the number of the next sample; blocks until the receiver answers. */
int harmonics_sender_next(harmonics_sender* sender, uint64_t* number);
/* Ends the stream; blocks until every sample is acknowledged. */
int harmonics_sender_finish(harmonics_sender* sender);
void harmonics_sender_close(harmonics_sender* sender);
/* Returns the error of the last failed call in this thread; valid until the next failed call. */
const char* harmonics_sender_error(void);

#ifdef __cplusplus
}
#endif

#endif
