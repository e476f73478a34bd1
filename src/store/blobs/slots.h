// Slots: so many coroutines at a time; others wait in line.
//
// May be taken on any strand. A slot is given on by its destruction, on any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "net/task.h"

namespace atl::blobs {

class Slots {
 public:
  explicit Slots(std::size_t count);
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  class Slot {
   public:
    Slot(Slot&&) noexcept = default;
    Slot& operator=(Slot&&) noexcept = delete;
    ~Slot();

   private:
    friend class Slots;
    explicit Slot(std::shared_ptr<struct SlotLine> line);
    std::shared_ptr<struct SlotLine> line_;
  };

  // deadline_exceeded: none came free within `limit`.
  net::Task<Result<Slot>> take(std::chrono::milliseconds limit);

 private:
  std::shared_ptr<struct SlotLine> line_;
};

}  // namespace atl::blobs
