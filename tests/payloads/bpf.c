// Loads a BPF program and makes a BPF map.
#include <linux/bpf.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  union bpf_attr map = {
      .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
  if (syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map) >= 0) succeeded("made a BPF map");
  int error = errno;
  struct bpf_insn code[] = {{.code = 0xb7, .dst_reg = 0, .imm = 0},
                            {.code = 0x95}};  // r0 = 0; exit
  union bpf_attr program = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
                            .insn_cnt = 2,
                            .insns = (uintptr_t)code,
                            .license = (uintptr_t)"GPL"};
  if (syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program) >= 0)
    succeeded("loaded a BPF program");
  blocked(error);
}
