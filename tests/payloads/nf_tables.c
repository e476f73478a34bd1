// Reaches nf_tables: asks it for its generation, then makes a table.
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include "payload.h"

struct message {
  struct nlmsghdr head;
  struct nfgenmsg nf;
  char attributes[32];
};

static void fill(struct message* m, int type, int flags, int subsystem, size_t attributes) {
  m->head.nlmsg_len = (uint32_t)(sizeof m->head + sizeof m->nf + attributes);
  m->head.nlmsg_type = (uint16_t)type;
  m->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
  m->nf.nfgen_family = 2;
  m->nf.version = NFNETLINK_V0;
  m->nf.res_id = __builtin_bswap16((uint16_t)subsystem);
}

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
  if (fd < 0) blocked(errno);
  struct timeval limit = {2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);

  char batch[256];
  size_t size = 0;
  struct message m = {0};
  fill(&m, NFNL_MSG_BATCH_BEGIN, 0, NFNL_SUBSYS_NFTABLES, 0);
  memcpy(batch, &m, m.head.nlmsg_len);
  size += m.head.nlmsg_len;
  memset(&m, 0, sizeof m);
  struct nlattr name = {.nla_len = 4 + 6, .nla_type = NFTA_TABLE_NAME};
  memcpy(m.attributes, &name, 4);
  memcpy(m.attributes + 4, "atoll", 6);
  fill(&m, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, 0, 12);
  memcpy(batch + size, &m, m.head.nlmsg_len);
  size += m.head.nlmsg_len;
  memset(&m, 0, sizeof m);
  fill(&m, NFNL_MSG_BATCH_END, 0, NFNL_SUBSYS_NFTABLES, 0);
  memcpy(batch + size, &m, m.head.nlmsg_len);
  size += m.head.nlmsg_len;
  if (send(fd, batch, size, 0) < 0) blocked(errno);
  struct {
    struct nlmsghdr head;
    struct nlmsgerr error;
    char rest[512];
  } answer;
  if (recv(fd, &answer, sizeof answer, 0) < 0) inconclusive("no answer: %s", strerror(errno));
  if (answer.head.nlmsg_type != NLMSG_ERROR) inconclusive("unexpected answer");
  // EINVAL for the whole batch: the kernel knows no nf_tables.
  if (answer.error.error == -EINVAL) blocked(ENOSYS);
  if (answer.error.error) blocked(-answer.error.error);
  succeeded("made a table");
}
