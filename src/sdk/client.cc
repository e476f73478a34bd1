#include <atoll/client.h>

#include "sdk/core.h"
#include "sdk/embedded.h"

namespace atl::sdk {
namespace {

Result<Client> client_of(atl::Result<client::Account> account,
                         std::unique_ptr<Child> child = nullptr) {
  if (!account.ok()) return public_error(account.error());
  return Client(std::make_shared<Core>(std::move(*account), std::move(child)));
}

}  // namespace

Client::Client(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Result<Client> Client::connect(const std::string& url, const std::string& api_key) {
  return client_of(client::account_at(url, api_key));
}

Result<Client> Client::from_environment() { return client_of(client::account_from_environment()); }

Result<Client> Client::e2b(const std::string& api_key) {
  return client_of(client::account_of_e2b(api_key));
}

Result<Client> Client::embedded(const EmbeddedOptions& options) {
  auto child = Child::start(options);
  if (!child.ok()) return public_error(child.error());
  auto account = client::account_at((*child)->url(), (*child)->key());
  return client_of(std::move(account), std::move(*child));
}

std::string Client::url() const { return core_->account().api.url(); }

}  // namespace atl::sdk
