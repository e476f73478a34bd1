// Walks /dev and opens every device node that is not on the list of documented ones.
// argv: NAME... (below /dev; a name that ends in / allows what is below it)
#include <ftw.h>

#include "payload.h"

static char** names;
static int seen;

static int documented(const char* path) {
  for (char** n = names; *n; ++n) {
    size_t size = strlen(*n);
    if ((*n)[size - 1] == '/' ? !strncmp(path, *n, size) : !strcmp(path, *n)) return 1;
  }
  return 0;
}

static int visit(const char* path, const struct stat* st, int type, struct FTW* where) {
  (void)type;
  (void)where;
  if (!S_ISBLK(st->st_mode) && !S_ISCHR(st->st_mode)) return 0;
  ++seen;
  if (documented(path + strlen("/dev/"))) return 0;
  // Only opening counts: a node that the device policy refuses is as good as none. Terminals and
  // tape drives act on open, so nodes whose opening could do harm are opened by nobody: O_PATH is
  // proof that the node is there and within reach.
  if (open(path, O_PATH) >= 0 && access(path, R_OK) == 0)
    succeeded("%s is there and readable", path);
  return 0;
}

static void attack(int argc, char** argv) {
  (void)argc;
  names = argv + 1;
  if (nftw("/dev", visit, 16, FTW_PHYS)) inconclusive("/dev: %s", strerror(errno));
  if (seen < 3) inconclusive("/dev has %d device nodes", seen);
  blocked_because("NONE of %d device nodes is undocumented", seen);
}
