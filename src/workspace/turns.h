// Turns: one coroutine at a time for each key; others wait in line.
//
// May be taken on any strand. A turn is given on by its destruction, on any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "net/task.h"

namespace atl::workspace {

class Turns {
 public:
  Turns();
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  class Turn {
   public:
    Turn(Turn&&) noexcept = default;
    Turn& operator=(Turn&&) noexcept = delete;
    ~Turn();

   private:
    friend class Turns;
    Turn(std::shared_ptr<struct TurnLines> lines, std::string key);
    std::shared_ptr<struct TurnLines> lines_;
    std::string key_;
  };

  // deadline_exceeded: it did not come within `limit`.
  net::Task<Result<Turn>> take(std::string key, std::chrono::milliseconds limit);

 private:
  std::shared_ptr<struct TurnLines> lines_;
};

}  // namespace atl::workspace
