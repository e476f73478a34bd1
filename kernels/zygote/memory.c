// Memory that many children share: fewer, larger pages make a fork and the end of a child cheaper,
// because page tables are what both cost.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { kMaxRanges = 2048 };
static const size_t kHuge = 2u << 20;
static const size_t kArena = 1u << 20;
static const size_t kRegion = 512u << 20;

// Python's arenas, all of one size, cut from one region. In a child it goes on from where the
// zygote stood.
static char* region;
static size_t used;
static void* freed;  // a list through the first word of each

typedef struct {
  void* ctx;
  void* (*alloc)(void* ctx, size_t size);
  void (*free)(void* ctx, void* at, size_t size);
} arena_allocator;

static int is_ours(const void* at) {
  return (const char*)at >= region && (const char*)at < region + kRegion;
}

static void* arena_alloc(void* ctx, size_t size) {
  (void)ctx;
  if (size == kArena) {
    if (freed != NULL) {
      void* at = freed;
      memcpy(&freed, at, sizeof(freed));
      memset(at, 0, sizeof(freed));
      return at;
    }
    if (used + kArena <= kRegion) {
      used += kArena;
      return region + used - kArena;
    }
  }
  void* at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

static void arena_free(void* ctx, void* at, size_t size) {
  (void)ctx;
  if (!is_ours(at)) {
    munmap(at, size);
    return;
  }
  madvise(at, size, MADV_DONTNEED);
  memcpy(at, &freed, sizeof(freed));
  freed = at;
}

// Arenas that exist already were mapped one by one, so they are told from ours by their address.
ATOLL_EXPORT int atoll_arenas_install(void) {
  typedef void (*setter)(arena_allocator*);
  const setter set = (setter)dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
  if (set == NULL || region != NULL) return 0;
  char* raw = mmap(NULL, kRegion + kHuge, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 0;
  char* aligned = (char*)(((uintptr_t)raw + kHuge - 1) & ~(uintptr_t)(kHuge - 1));
  if (aligned > raw) munmap(raw, (size_t)(aligned - raw));
  const size_t tail = (size_t)(raw + kHuge - aligned);
  if (tail > 0) munmap(aligned + kRegion, tail);
  madvise(aligned, kRegion, MADV_HUGEPAGE);
  region = aligned;
  arena_allocator ours = {NULL, arena_alloc, arena_free};
  set(&ours);
  return 1;
}

struct range {
  uintptr_t begin, end;
};

// Private writable memory without a file behind it, except for stacks.
static int find_ranges(struct range* ranges) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return 0;
  int count = 0;
  char line[512];
  while (count < kMaxRanges && fgets(line, sizeof(line), maps) != NULL) {
    unsigned long begin, end, inode;
    char mode[5], name[2] = "";
    if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %1s", &begin, &end, mode, &inode, name) < 4) continue;
    if (strncmp(mode, "rw-p", 4) != 0 || inode != 0) continue;
    if (name[0] == '[' && strstr(line, "[heap]") == NULL) continue;
    ranges[count++] = (struct range){begin, end};
  }
  fclose(maps);
  return count;
}

ATOLL_EXPORT int atoll_memory_settle(void) {
  static struct range ranges[kMaxRanges];
  const int count = find_ranges(ranges);
  int collapsed = 0;
  for (int i = 0; i < count; ++i) {
    uintptr_t at = (ranges[i].begin + kHuge - 1) & ~(uintptr_t)(kHuge - 1);
    for (; at + kHuge <= ranges[i].end; at += kHuge) {
      if (is_ours((void*)at) && (char*)at >= region + used) break;
      collapsed += madvise((void*)at, kHuge, MADV_COLLAPSE) == 0;
    }
  }
  // Children would otherwise copy two megabytes where they write one byte.
  for (int i = 0; i < count; ++i)
    madvise((void*)ranges[i].begin, ranges[i].end - ranges[i].begin, MADV_NOHUGEPAGE);
  return collapsed;
}
