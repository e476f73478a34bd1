// Walks a tree of kernel settings and opens every file for writing, except below the prefixes that
// are private to the sandbox's namespaces. argv: TREE ALLOWED_PREFIX...
#include <ftw.h>

#include "payload.h"

static char** allowed;
static int seen, refused;

static int visit(const char* path, const struct stat* st, int type, struct FTW* where) {
  (void)where;
  if (type != FTW_F || !S_ISREG(st->st_mode)) return 0;
  for (char** a = allowed; *a; ++a) {
    if (!strncmp(path, *a, strlen(*a))) return 0;
  }
  ++seen;
  int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) succeeded("%s opens for writing", path);
  ++refused;
  return 0;
}

static void attack(int argc, char** argv) {
  const char* tree = need(argc, argv, 1);
  allowed = argv + 2;
  if (access(tree, F_OK)) blocked(errno);
  nftw(tree, visit, 32, FTW_PHYS | FTW_MOUNT);
  if (!seen) blocked_because("EMPTY %s shows nothing to write", tree);
  blocked_because("EACCES all %d files refuse", refused);
}
