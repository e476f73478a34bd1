#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { chunk_size = 64 * 1024, collect_limit = 4 * 1024 * 1024 };

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER;  // guards everything below, and the order of lines
static int agent_socket = -1;
static pid_t owner;
static int ends[2] = {-1, -1};    // what this process reads of descriptors 1 and 2
static int inlets[2] = {-1, -1};  // the other ends, of which 1 and 2 are copies
static bool running, collecting;
static struct {
  char data[chunk_size];
  size_t size;
} pending[2];
static struct text collected, line_buffer;

static void send_all(const char* data, size_t size) {
  while (size > 0) {
    ssize_t sent = send(agent_socket, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) _exit(0);  // the agent is gone, and with it the reason to live
    data += sent;
    size -= (size_t)sent;
  }
}

static void send_chunk(enum stream stream, const char* data, size_t size) {
  struct timeval now;
  struct tm utc;
  char stamp[64], date[32];
  gettimeofday(&now, NULL);
  gmtime_r(&now.tv_sec, &utc);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(stamp, sizeof stamp, ",\"timestamp\":\"%s.%06ld+00:00\"}\n", date, (long)now.tv_usec);
  text_clear(&line_buffer);
  text_append_z(&line_buffer, stream == STREAM_OUT ? "{\"type\":\"stdout\",\"text\":"
                                                   : "{\"type\":\"stderr\",\"text\":");
  json_append_string(&line_buffer, data, size);
  text_append_z(&line_buffer, stamp);
  send_all(line_buffer.data, line_buffer.size);
}

// Sends the pending bytes; those of a character that is not complete stay, unless nothing more is
// expected.
static void send_pending(enum stream stream, bool all) {
  char* data = pending[stream].data;
  size_t size = pending[stream].size;
  size_t tail = all ? 0 : utf8_incomplete_tail(data, size);
  if (size > tail) send_chunk(stream, data, size - tail);
  memmove(data, data + size - tail, tail);
  pending[stream].size = tail;
}

// Reads what a pipe holds now. It has no end: this process keeps an inlet.
static void drain(enum stream stream) {
  static char scratch[chunk_size];
  for (;;) {
    bool keep = running && !(collecting && stream == STREAM_OUT);
    char* into = keep ? pending[stream].data + pending[stream].size : scratch;
    size_t room = keep ? chunk_size - pending[stream].size : chunk_size;
    ssize_t got = read(ends[stream], into, room);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    if (keep) {
      pending[stream].size += (size_t)got;
      if (pending[stream].size == chunk_size) send_pending(stream, false);
    } else if (running && collected.size < collect_limit) {
      size_t left = collect_limit - collected.size;
      text_append(&collected, scratch, (size_t)got < left ? (size_t)got : left);
    }
  }
}

static void flush_locked(void) {
  fflush(NULL);
  for (int stream = STREAM_OUT; stream <= STREAM_ERR; stream++) {
    drain((enum stream)stream);
    send_pending((enum stream)stream, true);
  }
}

static void* pump(void* unused) {
  (void)unused;
  struct pollfd polled[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = ends[1], .events = POLLIN}};
  for (;;) {
    if (poll(polled, 2, -1) < 0) continue;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++)
      if (polled[i].revents != 0) drain((enum stream)i);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

static bool take_over(enum stream stream) {
  int pair[2];
  if (pipe2(pair, O_CLOEXEC) != 0) return false;
  ends[stream] = pair[0];
  inlets[stream] = pair[1];
  // Only the reading end may answer "not now": children expect their standard output to wait.
  return fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0 && dup2(pair[1], stream + 1) >= 0;
}

bool output_start(int agent) {
  agent_socket = agent;
  owner = getpid();
  text_append(&collected, "", 0);
  if (!take_over(STREAM_OUT) || !take_over(STREAM_ERR)) return false;
  // Signals are R's business: its handlers belong to the main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  bool started = pthread_create(&thread, NULL, pump, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

// A child of fork has neither the thread nor a right to the socket, and perhaps a lock that nobody
// will open.
static bool is_child(void) { return getpid() != owner; }

void output_begin_run(void) {
  if (is_child()) return;
  pthread_mutex_lock(&lock);
  for (int stream = STREAM_OUT; stream <= STREAM_ERR; stream++) {
    drain((enum stream)stream);
    dup2(inlets[stream], stream + 1);  // an earlier run may have closed it
  }
  running = true;
  pthread_mutex_unlock(&lock);
}

void output_end_run(void) {
  if (is_child()) return;
  pthread_mutex_lock(&lock);
  collecting = false;
  flush_locked();
  running = false;
  pthread_mutex_unlock(&lock);
}

void output_flush(void) {
  if (is_child()) return;
  pthread_mutex_lock(&lock);
  flush_locked();
  pthread_mutex_unlock(&lock);
}

void output_message(enum stream stream, const char* data, size_t size) {
  if (is_child()) {
    fflush(NULL);
    while (size > 0) {
      ssize_t written = write(stream + 1, data, size);
      if (written <= 0 && errno != EINTR) return;
      data += written > 0 ? written : 0;
      size -= written > 0 ? (size_t)written : 0;
    }
    return;
  }
  pthread_mutex_lock(&lock);
  flush_locked();
  while (size > 0) {
    size_t part = size < chunk_size ? size : chunk_size;
    if (part < size) part -= utf8_incomplete_tail(data, part);
    send_chunk(stream, data, part);
    data += part;
    size -= part;
  }
  pthread_mutex_unlock(&lock);
}

void output_collect_begin(void) {
  if (is_child()) return;
  pthread_mutex_lock(&lock);
  flush_locked();
  text_clear(&collected);
  collecting = true;
  pthread_mutex_unlock(&lock);
}

const struct text* output_collect_take(void) {
  if (is_child()) return &collected;
  pthread_mutex_lock(&lock);
  fflush(NULL);
  drain(STREAM_OUT);
  if (collected.size == collect_limit) {
    collected.size -= utf8_incomplete_tail(collected.data, collected.size);
    text_append_z(&collected, "\n... (the rest of this value is not shown)\n");
  }
  collecting = false;
  pthread_mutex_unlock(&lock);
  return &collected;
}

void output_line(const struct text* line) {
  if (is_child()) return;
  pthread_mutex_lock(&lock);
  flush_locked();
  send_all(line->data, line->size);
  pthread_mutex_unlock(&lock);
}

void output_answer(const char* line) {
  if (is_child()) return;
  pthread_mutex_lock(&lock);
  send_all(line, strlen(line));
  pthread_mutex_unlock(&lock);
}
