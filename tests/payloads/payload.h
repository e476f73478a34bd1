// Common frame of the payloads: small programs that try one attack for real and say how it went.
//
// A payload defines attack() and ends through one of succeeded(), blocked(), blocked_because() and
// inconclusive(). It prints exactly one line and its exit status repeats the verdict:
//
//   SUCCEEDED what it got         42
//   BLOCKED ERRNO_NAME text        0
//   INCONCLUSIVE why               3   neither: a payload that cannot run proves nothing
//
// The attack runs in a child, so that a seccomp filter that kills is a verdict too.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kSucceeded = 42, kBlocked = 0, kInconclusive = 3 };

static void attack(int argc, char** argv);

static inline _Noreturn void say(int status, const char* word, const char* format, va_list args) {
  char line[1024];
  int n = snprintf(line, sizeof line, "%s ", word);
  vsnprintf(line + n, sizeof line - n - 1, format, args);
  for (char* p = line; *p; ++p) {
    if (*p == '\n') *p = ' ';
  }
  strcat(line, "\n");
  ssize_t ignored = write(STDOUT_FILENO, line, strlen(line));
  (void)ignored;
  _exit(status);
}

__attribute__((format(printf, 1, 2))) static inline _Noreturn void succeeded(const char* format,
                                                                             ...) {
  va_list args;
  va_start(args, format);
  say(kSucceeded, "SUCCEEDED", format, args);
}

__attribute__((format(printf, 1, 2))) static inline _Noreturn void inconclusive(const char* format,
                                                                                ...) {
  va_list args;
  va_start(args, format);
  say(kInconclusive, "INCONCLUSIVE", format, args);
}

// For refusals that have no errno: the text starts with a word in capitals, as the others do.
__attribute__((format(printf, 1, 2))) static inline _Noreturn void blocked_because(
    const char* format, ...) {
  va_list args;
  va_start(args, format);
  say(kBlocked, "BLOCKED", format, args);
}

// Only errors by which a kernel refuses or hides something count as a protection; EINVAL, EFAULT,
// ENOMEM and the like are mistakes of the payload.
static inline int is_refusal(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
    case ENOSYS:
    case EROFS:
    case ENOENT:
    case ESRCH:
    case ENXIO:
    case ENODEV:
    case ENOTDIR:
    case EXDEV:
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
    case EOPNOTSUPP:
      return 1;
    default:
      return 0;
  }
}

static inline _Noreturn void blocked(int error) {
  const char* name = strerrorname_np(error);
  if (!is_refusal(error)) inconclusive("%s %s", name ? name : "?", strerror(error));
  blocked_because("%s %s", name ? name : "?", strerror(error));
}

// The usual ending: a system call that must not work.
static inline _Noreturn void verdict(long result, const char* what) {
  if (result >= 0) succeeded("%s", what);
  blocked(errno);
}

// The ending for calls too dangerous to make with valid arguments: `reached` is the error that the
// kernel gives only after its permission checks have passed.
static inline _Noreturn void verdict_reached(long result, int reached, const char* what) {
  if (result >= 0 || errno == reached) succeeded("%s", what);
  blocked(errno);
}

static inline const char* need(int argc, char** argv, int index) {
  if (index >= argc) inconclusive("argument %d is missing", index);
  return argv[index];
}

// 1: the file holds the text; 0: readable without it; -1: errno. Reads at most 1 MiB.
static inline int fd_holds(int fd, const char* text) {
  static char buffer[1 << 20];
  size_t have = 0;
  for (;;) {
    ssize_t n = read(fd, buffer + have, sizeof buffer - have);
    if (n < 0) return -1;
    if (n == 0) break;
    have += (size_t)n;
    if (have == sizeof buffer) break;
  }
  return memmem(buffer, have, text, strlen(text)) != NULL;
}

static inline int path_holds(const char* path, const char* text) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  int r = fd_holds(fd, text);
  int saved = errno;
  close(fd);
  errno = saved;
  return r;
}

// The first place where the caller may create files; payloads make their own files there. A control
// names a place that vanishes with it.
static inline const char* scratch(void) {
  const char* given = getenv("PAYLOAD_SCRATCH");
  if (given) return given;
  static const char* const places[] = {"/tmp", "/var/tmp", "/dev/shm", "/home/user", "."};
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
    if (access(places[i], W_OK | X_OK) == 0) return places[i];
  }
  inconclusive("no writable directory");
}

// A fresh directory below scratch(), left to the sandbox or the control to throw away.
static inline const char* scratch_dir(void) {
  static char path[256];
  snprintf(path, sizeof path, "%s/payload-XXXXXX", scratch());
  if (!mkdtemp(path)) inconclusive("mkdtemp: %s", strerror(errno));
  return path;
}

static inline int is_number(const char* text) {
  if (!*text) return 0;
  for (; *text; ++text) {
    if (*text < '0' || *text > '9') return 0;
  }
  return 1;
}

int main(int argc, char** argv) {
  pid_t child = fork();
  if (child < 0) inconclusive("fork: %s", strerror(errno));
  if (child == 0) {
    attack(argc, argv);
    inconclusive("the payload reached no verdict");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  if (WTERMSIG(status) == SIGSYS) blocked_because("SIGSYS killed by the seccomp filter");
#ifdef PAYLOAD_KILLED_IS_BLOCKED  // bombs: the limit kills them
  if (WTERMSIG(status) == SIGKILL) blocked_because("SIGKILL killed at its limit");
#endif
  inconclusive("killed by signal %d", WTERMSIG(status));
}
