// Fault injection below a whole program: a library that is preloaded into it (LD_PRELOAD), counts the calls to the
// system that change chosen files or go over chosen sockets, and lets the n-th of them fail, tears it, or kills the
// process there. It can also record them all. The program needs no seam; libraries and standard I/O are covered alike.
// Controlled by environment variables:
//
//   FAULTS_PATHS    patterns of fnmatch(3) between colons, for absolute paths of files and directories, and for
//                   sockets by the names "unix@PATH" and "tcp@PORT" of who listens; other files are not touched
//   FAULTS_CALLS    names between commas, of the calls that count: open (for writing), write, sync, rename, truncate,
//                   remove, mkdir, send, receive, close. Without it: all of them but close
//   FAULTS_AT       the call it happens at, from 1; "5+": at that one and every later one
//   FAULTS_DO       kill     the process ends by SIGKILL before the call
//                   tear     half of what is written or sent, then SIGKILL; any other call is done, then SIGKILL
//                   short    half of what is written, sent or received, and says so; other calls are done
//                   EIO, ENOSPC, EINTR, EDQUOT, EMFILE, ECONNRESET    the call fails with that
//                   SIGINT, SIGTERM    the process gets that signal, and the call is done
//   FAULTS_STRUCK   a file that is written when it has happened: number, call, path, separated by tabs
//   FAULTS_COUNTED  a file to which the number of calls that counted is written at the end of a process that exits
//   FAULTS_TRACE    a file to which a line is appended for every call of these to a chosen file or socket:
//
//     process thread number call result errno inode path [the call's own fields]       separated by tabs
//       open      flags (octal)           write, send   offset, bytes, where they are in FAULTS_TRACE.bytes
//       rename    the new path            truncate      the new size
//
//   `result` and `errno` are the call's; `inode` tells files apart that change their names (0: not known); `number` is
//   0 for what did not count. A tab, line break or backslash in a path is written \t, \n, \\. What was written stands
//   in FAULTS_TRACE.bytes, as it was given to the call; with a smaller `result` only that many bytes took effect. A
//   line is appended when its call has ended; calls of two threads that overlap may stand in either order. Replaying a
//   prefix of the lines, without what no later `sync` covers, gives a crash image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace faults {

enum class Call { Open, Write, Sync, Rename, Truncate, Remove, Mkdir, Send, Receive, Close };

// What is to happen at a call.
struct Verdict {
  enum class Do { Nothing, Fail, Short, Tear } what = Do::Nothing;
  int reason = 0;       // errno, of Fail
  uint64_t number = 0;  // 0: it does not count
};

bool matches(const std::string& name);   // by FAULTS_PATHS
std::string absolute(const char* path);  // in the working directory
Verdict judge(Call call,
              const std::string& path);  // counts; does not return where the process is to be killed before the call
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

// What a file descriptor is, where it is one of the chosen.
struct Known {
  std::string path;
  bool socket = false, appends = false;
  ino_t inode = 0;
};
void remember(int file, Known known);
const Known* known(int file);  // null: not chosen
void forget(int file);

}  // namespace faults
