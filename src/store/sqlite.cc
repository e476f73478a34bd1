#include "store/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

namespace atl::store {
namespace {

constexpr int kBusyMilliseconds =
    5000;  // another process (the CLI) may hold the write lock for a moment

Errc errc_of(int code) {
  switch (code & 0xff) {
    case SQLITE_CONSTRAINT:
      return Errc::already_exists;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return Errc::resource_exhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Errc::unavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Errc::data_loss;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return Errc::permission_denied;
    default:
      return Errc::internal;
  }
}

Error sqlite_error(sqlite3* db, int code, std::string_view what) {
  const char* text = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  return make_error(errc_of(code), std::string(what) + ": " + text);
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* raw) const { sqlite3_finalize(raw); }

// Binding fails only for an index that the SQL text does not have, or without memory: our bug, not
// the world's.
void Statement::bind(int index, std::int64_t value) {
  ATOLL_CHECK(sqlite3_bind_int64(raw_.get(), index, value) == SQLITE_OK);
}

void Statement::bind(int index, double value) {
  ATOLL_CHECK(sqlite3_bind_double(raw_.get(), index, value) == SQLITE_OK);
}

void Statement::bind(int index, std::string_view value) {
  ATOLL_CHECK(sqlite3_bind_text64(raw_.get(), index, value.data() == nullptr ? "" : value.data(),
                                  value.size(), SQLITE_TRANSIENT, SQLITE_UTF8) == SQLITE_OK);
}

void Statement::bind_null(int index) {
  ATOLL_CHECK(sqlite3_bind_null(raw_.get(), index) == SQLITE_OK);
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(raw_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return sqlite_error(sqlite3_db_handle(raw_.get()), code, "store");
}

Result<void> Statement::run() {
  ATOLL_TRY(step());
  return {};
}

void Statement::reset() {
  sqlite3_reset(raw_.get());
  sqlite3_clear_bindings(raw_.get());
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(raw_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(raw_.get(), column); }

std::string Statement::text(int column) const {
  const auto* bytes = sqlite3_column_text(raw_.get(), column);
  if (bytes == nullptr) return {};
  return {reinterpret_cast<const char*>(bytes),
          std::size_t(sqlite3_column_bytes(raw_.get(), column))};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(raw_.get(), column) == SQLITE_NULL;
}

void Database::Close::operator()(sqlite3* raw) const { sqlite3_close_v2(raw); }

Result<Database> Database::open(const std::string& path) {
  // SQLite gives the -wal and -shm files the mode of the main file, so the first creator decides
  // for all three. A file that exists is never opened and closed here: closing any descriptor of a
  // file drops the locks that this process holds on it (fcntl(2)), those of another connection too,
  // and the next process that closes the database would then remove the -wal file under it.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) {
    ::close(fd);
  } else if (errno != EEXIST) {
    return errno_error("open " + path);
  }
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return sqlite_error(raw, code, "open " + path);
  sqlite3_busy_timeout(raw, kBusyMilliseconds);
  return database;
}

Result<void> Database::exec(const std::string& sql) {
  const int code = sqlite3_exec(raw_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return sqlite_error(raw_.get(), code, "store");
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(raw_.get(), sql.data(), int(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (code != SQLITE_OK) return sqlite_error(raw_.get(), code, "prepare");
  return Statement(raw);
}

std::int64_t Database::changes() const { return sqlite3_changes64(raw_.get()); }

}  // namespace atl::store
