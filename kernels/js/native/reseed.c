// A Node module that has nothing to offer: each time it is loaded, OpenSSL fetches new entropy for
// its shared generator, and the generators of all threads follow before their next number. Node has
// no other way to ask for that. Needs no headers of Node or OpenSSL: the functions are looked for
// in the running process.

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void* napi_register_module_v1(void* env, void* exports) {
  (void)env;
  int (*poll)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "RAND_poll");
  return poll != 0 && poll() == 1 ? exports : 0;
}
