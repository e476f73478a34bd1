// Immortal objects: what exists before the forks is never freed, so nobody need count references to
// it. A child that uses a shared object then writes no page of it.
//
// The number that means "immortal" is no part of Python's stable interface: this works with the
// versions named below and does nothing in any other.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct {
  intptr_t references;
  void* type;
} object;
typedef int (*visitor)(object*, void*);
typedef int (*traverser)(object*, visitor, void*);

enum { kTraverseSlot = 71 };  // Py_tp_traverse
static const intptr_t kImmortal = 0xffffffff;

struct walk {
  object** stack;
  size_t size, room;
  int made;
  int failed;
};

static int is_immortal(const object* o) { return (int32_t)o->references < 0; }

static void push(struct walk* walk, object* o) {
  if (walk->size == walk->room) {
    const size_t room = walk->room == 0 ? 1u << 16 : walk->room * 2;
    object** larger = realloc(walk->stack, room * sizeof(object*));
    if (larger == NULL) {
      walk->failed = 1;
      return;
    }
    walk->stack = larger;
    walk->room = room;
  }
  walk->stack[walk->size++] = o;
}

// Each is pushed once: when it becomes immortal.
static int keep(object* o, void* walk) {
  if (o == NULL || is_immortal(o)) return 0;
  o->references = kImmortal;
  ++((struct walk*)walk)->made;
  push(walk, o);
  return 0;
}

static int keep_root(object* o, void* walk) {
  if (is_immortal(o))
    push(walk, o);  // it may refer to others that are not
  else
    keep(o, walk);
  return 1;  // go on
}

static int is_known_version(void) {
  const char* (*version)(void) = (const char* (*)(void))dlsym(RTLD_DEFAULT, "Py_GetVersion");
  if (version == NULL) return 0;
  const char* text = version();
  return (strncmp(text, "3.13.", 5) == 0 || strncmp(text, "3.12.", 5) == 0) &&
         strstr(text, "free-threading") == NULL;
}

ATOLL_EXPORT int atoll_immortalise(void) {
  if (!is_known_version()) return 0;
  void (*visit_all)(visitor, void*) =
      (void (*)(visitor, void*))dlsym(RTLD_DEFAULT, "PyUnstable_GC_VisitObjects");
  void* (*slot)(void*, int) = (void* (*)(void*, int))dlsym(RTLD_DEFAULT, "PyType_GetSlot");
  object* (*attribute)(object*, const char*) =
      (object * (*)(object*, const char*)) dlsym(RTLD_DEFAULT, "PyObject_GetAttrString");
  void (*forget_error)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "PyErr_Clear");
  void* code_type = dlsym(RTLD_DEFAULT, "PyCode_Type");
  if (visit_all == NULL || slot == NULL || attribute == NULL || forget_error == NULL ||
      code_type == NULL)
    return 0;
  // Code has no part in garbage collection and does not tell what it refers to.
  static const char* const kOfCode[] = {
      "co_consts",    "co_names",          "co_name",     "co_qualname", "co_filename",
      "co_linetable", "co_exceptiontable", "co_varnames", "co_freevars", "co_cellvars"};
  struct walk walk = {0};
  visit_all(keep_root, &walk);
  while (walk.size > 0 && !walk.failed) {
    object* o = walk.stack[--walk.size];
    if (o->type == code_type) {
      for (size_t i = 0; i < sizeof(kOfCode) / sizeof(kOfCode[0]); ++i) {
        object* part = attribute(o, kOfCode[i]);
        if (part == NULL) forget_error();
        keep(part, &walk);
      }
      continue;
    }
    const traverser traverse = (traverser)slot(o->type, kTraverseSlot);
    if (traverse != NULL) traverse(o, keep, &walk);
  }
  free(walk.stack);
  return walk.made;
}
