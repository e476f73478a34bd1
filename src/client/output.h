// OutputKeeper: the beginning and the end of a stream, whatever its length, in bounded memory.
#pragma once

#include <string_view>

#include "client/commands.h"

namespace atl::client {

class OutputKeeper {
 public:
  explicit OutputKeeper(std::size_t keep) : head_room_(keep / 2), tail_room_(keep - keep / 2) {}

  void add(std::string_view bytes);
  // Characters (UTF-8) that the gap would cut in two are left out whole.
  Output finish() &&;

 private:
  std::size_t head_room_;
  std::size_t tail_room_;
  Output output_;  // its tail may be longer than the room, up to twice
};

}  // namespace atl::client
