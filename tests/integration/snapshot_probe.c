// First process of a tree that the tests of src/snapshot dump: `snapshot-probe TOKEN WHAT` makes what it
// is told, then /ready, and answers to SIGUSR1 by writing to /answer what it finds of it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char *token;
static char *memory;
static size_t memory_size;
static int deleted = -1;

static int fail(const char *what) {
  FILE *file = fopen("/ready", "w");
  if (file != NULL) {
    fprintf(file, "%s: %s", what, strerror(errno));
    fclose(file);
  }
  for (;;) pause();
}

static int child_that(int (*begin)(void)) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    const char good = begin() == 0;
    if (write(ready[1], &good, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char good = 0;
  return pid > 0 && read(ready[0], &good, 1) == 1 && good ? 0 : -1;
}
static int in_user_namespace(void) { return unshare(CLONE_NEWUSER); }
static int in_network_namespace(void) { return unshare(CLONE_NEWUSER | CLONE_NEWNET); }

static int traced(void) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  return pid > 0 && ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 ? 0 : -1;
}

static int stopped(void) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) raise(SIGSTOP);
  }
  int status = 0;
  return pid > 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) ? 0 : -1;
}

// A child that makes /accepted when somebody has connected to /ctl/sock.
static int listen_outside(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/ctl/sock"};
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 1) != 0) return -1;
  const pid_t pid = fork();
  if (pid != 0) return pid > 0 ? 0 : -1;
  if (accept(fd, NULL, NULL) < 0 || open("/accepted", O_WRONLY | O_CREAT, 0600) < 0) _exit(1);
  for (;;) pause();
}

static int fill_memory(size_t megabytes) {
  memory_size = megabytes << 20;
  memory = mmap(NULL, memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -1;
  for (size_t i = 0; i < memory_size; i += 8) {
    const unsigned long value = i * 0x9e3779b97f4a7c15ul + (unsigned char)token[0];
    memcpy(memory + i, &value, 8);
  }
  return 0;
}
static int memory_is_good(void) {
  for (size_t i = 0; i < memory_size; i += 8) {
    const unsigned long value = i * 0x9e3779b97f4a7c15ul + (unsigned char)token[0];
    if (memcmp(memory + i, &value, 8) != 0) return 0;
  }
  return 1;
}

static int deleted_file(void) {
  deleted = open("/deleted", O_RDWR | O_CREAT, 0600);
  return deleted >= 0 && write(deleted, token, strlen(token)) > 0 && unlink("/deleted") == 0 ? 0 : -1;
}

static int make(const char *what) {
  if (strcmp(what, "nothing") == 0) return 0;
  if (strcmp(what, "io_uring") == 0) {
    struct io_uring_params params = {0};
    return syscall(SYS_io_uring_setup, 4, &params) < 0 ? -1 : 0;
  }
  if (strcmp(what, "userfaultfd") == 0) return syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY) < 0 ? -1 : 0;
  if (strcmp(what, "vsock") == 0) return socket(AF_VSOCK, SOCK_STREAM, 0) < 0 ? -1 : 0;
  if (strcmp(what, "mptcp") == 0) return socket(AF_INET, SOCK_STREAM, 262) < 0 ? -1 : 0;
  if (strcmp(what, "traced") == 0) return traced();
  if (strcmp(what, "stopped") == 0) return stopped();
  if (strcmp(what, "user_namespace") == 0) return child_that(in_user_namespace);
  if (strcmp(what, "network_namespace") == 0) return child_that(in_network_namespace);
  if (strcmp(what, "mount") == 0) return mkdir("/m", 0755) == 0 ? mount("x", "/m", "tmpfs", 0, NULL) : -1;
  if (strcmp(what, "connection") == 0) return listen_outside();
  if (strcmp(what, "deleted") == 0) return deleted_file();
  if (strncmp(what, "memory=", 7) == 0) return fill_memory(strtoul(what + 7, NULL, 10));
  errno = EINVAL;
  return -1;
}

static int answer(void) {
  char held[64] = "";
  if (deleted >= 0 && pread(deleted, held, sizeof(held) - 1, 0) < 0) return -1;
  char host[65] = "";
  if (gethostname(host, sizeof(host)) != 0) return -1;
  FILE *file = fopen("/answer.new", "w");
  if (file == NULL) return -1;
  fprintf(file, "%s %s %s%s", token, host, memory_is_good() ? "good" : "bad", held);
  return fclose(file) == 0 ? rename("/answer.new", "/answer") : -1;
}

int main(int argc, char **argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  if (argc != 3 || sigprocmask(SIG_BLOCK, &signals, NULL) != 0) return 2;
  token = strdup(argv[1]);
  if (token == NULL || make(argv[2]) != 0) return fail(argv[2]);
  FILE *ready = fopen("/ready", "w");
  if (ready == NULL || fclose(ready) != 0) return 1;
  for (;;) {
    int number = 0;
    if (sigwait(&signals, &number) != 0 || answer() != 0) return 1;
  }
}
