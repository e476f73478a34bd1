// What main.R cannot do itself: the socket on descriptor 3, descriptors 1 and 2, signals, the
// environment.
//
// The functions are called with R's interface `.C`: every argument is a pointer to a vector, texts
// are raw vectors of UTF-8 with their length beside them. So neither R's headers nor its version
// matter. All of them run on R's thread.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "output.h"

#define EXPORT __attribute__((visibility("default")))

enum { agent_socket = 3, largest_line = 256 * 1024 * 1024 };

// R's own flag: its handler of SIGINT sets it, and R looks at it where a run may be interrupted.
extern int R_interrupts_pending __attribute__((weak));

static struct text input;     // bytes from the agent
static size_t consumed;       // of them, the last request
static struct request cell;   // the run of now
static struct pairs started;  // the environment of `start`
static int execution_count;
static pid_t owner;
static struct sigaction interrupt_of_r;

static const struct sigaction ignored = {.sa_handler = SIG_IGN};

// Variables that R's own start has made, and that R and its tools look for.
static bool is_of_r(const char* name) {
  static const char* const of_start_only[] = {"R_ENVIRON", "R_ENVIRON_USER", "R_PROFILE",
                                              "R_PROFILE_USER"};
  static const char* const others[] = {"EDITOR", "LD_LIBRARY_PATH", "LN_S", "MAKE", "PAGER", "SED",
                                       "TAR"};
  for (size_t i = 0; i < sizeof of_start_only / sizeof *of_start_only; i++)
    if (strcmp(name, of_start_only[i]) == 0) return false;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(name, others[i]) == 0) return true;
  return strncmp(name, "R_", 2) == 0;
}

static void remove_foreign_variables(void) {
  for (size_t i = 0; environ != NULL && environ[i] != NULL;) {
    char name[256];
    size_t length = strcspn(environ[i], "=");
    snprintf(name, sizeof name, "%.*s", (int)(length < 255 ? length : 255), environ[i]);
    // unsetenv moves the rest up; what it refuses is passed over.
    if (length > 255 || is_of_r(name) || unsetenv(name) != 0) i++;
  }
}

static void set_variables(const struct pairs* variables) {
  for (size_t i = 0; i < variables->count; i++)
    setenv(variables->items[i].name, variables->items[i].value, 1);
  tzset();
}

static void restore_variables(const struct pairs* variables) {
  for (size_t i = 0; i < variables->count; i++) {
    const char *name = variables->items[i].name, *value = NULL;
    for (size_t k = 0; k < started.count; k++)
      if (strcmp(started.items[k].name, name) == 0) value = started.items[k].value;
    if (value != NULL) {
      setenv(name, value, 1);
    } else {
      unsetenv(name);
    }
  }
  tzset();
}

static void enter(const char* directory) {
  const char* home = getenv("HOME");
  if (directory != NULL && chdir(directory) == 0) return;
  if (home != NULL && chdir(home) == 0) return;
  if (chdir("/") != 0) abort();
}

static void start(struct request* request) {
  remove_foreign_variables();
  pairs_free(&started);
  started = request->env;
  request->env = (struct pairs){0};
  set_variables(&started);
  enter(request->cwd);
  output_answer("{\"type\":\"ready\"}\n");
}

// As if `start` had named them, too.
static void add_variables(struct pairs* variables) {
  set_variables(variables);
  const size_t all = started.count + variables->count;
  struct pair* items = realloc(started.items, (all + 1) * sizeof *items);
  if (items == NULL) abort();
  memcpy(items + started.count, variables->items, variables->count * sizeof *items);
  started.items = items;
  started.count = all;
  free(variables->items);
  *variables = (struct pairs){0};
}

// The next line of the agent in `input`, after `consumed`; its size without the newline, or -1 at
// the end.
static ssize_t read_line(void) {
  memmove(input.data, input.data + consumed, input.size - consumed);
  input.size -= consumed;
  consumed = 0;
  size_t seen = 0;
  for (;;) {
    char* newline = memchr(input.data + seen, '\n', input.size - seen);
    if (newline != NULL) return newline - input.data;
    seen = input.size;
    if (seen > largest_line) return -1;
    char block[64 * 1024];
    ssize_t got = recv(agent_socket, block, sizeof block, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    text_append(&input, block, (size_t)got);
  }
}

EXPORT void atoll_init(int* failed) {
  text_append(&input, "", 0);
  owner = getpid();
  *failed = fcntl(agent_socket, F_SETFD, FD_CLOEXEC) != 0 || !output_start(agent_socket) ||
            sigaction(SIGINT, &ignored, &interrupt_of_r) != 0;
}

// Waits for the next run. `size` is that of its code, -1 when the agent is gone, -2 when this
// process is a copy of another one now: then `seed` is for its generator, and the caller comes
// again.
EXPORT void atoll_next(int* size, int* seed) {
  // A forked child that came back here has no business with the agent.
  if (getpid() != owner) _exit(0);
  request_free(&cell);
  for (;;) {
    ssize_t length = read_line();
    *size = -1;
    if (length < 0) return;
    consumed = (size_t)length + 1;
    struct request request = {0};
    if (!request_parse(input.data, (size_t)length, &request)) return;
    if (strcmp(request.op, "execute") == 0 && request.code != NULL) {
      cell = request;
      break;
    }
    if (strcmp(request.op, "start") == 0) start(&request);
    if (strcmp(request.op, "forked") == 0 && request.seed != NULL) {
      char digits[8] = {0};
      strncpy(digits, request.seed, sizeof digits - 1);
      *seed = (int)strtol(digits, NULL, 16);
      *size = -2;
      add_variables(&request.env);
      request_free(&request);
      return;
    }
    if (strcmp(request.op, "warm") == 0) output_answer("{\"type\":\"warmed\"}\n");
    request_free(&request);
  }
  *size = (int)strlen(cell.code);
  set_variables(&cell.env);
  char line[80];
  snprintf(line, sizeof line, "{\"type\":\"started\",\"execution_count\":%d}\n", ++execution_count);
  output_begin_run();
  output_answer(line);
  if (&R_interrupts_pending != NULL) R_interrupts_pending = 0;
  sigaction(SIGINT, &interrupt_of_r, NULL);
}

EXPORT void atoll_code(unsigned char* into) { memcpy(into, cell.code, strlen(cell.code)); }

// Ends the run. An interrupt that comes from now on finds nothing to interrupt.
EXPORT void atoll_done(void) {
  sigaction(SIGINT, &ignored, NULL);
  if (&R_interrupts_pending != NULL) R_interrupts_pending = 0;
  output_end_run();
  restore_variables(&cell.env);
  output_answer("{\"type\":\"done\"}\n");
}

EXPORT void atoll_flush(void) { output_flush(); }

EXPORT void atoll_stderr(const unsigned char* text, const int* size) {
  output_message(STREAM_ERR, (const char*)text, (size_t)*size);
}

EXPORT void atoll_collect(void) { output_collect_begin(); }

static const struct text* taken;

EXPORT void atoll_taken(int* size) {
  taken = output_collect_take();
  *size = (int)taken->size;
}

EXPORT void atoll_taken_text(unsigned char* into) { memcpy(into, taken->data, taken->size); }

EXPORT void atoll_exit(const int* status) {
  fflush(NULL);
  _exit(*status);
}

// Gives up the collection: what it has is output like any other.
EXPORT void atoll_abandon(void) {
  const struct text* text = output_collect_take();
  output_message(STREAM_OUT, text->data, text->size);
}

EXPORT void atoll_result(const unsigned char* text, const int* text_size, const unsigned char* html,
                         const int* html_size, const unsigned char* png, const int* png_size) {
  struct text line = {0};
  text_append_z(&line, "{\"type\":\"result\",\"text\":");
  json_append_string(&line, (const char*)text, (size_t)*text_size);
  if (*html_size > 0) {
    text_append_z(&line, ",\"html\":");
    json_append_string(&line, (const char*)html, (size_t)*html_size);
  }
  if (*png_size > 0) {
    text_append_z(&line, ",\"png\":");
    json_append_base64(&line, png, (size_t)*png_size);
  }
  text_append_z(&line, ",\"extra\":{},\"is_main_result\":false}\n");
  output_line(&line);
  free(line.data);
}

EXPORT void atoll_error(const unsigned char* name, const int* name_size, const unsigned char* value,
                        const int* value_size, const unsigned char* traceback,
                        const int* traceback_size) {
  struct text line = {0};
  text_append_z(&line, "{\"type\":\"error\",\"name\":");
  json_append_string(&line, (const char*)name, (size_t)*name_size);
  text_append_z(&line, ",\"value\":");
  json_append_string(&line, (const char*)value, (size_t)*value_size);
  text_append_z(&line, ",\"traceback\":");
  json_append_string(&line, (const char*)traceback, (size_t)*traceback_size);
  text_append_z(&line, "}\n");
  output_line(&line);
  free(line.data);
}
