#include "store/statements.h"

namespace atl::store {
namespace {

Result<ProviderRecord> read_provider(Use& use) {
  ProviderRecord record;
  record.team_id = use->text(0);
  record.provider = use->text(1);
  record.config = use->text(2);
  ATOLL_TRY_ASSIGN(record.secrets, map_from_json(use->text(3)));
  record.updated_at = from_ns(use->integer(4));
  return record;
}

}  // namespace

Result<void> Store::put_provider(const ProviderRecord& record) {
  std::lock_guard lock(mutex_);
  Use use(statements_->put_provider);
  use->bind(1, record.team_id);
  use->bind(2, record.provider);
  use->bind(3, record.config);
  use->bind(4, to_json(record.secrets));
  use->bind(5, to_ns(record.updated_at));
  written_ = true;
  return use->run();
}

Result<std::optional<ProviderRecord>> Store::find_provider(const std::string& team_id,
                                                           const std::string& provider) {
  std::lock_guard lock(mutex_);
  Use use(statements_->find_provider);
  use->bind(1, team_id);
  use->bind(2, provider);
  ATOLL_TRY_ASSIGN(const bool there, use->step());
  if (!there) return std::optional<ProviderRecord>();
  ATOLL_TRY_ASSIGN(ProviderRecord record, read_provider(use));
  return std::optional<ProviderRecord>(std::move(record));
}

Result<std::vector<ProviderRecord>> Store::list_providers(const std::string& team_id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->list_providers);
  use->bind(1, team_id);
  std::vector<ProviderRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return records;
    ATOLL_TRY_ASSIGN(ProviderRecord record, read_provider(use));
    records.push_back(std::move(record));
  }
}

Result<bool> Store::delete_provider(const std::string& team_id, const std::string& provider) {
  std::lock_guard lock(mutex_);
  bool removed = false;
  ATOLL_TRY(in_transaction([&]() -> Result<void> {
    {
      Use use(statements_->delete_provider);
      use->bind(1, team_id);
      use->bind(2, provider);
      ATOLL_TRY(use->run());
      removed = main_.changes() > 0;
    }
    Use use(statements_->clear_active_provider);
    use->bind(1, team_id);
    use->bind(2, provider);
    return use->run();
  }));
  return removed;
}

Result<void> Store::set_active_provider(const std::string& team_id, const std::string& provider) {
  std::lock_guard lock(mutex_);
  Use use(provider.empty() ? statements_->clear_active_provider : statements_->set_active_provider);
  use->bind(1, team_id);
  use->bind(2, provider);
  written_ = true;
  return use->run();
}

Result<std::string> Store::active_provider(const std::string& team_id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->active_provider);
  use->bind(1, team_id);
  ATOLL_TRY_ASSIGN(const bool there, use->step());
  return there ? use->text(0) : std::string();
}

}  // namespace atl::store
