#include "engine/snapshot_table.h"

#include <algorithm>

namespace atl::engine {
namespace {

using store::SnapshotRecord;
using store::SnapshotState;

bool is_listed(const SnapshotRecord& record) {
  return record.state == SnapshotState::ready && !record.internal;
}

std::string_view tag_of(const templates::Reference& reference) {
  return reference.tag.empty() ? std::string_view("default") : std::string_view(reference.tag);
}

// Newest first, equal ones by id.
bool comes_before(const Cursor& a, const Cursor& b) {
  if (a.started_at != b.started_at) return a.started_at > b.started_at;
  return a.id < b.id;
}

}  // namespace

std::string public_id(const SnapshotRecord& record) {
  return (record.alias.empty() ? record.template_id : record.alias) + ":" + record.tag;
}

std::string team_slug(std::string_view name) {
  std::string slug;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (word) {
      slug += c;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "team" : slug;
}

void SnapshotTable::put(SnapshotRecord record) {
  const std::string id = record.id;
  records_.insert_or_assign(id, std::move(record));
}

void SnapshotTable::erase(const std::string& id) { records_.erase(id); }

const SnapshotRecord* SnapshotTable::find(const std::string& id) const {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : &found->second;
}

const SnapshotRecord* SnapshotTable::named(const std::string& team_id, std::string_view alias,
                                           std::string_view tag) const {
  for (const auto& [id, record] : records_) {
    if (is_listed(record) && record.team_id == team_id && record.alias == alias &&
        record.tag == tag)
      return &record;
  }
  return nullptr;
}

const SnapshotRecord* SnapshotTable::resolve(const std::string& team_id, std::string_view slug,
                                             const templates::Reference& reference) const {
  if (!reference.space.empty() && reference.space != slug) return nullptr;
  if (const auto* found = named(team_id, reference.alias, tag_of(reference))) return found;
  if (!reference.space.empty()) return nullptr;
  for (const auto& [id, record] : records_) {
    if (is_listed(record) && record.team_id == team_id && record.template_id == reference.alias &&
        record.tag == tag_of(reference))
      return &record;
  }
  return nullptr;
}

std::string SnapshotTable::template_of(const std::string& team_id, std::string_view alias) const {
  for (const auto& [id, record] : records_) {
    if (!record.internal && record.state != SnapshotState::doomed && record.team_id == team_id &&
        record.alias == alias)
      return record.template_id;
  }
  return {};
}

SnapshotPage SnapshotTable::list(const SnapshotQuery& query) const {
  const auto place = [](const SnapshotRecord& r) { return Cursor{r.created_at, r.id}; };
  SnapshotPage page;
  for (const auto& [id, record] : records_) {
    if (!is_listed(record) || record.team_id != query.team_id) continue;
    if (query.sandbox_id && record.sandbox_id != *query.sandbox_id) continue;
    if (query.name) {
      const bool named = !record.alias.empty() && record.alias == query.name->alias;
      const bool by_template = query.name->space.empty() && record.template_id == query.name->alias;
      if (!named && !by_template) continue;
      if (!query.name->tag.empty() && record.tag != query.name->tag) continue;
    }
    if (query.after && !comes_before(*query.after, place(record))) continue;
    page.items.push_back(record);
  }
  std::sort(page.items.begin(), page.items.end(),
            [&](const auto& a, const auto& b) { return comes_before(place(a), place(b)); });
  if (query.limit > 0 && page.items.size() > query.limit) {
    page.more = true;
    page.items.erase(page.items.begin() + std::ptrdiff_t(query.limit), page.items.end());
  }
  return page;
}

std::size_t SnapshotTable::listed() const {
  return std::size_t(std::count_if(records_.begin(), records_.end(),
                                   [](const auto& entry) { return is_listed(entry.second); }));
}

SnapshotTable::Pin SnapshotTable::pin(const std::string& id) {
  Pin pin = pins_[id].lock();
  if (!pin) pins_[id] = pin = std::make_shared<const int>(0);
  return pin;
}

std::vector<std::string> SnapshotTable::garbage(const std::set<std::string>& used) const {
  std::erase_if(pins_, [](const auto& pin) { return pin.second.expired(); });
  std::vector<const SnapshotRecord*> all;
  for (const auto& [id, record] : records_) {
    const bool unnamed = record.state == SnapshotState::doomed ||
                         (record.state == SnapshotState::ready && record.internal);
    if (unnamed && !used.contains(id) && !pins_.contains(id)) all.push_back(&record);
  }
  std::sort(all.begin(), all.end(),
            [](const auto* a, const auto* b) { return a->created_at > b->created_at; });
  std::vector<std::string> ids;
  for (const SnapshotRecord* record : all) ids.push_back(record->id);
  return ids;
}

}  // namespace atl::engine
