#include "agent/process_end.h"

#include <sys/wait.h>

#include <csignal>

namespace atl::agent {

std::string signal_name(int signal) {
  switch (signal) {
    case SIGHUP:
      return "hangup";
    case SIGINT:
      return "interrupt";
    case SIGQUIT:
      return "quit";
    case SIGILL:
      return "illegal instruction";
    case SIGTRAP:
      return "trace/breakpoint trap";
    case SIGABRT:
      return "aborted";
    case SIGBUS:
      return "bus error";
    case SIGFPE:
      return "floating point exception";
    case SIGKILL:
      return "killed";
    case SIGUSR1:
      return "user defined signal 1";
    case SIGSEGV:
      return "segmentation fault";
    case SIGUSR2:
      return "user defined signal 2";
    case SIGPIPE:
      return "broken pipe";
    case SIGALRM:
      return "alarm clock";
    case SIGTERM:
      return "terminated";
    default:
      return "signal " + std::to_string(signal);
  }
}

EndStatus end_status(int wait_status) {
  EndStatus end;
  if (WIFEXITED(wait_status)) {
    end.exit_code = WEXITSTATUS(wait_status);
    end.exited = true;
    end.status = "exit status " + std::to_string(end.exit_code);
    if (end.exit_code != 0) end.error = end.status;
    return end;
  }
  end.exit_code = -1;
  end.status = "signal: " + signal_name(WTERMSIG(wait_status));
  if (WCOREDUMP(wait_status)) end.status += " (core dumped)";
  end.error = end.status;
  return end;
}

}  // namespace atl::agent
