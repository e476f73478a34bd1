// Opens a POSIX message queue and a file of /dev/shm that somebody else made. argv: QUEUE SHM_PATH
// SECRET
#include <mqueue.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* queue = need(argc, argv, 1);
  const char* path = need(argc, argv, 2);
  const char* secret = need(argc, argv, 3);
  if (path_holds(path, secret) == 1) succeeded("read the secret in %s", path);
  int error = errno;
  mqd_t q = mq_open(queue, O_RDONLY | O_NONBLOCK);
  if (q >= 0) succeeded("opened the message queue %s", queue);
  blocked(is_refusal(errno) ? errno : error);
}
