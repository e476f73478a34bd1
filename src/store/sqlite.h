// RAII over the sqlite3 C API; the only header that knows of it. Not thread-safe: the owner locks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace atl::store {

// A prepared statement. Parameters and columns count as in SQL: parameters from 1, columns from 0.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* raw) : raw_(raw) {}

  void bind(int index, std::int64_t value);
  void bind(int index, double value);
  void bind(int index, std::string_view value);
  void bind_null(int index);
  // True: a row is there to read. False: done.
  Result<bool> step();
  // For statements without rows.
  Result<void> run();
  // Forgets rows and parameters; the statement can be used again.
  void reset();

  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* raw) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> raw_;
};

// A cached statement in use: clean when it comes and when it goes.
class Use {
 public:
  explicit Use(Statement& statement) : statement_(statement) { statement_.reset(); }
  ~Use() { statement_.reset(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Statement* operator->() { return &statement_; }

 private:
  Statement& statement_;
};

class Database {
 public:
  // Creates the file (mode 0600) if it is not there.
  static Result<Database> open(const std::string& path);

  Result<void> exec(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  std::int64_t changes() const;

 private:
  struct Close {
    void operator()(sqlite3* raw) const;
  };
  explicit Database(sqlite3* raw) : raw_(raw) {}
  std::unique_ptr<sqlite3, Close> raw_;
};

}  // namespace atl::store
