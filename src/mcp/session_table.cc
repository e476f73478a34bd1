#include "mcp/session_table.h"

#include <algorithm>

namespace atl::mcp {
namespace {

constexpr std::size_t kMaxEarly = 64;

}  // namespace

Result<void> McpSession::begin_call(const std::string& id, std::shared_ptr<Stop> stop) {
  const std::scoped_lock lock(mutex_);
  if (calls_.contains(id))
    return make_error(Errc::failed_precondition, "a request with the id " + id + " is under way");
  if (calls_.size() >= kMaxCalls) {
    return make_error(Errc::resource_exhausted,
                      "at most " + std::to_string(kMaxCalls) + " calls of a session at once");
  }
  if (const auto early = std::find(cancelled_early_.begin(), cancelled_early_.end(), id);
      early != cancelled_early_.end()) {
    cancelled_early_.erase(early);
    stop->request();
  }
  if (quiet_) stop->request();
  calls_.emplace(id, std::move(stop));
  return {};
}

void McpSession::end_call(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  calls_.erase(id);
  if (quiet_ && calls_.empty()) quiet_->set();
}

void McpSession::cancel(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  if (const auto call = calls_.find(id); call != calls_.end()) {
    call->second->request();
    return;
  }
  cancelled_early_.push_back(id);
  if (cancelled_early_.size() > kMaxEarly) cancelled_early_.pop_front();
}

std::shared_ptr<engine::Completion> McpSession::cancel_all() {
  const std::scoped_lock lock(mutex_);
  if (!quiet_) quiet_ = std::make_shared<engine::Completion>();
  for (const auto& [id, stop] : calls_) stop->request();
  if (calls_.empty()) quiet_->set();
  return quiet_;
}

bool McpSession::busy() const {
  const std::scoped_lock lock(mutex_);
  return !calls_.empty();
}

void McpSession::mark_used() {
  const std::scoped_lock lock(mutex_);
  used_ = true;
}

bool McpSession::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

void SessionTable::drop_idle() {
  const auto oldest = now_() - limits_.idle;
  std::erase_if(rows_, [&](const auto& row) {
    return row.second.used_at < oldest && !row.second.session->busy();
  });
}

Result<void> SessionTable::add(std::shared_ptr<McpSession> session) {
  const std::scoped_lock lock(mutex_);
  drop_idle();
  const std::string& team = session->setting().caller.team_id;
  std::size_t of_team = 0;
  auto oldest = rows_.end();
  for (auto row = rows_.begin(); row != rows_.end(); ++row) {
    if (row->second.session->setting().caller.team_id != team) continue;
    ++of_team;
    if (row->second.session->busy()) continue;
    if (oldest == rows_.end() || row->second.used_at < oldest->second.used_at) oldest = row;
  }
  if (of_team >= limits_.per_team || rows_.size() >= limits_.all) {
    if (oldest == rows_.end())
      return make_error(Errc::resource_exhausted, "too many MCP sessions; try again later");
    rows_.erase(oldest);
  }
  const std::string id = session->id();
  rows_.insert_or_assign(id, Row{std::move(session), now_()});
  return {};
}

std::shared_ptr<McpSession> SessionTable::find(std::string_view id, std::string_view team) {
  const std::scoped_lock lock(mutex_);
  const auto row = rows_.find(id);
  if (row == rows_.end() || row->second.session->setting().caller.team_id != team) return nullptr;
  if (row->second.used_at < now_() - limits_.idle && !row->second.session->busy()) {
    rows_.erase(row);
    return nullptr;
  }
  row->second.used_at = now_();
  return row->second.session;
}

std::shared_ptr<McpSession> SessionTable::remove(std::string_view id, std::string_view team) {
  const std::scoped_lock lock(mutex_);
  const auto row = rows_.find(id);
  if (row == rows_.end() || row->second.session->setting().caller.team_id != team) return nullptr;
  auto session = std::move(row->second.session);
  rows_.erase(row);
  return session;
}

std::size_t SessionTable::users_of(std::string_view team, std::string_view key) {
  const std::scoped_lock lock(mutex_);
  drop_idle();
  return std::size_t(std::count_if(rows_.begin(), rows_.end(), [&](const auto& row) {
    const Setting& setting = row.second.session->setting();
    return setting.caller.team_id == team && setting.key == key && row.second.session->used();
  }));
}

std::size_t SessionTable::size() {
  const std::scoped_lock lock(mutex_);
  return rows_.size();
}

}  // namespace atl::mcp
