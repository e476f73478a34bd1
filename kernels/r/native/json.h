// JSON as the protocol of runners needs it: reading requests (objects of strings, and of objects of
// strings), writing ASCII. Nothing here knows R or the socket.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text {
  char* data;  // NUL-terminated once anything was appended
  size_t size;
  size_t capacity;
};

void text_clear(struct text* text);
void text_append(struct text* text, const char* data, size_t size);
void text_append_z(struct text* text, const char* string);

// Appends a quoted JSON string of ASCII. Bytes that are no UTF-8 become U+FFFD.
void json_append_string(struct text* text, const char* data, size_t size);

// Appends a quoted base64 string.
void json_append_base64(struct text* text, const unsigned char* data, size_t size);

// How many bytes at the end of `data` are the beginning of a character that is not complete yet (0
// to 3).
size_t utf8_incomplete_tail(const char* data, size_t size);

struct pair {
  char* name;
  char* value;
};

struct pairs {
  struct pair* items;
  size_t count;
};

struct request {
  char* op;
  char* code;
  char* cwd;
  char* seed;
  struct pairs env;
};

// Parses one line; members that are not in `request` are skipped. False when the line is not what
// the protocol says.
bool request_parse(const char* line, size_t size, struct request* request);
void request_free(struct request* request);
void pairs_free(struct pairs* pairs);
