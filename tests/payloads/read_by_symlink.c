// Makes symbolic links to a file of the host and to "/", and reads through them. argv: PATH SECRET
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  const char* secret = need(argc, argv, 2);
  if (chdir(scratch_dir())) inconclusive("chdir: %s", strerror(errno));
  if (symlink(path, "direct")) blocked(errno);
  if (symlink("/../../../../../..", "top")) blocked(errno);
  if (symlink("/proc/1/root", "init")) blocked(errno);
  char through[4096];
  if (path_holds("direct", secret) == 1) succeeded("read the secret through a link to the file");
  int error = errno;
  const char* links[] = {"top", "init"};
  for (int i = 0; i < 2; ++i) {
    snprintf(through, sizeof through, "%s%s", links[i], path);
    if (path_holds(through, secret) == 1) succeeded("read the secret through %s", links[i]);
  }
  blocked(error);
}
