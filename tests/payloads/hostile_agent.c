// An agent that turned against the server: takes the place of atoll-agent (the listening socket is descriptor 3),
// answers /init as it should, and everything else as no server should. Which way is written over the text in `mode`.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char mode[64] = "HOSTILE-MODE:garbage                    ";

static int is(const char* name) {
  char wanted[64];
  int n = snprintf(wanted, sizeof wanted, "HOSTILE-MODE:%s ", name);
  for (int i = 0; i < n; ++i)
    if (mode[i] != wanted[i]) return 0;
  return 1;
}

static int say(int fd, const char* text) {
  size_t n = strlen(text);
  return send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void serve(int fd) {
  static char head[65536];
  size_t got = 0;
  while (got < sizeof head - 1) {
    ssize_t n = recv(fd, head + got, sizeof head - 1 - got, 0);
    if (n <= 0) return;
    got += (size_t)n;
    head[got] = 0;
    if (strstr(head, "\r\n\r\n")) break;
  }
  int init = strncmp(head, "POST /init", 10) == 0;
  if (init && !is("refuses")) {
    say(fd, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    return;
  }
  if (is("garbage") || is("refuses")) {
    for (int i = 0; i < 4096; ++i)
      if (!say(fd, "\x00\xff\x01garbage\r\r\n: :\n")) return;
  } else if (is("headers")) {  // a head without end
    say(fd, "HTTP/1.1 200 OK\r\n");
    while (say(fd, "X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")) {
    }
  } else if (is("continues")) {  // interim answers without end
    while (say(fd, "HTTP/1.1 100 Continue\r\n\r\n")) {
    }
  } else if (is("body")) {  // a log without end
    say(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{\"\r\n");
    static char chunk[65536 + 16];
    int n = snprintf(chunk, 16, "10000\r\n");
    memset(chunk + n, 'a', 65536);
    memcpy(chunk + n + 65536, "\r\n", 2);
    while (send(fd, chunk, (size_t)n + 65538, MSG_NOSIGNAL) > 0) {
    }
  } else if (is("two")) {  // an answer that nobody asked for behind the one that was
    say(fd,
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 9\r\nSet-Cookie: stolen=1\r\n\r\n"
        "forgeries");
    sleep(30);
  } else if (is("length")) {  // two lengths
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 20\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nok");
  } else if (is("nesting")) {  // JSON that is deep
    say(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n");
    for (int i = 0; i < 200000; ++i)
      if (!say(fd, "[[[[[[[[")) return;
  }
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    int fd = accept(3, NULL, NULL);
    if (fd < 0) continue;
    pid_t child = fork();
    if (child == 0) {
      serve(fd);
      shutdown(fd, SHUT_WR);
      _exit(0);
    }
    close(fd);
  }
}
