// Fault injection below a whole program. A preloaded library (LD_PRELOAD) counts the system calls that change chosen
// files or use chosen sockets, and makes the n-th of them fail, tears it, or kills the process there. It can also
// record them all. The program needs no changes, and its libraries and standard I/O are covered too. Controlled by
// environment variables:
//
//   FAULTS_PATHS    patterns of fnmatch(3) separated by colons, for absolute paths of files and directories, and for
//                   sockets by the listener's name, "unix@PATH" or "tcp@PORT"; other files are not affected
//   FAULTS_CALLS    names of the counted calls, separated by commas: open (for writing), write, sync, rename, truncate,
//                   remove, mkdir, send, receive, close. Default: all except close
//   FAULTS_AT       the number of the faulty call, from 1; "5+": the fifth and every later one
//   FAULTS_DO       kill     SIGKILL before the call
//                   tear     writes or sends half of the bytes, then SIGKILL; other calls run, then SIGKILL
//                   short    writes, sends or receives half of the bytes and returns their number; other calls run
//                   EIO, ENOSPC, EINTR, EDQUOT, EMFILE, ECONNRESET    the call fails with this error
//                   SIGINT, SIGTERM    the process receives this signal, and the call runs
//   FAULTS_STRUCK   a file that is written after the fault: number, call, path, separated by tabs
//   FAULTS_COUNTED  a file that receives the number of counted calls when a process exits
//   FAULTS_TRACE    a file that receives a line for every such call to a chosen file or socket:
//
//     process thread number call result errno inode path [fields of the call]       separated by tabs
//       open      flags (octal)           write, send   offset, bytes, their offset in FAULTS_TRACE.bytes
//       rename    the new path            truncate      the new size
//
//   `result` and `errno` are those of the call. `inode` identifies a file across renames (0: unknown). `number` is 0
//   for calls that are not counted. A tab, line break or backslash in a path is written \t, \n, \\. FAULTS_TRACE.bytes
//   has the bytes as passed to the call; with a smaller `result` only that many took effect. A line is appended when
//   its call has ended, so overlapping calls of two threads may be in either order. Replaying a prefix of the lines,
//   without changes that no later `sync` covers, gives a crash image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace faults {

enum class Call { Open, Write, Sync, Rename, Truncate, Remove, Mkdir, Send, Receive, Close };

// The action for a call.
struct Verdict {
  enum class Do { Nothing, Fail, Short, Tear } what = Do::Nothing;
  int reason = 0;       // errno, of Fail
  uint64_t number = 0;  // 0: not counted
};

bool matches(const std::string& name);   // matches FAULTS_PATHS
std::string absolute(const char* path);  // relative to the working directory
Verdict judge(Call call,
              const std::string& path);  // counts; does not return if the process is to be killed before the call
[[noreturn]] void die();                 // by SIGKILL

struct Traced {
  Call call;
  uint64_t number;
  long result;
  const std::string& path;
  ino_t inode = 0;
  std::string fields = {};
  const void* bytes = nullptr;
  size_t size = 0;
  long long offset = 0;
};
bool traces();
void trace(const Traced& traced);

// A descriptor of a chosen file or socket.
struct Known {
  std::string path;
  bool socket = false, appends = false;
  ino_t inode = 0;
};
void remember(int file, Known known);
const Known* known(int file);  // null: not chosen
void forget(int file);

}  // namespace faults
