#include "json.h"

#include <stdlib.h>
#include <string.h>

// Memory that is not there ends the process: the agent reports it as it reports every death of a
// kernel.
static void* must(void* memory) {
  if (memory == NULL) abort();
  return memory;
}

void text_clear(struct text* text) { text->size = 0; }

void text_append(struct text* text, const char* data, size_t size) {
  if (text->size + size + 1 > text->capacity) {
    text->capacity = (text->size + size + 1) * 2;
    text->data = must(realloc(text->data, text->capacity));
  }
  memcpy(text->data + text->size, data, size);
  text->size += size;
  text->data[text->size] = '\0';
}

void text_append_z(struct text* text, const char* string) {
  text_append(text, string, strlen(string));
}

// Writing

// The character at data[0..size) and its length in bytes; length 0 when it is no valid UTF-8, -1
// when it is cut off.
static int decode(const unsigned char* data, size_t size, unsigned* out) {
  unsigned char first = data[0];
  int length = first < 0x80                    ? 1
               : first >= 0xc2 && first < 0xe0 ? 2
               : (first & 0xf0) == 0xe0        ? 3
               : first >= 0xf0 && first < 0xf5 ? 4
                                               : 0;
  if (length == 0) return 0;
  unsigned value = length == 1 ? first : first & (0xffU >> (length + 1));
  for (int i = 1; i < length; i++) {
    if ((size_t)i >= size) return -1;
    if ((data[i] & 0xc0) != 0x80) return 0;
    value = value << 6 | (data[i] & 0x3f);
  }
  static const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
  *out = value;
  return length;
}

static void append_unit(struct text* text, unsigned unit) {
  static const char digits[] = "0123456789abcdef";
  char escape[6] = {'\\',
                    'u',
                    digits[unit >> 12 & 15],
                    digits[unit >> 8 & 15],
                    digits[unit >> 4 & 15],
                    digits[unit & 15]};
  text_append(text, escape, sizeof escape);
}

static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

void json_append_string(struct text* text, const char* data, size_t size) {
  const unsigned char* bytes = (const unsigned char*)data;
  text_append(text, "\"", 1);
  for (size_t i = 0; i < size;) {
    size_t run = i;
    while (run < size && is_plain(bytes[run])) run++;
    if (run > i) {
      text_append(text, data + i, run - i);
      i = run;
      continue;
    }
    unsigned value = 0xfffd;
    int length = decode(bytes + i, size - i, &value);
    i += length > 0 ? (size_t)length : 1;
    if (value == '\n') {
      text_append(text, "\\n", 2);
    } else if (value == '"' || value == '\\') {
      char escape[2] = {'\\', (char)value};
      text_append(text, escape, 2);
    } else if (value >= 0x10000) {
      append_unit(text, 0xd800 + ((value - 0x10000) >> 10));
      append_unit(text, 0xdc00 + ((value - 0x10000) & 0x3ff));
    } else {
      append_unit(text, value);
    }
  }
  text_append(text, "\"", 1);
}

void json_append_base64(struct text* text, const unsigned char* data, size_t size) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  text_append(text, "\"", 1);
  for (size_t i = 0; i < size; i += 3) {
    size_t left = size - i;
    unsigned bits = (unsigned)data[i] << 16 | (left > 1 ? (unsigned)data[i + 1] << 8 : 0) |
                    (left > 2 ? data[i + 2] : 0);
    char group[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63],
                     left > 1 ? alphabet[bits >> 6 & 63] : '=',
                     left > 2 ? alphabet[bits & 63] : '='};
    text_append(text, group, 4);
  }
  text_append(text, "\"", 1);
}

size_t utf8_incomplete_tail(const char* data, size_t size) {
  const unsigned char* bytes = (const unsigned char*)data;
  for (size_t tail = 1; tail <= 3 && tail <= size; tail++) {
    unsigned ignored;
    if ((bytes[size - tail] & 0xc0) == 0x80) continue;
    return decode(bytes + size - tail, tail, &ignored) == -1 ? tail : 0;
  }
  return 0;
}

// Reading

struct reader {
  const char* at;
  const char* end;
};

static void skip_space(struct reader* in) {
  while (in->at < in->end && strchr(" \t\r\n", *in->at) != NULL) in->at++;
}

static bool accept(struct reader* in, char wanted) {
  skip_space(in);
  if (in->at == in->end || *in->at != wanted) return false;
  in->at++;
  return true;
}

static int hex_unit(struct reader* in) {
  if (in->end - in->at < 4) return -1;
  int unit = 0;
  for (int i = 0; i < 4; i++) {
    char c = *in->at++;
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    unit = unit << 4 | digit;
  }
  return unit;
}

static void append_character(struct text* text, unsigned value) {
  // A C string has no NUL, and no encoding has half a surrogate pair.
  if (value == 0 || (value >= 0xd800 && value < 0xe000)) value = 0xfffd;
  char bytes[4];
  size_t length = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--, value >>= 6) bytes[i] = (char)(0x80 | (value & 0x3f));
  bytes[0] = (char)(length == 1 ? value : (0xf0U << (4 - length) & 0xff) | value);
  text_append(text, bytes, length);
}

static bool read_escape(struct reader* in, struct text* text) {
  static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  if (in->at == in->end) return false;
  char name = *in->at++;
  if (name != 'u') {
    const char* found = name == '\0' ? NULL : strchr(names, name);
    if (found == NULL) return false;
    text_append(text, &meanings[found - names], 1);
    return true;
  }
  int unit = hex_unit(in);
  if (unit < 0) return false;
  unsigned value = (unsigned)unit;
  if (value >= 0xd800 && value < 0xdc00 && in->end - in->at >= 6 && in->at[0] == '\\' &&
      in->at[1] == 'u') {
    struct reader ahead = {in->at + 2, in->end};
    int second = hex_unit(&ahead);
    if (second >= 0xdc00 && second < 0xe000) {
      value = 0x10000 + ((value - 0xd800) << 10) + ((unsigned)second - 0xdc00);
      in->at = ahead.at;
    }
  }
  append_character(text, value);
  return true;
}

static char* read_string(struct reader* in) {
  if (!accept(in, '"')) return NULL;
  struct text text = {0};
  text_append(&text, "", 0);
  while (in->at < in->end && *in->at != '"') {
    const char* run = in->at;
    while (in->at < in->end && *in->at != '"' && *in->at != '\\' && *in->at != '\0') in->at++;
    text_append(&text, run, (size_t)(in->at - run));
    if (in->at < in->end && *in->at == '\0') break;
    if (in->at < in->end && *in->at == '\\') {
      in->at++;
      if (!read_escape(in, &text)) break;
    }
  }
  if (in->at < in->end && *in->at == '"') {
    in->at++;
    return text.data;
  }
  free(text.data);
  return NULL;
}

static bool skip_value(struct reader* in) {
  int depth = 0;
  do {
    skip_space(in);
    if (in->at == in->end) return false;
    char c = *in->at;
    if (c == '"') {
      char* string = read_string(in);
      if (string == NULL) return false;
      free(string);
    } else {
      if (c == '{' || c == '[') depth++;
      if (c == '}' || c == ']') depth--;
      in->at++;
    }
    skip_space(in);
  } while (in->at < in->end && (depth > 0 || (*in->at != ',' && *in->at != '}')));
  return depth == 0;
}

static bool read_pairs(struct reader* in, struct pairs* pairs) {
  if (!accept(in, '{')) return false;
  if (accept(in, '}')) return true;
  do {
    struct pair pair = {read_string(in), NULL};
    if (pair.name != NULL && accept(in, ':')) pair.value = read_string(in);
    if (pair.value == NULL) {
      free(pair.name);
      return false;
    }
    pairs->items = must(realloc(pairs->items, (pairs->count + 1) * sizeof(struct pair)));
    pairs->items[pairs->count++] = pair;
  } while (accept(in, ','));
  return accept(in, '}');
}

static bool read_member(struct reader* in, const char* name, struct request* request) {
  if (strcmp(name, "env") == 0 && request->env.count == 0) return read_pairs(in, &request->env);
  char** field = strcmp(name, "op") == 0     ? &request->op
                 : strcmp(name, "code") == 0 ? &request->code
                 : strcmp(name, "cwd") == 0  ? &request->cwd
                 : strcmp(name, "seed") == 0 ? &request->seed
                                             : NULL;
  if (field == NULL || *field != NULL) return skip_value(in);
  *field = read_string(in);
  return *field != NULL;
}

bool request_parse(const char* line, size_t size, struct request* request) {
  struct reader in = {line, line + size};
  if (!accept(&in, '{')) return false;
  if (accept(&in, '}')) return false;
  do {
    char* name = read_string(&in);
    bool good = name != NULL && accept(&in, ':') && read_member(&in, name, request);
    free(name);
    if (!good) return false;
  } while (accept(&in, ','));
  return accept(&in, '}') && request->op != NULL;
}

void pairs_free(struct pairs* pairs) {
  for (size_t i = 0; i < pairs->count; i++) {
    free(pairs->items[i].name);
    free(pairs->items[i].value);
  }
  free(pairs->items);
  *pairs = (struct pairs){0};
}

void request_free(struct request* request) {
  free(request->op);
  free(request->code);
  free(request->cwd);
  free(request->seed);
  pairs_free(&request->env);
  *request = (struct request){0};
}
