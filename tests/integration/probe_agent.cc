// A stand-in for the agent in tests of the jail: PID 1 that runs what it is told over its socket.
//
// One request per connection: "<uid>\n<shell command>", ended by shutdown. The answer is the
// command's output and a last line "exit=N". Descriptor 3 is the listening socket, as for the real
// agent.
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace {

std::string read_all(int fd) {
  std::string out;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) out.append(buffer, size_t(n));
  return out;
}

[[noreturn]] void serve(int connection) {
  const std::string request = read_all(connection);
  const size_t split = request.find('\n');
  if (split == std::string::npos) _exit(1);
  const uid_t uid = uid_t(atoi(request.c_str()));
  const std::string command = request.substr(split + 1);
  signal(SIGCHLD, SIG_DFL);
  const pid_t child = fork();
  if (child == 0) {
    dup2(connection, 1);
    dup2(connection, 2);
    close(connection);
    close(3);
    if (uid != 0 && (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0))
      _exit(126);
    setenv("HOME", uid == 0 ? "/root" : "/home/user", 1);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  dprintf(connection, "\nexit=%d\n", code);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--listen-fd") != 0) return 2;
  signal(SIGCHLD, SIG_IGN);  // PID 1 reaps everything
  signal(SIGTERM, SIG_DFL);
  for (;;) {
    const int connection = accept4(3, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return 3;
    }
    const pid_t child = fork();
    if (child == 0) serve(connection);
    close(connection);
  }
}
