#include "providers/registry.h"

namespace atl::providers {

std::span<const Kind> all_kinds() {
  static const Kind kKinds[] = {
      local_kind(), atoll_kind(), e2b_kind(), executor_manager_kind(), aliyun_kind(),
  };
  return kKinds;
}

Result<const Kind*> find_kind(std::string_view id) {
  std::string all;
  for (const Kind& kind : all_kinds()) {
    if (kind.id == id) return &kind;
    all += (all.empty() ? "" : ", ") + std::string(kind.id);
  }
  return make_error(Errc::not_found,
                    "there is no provider '" + std::string(id) + "'; there are " + all);
}

Result<json::object> validate(const Kind& kind, const json::object& config) {
  ATOLL_TRY_ASSIGN(json::object completed, complete(kind.schema, config));
  if (kind.check != nullptr) {
    ATOLL_TRY(kind.check(completed));
  }
  return completed;
}

}  // namespace atl::providers
